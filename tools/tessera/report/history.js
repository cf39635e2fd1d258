// The graphs of an optimization, from the page's data: items (nodes; the graph's inputs, constants and outputs) that
// come, change and go step by step. A cursor is one graph among them; it moves forward and back.
"use strict";

const Kind = {Op: 0, Input: 1, Constant: 2, Output: 3};

class History {
    constructor(data) {
        const text = i => data.strings[i];
        this.data = data;
        this.itemCount = data.items;
        this.versions = data.versions.map(v => ({
            kind: v[0], op: text(v[1]), name: text(v[2]), attrs: text(v[3]), scope: text(v[4]),
            inputs: v[5].map(r => Array.isArray(r) ? {item: r[0], output: r[1]} : r < 0 ? null : {item: r, output: 0}),
            outputs: v[6].map(text), types: v[7].map(text),
            flops: v[8], bytes: v[9], flopsFormula: text(v[10]), bytesFormula: text(v[11]), complete: !!v[12],
            nested: v[13],
        }));
        this.steps = data.steps.map((s, i) => ({
            number: i + 1, pass: text(s.pass), rule: "rule" in s ? text(s.rule) : null,
            exactness: "class" in s ? text(s.class) : "", where: "where" in s ? text(s.where) : "",
            why: "why" in s ? text(s.why) : "", unplaced: s.unplaced || null, replaced: s.replaced || [], changes: s.changes, undo: null,
        }));
        this.first = new Int32Array(this.itemCount).fill(-1);
        for (let i = 0; i < data.before.length; i += 2) this.first[data.before[i]] = data.before[i + 1];
        this.#walk();
    }

    // One way through all steps: how to go back, what each step touches, and the totals after it.
    #walk() {
        const now = this.first.slice();
        this.touched = Array.from({length: this.itemCount}, () => []);
        this.born = new Int32Array(this.itemCount).fill(-1);
        this.totals = [this.#totalsOf(now)];
        this.most = {flops: 0, bytes: 0};
        for (const v of this.versions)
            if (v.kind === Kind.Op)
                for (const cost of ["flops", "bytes"]) this.most[cost] = Math.max(this.most[cost], v[cost] || 0);
        for (let item = 0; item < this.itemCount; ++item) if (now[item] >= 0) this.born[item] = 0;
        for (const step of this.steps) {
            const totals = {...this.totals[this.totals.length - 1]};
            step.undo = new Int32Array(step.changes.length);
            for (let i = 0; i < step.changes.length; i += 2) {
                const item = step.changes[i], version = step.changes[i + 1];
                step.undo[i] = item;
                step.undo[i + 1] = now[item];
                this.#count(totals, now[item], -1);
                this.#count(totals, version, 1);
                now[item] = version;
                if (version >= 0 && this.born[item] < 0) this.born[item] = step.number;
                this.touched[item].push(step.number);
            }
            this.totals.push(totals);
        }
        for (const step of this.steps) if (step.rule === null) step.where = this.#besides(step.number);
    }

    #count(totals, version, sign) {
        if (version < 0 || this.versions[version].kind !== Kind.Op) return;
        totals.nodes += sign;
        totals.flops += sign * (this.versions[version].flops || 0);
        totals.bytes += sign * (this.versions[version].bytes || 0);
    }

    #totalsOf(state) {
        const totals = {nodes: 0, flops: 0, bytes: 0};
        for (const version of state) this.#count(totals, version, 1);
        return totals;
    }

    // What step k does to items that are drawn: lists of items.
    effect(k) {
        const effect = {added: [], removed: [], changed: []};
        if (k < 1) return effect;
        const {changes, undo} = this.steps[k - 1];
        for (let i = 0; i < changes.length; i += 2) {
            const version = changes[i + 1] >= 0 ? changes[i + 1] : undo[i + 1];
            if (version < 0 || this.versions[version].kind === Kind.Constant) continue;
            const list = changes[i + 1] < 0 ? effect.removed : undo[i + 1] < 0 ? effect.added : effect.changed;
            list.push(changes[i]);
        }
        return effect;
    }

    // What a pass did beside its rewrites, in words.
    #besides(k) {
        const {added, removed, changed} = this.effect(k), counts = new Map();
        const {changes, undo} = this.steps[k - 1], words = {types: "better known", inputs: "rewired", names: "renamed"};
        const count = (what, n = 1) => n && counts.set(what, (counts.get(what) || 0) + n);
        count("added", added.length);
        count("removed", removed.length);
        const touched = new Set(changed);
        for (let i = 0; i < changes.length; i += 2) {
            if (!touched.has(changes[i])) continue;
            const [was, is] = [undo[i + 1], changes[i + 1]].map(v => this.versions[v]);
            const differs = Object.keys(words).find(key => key !== "names" && JSON.stringify(was[key]) !== JSON.stringify(is[key]));
            count(words[differs || "names"]);
        }
        return [...counts].map(([what, n]) => `${n} ${what}`).join(", ") || "constants renamed";
    }

    // The items of the first graph that an item came from.
    origins(item) {
        const seen = new Set(), found = new Set(), open = [item];
        while (open.length) {
            const i = open.pop();
            if (seen.has(i)) continue;
            seen.add(i);
            if (this.born[i] === 0) {
                found.add(i);
            } else if (this.born[i] > 0) {
                const effect = this.effect(this.born[i]);
                open.push(...effect.removed);
                if (!effect.removed.length) open.push(...effect.changed);
            }
        }
        return found;
    }

    cursor(step = 0) {
        const cursor = new Cursor(this);
        cursor.go(step);
        return cursor;
    }
}

class Cursor {
    constructor(history) {
        this.history = history;
        this.step = 0;
        this.state = history.first.slice();
    }

    go(step) {
        const {steps} = this.history;
        step = Math.max(0, Math.min(steps.length, step));
        while (this.step < step) this.#apply(steps[this.step++].changes);
        while (this.step > step) this.#apply(steps[--this.step].undo);
    }

    #apply(changes) {
        for (let i = 0; i < changes.length; i += 2) this.state[changes[i]] = changes[i + 1];
    }

    // The version of an item, or null where it is not there.
    at(item) {
        const version = this.state[item];
        return version < 0 ? null : this.history.versions[version];
    }

    // Items that are drawn.
    *items() {
        for (let item = 0; item < this.state.length; ++item) {
            const v = this.at(item);
            if (v && v.kind !== Kind.Constant) yield item;
        }
    }

    nameOf(ref) {
        if (!ref) return "_";
        const v = this.at(ref.item);
        return v && ref.output < v.outputs.length ? v.outputs[ref.output] : "?";
    }

    typeOf(ref) {
        const v = ref && this.at(ref.item);
        return v && v.types[ref.output] || "";
    }

    // y = transpose(x, perm=[1,0])
    text(item) {
        const v = this.at(item);
        if (!v) return "";
        const inputs = v.inputs.slice(0, v.inputs.length - v.nested).map(r => this.nameOf(r));
        if (v.kind === Kind.Output) return `output ${v.outputs[0]} is ${inputs[0]}`;
        if (v.kind === Kind.Input) return `input ${v.outputs[0]}`;
        if (v.attrs) inputs.push(v.attrs);
        return `${v.outputs.join(", ")} = ${v.op}(${inputs.join(", ")})`;
    }

    users(item) {
        const users = [];
        for (const other of this.items())
            if (this.at(other).inputs.some(r => r && r.item === item)) users.push(other);
        return users;
    }
}
