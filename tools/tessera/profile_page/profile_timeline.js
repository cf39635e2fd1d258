// A typical run from left to right: the steps in one row, then one row for each thread.
"use strict";

class Timeline {
    constructor(place) {
        this.place = place;
        this.timed = steps.filter(s => s.end > s.begin);
        this.end = Math.max(...this.timed.map(s => s.end), 1e-9);
        this.range = [0, this.end];
        this.threads = [...new Set(this.timed.flatMap(s => s.threads.map(t => t[0])))].sort((a, b) => a - b);
        this.draw();
        this.zoomByDragging();
        markChosen(place);
        new ResizeObserver(() => this.place.clientWidth !== this.width && this.draw()).observe(place);
    }

    x(seconds) {
        return this.left + (seconds - this.range[0]) / (this.range[1] - this.range[0]) * (this.width - this.left - 8);
    }

    seconds(x) {
        const at = (x - this.left) / (this.width - this.left - 8);
        return this.range[0] + Math.min(1, Math.max(0, at)) * (this.range[1] - this.range[0]);
    }

    draw() {
        this.width = this.place.clientWidth || 1200;
        this.left = 72;
        const row = 26, top = 22, height = top + row * (1 + this.threads.length) + 6;
        this.svg = drawn("svg", {width: this.width, height, role: "img", "aria-label": "Timeline of steps and threads"});
        this.axis(height);
        this.svg.append(drawn("text", {x: 0, y: top + 16, class: "quiet"}, "steps"));
        for (const s of this.timed) this.bar(s, s.begin, s.end, top, row - 4);
        this.threads.forEach((thread, k) => {
            const y = top + row * (k + 1);
            this.svg.append(drawn("text", {x: 0, y: y + 16, class: "quiet"}, `thread ${thread + 1}`));
            for (const s of this.timed)
                for (const [of, begin, end] of s.threads) if (of === thread) this.bar(s, begin, end, y, row - 8);
        });
        if (!this.timed.length) this.svg.append(drawn("text", {x: this.left, y: top + 16}, "The steps of this device are not placed in time."));
        this.place.replaceChildren(this.svg);
    }

    axis(height) {
        const [from, to] = this.range, step = niceStep(to - from, Math.max(2, this.width / 140));
        for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
            const x = this.x(at);
            this.svg.append(drawn("line", {x1: x, x2: x, y1: 16, y2: height, class: "axis"}));
            this.svg.append(drawn("text", {x: x + 3, y: 12, class: "quiet"}, at === 0 ? "0" : shown.seconds(at)));
        }
    }

    bar(step, begin, end, y, height) {
        const x0 = Math.max(this.x(begin), this.left), x1 = Math.min(this.x(end), this.width - 8);
        if (x1 <= x0) return;
        const width = Math.max(x1 - x0 - 0.4, 0.6), level = heat(step);
        this.svg.append(choosable(drawn("rect", {x: x0, y, width, height, rx: 2, class: `heat${level} bar`}), step));
        if (width > 50 && height > 20)
            this.svg.append(drawn("text", {x: x0 + 4, y: y + 15, class: `on${level}`, "pointer-events": "none"},
                                  step.label.slice(0, Math.floor((width - 8) / 6.4))));
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
            if (mark) this.zoom(this.seconds(Math.min(from, at(e))), this.seconds(Math.max(from, at(e))));
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
