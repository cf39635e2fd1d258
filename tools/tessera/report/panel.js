// What stands beside the graphs: the list of rewrites, of which only the visible rows exist; the details of a step and
// of a node; the summary. Names are anyone's: texts go in as text, never as markup.
"use strict";

// element("td.number", "12") or element("p", ["See ", element("b", "this")])
function element(tag, content, handler) {
    const [name, ...classes] = tag.split("."), e = document.createElement(name);
    if (classes.length) e.className = classes.join(" ");
    for (const part of Array.isArray(content) ? content : [content])
        if (part !== undefined && part !== null && part !== "") e.append(part);
    if (handler) {
        e.addEventListener("click", handler);
        if (name === "button") e.type = "button";
    }
    return e;
}

const code = text => element("code", element("bdi", shown(text)));

class RewriteList {
    constructor(history, choose) {
        this.history = history;
        this.choose = choose;
        this.box = document.getElementById("list");
        this.space = document.getElementById("list-space");
        this.count = document.getElementById("rewrite-count");
        this.rowHeight = 46;
        this.rows = history.steps;
        this.current = 0;
        this.#filters();
        this.box.addEventListener("scroll", () => this.render());
        new ResizeObserver(() => this.render()).observe(this.box);
        this.filter();
    }

    #filters() {
        const texts = document.getElementById("filter"), pass = document.getElementById("filter-pass");
        const exactness = document.getElementById("filter-class");
        const options = (select, all, values) => {
            const count = new Map();
            for (const value of values) if (value) count.set(value, (count.get(value) || 0) + 1);
            select.append(new Option(all, ""));
            for (const [value, n] of count) select.append(new Option(`${value} (${n})`, value));
        };
        options(pass, "All passes", this.history.steps.map(s => s.pass));
        options(exactness, "All classes", this.history.steps.map(s => s.exactness));
        this.inputs = {texts, pass, exactness};
        for (const input of Object.values(this.inputs)) input.addEventListener("input", () => this.filter());
        this.texts = this.history.steps.map(s => `${s.rule || ""} ${s.pass} ${s.where} ${s.why}`.toLowerCase());
    }

    filter() {
        const words = this.inputs.texts.value.toLowerCase().split(/\s+/).filter(w => w);
        const pass = this.inputs.pass.value, exactness = this.inputs.exactness.value;
        this.rows = this.history.steps.filter((s, i) => (!pass || s.pass === pass) &&
            (!exactness || s.exactness === exactness) && words.every(w => this.texts[i].includes(w)));
        const all = this.history.steps.length;
        const [some, steps] = [Numbers[""](this.rows.length), `${Numbers[""](all)} step${all === 1 ? "" : "s"}`];
        this.count.textContent = this.filtered ? `${some} of ${steps}` : steps;
        this.space.style.height = `${Math.max(this.rowHeight, this.rows.length * this.rowHeight)}px`;
        this.box.scrollTop = 0;
        this.select(this.current);
    }

    get filtered() {
        return this.rows.length !== this.history.steps.length;
    }

    // The next step of those in the list, from k on in a direction.
    following(k, by) {
        if (!this.filtered) return k + by;
        const after = by > 0 ? this.rows.find(s => s.number > k) : this.rows.findLast(s => s.number < k);
        return after ? after.number : k;
    }

    select(k) {
        this.current = k;
        const index = this.rows.findIndex(s => s.number === k), y = index * this.rowHeight;
        if (index >= 0 && (y < this.box.scrollTop || y + this.rowHeight > this.box.scrollTop + this.box.clientHeight))
            this.box.scrollTop = Math.max(0, y - this.box.clientHeight / 2 + this.rowHeight / 2);
        this.render();
    }

    render() {
        const first = Math.max(0, Math.floor(this.box.scrollTop / this.rowHeight) - 4);
        const last = Math.min(this.rows.length, first + Math.ceil(this.box.clientHeight / this.rowHeight) + 8);
        const shownRows = [];
        for (let i = first; i < last; ++i) shownRows.push(this.#row(this.rows[i], i));
        if (!this.rows.length)
            shownRows.push(element("p.empty", this.history.steps.length ? "No rewrite fits." : "Nothing was rewritten."));
        this.space.replaceChildren(...shownRows);
    }

    #row(step, index) {
        const row = element("div.row", [
            element("span.number", Numbers[""](step.number)),
            element("span.what", [
                element("span.rule", element("bdi", step.rule === null ? `after ${step.pass}` : shown(step.rule))),
                element("span.where", element("bdi", shown(step.where))),
            ]),
            element("span.tag", step.pass),
        ], () => this.choose(step.number));
        row.setAttribute("role", "option");
        row.setAttribute("aria-selected", step.number === this.current);
        row.id = `row-${step.number}`;
        row.style.top = `${index * this.rowHeight}px`;
        row.title = shown(step.where);
        if (step.exactness) row.dataset.exactness = step.exactness;
        if (step.rule === null) row.classList.add("rest");
        if (step.number === this.current) this.box.setAttribute("aria-activedescendant", row.id);
        return row;
    }
}

class Details {
    constructor(history, look, handlers) {
        this.history = history;
        this.look = look;
        this.handlers = handlers;  // step(k), node(item)
        this.body = document.getElementById("details-body");
        this.before = history.cursor(0);
        this.after = history.cursor(0);
        this.tab = "step";
        this.step = 0;
        this.item = -1;
        for (const tab of ["step", "node"])
            document.getElementById(`tab-${tab}`).addEventListener("click", () => this.open(tab));
    }

    open(tab) {
        this.tab = tab;
        this.render();
    }

    // `all`: of the whole way to there.
    setStep(k, all = false) {
        this.step = k;
        this.all = all;
        this.before.go(Math.max(0, k - 1));
        this.after.go(k);
        this.render();
    }

    setNode(item, cursor) {
        this.item = item;
        this.cursor = cursor;
        this.tab = item >= 0 ? "node" : "step";
        this.render();
    }

    render() {
        for (const tab of ["step", "node"])
            document.getElementById(`tab-${tab}`).setAttribute("aria-selected", tab === this.tab);
        const parts = this.tab === "step" ? this.#stepParts() : this.#nodeParts();
        this.body.replaceChildren(...parts.filter(p => p));
    }

    // ---- a step

    #stepParts() {
        const {step: k, history} = this;
        if (!history.steps.length) return [element("p.quiet", "No rewrite applied: the graph is as it came.")];
        if (!k || this.all) return [
            element("p", this.all ? "The graph as it came on the left, as it is after all rewrites on the right."
                                  : "The graph as it came."),
            element("p.quiet", "Step forward and back with the arrow keys, or choose a rewrite in the list."),
            costTable(history.data.summary)];
        const step = history.steps[k - 1], effect = history.effect(k);
        const rule = step.rule !== null && Object.hasOwn(history.data.rules, step.rule) ? history.data.rules[step.rule] : null;
        const pass = history.data.passes.find(p => p.name === step.pass);
        const facts = element("dl.facts", []);
        const fact = (name, value) => value && facts.append(element("dt", name), element("dd", value));
        fact("pass", [step.pass, pass ? element("span.quiet", ` ${pass.purpose}`) : ""]);
        fact("where", step.where && code(step.where));
        fact("written in", rule && code(rule.source));
        return [
            element("h3", [step.rule === null ? step.where : element("bdi", shown(step.rule)),
                           step.exactness ? this.#badge(step.exactness) : ""]),
            step.why && !(pass && pass.purpose === step.why) && element("p.why", element("bdi", shown(step.why))),
            facts,
            rule && element("pre.rule", element("bdi", shown(rule.text))),
            step.unplaced && this.#unplaced(step.unplaced),
            ...this.#textParts(effect),
        ];
    }

    #badge(exactness) {
        const badge = element("span.badge", exactness);
        badge.dataset.exactness = exactness;
        badge.title = Exactness[exactness] || "";
        return badge;
    }

    #unplaced({removed, added}) {
        return element("div.note", [
            element("p", "Not all of this record could be placed in the graph, which is exact again after the pass. It says:"),
            ...removed.map(text => element("div.text.removed", code(text))),
            ...added.map(text => element("div.text.added", code(text))),
        ]);
    }

    // Before and after as texts. What only reads another value than before is not the rewrite itself.
    #textParts({added, removed, changed}) {
        const line = (cursor, item, mark) => element(`button.text.${mark}`, code(cursor.text(item)), () => this.handlers.node(item));
        const main = added.length || removed.length ? [] : changed, rest = main.length ? [] : changed;
        const short = (title, items, make) => {
            const shownItems = items.slice(0, 40);
            return items.length && [element("h4", title), ...shownItems.map(make),
                                    items.length > shownItems.length && element("p.quiet", `and ${items.length - 40} more`)];
        };
        return [
            ...short("before", [...removed, ...main], item => line(this.before, item, "removed")) || [],
            ...short("after", [...added, ...main], item => line(this.after, item, "added")) || [],
            ...short("in its place", this.#standIns(removed, added, changed), text => element("div.text.added", code(text))) || [],
            ...!added.length && !removed.length && !changed.length ? this.#onlyConstants() : [],
            ...short("so that", rest, item => line(this.after, item, "changed")) || [],
        ];
    }

    #onlyConstants() {
        const lines = this.history.steps[this.step - 1].replaced.slice(0, 40);
        return [element("p.note", "It concerns constants only, which are not drawn."),
                ...lines.map(([from, to]) => element("div.text.added", code(to ? `${from} is now ${to}` : `${from} goes`)))];
    }

    // Values that were there already, or are constants, and stand for what went.
    #standIns(removed, added, changed) {
        const found = new Map(), gone = new Set(removed), fresh = new Set(added);
        for (const user of changed) {
            const [was, is] = [this.before.at(user).inputs, this.after.at(user).inputs];
            was.forEach((r, i) => {
                const now = is[i];
                if (!r || !now || !gone.has(r.item) || fresh.has(now.item) || was.length !== is.length) return;
                const type = this.after.typeOf(now), constant = this.after.at(now.item)?.kind === Kind.Constant;
                const text = `${this.before.nameOf(r)} is now ${this.after.nameOf(now)}`;
                found.set(text, constant && type ? `${text}: ${type}` : text);
            });
        }
        return [...found.values()];
    }

    // ---- a node

    #nodeParts() {
        const {item} = this;
        if (item < 0) return [element("p.quiet", "Click a node in one of the graphs.")];
        const cursor = this.cursor.at(item) ? this.cursor : this.#lastWith(item), v = cursor.at(item);
        if (!v) return [element("p.quiet", "This node is not in the graph at this step.")];
        const title = this.look.kindName(v);
        return [
            element("h3", [title, v.kind === Kind.Op && v.op !== title ? element("span.quiet.small", v.op) : ""]),
            v.name && element("p.name", code(v.name)),
            v.scope && element("p.quiet", ["in ", code(v.scope)]),
            ...this.#costs(v),
            ...this.#attributes(v),
            ...this.#values("inputs", v.inputs.map(r => [r, r ? cursor.nameOf(r) : "not given", cursor.typeOf(r),
                                                        r && cursor.at(r.item) && cursor.at(r.item).kind])),
            ...this.#values("outputs", v.kind === Kind.Output ? []
                : v.outputs.map((name, i) => [null, name, v.types[i], v.kind])),
            ...this.#users(cursor, item),
            ...this.#touched(item),
        ];
    }

    #lastWith(item) {
        const steps = this.history.touched[item], cursor = this.history.cursor(steps.length ? steps[steps.length - 1] - 1 : 0);
        return cursor;
    }

    #costs(v) {
        if (v.kind !== Kind.Op) return [];
        const totals = this.history.totals[this.step], facts = element("dl.facts", []);
        for (const cost of ["flops", "bytes"]) {
            const {label, number} = Costs[cost], n = v[cost];
            const share = n && totals[cost] ? `  ${(100 * n / totals[cost]).toPrecision(2)} % of the graph` : "";
            facts.append(element("dt", label), element("dd", [
                n === null ? "not counted" : (v.complete ? "" : "at least ") + number(n), element("span.quiet", share),
                v[`${cost}Formula`] && element("div", code(v[`${cost}Formula`]))]));
        }
        return [facts];
    }

    #attributes(v) {
        return v.attrs ? [element("h4", "attributes"), element("div.text", code(v.attrs))] : [];
    }

    #values(title, values) {
        if (!values.length) return [];
        const rows = values.slice(0, 60).map(([ref, name, type, kind]) => {
            const drawn = ref && kind !== Kind.Constant;
            const what = drawn ? element("button.link", code(name), () => this.handlers.node(ref.item)) : code(name);
            return element("tr", element("td", [what, element("div.type", [
                kind === Kind.Constant ? "constant " : "", element("bdi", shown(type || ""))])]));
        });
        const more = values.length - rows.length;
        return [element("h4", title), element("table.values", element("tbody", rows)),
                more > 0 && element("p.quiet", `and ${more} more`)];
    }

    #users(cursor, item) {
        const users = cursor.users(item);
        if (!users.length) return [];
        const links = users.slice(0, 30).map(user => element("button.link", code(this.look.label(cursor.at(user)).main),
                                                             () => this.handlers.node(user)));
        return [element("h4", "used by"),
                element("p.links", [...links, users.length > 30 ? element("span.quiet", `and ${users.length - 30} more`) : ""])];
    }

    #touched(item) {
        const {history} = this, steps = history.touched[item];
        if (!steps.length) return [element("h4", "rewrites"), element("p.quiet", "No rewrite touched it.")];
        const rows = steps.slice(0, 40).map(k => {
            const step = history.steps[k - 1], effect = history.effect(k);
            const did = effect.added.includes(item) ? "made it" : effect.removed.includes(item) ? "took it away" : "changed it";
            const name = step.rule === null ? `after ${step.pass}` : step.rule;
            const row = element("tr", [
                element("td.number", Numbers[""](k)),
                element("td", element("button.link", element("bdi", shown(name)), () => this.handlers.step(k))),
                element("td.quiet", did)]);
            if (k === this.step) row.className = "current";
            return row;
        });
        return [element("h4", "rewrites"), element("table.values", element("tbody", rows)),
                steps.length > 40 && element("p.quiet", `and ${steps.length - 40} more`)];
    }
}
