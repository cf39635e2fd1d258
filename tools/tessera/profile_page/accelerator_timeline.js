// The instructions of the load, compute and store units from left to right, in cycles, and the tokens between them.
"use strict";

const UNITS = ["load", "compute", "store"];

class UnitTimeline {
    constructor(place) {
        this.place = place;
        this.spans = data.spans.map(([unit, begin, end, layer, text]) => ({unit, begin, end, layer, text: data.instructions[text]}));
        this.end = Math.max(data.cycles, 1);
        this.range = [0, this.end];
        this.draw();
        this.zoomByDragging();
        new ResizeObserver(() => this.place.clientWidth !== this.width && this.draw()).observe(place);
    }

    x(cycle) { return this.left + (cycle - this.range[0]) / (this.range[1] - this.range[0]) * (this.width - this.left - 8); }
    cycle(x) {
        const at = (x - this.left) / (this.width - this.left - 8);
        return this.range[0] + Math.min(1, Math.max(0, at)) * (this.range[1] - this.range[0]);
    }
    row(unit) { return 22 + 46 * unit; }

    draw() {
        this.width = this.place.clientWidth || 1200;
        this.left = 72;
        const height = this.row(3) + 22;
        this.svg = drawn("svg", {width: this.width, height, role: "img", "aria-label": "Timeline of load, compute and store"});
        const [from, to] = this.range, step = niceStep(to - from, Math.max(2, this.width / 140));
        for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
            const x = this.x(at);
            this.svg.append(drawn("line", {x1: x, x2: x, y1: 16, y2: height, class: "axis"}), drawn("text", {x: x + 3, y: 12, class: "quiet"}, shown.count(at)));
        }
        UNITS.forEach((unit, k) => this.svg.append(drawn("text", {x: 0, y: this.row(k) + 18, class: "quiet"}, unit)));
        this.bars();
        this.tokens();
        this.layers(height);
        this.place.replaceChildren(this.svg);
    }

    // Instructions that are narrower than a pixel together become one bar of their layer.
    bars() {
        const pending = [null, null, null], put = bar => {
            const {unit, x0, x1, layer, count, text} = bar;
            const rect = drawn("rect", {x: x0, y: this.row(unit), width: Math.max(x1 - x0, 0.8), height: 28, class: `span unit${unit}${layer % 2 ? " odd" : ""}`});
            rect.append(drawn("title", {}, `${steps[layer] ? steps[layer].label : ""}\n${count === 1 ? text : shown.plural(count, "instruction")}`));
            this.svg.append(rect);
        };
        for (const s of this.spans) {
            const x0 = Math.max(this.x(s.begin), this.left), x1 = Math.min(this.x(s.end), this.width - 8);
            if (x1 < this.left || x0 > this.width - 8 || x1 < x0) continue;
            const last = pending[s.unit];
            if (last && last.layer === s.layer && x1 - last.x0 < 1.5) {
                last.x1 = Math.max(last.x1, x1);
                ++last.count;
                continue;
            }
            if (last) put(last);
            pending[s.unit] = {unit: s.unit, x0, x1, layer: s.layer, count: 1, text: s.text};
        }
        for (const last of pending) if (last) put(last);
    }

    // Only where there is room for them.
    tokens() {
        const seen = data.tokens.filter(([from, to]) => this.spans[from].end <= this.range[1] && this.spans[to].begin >= this.range[0]);
        if (seen.length > 400) return;
        for (const [from, to] of seen) {
            const a = this.spans[from], b = this.spans[to], down = b.unit > a.unit;
            this.svg.append(drawn("line", {x1: this.x(a.end), y1: this.row(a.unit) + (down ? 28 : 0), x2: this.x(b.begin), y2: this.row(b.unit) + (down ? 0 : 28), class: "token"}));
        }
    }

    layers(height) {
        let at = 0;
        for (const s of steps) {
            const x0 = Math.max(this.x(at), this.left), x1 = Math.min(this.x(at + s.cycles), this.width - 8);
            at += s.cycles;
            if (x1 - x0 > 60) this.svg.append(drawn("text", {x: x0 + 4, y: height - 6, class: "quiet"}, s.label.slice(0, Math.floor((x1 - x0) / 7))));
        }
    }

    zoomByDragging() {
        let from = null, mark = null;
        const at = e => e.clientX - this.place.getBoundingClientRect().left;
        this.place.addEventListener("pointerdown", e => { from = at(e); });
        this.place.addEventListener("pointermove", e => {
            if (from === null || Math.abs(at(e) - from) < 4) return;
            if (!mark) this.svg.append(mark = drawn("rect", {y: 16, height: this.svg.getAttribute("height") - 16, class: "cutting"}));
            mark.setAttribute("x", Math.min(from, at(e)));
            mark.setAttribute("width", Math.abs(at(e) - from));
        });
        this.place.addEventListener("pointerup", e => {
            if (mark) this.zoom(this.cycle(Math.min(from, at(e))), this.cycle(Math.max(from, at(e))));
            from = mark = null;
        });
        this.place.addEventListener("dblclick", () => this.zoom(0, this.end));
    }

    zoom(from, to) {
        if (!(to > from)) return;
        this.range = [from, to];
        this.draw();
    }
}
