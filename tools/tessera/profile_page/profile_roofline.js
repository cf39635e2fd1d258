// FLOP/s over FLOP per byte, both axes logarithmic, under the machine's two limits.
"use strict";

class Roofline {
    constructor(place) {
        this.place = place;
        this.points = steps.filter(s => s.seconds > 0 && s.flops > 0 && s.bytes > 0)
            .map(s => ({step: s, x: s.flops / s.bytes, y: s.flops / s.seconds}));
        this.draw();
        markChosen(place);
        new ResizeObserver(() => this.place.clientWidth !== this.width && this.draw()).observe(place);
    }

    draw() {
        this.width = this.place.clientWidth || 560;
        this.height = 430;
        this.box = {left: 98, right: this.width - 14, top: 14, bottom: this.height - 40};
        this.svg = drawn("svg", {width: this.width, height: this.height, role: "img", "aria-label": "Roofline"});
        if (!this.points.length) {
            this.svg.append(drawn("text", {x: 20, y: 30}, "No step does arithmetic on bytes that it moves."));
        } else {
            this.scales();
            this.axes();
            if (data.peak) this.roof();
            this.dots();
        }
        this.place.replaceChildren(this.svg);
    }

    scales() {
        const xs = this.points.map(p => p.x), ys = this.points.map(p => p.y);
        if (data.peak) {
            xs.push(data.peak.flops / data.peak.bytes * 4);
            ys.push(data.peak.flops);
        }
        const low = values => 10 ** Math.floor(Math.log10(Math.min(...values)) - 0.1);
        const high = values => 10 ** Math.ceil(Math.log10(Math.max(...values)) + 0.1);
        this.xs = [low(xs), high(xs)];
        this.ys = [low(ys), high(ys)];
    }

    at(x, y) {
        const share = (n, [from, to]) => Math.log(n / from) / Math.log(to / from);
        const {left, right, top, bottom} = this.box;
        return [left + share(x, this.xs) * (right - left), bottom - share(y, this.ys) * (bottom - top)];
    }

    axes() {
        const {left, right, top, bottom} = this.box;
        for (let n = this.xs[0]; n <= this.xs[1] * 1.01; n *= 10) {
            const [x] = this.at(n, this.ys[0]);
            this.svg.append(drawn("line", {x1: x, x2: x, y1: top, y2: bottom, class: "axis"}),
                            drawn("text", {x, y: bottom + 15, "text-anchor": "middle", class: "quiet"}, String(+n.toPrecision(2))));
        }
        for (let n = this.ys[0]; n <= this.ys[1] * 1.01; n *= 10) {
            const [, y] = this.at(this.xs[0], n);
            this.svg.append(drawn("line", {x1: left, x2: right, y1: y, y2: y, class: "axis"}),
                            drawn("text", {x: left - 6, y: y + 4, "text-anchor": "end", class: "quiet"}, withUnit(n, ["", "k", "M", "G", "T", "P"].map(u => u + "FLOP/s"))));
        }
        this.svg.append(drawn("text", {x: (left + right) / 2, y: this.height - 6, "text-anchor": "middle", class: "quiet"}, "FLOP per byte moved"));
    }

    roof() {
        const {flops, bytes} = data.peak, ridge = flops / bytes;
        const from = Math.max(this.xs[0], this.ys[0] / bytes);
        const points = [this.at(from, from * bytes), this.at(ridge, flops), this.at(this.xs[1], flops)];
        this.svg.append(drawn("polyline", {points: points.map(p => p.join(",")).join(" "), class: "roof"}));
        this.svg.append(drawn("text", {x: this.box.right - 4, y: points[1][1] - 6, "text-anchor": "end"},
                              `${withUnit(flops, ["", "k", "M", "G", "T", "P"].map(u => u + "FLOP/s"))} on ${data.peak.where || shown.plural(data.peak.threads, "thread")}`));
        const [x, y] = points[0], slope = Math.atan2(points[1][1] - y, points[1][0] - x) * 180 / Math.PI;
        if (points[1][0] - x > 90)
            this.svg.append(drawn("text", {x: x + 12, y: y - 8, transform: `rotate(${slope} ${x} ${y})`}, withUnit(bytes, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])));
    }

    dots() {
        for (const p of [...this.points].sort((a, b) => b.step.seconds - a.step.seconds)) {
            const [cx, cy] = this.at(p.x, p.y), r = 3 + 17 * Math.sqrt(p.step.share);
            this.svg.append(choosable(drawn("circle", {cx, cy, r, class: `heat${heat(p.step)} box`, "fill-opacity": 0.85}), p.step));
        }
    }
}
