// Puts the page together: both graphs, the list, the details, and the controls that step through the rewrites.
"use strict";

const byId = id => document.getElementById(id);

class Page {
    constructor(data) {
        this.history = new History(data);
        this.last = this.history.steps.length;
        this.look = new Look(this.history);
        this.layouts = new Layouts(this.history, this.look);
        this.step = this.last;
        this.left = "first";     // or "previous": the graph before this step
        this.leftChosen = false;
        this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
        const handlers = {
            moved: (pane, ...how) => this.panes.forEach(p => p.move(...how)),
            picked: (pane, item) => this.pick(item, pane),
            centred: (pane, item) => this.centre(item),
            entered: (pane, item, x, y) => this.#hover(pane, item, x, y),
        };
        this.panes = ["pane-left", "pane-right"].map(id => new Pane(byId(id), this.history, this.look, this.layouts, handlers));
        this.list = new RewriteList(this.history, k => this.go(k));
        this.details = new Details(this.history, this.look, {
            step: k => this.go(k),
            node: item => {
                this.pick(item, this.panes[1].cursor.at(item) ? this.panes[1] : this.panes[0]);
                this.centre(item);
            },
        });
        const title = data.title || data.graph || "model";
        document.title = `${shown(title)} – Tessera report`;
        byId("title").textContent = shown(title);
        fillSummary(this.history, this.look);
        this.#controls();
        this.#keys();
        this.#resizing();
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#recolour());
        this.#fromAddress();
        addEventListener("hashchange", () => this.#fromAddress());
    }

    // ---- steps

    // Goes to the graph after step k, and there to what the step did.
    go(k, {focus = true, left, animate = true} = {}) {
        k = Math.max(0, Math.min(this.last, k));
        const moved = k !== this.step;
        this.step = k;
        if (left) this.left = left;
        else if (moved && !this.leftChosen) this.left = k ? "previous" : "first";
        this.refresh(focus && k > 0, animate && !this.still);
    }

    refresh(focus, animate) {
        const k = this.step, effect = this.history.effect(k), [left, right] = this.panes;
        const before = this.left === "previous" ? Math.max(0, k - 1) : 0;
        const marks = (added, removed, changed) => ({added: new Set(added), removed: new Set(removed), changed: new Set(changed)});
        const empty = marks([], [], []), stepping = this.left === "previous" || k < this.last || this.leftChosen;
        let old = [...effect.removed, ...effect.changed];
        let leftMarks = marks([], effect.removed, effect.changed);
        if (this.left === "first") {
            const origins = new Set();
            for (const item of [...effect.removed, ...effect.added, ...effect.changed])
                for (const origin of this.history.origins(item)) origins.add(origin);
            old = [...origins];
            leftMarks = marks([], [], old);
        }
        left.show(before, stepping ? leftMarks : empty, animate);
        right.show(k, stepping ? marks(effect.added, [], effect.changed) : empty, animate);
        const small = list => list.length <= 200 ? list : [];
        const now = effect.added.length ? effect.added : effect.changed.length ? effect.changed : this.#around(effect.removed);
        if (focus) {
            const [there, here] = [small(old), small(now)], scale = Math.min(left.scaleFor(there), right.scaleFor(here));
            left.lookAt(there, scale);
            right.lookAt(here, scale);
        }
        this.list.select(k);
        this.details.setStep(k, !this.ready && k === this.last);
        this.#showState(before);
        this.#refind();
    }

    // What stood around items that are gone.
    #around(items) {
        const before = this.history.cursor(this.step - 1), near = [];
        for (const item of items) {
            const v = before.at(item);
            for (const r of v ? v.inputs : []) if (r && this.panes[1].cursor.state[r.item] >= 0) near.push(r.item);
        }
        return near;
    }

    #showState(before) {
        const k = this.step, {totals} = this.history;
        byId("slider").value = k;
        byId("slider").setAttribute("aria-valuetext", `step ${k} of ${this.last}`);
        byId("position").textContent = `${Numbers[""](k)} / ${Numbers[""](this.last)}`;
        byId("right-title").textContent = k === this.last ? "After" : k === 0 ? "Before the first step" : `After step ${Numbers[""](k)}`;
        const nodes = n => `${Numbers[""](n)} nodes`;
        document.querySelector("#pane-left .count").textContent = nodes(totals[before].nodes);
        document.querySelector("#pane-right .count").textContent = nodes(totals[k].nodes);
        for (const b of document.querySelectorAll("[data-left]"))
            b.setAttribute("aria-checked", b.dataset.left === this.left);
        const rows = [["nodes", "nodes", Numbers[""]], ["FLOPs", "flops", Numbers.count], ["bytes moved", "bytes", Numbers.bytes]];
        byId("totals").replaceChildren(...rows.map(([label, key, number]) => {
            const [from, to] = [totals[0][key], totals[k][key]];
            return element("div", [element("dt", label), element("dd", [
                element("span.quiet", number(from)), element("span.arrow", "→"), element("b", number(to)), change(from, to)])]);
        }), this.history.data.sizes && element("div.sizes", element("bdi", clipped(shown(this.history.data.sizes), 80))));
        this.#drawCurve();
        if (this.ready) {
            try {
                history.replaceState(null, "", `#step=${k}`);
            } catch {
                // Where the address cannot be changed it stays.
            }
        }
    }

    // ---- nodes

    pick(item, pane) {
        for (const p of this.panes) {
            p.selected = item;
            p.invalidate();
        }
        this.details.setNode(item, pane.cursor);
    }

    centre(item) {
        const [left, right] = this.panes, origins = [...this.history.origins(item)];
        if (right.layout.byItem.has(item)) right.lookAt([item]);
        if (left.layout.byItem.has(item)) left.lookAt([item]);
        else if (origins.length && origins.length < 100) left.lookAt(origins);
    }

    #hover(pane, item, x, y) {
        const tip = byId("tip");
        for (const p of this.panes)
            if (p.hovered !== item) {
                p.hovered = item;
                p.invalidate();
            }
        const v = item >= 0 ? pane.cursor.at(item) : null;
        tip.hidden = !v;
        if (!v) return;
        const lines = [element("b", this.look.kindName(v)),
                       element("bdi.name", clipped(shown(v.name || v.outputs[0]), 90)),
                       ...v.types.slice(0, 3).map(t => element("bdi.type", clipped(shown(t), 90)))];
        if (v.attrs) lines.push(element("bdi.quiet", clipped(shown(v.attrs), 120)));
        if (v.kind === Kind.Op)
            for (const cost of ["flops", "bytes"])
                if (v[cost] !== null) lines.push(element("span.quiet", `${Costs[cost].label}: ${Costs[cost].number(v[cost])}`));
        const touched = this.history.touched[item].length;
        lines.push(element("span.quiet", touched ? `touched by ${touched} ${touched > 1 ? "steps" : "step"}` : "never touched"));
        tip.replaceChildren(...lines);
        const {width, height} = tip.getBoundingClientRect();
        tip.style.left = `${Math.min(x + 14, innerWidth - width - 8)}px`;
        tip.style.top = `${y + height + 24 > innerHeight ? y - height - 10 : y + 16}px`;
    }

    // ---- finding

    #refind() {
        const words = byId("find").value.toLowerCase().split(/\s+/).filter(w => w);
        for (const pane of this.panes) {
            pane.found = words.length ? new Set() : null;
            for (const item of words.length ? pane.cursor.items() : []) {
                const v = pane.cursor.at(item);
                const text = [v.op, this.look.opName(v), v.name, v.attrs, v.scope, ...v.outputs, ...v.types].join(" ").toLowerCase();
                if (words.every(w => text.includes(w))) pane.found.add(item);
            }
            pane.invalidate();
        }
        const found = this.panes[1].found;
        byId("found").textContent = found ? `${Numbers[""](found.size)}` : "";
    }

    #findNext(by) {
        const pane = this.panes[1].found && this.panes[1].found.size ? this.panes[1] : this.panes[0];
        if (!pane.found || !pane.found.size) return;
        const items = pane.layout.boxes.filter(b => pane.found.has(b.item)).sort((a, b) => a.y - b.y || a.x - b.x).map(b => b.item);
        const at = items.indexOf(pane.selected), next = at < 0 ? (by > 0 ? 0 : items.length - 1) : (at + by + items.length) % items.length;
        this.pick(items[next], pane);
        this.centre(items[next]);
        byId("found").textContent = `${next + 1} / ${items.length}`;
    }

    // ---- controls

    #controls() {
        const on = (id, event, f) => byId(id).addEventListener(event, f);
        byId("slider").max = this.last;
        let wanted = -1;
        on("slider", "input", () => {
            if (wanted < 0) requestAnimationFrame(() => {
                this.go(wanted);
                wanted = -1;
            });
            wanted = Number(byId("slider").value);
        });
        on("to-first", "click", () => this.go(0));
        on("to-last", "click", () => this.go(this.last));
        on("to-previous", "click", () => this.go(this.list.following(this.step, -1)));
        on("to-next", "click", () => this.go(this.list.following(this.step, 1)));
        on("play", "click", () => this.play(!this.playing));
        on("find", "input", () => this.#refind());
        on("find", "keydown", e => { if (e.key === "Enter") this.#findNext(e.shiftKey ? -1 : 1); });
        on("open-summary", "click", () => byId("summary").showModal());
        on("open-help", "click", () => byId("help").showModal());
        for (const dialog of document.querySelectorAll("dialog"))
            dialog.addEventListener("click", e => { if (e.target === dialog) dialog.close(); });
        for (const b of document.querySelectorAll("[data-cost]")) b.addEventListener("click", () => this.colourBy(b.dataset.cost));
        for (const b of document.querySelectorAll("[data-left]"))
            b.addEventListener("click", () => {
                this.leftChosen = b.dataset.left === "first";
                this.go(this.step, {left: b.dataset.left, focus: b.dataset.left === "previous"});
            });
        this.panes.forEach((pane, i) => document.querySelectorAll(".fit")[i].addEventListener("click", () => pane.fit()));
        new ResizeObserver(() => this.#drawCurve()).observe(byId("track"));
        this.colourBy("flops");
    }

    play(on) {
        clearTimeout(this.timer);
        if (on && this.step === this.last) this.go(0);
        this.playing = on;
        byId("play").classList.toggle("playing", on);
        byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
        if (!on) return;
        const tick = () => {
            const next = this.list.following(this.step, 1);
            if (next === this.step || next > this.last) return this.play(false);
            this.go(next);
            this.timer = setTimeout(tick, 1000 / Number(byId("speed").value));
        };
        this.timer = setTimeout(tick, 350);
    }

    colourBy(cost) {
        this.look.cost = cost;
        for (const b of document.querySelectorAll("[data-cost]")) b.setAttribute("aria-checked", b.dataset.cost === cost);
        this.#recolour();
    }

    #recolour() {
        this.look.read();
        const {most} = this.look, {label, number} = Costs[this.look.cost], top = most[this.look.cost];
        const ramp = element("div.ramp"), levels = [0, 0.2, 0.4, 0.6, 0.8, 1];
        ramp.style.background = `linear-gradient(90deg, ${levels.map(l => this.look.heat(l).fill).join(",")})`;
        byId("legend").replaceChildren(ramp, element("div.ends", [
            element("span", top ? `≤ ${number(top / 1e5)}` : "0"), element("span", number(top))]));
        byId("legend").setAttribute("aria-label", `${label} of a node, by colour, up to ${number(top)}`);
        byId("legend").title = `${label} of a node, by order of magnitude. Plain: none. Dashed: not all of it is counted.`;
        for (const pane of this.panes) {
            pane.strip = null;
            pane.invalidate();
        }
        this.#drawCurve();
    }

    // How many nodes there are after each step, behind the slider.
    #drawCurve() {
        const canvas = byId("curve"), {clientWidth: w, clientHeight: h} = canvas, ratio = window.devicePixelRatio || 1;
        if (!w) return;
        canvas.width = w * ratio;
        canvas.height = h * ratio;
        const g = canvas.getContext("2d"), {totals} = this.history, most = totals.reduce((m, t) => Math.max(m, t.nodes), 1);
        const x = k => this.last ? k / this.last * w : w, y = k => h - 2 - totals[k].nodes / most * (h - 6);
        g.scale(ratio, ratio);
        const area = to => {
            g.beginPath();
            g.moveTo(0, h);
            for (let k = 0; k <= to; ++k) g.lineTo(x(k), y(k));
            g.lineTo(x(to), h);
            g.fill();
        };
        g.fillStyle = this.look.colours.line;
        area(this.last);
        g.fillStyle = this.look.colours.accent;
        g.globalAlpha = 0.35;
        area(this.step);
    }

    #keys() {
        addEventListener("keydown", e => {
            if (e.ctrlKey || e.metaKey || e.altKey) return;
            const typing = e.target.closest && e.target.closest("input:not([type=range]), select, dialog");
            if (e.key === "Escape" && typing && e.target.value !== undefined) return e.target.blur();
            if (typing) return;
            const zoom = by => this.panes.forEach(p => p.move(0, 0, by));
            const actions = {
                ArrowRight: () => this.go(e.shiftKey ? this.step + 10 : this.list.following(this.step, 1)),
                ArrowLeft: () => this.go(e.shiftKey ? this.step - 10 : this.list.following(this.step, -1)),
                ArrowDown: () => e.target.id === "list" && this.go(this.list.following(this.step, 1)),
                ArrowUp: () => e.target.id === "list" && this.go(this.list.following(this.step, -1)),
                Home: () => this.go(0), End: () => this.go(this.last), " ": () => this.play(!this.playing),
                "/": () => byId("find").focus(), f: () => this.panes.forEach(p => p.fit()),
                g: () => this.go(this.step), c: () => this.colourBy(this.look.cost === "flops" ? "bytes" : "flops"),
                s: () => byId("summary").showModal(), "?": () => byId("help").showModal(),
                "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8),
                Escape: () => this.pick(-1, this.panes[1]),
            };
            if (e.key === " " && e.target.tagName === "BUTTON") return;
            if (!Object.hasOwn(actions, e.key)) return;
            if (actions[e.key]() !== false) e.preventDefault();
        });
    }

    #resizing() {
        const grip = byId("grip");
        grip.addEventListener("pointerdown", e => grip.setPointerCapture(e.pointerId));
        grip.addEventListener("pointermove", e => {
            if (!grip.hasPointerCapture(e.pointerId)) return;
            byId("main").style.setProperty("--side", `${Math.max(220, Math.min(innerWidth * 0.5, e.clientX))}px`);
        });
    }

    // #step=12&node=3&find=conv&cost=bytes; what is not there stays as it is.
    #fromAddress() {
        const asked = new URLSearchParams(location.hash.slice(1));
        if (asked.has("cost") && Object.hasOwn(Costs, asked.get("cost"))) this.colourBy(asked.get("cost"));
        if (asked.has("find")) byId("find").value = asked.get("find");
        const step = Number.parseInt(asked.get("step"), 10);
        const first = !this.ready;
        this.ready = false;
        if (Number.isFinite(step) && (first ? step !== this.last : step !== this.step)) {
            if (first) this.refresh(false, false);
            this.go(step, {animate: !first});
        } else if (first) {
            this.refresh(false, false);
        }
        const node = Number.parseInt(asked.get("node"), 10), pane = this.panes.findLast(p => p.layout.byItem.has(node));
        if (pane) {
            this.pick(node, pane);
            this.centre(node);
        }
        if (asked.has("fit")) this.panes.forEach(p => p.fit());
        this.ready = true;
    }
}

const page = new Page(JSON.parse(byId("data").textContent));
