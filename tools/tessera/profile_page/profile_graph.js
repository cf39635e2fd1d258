// The steps as a graph: each below those whose values it reads, coloured by its time.
"use strict";

class StepGraph {
    constructor(place) {
        this.place = place;
        this.draw();
        markChosen(place);
        chosen.watchers.push(index => this.show(index));
    }

    // Which steps' values each step reads; values nobody wrote are the model's inputs.
    nodes() {
        const writer = new Map(), list = [];
        const input = name => `in ${name}`;
        const asked = new Set(steps.flatMap(s => s.reads));
        for (const port of data.inputs) if (asked.has(port.name)) list.push({item: input(port.name), port, inputs: [], fixed: true});
        const known = new Set(list.map(n => n.item));
        for (const s of steps) {
            const inputs = s.reads.map(name => writer.has(name) ? writer.get(name) : input(name));
            list.push({item: s.index, step: s, inputs: inputs.filter(i => typeof i === "number" || known.has(i))});
            for (const name of s.writes) writer.set(name, s.index);
        }
        for (const port of data.outputs)
            if (writer.has(port.name)) list.push({item: `out ${port.name}`, port, inputs: [writer.get(port.name)]});
        for (const n of list) n.width = Math.min(260, Math.max(90, 16 + 6.6 * Math.max(this.title(n).length, this.below(n).length)));
        return list;
    }

    title(n) {
        if (n.port) return n.port.name;
        const ops = [...new Set(n.step.ops)];
        return ops.length > 4 ? `${ops.slice(0, 3).join(" + ")} + ${ops.length - 3} more` : ops.join(" + ") || n.step.label;
    }

    below(n) {
        return n.port ? n.port.type : `${shown.seconds(n.step.seconds)}, ${shown.percent(n.step.share)}`;
    }

    draw() {
        const list = this.nodes(), made = layoutGraph(list, null), byItem = new Map(list.map(n => [n.item, n]));
        const pad = 12;
        this.svg = drawn("svg", {width: made.width + 2 * pad, height: made.height + 2 * pad, role: "img", "aria-label": "Graph of the steps"});
        const root = drawn("g", {transform: `translate(${pad} ${pad})`});
        for (const s of made.segments) {
            const middle = (s.y0 + s.y1) / 2;
            root.append(drawn("path", {d: `M${s.x0} ${s.y0} C${s.x0} ${middle} ${s.x1} ${middle} ${s.x1} ${s.y1}`, class: "edge"}));
        }
        for (const {from, to} of made.cut)
            root.append(drawn("path", {d: `M${from.x + from.w / 2} ${from.y + from.h} L${to.x + to.w / 2} ${to.y}`, class: "edge", "stroke-dasharray": "2 5"}));
        this.boxes = new Map();
        for (const box of made.boxes) {
            const n = byItem.get(box.item), level = n.step ? heat(n.step) : 0;
            const rect = drawn("rect", {x: box.x, y: box.y, width: box.w, height: box.h, rx: n.step ? 6 : 20, class: n.step ? `heat${level} box` : "box", ...(n.step ? {} : {fill: "none"})});
            root.append(n.step ? choosable(rect, n.step) : rect);
            if (n.step) this.boxes.set(n.step.index, box);
            const most = Math.floor((box.w - 10) / 6.2), on = n.step ? `on${level}` : "";
            root.append(drawn("text", {x: box.x + box.w / 2, y: box.y + 17, "text-anchor": "middle", class: on, "pointer-events": "none"}, this.title(n).slice(0, most)),
                        drawn("text", {x: box.x + box.w / 2, y: box.y + 32, "text-anchor": "middle", class: on || "quiet", "pointer-events": "none"}, this.below(n).slice(0, most)));
        }
        this.svg.append(root);
        this.place.replaceChildren(this.svg);
        this.place.scrollLeft = Math.max(0, (made.width - this.place.clientWidth) / 2);
    }

    show(index) {
        const box = this.boxes.get(index);
        if (box) this.place.scrollTo({left: box.x + box.w / 2 - this.place.clientWidth / 2, top: box.y - this.place.clientHeight / 2});
    }
}
