// One frame of a pane.
"use strict";

class Drawing {
    constructor(pane, now) {
        this.pane = pane;
        this.look = pane.look;
        this.colours = pane.look.colours;
        this.layout = pane.layout;
        this.g = pane.canvas.getContext("2d");
        this.progress = 1;
        if (pane.motion) {
            const t = Math.max(0, Math.min(1, (now - pane.motion.began) / 280));
            this.progress = t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) * (1 - t);
            const {camera, target} = pane.motion, mix = (a, b) => a + (b - a) * this.progress;
            pane.camera = {x: mix(camera.x, target.x), y: mix(camera.y, target.y),
                           scale: camera.scale * (target.scale / camera.scale) ** this.progress};
            this.motion = t < 1 ? pane.motion : null;
            if (t >= 1) pane.motion = null;
        }
        const {w, h} = pane.size, {x, y, scale} = pane.camera;
        Object.assign(this, {w, h, scale});
        this.left = x - w / 2 / scale;
        this.top = y - h / 2 / scale;
        this.right = x + w / 2 / scale;
        this.bottom = y + h / 2 / scale;
    }

    draw() {
        const {g, pane} = this, ratio = window.devicePixelRatio || 1;
        g.setTransform(ratio, 0, 0, ratio, 0, 0);
        g.fillStyle = this.colours.page;
        g.fillRect(0, 0, pane.canvas.clientWidth, pane.canvas.clientHeight);
        g.save();
        g.beginPath();
        g.rect(0, 0, this.w, this.h);
        g.clip();
        g.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, -this.left * this.scale * ratio,
                       -this.top * this.scale * ratio);
        this.#edges();
        this.#boxes();
        g.restore();
        g.setTransform(ratio, 0, 0, ratio, 0, 0);
        this.#strip();
    }

    #sees(x0, y0, x1, y1) {
        return Math.max(x0, x1) >= this.left && Math.min(x0, x1) <= this.right && y1 >= this.top && y0 <= this.bottom;
    }

    // ---- edges

    #edges() {
        const {g, pane, layout} = this, looked = pane.selected >= 0 ? pane.selected : pane.hovered;
        const near = this.#inputsOf(looked), box = layout.byItem.get(looked);
        const bright = s => box && (s.from === looked ||
                                    (near.has(s.from) && (s.to === looked || (s.to < 0 && s.y1 <= box.y))));
        const lines = [[], []];
        for (const s of layout.segments)
            if (this.#sees(s.x0, s.y0, s.x1, s.y1)) lines[bright(s) ? 1 : 0].push(s);
        g.globalAlpha = this.motion ? this.progress : 1;
        g.lineWidth = Math.min(1.4 / this.scale, Math.max(1.3, 0.7 / this.scale));
        g.strokeStyle = this.colours.edge;
        this.#stroke(lines[0]);
        this.#cuts(looked);
        g.strokeStyle = this.colours.accent;
        g.lineWidth *= 1.8;
        this.#stroke(lines[1]);
        g.globalAlpha = 1;
    }

    #inputsOf(item) {
        const v = item >= 0 ? this.pane.cursor.at(item) : null;
        return new Set(v ? v.inputs.filter(r => r).map(r => r.item) : []);
    }

    #stroke(segments) {
        const {g} = this;
        g.beginPath();
        for (const s of segments) this.#curve(s.x0, s.y0, s.x1, s.y1);
        g.stroke();
    }

    #curve(x0, y0, x1, y1) {
        const {g} = this;
        g.moveTo(x0, y0);
        if (this.scale < 0.15 || Math.abs(x0 - x1) < 1) return g.lineTo(x1, y1);
        const half = (y1 - y0) / 2;
        g.bezierCurveTo(x0, y0 + half, x1, y1 - half, x1, y1);
    }

    // Of a long edge only the ends, and what is at the other one; all of it where an end is looked at.
    #cuts(looked) {
        const {g, pane} = this;
        const whole = [];
        g.font = `400 10px ${this.look.font}`;
        g.textAlign = "left";
        g.textBaseline = "middle";
        const begins = new Set();
        for (const {from, to} of this.layout.cut) {
            if (from.item === looked || to.item === looked) whole.push({from, to});
            const x = to.x + to.w - 12, y = to.y;
            if (this.#sees(x, y - 20, x + 80, y)) {
                g.strokeStyle = g.fillStyle = this.colours.quiet;
                g.beginPath();
                g.moveTo(x, y);
                g.lineTo(x, y - 10);
                g.stroke();
                const version = pane.cursor.at(from.item);
                if (this.scale > 0.5 && version) g.fillText("↑ " + this.look.label(version).main, x - 2, y - 16);
            }
            if (begins.has(from)) continue;
            begins.add(from);
            const bx = from.x + from.w - 12, by = from.y + from.h;
            if (!this.#sees(bx, by, bx, by + 12)) continue;
            g.strokeStyle = this.colours.quiet;
            g.setLineDash([3, 3]);
            g.beginPath();
            g.moveTo(bx, by);
            g.lineTo(bx, by + 14);
            g.stroke();
            g.setLineDash([]);
        }
        g.strokeStyle = this.colours.accent;
        g.setLineDash([6, 5]);
        g.beginPath();
        for (const {from, to} of whole) {
            const x0 = from.x + from.w - 12, x1 = to.x + to.w - 12, side = Math.max(from.x + from.w, to.x + to.w) + 60;
            g.moveTo(x0, from.y + from.h);
            g.bezierCurveTo(side, from.y + from.h + 120, side, to.y - 120, x1, to.y);
        }
        g.stroke();
        g.setLineDash([]);
    }

    // ---- boxes

    #boxes() {
        const {layout} = this;
        const firstRow = Math.max(0, Math.floor(this.top / Layout.rowHeight) - 1);
        const lastRow = Math.min(layout.rows.length - 1, Math.ceil(this.bottom / Layout.rowHeight) + 1);
        if (this.motion) {
            for (const box of this.motion.gone) this.#gone(box);
            for (const box of layout.boxes) {
                const from = this.motion.from.get(box.item), t = this.progress;
                const x = from ? from.x + (box.x - from.x) * t : box.x, y = from ? from.y + (box.y - from.y) * t : box.y;
                if (this.#sees(x, y, x + box.w, y + box.h)) this.#box(box, x, y, from ? 1 : t);
            }
        } else {
            for (let r = firstRow; r <= lastRow; ++r)
                for (const box of layout.rows[r])
                    if (this.#sees(box.x, box.y, box.x + box.w, box.y + box.h)) this.#box(box, box.x, box.y, 1);
        }
        this.g.globalAlpha = 1;
    }

    #gone(box) {
        if (!this.#sees(box.x, box.y, box.x + box.w, box.y + box.h) || !box.version) return;
        this.g.globalAlpha = 1 - this.progress;
        this.#frame(box.x, box.y, box.w, box.h, box.version, this.look.paint(box.version).fill, this.colours.removed, 3);
    }

    #markOf(item) {
        const {marks} = this.pane;
        return marks.added.has(item) ? "added" : marks.removed.has(item) ? "removed" : marks.changed.has(item) ? "changed" : "";
    }

    #box(box, x, y, alpha) {
        const {g, pane, look, colours, scale} = this, v = pane.cursor.at(box.item);
        if (!v) return;
        const {fill, ink} = look.paint(v), mark = this.#markOf(box.item);
        g.globalAlpha = pane.found && !pane.found.has(box.item) ? 0.22 * alpha : alpha;
        if (scale < 0.12) {
            g.fillStyle = mark ? colours[mark] : v[look.cost] ? fill : colours.outline;
            return g.fillRect(x, y, box.w, box.h);
        }
        if (mark) {
            g.fillStyle = colours[mark];
            const halo = g.globalAlpha;
            g.globalAlpha = 0.22 * alpha;
            this.#outline(x - 7, y - 7, box.w + 14, box.h + 14, 12);
            g.fill();
            g.globalAlpha = halo;
        }
        const line = pane.selected === box.item ? colours.accent : mark ? colours[mark]
            : pane.found && pane.found.has(box.item) ? colours.found : v.kind === Kind.Op ? colours.outline : colours.accent;
        const strong = mark || pane.selected === box.item || pane.found;
        this.#frame(x, y, box.w, box.h, v, fill, line, strong ? 2.2 : pane.hovered === box.item ? 2 : 1);
        if (scale < 0.3) return;
        const {main, sub} = look.label(v);
        g.fillStyle = ink;
        g.textAlign = "center";
        g.textBaseline = "alphabetic";
        g.font = `600 13px ${look.font}`;
        const small = scale >= 0.5 && sub;
        g.fillText(main, x + box.w / 2, y + (small ? 17 : 25));
        if (!small) return;
        g.font = `400 10.5px ${look.font}`;
        g.globalAlpha *= 0.78;
        g.fillText(sub, x + box.w / 2, y + 31);
    }

    #frame(x, y, w, h, version, fill, line, width) {
        const {g} = this;
        this.#outline(x, y, w, h, version.kind === Kind.Op ? 7 : h / 2);
        g.fillStyle = fill;
        g.fill();
        g.strokeStyle = line;
        g.lineWidth = Math.max(width, 0.6 * width / this.scale);
        if (version.kind === Kind.Op && !version.complete) g.setLineDash([5, 3]);
        g.stroke();
        g.setLineDash([]);
    }

    #outline(x, y, w, h, r) {
        this.g.beginPath();
        this.g.roundRect(x, y, w, h, r);
    }

    // ---- the strip: the whole graph, how far down this is, and where things are marked

    #strip() {
        const {g, pane, layout, colours, w, h} = this, {margin} = Strip, inner = Strip.width - 12;
        g.fillStyle = colours.surface;
        g.fillRect(w, 0, Strip.width, h);
        g.fillStyle = colours.line;
        g.fillRect(w, 0, 1, h);
        if (!pane.strip) pane.strip = this.#stripImage(inner, h - 2 * margin);
        if (pane.strip.width && pane.strip.height) g.drawImage(pane.strip, w + 6, margin, inner, h - 2 * margin);
        const y = v => margin + v / Math.max(1, layout.height) * (h - 2 * margin);
        const tick = (items, colour, wide = Strip.width - 4) => {
            g.fillStyle = colour;
            for (const item of items) {
                const box = layout.byItem.get(item);
                if (box) g.fillRect(w + 2, y(box.y + box.h / 2) - 1.5, wide, 3);
            }
        };
        if (pane.found) tick(pane.found, colours.found, 7);
        for (const mark of ["changed", "removed", "added"]) tick(pane.marks[mark], colours[mark]);
        if (pane.selected >= 0) tick([pane.selected], colours.accent);
        const top = Math.max(0, y(this.top)), bottom = Math.min(h, y(this.bottom));
        g.strokeStyle = colours.accent;
        g.lineWidth = 1.5;
        g.fillStyle = colours.accent;
        g.globalAlpha = 0.1;
        g.fillRect(w + 2, top, Strip.width - 4, Math.max(6, bottom - top));
        g.globalAlpha = 1;
        g.strokeRect(w + 2, top, Strip.width - 4, Math.max(6, bottom - top));
    }

    #stripImage(width, height) {
        const image = document.createElement("canvas"), ratio = window.devicePixelRatio || 1, {layout, look} = this;
        image.width = Math.max(1, Math.round(width * ratio));
        image.height = Math.max(1, Math.round(height * ratio));
        const g = image.getContext("2d"), sx = image.width / Math.max(1, layout.width);
        const sy = image.height / Math.max(1, layout.height);
        for (const box of layout.boxes) {
            const v = this.pane.cursor.at(box.item);
            if (!v) continue;
            g.fillStyle = v.kind === Kind.Op && v[look.cost] ? look.paint(v).fill : this.colours.edge;
            const tall = Math.max(ratio, box.h * sy * 0.9), wide = Math.max(2 * ratio, Math.min(box.w * sx, 14 * ratio));
            g.fillRect((box.x + box.w / 2) * sx - wide / 2, box.y * sy, wide, tall);
        }
        return image;
    }
}
