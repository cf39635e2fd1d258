// With #selftest in the address: walks through all steps and back, and says in the title whether every graph holds.
"use strict";

class SelfTest {
    constructor(page) {
        this.page = page;
        this.history = page.history;
        this.faults = [];
    }

    run() {
        const {history} = this;
        try {
            this.fits();
            this.walk();
            this.layouts();
            this.controls();
        } catch (e) {
            this.faults.push(`threw ${e && e.stack || e}`);
        }
        const verdict = {ok: !this.faults.length, faults: this.faults.slice(0, 20), steps: history.steps.length,
                         nodes: history.totals[0].nodes, nodesAfter: history.totals[history.steps.length].nodes,
                         unplaced: history.steps.filter(s => s.unplaced).length, titles: document.title,
                         width: innerWidth, scripts: document.scripts.length, longestLayout: Math.round(this.longest)};
        const out = element("pre", JSON.stringify(verdict));
        out.id = "verdict";
        document.body.append(out);
        document.title = verdict.ok ? "selftest ok" : "selftest FAILED";
    }

    expect(holds, text) {
        if (!holds) this.faults.push(text());
    }

    // Nothing reaches past the window's sides, and what is below its end can be scrolled to.
    fits() {
        const past = [...document.querySelectorAll("#top *, .pane .head *, #filters *, #transport *")].filter(e => {
            const box = e.getBoundingClientRect();
            return box.width && (box.right > innerWidth + 1 || box.left < -1);
        });
        this.expect(!past.length, () => `at ${innerWidth} pixels, clipped: ${past.map(e => e.id || e.className || e.textContent).slice(0, 5)}`);
        const below = byId("transport").getBoundingClientRect().bottom > innerHeight + 1;
        this.expect(!below || getComputedStyle(document.body).overflowY !== "hidden", () => "the bar below is out of reach");
    }

    // Forward to the graph that came out, and back to the one that went in; no value is used that is not there.
    walk() {
        const {history} = this, cursor = history.cursor(0), last = history.steps.length;
        for (let k = 0; k <= last; ++k) {
            cursor.go(k);
            let nodes = 0;
            for (const item of cursor.items()) {
                const v = cursor.at(item);
                if (v.kind === Kind.Op) ++nodes;
                for (const r of v.inputs)
                    this.expect(!r || history.steps[k - 1]?.unplaced || cursor.nameOf(r) !== "?", () => `step ${k}: ${cursor.text(item)} uses what is not there`);
            }
            this.expect(nodes === history.totals[k].nodes, () => `step ${k}: counts ${nodes} nodes`);
        }
        const texts = [...cursor.items()].filter(i => cursor.at(i).kind === Kind.Op).map(i => cursor.text(i)).sort();
        const wanted = [...history.data.after].sort();
        this.expect(texts.length === wanted.length && texts.every((t, i) => t === wanted[i]), () => {
            const at = texts.findIndex((t, i) => t !== wanted[i]);
            return `the last graph is another one: ${texts[at]} instead of ${wanted[at]}`;
        });
        cursor.go(0);
        this.expect(cursor.state.every((v, i) => v === history.first[i]), () => "going back ends elsewhere");
    }

    // Boxes apart, and below what they use.
    layouts() {
        const {history, page} = this, last = history.steps.length, tried = new Set([0, last]);
        for (let i = 1; i < 10; ++i) tried.add(Math.round(last * i / 10));
        this.longest = 0;
        for (const k of tried) {
            page.layouts.kept.clear();
            const began = performance.now(), layout = page.layouts.at(k), cursor = history.cursor(k);
            this.longest = Math.max(this.longest, performance.now() - began);
            this.expect(layout.boxes.length === [...cursor.items()].length, () => `layout ${k}: lacks boxes`);
            this.expect(layout.boxes.every(b => Number.isFinite(b.x + b.y) && b.x >= -1e-6 && b.x + b.w <= layout.width + 1e-6),
                        () => `layout ${k}: a box is outside`);
            for (const row of layout.rows)
                for (let i = 1; i < row.length; ++i)
                    this.expect(row[i].x >= row[i - 1].x + row[i - 1].w - 1e-6, () => `layout ${k}: boxes overlap`);
            for (const box of layout.boxes)
                for (const r of cursor.at(box.item).inputs) {
                    const from = r && layout.byItem.get(r.item);
                    this.expect(!from || from.y < box.y, () => `layout ${k}: ${cursor.text(box.item)} is not below its input`);
                }
        }
    }

    // What a user presses, through the page's own elements.
    controls() {
        const {page, history} = this, last = history.steps.length;
        page.still = true;
        const press = (key, init) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, ...init}));
        const at = k => this.expect(page.step === k && page.panes[1].cursor.step === k, () => `is at step ${page.step}, not ${k}`);
        press("Home"); at(0);
        press("ArrowRight"); at(Math.min(1, last));
        press("ArrowLeft"); at(0);
        press("ArrowRight", {shiftKey: true}); at(Math.min(10, last));
        byId("to-last").click(); at(last);
        byId("to-previous").click(); at(Math.max(0, last - 1));
        byId("to-next").click(); at(last);
        press("c");
        this.expect(page.look.cost === "bytes", () => "the key c does not switch the cost");
        press("c");
        const rows = document.querySelectorAll("#list .row").length;
        this.expect(rows === Math.min(rows, last) && (rows > 0 || last === 0), () => "the list is empty");
        this.expect(rows < 200, () => `the list has ${rows} rows at once`);
        for (let k = 0; k <= last; k += Math.max(1, Math.ceil(last / 50))) page.go(k);
        page.still = false;
        for (const k of [last, Math.max(0, last - 1), 0]) {
            page.go(k);
            for (const later of [0, 90, 400])
                for (const pane of page.panes) new Drawing(pane, performance.now() + later).draw();
        }
        this.expect(page.panes.every(p => !p.motion && Number.isFinite(p.camera.x * p.camera.y * p.camera.scale)),
                    () => "the camera is lost");
        const item = page.panes[1].layout.boxes.length ? page.panes[1].layout.boxes[0].item : -1;
        page.pick(item, page.panes[1]);
        this.expect(item < 0 || byId("details-body").querySelector("h3"), () => "a node has no details");
        byId("find").value = "e";
        byId("find").dispatchEvent(new Event("input"));
        this.expect(page.panes[1].found !== null, () => "finding finds nothing");
        byId("find").value = "";
        byId("find").dispatchEvent(new Event("input"));
        page.go(last);
    }
}

if (location.hash === "#selftest") addEventListener("load", () => new SelfTest(page).run());
