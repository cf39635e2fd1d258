// One graph on a canvas: drawn where it is looked at, moved, zoomed, and pointed into. Beside it, all of it in a strip.
"use strict";

const Strip = {width: 46, margin: 8};

// Layouts by step, the last few of them kept. An item stands in the same order at every step: by where it stood in the
// first graph, or by what it came from.
class Layouts {
    constructor(history, look) {
        this.history = history;
        this.look = look;
        this.cursor = history.cursor(0);
        this.kept = new Map();
        this.hints = null;
    }

    at(step) {
        if (!this.hints) this.#findHints();
        let layout = this.kept.get(step);
        this.kept.delete(step);
        if (!layout) layout = this.#make(step, true);
        this.kept.set(step, layout);
        if (this.kept.size > 12) this.kept.delete(this.kept.keys().next().value);
        return layout;
    }

    #make(step, hinted) {
        const {cursor, look, hints} = this;
        cursor.go(step);
        const nodes = [];
        for (const item of cursor.items()) {
            const v = cursor.at(item);
            nodes.push({item, width: look.boxWidth(v), inputs: v.inputs.filter(r => r).map(r => r.item),
                        fixed: v.kind === Kind.Input});
        }
        return layoutGraph(nodes, hinted ? i => hints[nodes[i].item] : null);
    }

    #findHints() {
        const {history} = this, first = this.#make(0, false);
        this.hints = new Float64Array(history.itemCount);
        for (const box of first.boxes) this.hints[box.item] = box.x + box.w / 2;
        for (let k = 1; k <= history.steps.length; ++k) {
            const {added, removed, changed} = history.effect(k), from = removed.length ? removed : changed;
            if (!from.length) continue;
            const mean = from.reduce((sum, item) => sum + this.hints[item], 0) / from.length;
            for (const item of added) this.hints[item] = mean;
        }
    }
}

class Pane {
    constructor(section, history, look, layouts, handlers) {
        this.history = history;
        this.look = look;
        this.layouts = layouts;
        this.handlers = handlers;  // moved(dx, dy, zoom, x, y), picked(item), entered(item, x, y)
        this.canvas = section.querySelector("canvas");
        this.cursor = history.cursor(0);
        this.layout = null;
        this.camera = {x: 0, y: 0, scale: 1};
        this.marks = {added: new Set(), removed: new Set(), changed: new Set()};
        this.found = null;      // items that are searched for
        this.selected = -1;
        this.hovered = -1;
        this.motion = null;
        this.frame = 0;
        new ResizeObserver(() => this.#resize()).observe(this.canvas.parentElement);
        this.#resize();
        this.#listen();
    }

    // ---- what is shown

    // Shows the graph after a step. What is in the middle stays there, until lookAt() says what should be.
    show(step, marks, animate) {
        const old = this.layout, before = {...this.camera};
        const gone = old ? this.#leaving(step) : [];
        this.cursor.go(step);
        this.layout = this.layouts.at(step);
        this.marks = marks;
        if (old) this.#keepMiddle(old);
        else this.home();
        const shift = {x: this.camera.x - before.x, y: this.camera.y - before.y};
        this.strip = null;
        if (animate && old && step !== this.shownStep) {
            const from = new Map(old.boxes.map(b => [b.item, {x: b.x + shift.x, y: b.y + shift.y}]));
            for (const g of gone) Object.assign(g, {x: g.x + shift.x, y: g.y + shift.y});
            this.motion = {began: performance.now(), from, gone, camera: {...this.camera}, target: {...this.camera}};
        } else {
            this.motion = null;
        }
        this.shownStep = step;
        this.invalidate();
    }

    // Boxes that are there now and not after the step.
    #leaving(step) {
        const other = this.history.cursor(step), gone = [];
        for (const box of this.layout.boxes)
            if (other.state[box.item] < 0) gone.push({...box, version: this.cursor.at(box.item)});
        return gone;
    }

    #keepMiddle(old) {
        let best = null, distance = Infinity;
        for (const box of old.boxes) {
            const now = this.layout.byItem.get(box.item);
            const d = now ? Math.hypot(box.x + box.w / 2 - this.camera.x, box.y - this.camera.y) : Infinity;
            if (d < distance) [best, distance] = [{box, now}, d];
        }
        if (!best) return;
        this.camera.x += best.now.x + best.now.w / 2 - best.box.x - best.box.w / 2;
        this.camera.y += best.now.y - best.box.y;
    }

    // ---- the camera

    get size() {
        return {w: this.canvas.clientWidth - Strip.width, h: this.canvas.clientHeight};
    }

    // From the top, as wide as its first rows, and readable.
    home() {
        const {w, h} = this.size, {layout} = this, rows = layout.rows.slice(0, 16).filter(row => row.length);
        const left = Math.min(...rows.map(row => row[0].x));
        const right = Math.max(...rows.map(row => row[row.length - 1].x + row[row.length - 1].w));
        if (!rows.length) return;
        const scale = Math.max(0.7, Math.min(1, (w - 40) / (right - left)));
        this.camera = {x: (left + right) / 2, y: (h / 2 - 28) / scale, scale};
        if (layout.height * scale < h - 56) this.camera.y = layout.height / 2;
        this.invalidate();
    }

    fit() {
        const {w, h} = this.size, {layout} = this;
        const scale = Math.min(1.2, (w - 32) / Math.max(1, layout.width), (h - 32) / Math.max(1, layout.height));
        this.camera = {x: layout.width / 2, y: layout.height / 2, scale: Math.max(0.01, scale)};
        this.motion = null;
        this.invalidate();
    }

    #boundsOf(items) {
        let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
        for (const item of items) {
            const box = this.layout.byItem.get(item);
            if (!box) continue;
            left = Math.min(left, box.x);
            right = Math.max(right, box.x + box.w);
            top = Math.min(top, box.y);
            bottom = Math.max(bottom, box.y + box.h);
        }
        return left < right ? {left, right, top, bottom} : null;
    }

    // The scale at which items can be seen together: readable, and otherwise as it is.
    scaleFor(items) {
        const bounds = this.#boundsOf(items), {scale} = this.camera;
        if (!bounds) return Infinity;
        const room = Math.min((this.size.w - 80) / (bounds.right - bounds.left), (this.size.h - 80) / (bounds.bottom - bounds.top));
        return room < 0.3 ? scale : Math.max(0.3, Math.min(Math.max(scale, 0.55), room));
    }

    lookAt(items, scale = this.scaleFor(items)) {
        const bounds = this.#boundsOf(items);
        if (!bounds || !Number.isFinite(scale)) return;
        const camera = this.#inside({x: (bounds.left + bounds.right) / 2, y: (bounds.top + bounds.bottom) / 2, scale});
        if (this.motion) this.motion.target = camera;
        else this.camera = camera;
        this.invalidate();
    }

    // Not beyond the graph's edges, where there is more of it to see.
    #inside(camera) {
        const within = (at, view, size) => {
            const half = (view / 2 - 28) / camera.scale;
            return size > 2 * half ? Math.max(half, Math.min(size - half, at)) : size / 2;
        };
        return {x: within(camera.x, this.size.w, this.layout.width), y: within(camera.y, this.size.h, this.layout.height),
                scale: camera.scale};
    }

    move(dx, dy, zoom = 1, x = this.size.w / 2, y = this.size.h / 2) {
        this.motion = null;
        const scale = Math.max(0.008, Math.min(3, this.camera.scale * zoom));
        const wx = this.camera.x + (x - this.size.w / 2) / this.camera.scale;
        const wy = this.camera.y + (y - this.size.h / 2) / this.camera.scale;
        this.camera.x = wx - (x - this.size.w / 2) / scale - dx / scale;
        this.camera.y = wy - (y - this.size.h / 2) / scale - dy / scale;
        this.camera.scale = scale;
        this.invalidate();
    }

    // ---- pointing

    boxAt(x, y) {
        if (!this.layout || x > this.size.w) return null;
        const wx = this.camera.x + (x - this.size.w / 2) / this.camera.scale;
        const wy = this.camera.y + (y - this.size.h / 2) / this.camera.scale;
        const row = this.layout.rows[Math.floor(wy / Layout.rowHeight)];
        return row && row.find(b => wx >= b.x && wx <= b.x + b.w && wy >= b.y && wy <= b.y + b.h) || null;
    }

    #listen() {
        const {canvas, handlers} = this, at = e => [e.offsetX, e.offsetY];
        let drag = null;
        canvas.addEventListener("pointerdown", e => {
            canvas.setPointerCapture(e.pointerId);
            const [x, y] = at(e);
            drag = {x, y, moved: false, strip: x > this.size.w};
            if (drag.strip) this.#toStrip(y);
        });
        canvas.addEventListener("pointermove", e => {
            const [x, y] = at(e);
            if (drag && drag.strip) {
                this.#toStrip(y);
            } else if (drag) {
                if (Math.hypot(x - drag.x, y - drag.y) > 3) drag.moved = true;
                if (!drag.moved) return;
                handlers.moved(this, x - drag.x, y - drag.y, 1, x, y);
                [drag.x, drag.y] = [x, y];
                canvas.style.cursor = "grabbing";
            } else {
                const box = this.boxAt(x, y);
                canvas.style.cursor = box ? "pointer" : x > this.size.w ? "ns-resize" : "grab";
                handlers.entered(this, box ? box.item : -1, e.clientX, e.clientY);
            }
        });
        canvas.addEventListener("pointerup", e => {
            if (drag && !drag.moved && !drag.strip) {
                const box = this.boxAt(...at(e));
                handlers.picked(this, box ? box.item : -1);
            }
            drag = null;
            canvas.style.cursor = "grab";
        });
        canvas.addEventListener("pointercancel", () => drag = null);
        canvas.addEventListener("pointerleave", () => handlers.entered(this, -1, 0, 0));
        canvas.addEventListener("dblclick", e => {
            const box = this.boxAt(...at(e));
            if (box) handlers.centred(this, box.item);
        });
        canvas.addEventListener("wheel", e => {
            e.preventDefault();
            const [x, y] = at(e);
            // A mouse wheel turns in large steps and one way only; a touch pad scrolls finely, and pinches with Ctrl.
            const wheel = e.deltaMode !== 0 || (e.deltaX === 0 && Math.abs(e.deltaY) >= 50);
            if (e.ctrlKey || wheel) {
                const by = e.deltaMode === 1 ? e.deltaY * 30 : e.deltaY;
                handlers.moved(this, 0, 0, Math.exp(-by * (wheel ? 0.0016 : 0.01)), x, y);
            } else {
                handlers.moved(this, -e.deltaX, -e.deltaY, 1, x, y);
            }
        }, {passive: false});
    }

    #toStrip(y) {
        const {h} = this.size, share = (y - Strip.margin) / Math.max(1, h - 2 * Strip.margin);
        this.motion = null;
        this.camera.y = Math.max(0, Math.min(1, share)) * this.layout.height;
        if (this.layout.width * this.camera.scale < this.size.w) this.camera.x = this.layout.width / 2;
        else this.camera.x = this.#rowMiddle(this.camera.y);
        this.invalidate();
    }

    #rowMiddle(y) {
        const row = this.layout.rows[Math.floor(y / Layout.rowHeight)];
        if (!row || !row.length) return this.camera.x;
        return row.reduce((a, b) => Math.abs(b.x + b.w / 2 - this.camera.x) < Math.abs(a.x + a.w / 2 - this.camera.x) ? b : a).x
            + 60;
    }

    // ---- drawing

    #resize() {
        const view = this.canvas.parentElement, ratio = window.devicePixelRatio || 1;
        const [w, h] = [view.clientWidth, view.clientHeight].map(n => Math.max(1, Math.round(n * ratio)));
        if (this.canvas.width === w && this.canvas.height === h) return;
        [this.canvas.width, this.canvas.height] = [w, h];
        this.strip = null;
        this.#draw(performance.now());  // it has been cleared, and is about to be seen
    }

    invalidate() {
        if (!this.frame) this.frame = requestAnimationFrame(now => {
            this.frame = 0;
            this.#draw(now);
        });
    }

    #draw(now) {
        if (this.layout) new Drawing(this, now).draw();
        if (this.motion) this.invalidate();
    }
}
