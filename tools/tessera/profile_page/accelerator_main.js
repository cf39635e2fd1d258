// Puts the page of an accelerator together. With #selftest in the address it tries itself and says so in its title.
"use strict";

// Layers under the machine's limits, and where they would be without virtual threads.
class AcceleratorRoofline extends Roofline {
    dots() {
        for (const p of this.points) {
            if (!p.step.without) continue;
            const there = p.step.flops / (p.step.without / data.megahertz / 1e6);
            const [cx, cy] = this.at(p.x, there), [, to] = this.at(p.x, p.y);
            this.svg.append(drawn("line", {x1: cx, x2: cx, y1: cy, y2: to, class: "gain"}), drawn("circle", {cx, cy, r: 4, class: "hollow"}));
        }
        super.dots();
    }
}

function unitBars(place) {
    const kinds = [["busy", "busy"], ["fetch", "waits-fetch"], ["tokens", "waits-tokens"], ["room", "waits-room"]];
    const width = 520, left = 76, row = 24;
    const svg = drawn("svg", {width, height: row * (data.units.length + 1) + 8, role: "img", "aria-label": "Cycles by unit"});
    data.units.forEach((unit, k) => {
        let x = left;  // a unit moves rows of one instruction while it waits with the next: more than all cycles
        const whole = Math.max(unit.cycles, kinds.reduce((sum, [kind]) => sum + unit[kind], 0), 1);
        svg.append(drawn("text", {x: 0, y: row * k + 15, class: "quiet"}, unit.name));
        for (const [kind, style] of kinds) {
            const part = Math.max(0, unit[kind]) / whole * (width - left - 60);
            const rect = drawn("rect", {x, y: row * k + 3, width: part, height: row - 7, class: style});
            rect.append(drawn("title", {}, `${unit.part}: ${unit.name}, ${kind} ${shown.percent(unit[kind] / Math.max(unit.cycles, 1))}`));
            svg.append(rect);
            x += part;
        }
        svg.append(drawn("text", {x: width - 50, y: row * k + 15}, shown.percent(unit.busy / Math.max(unit.cycles, 1))));
    });
    kinds.forEach(([kind, style], k) => {
        const y = row * data.units.length + 8, x = left + 118 * k;
        svg.append(drawn("rect", {x, y, width: 12, height: 12, class: style}),
                   drawn("text", {x: x + 16, y: y + 10, class: "quiet"}, kind === "busy" ? "busy" : kind === "fetch" ? "no instruction" : kind === "tokens" ? "waits for a token" : "queue full"));
    });
    place.replaceChildren(svg);
}

function layerTable(section) {
    const times = (more, fewer) => fewer > 0 ? more / fewer : 0;
    const compare = steps.some(s => s.without);
    const columns = [
        {name: "#", value: s => s.index, text: s => String(s.index + 1)},
        {name: "cycles", value: s => s.cycles, text: s => shown.count(s.cycles)},
        {name: "share", value: s => s.share, text: s => shown.percent(s.share), bar: s => s.share * data.seconds / longest},
        {name: "MACs", value: s => s.macs, text: s => shown.count(s.macs)},
        {name: "matrix unit", value: s => s.busy, text: s => shown.percent(s.busy)},
        {name: "bytes", value: s => s.bytes, text: s => shown.bytes(s.bytes)},
        {name: "scalar host", value: s => times(s.scalar, s.cycles), text: s => `${times(s.scalar, s.cycles).toFixed(0)}x`},
        ...(compare ? [{name: "one thread", value: s => s.without, text: s => `${times(s.without, s.cycles).toFixed(2)}x`}] : []),
        {name: "op", value: s => s.op, text: s => s.op, left: true},
        {name: "layer", value: s => s.label, text: s => s.label, left: true},
        {name: "tiles", value: s => s.plan, text: s => s.plan, left: true},
    ];
    return new SortedTable(section, columns, steps, {order: 1, text: s => `${s.label} ${s.op}`, choose: s => chosen.choose(s.index)});
}

const page = {
    start() {
        document.getElementById("title").textContent = data.title;
        document.title = `${data.title}: profile`;
        const macs = steps.reduce((sum, s) => sum + s.macs, 0), scalar = steps.reduce((sum, s) => sum + s.scalar, 0);
        const entries = [["machine", data.machine], ["cycles", shown.count(data.cycles)], [`at ${data.megahertz} MHz`, shown.seconds(data.seconds)],
                         ["multiply-accumulates", shown.count(macs)], ["of peak", shown.percent(2 * macs / data.peak.flops / data.seconds)],
                         ["than a scalar host", `${(scalar / Math.max(data.cycles, 1)).toFixed(0)} times fewer cycles`]];
        document.getElementById("totals").replaceChildren(...entries.map(([name, value]) => {
            const entry = element("div");
            entry.append(element("dt", name), element("dd", value));
            return entry;
        }));
        this.timeline = new UnitTimeline(document.querySelector("#timeline .chart"));
        unitBars(document.querySelector("#units .chart"));
        this.roofline = new AcceleratorRoofline(document.querySelector("#roofline .chart"));
        this.layers = layerTable(document.getElementById("steps"));
        data.host_reasons = [];
        fusionTable(document.getElementById("fusion"));
    },

    selfTest() {
        const faults = [], expect = (holds, text) => { if (!holds) faults.push(text); };
        try {
            expect(document.querySelectorAll("#steps tbody tr").length === steps.length, "a row for each layer");
            const bars = () => document.querySelectorAll("#timeline .span").length;
            expect(bars() > 0 && bars() <= this.timeline.spans.length, `${bars()} bars of ${this.timeline.spans.length}`);
            const some = this.timeline.spans.slice(0, 12);
            this.timeline.zoom(0, Math.max(...some.map(s => s.end)));
            expect(bars() >= 3, "zooming shows no instructions");
            expect(document.querySelectorAll("#timeline .token").length > 0, "zooming shows no tokens");
            this.timeline.zoom(0, this.timeline.end);
            expect(document.querySelectorAll("#units .busy").length >= data.units.length, "a bar for each unit");
            expect(document.querySelectorAll("#roofline circle[data-step]").length === this.roofline.points.length, "a dot for each layer");
            chosen.choose(0);
            expect(document.querySelectorAll("#roofline .chosen").length === 1, "choosing marks no dot");
            chosen.choose(0);
        } catch (e) {
            faults.push(`threw ${e && e.stack || e}`);
        }
        const verdict = {ok: !faults.length, faults, steps: steps.length, scripts: document.scripts.length, titles: document.title,
                         bars: document.querySelectorAll("#timeline .span").length, dots: document.querySelectorAll("#roofline circle[data-step]").length,
                         hollow: document.querySelectorAll("#roofline .hollow").length, decisions: document.querySelectorAll("#fusion tbody tr").length,
                         roof: document.querySelectorAll(".roof").length};
        const out = element("pre", JSON.stringify(verdict));
        out.id = "verdict";
        document.body.append(out);
        document.title = verdict.ok ? "selftest ok" : "selftest FAILED";
    },
};

page.start();
if (location.hash === "#selftest") page.selfTest();
