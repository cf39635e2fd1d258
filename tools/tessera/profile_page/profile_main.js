// Puts the page together. With #selftest in the address it tries itself and says so in its title.
"use strict";

function totals() {
    const entries = [["one run", shown.seconds(data.seconds)], ["steps", String(steps.length)], ["kernels", String(data.kernels)]];
    if (data.at_once !== undefined) entries.push(["launched at once", shown.seconds(data.at_once)]);
    if (data.flops > 0) entries.push(["arithmetic", `${withUnit(data.flops, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"])}, ${shown.rate(data.flops, data.seconds, "FLOP/s")}`]);
    if (data.peak) {
        const share = Math.max(data.flops / data.peak.flops, data.bytes / data.peak.bytes) / data.seconds;
        entries.push(["of this machine's peak", shown.percent(share)], ["threads", String(data.peak.threads)]);
    }
    entries.push(["weights", shown.bytes(data.weight_bytes)]);
    if (data.arena_bytes !== undefined) entries.push(["arena", shown.bytes(data.arena_bytes)]);
    const sizes = Object.entries(data.sizes).map(([name, size]) => `${name}=${size}`).join(", ");
    if (sizes) entries.push(["sizes", sizes]);
    document.getElementById("totals").replaceChildren(...entries.map(([name, value]) => {
        const entry = element("div");
        entry.append(element("dt", name), element("dd", value));
        return entry;
    }));
}

function legend() {
    const ramp = document.getElementById("ramp"), bar = element("span");
    for (let i = 0; i < 6; ++i) bar.append(element("i", undefined, {class: `heat${i}`}));
    ramp.append(element("span", "little time"), bar, element("span", "much"));
}

// What is known of the chosen step.
function details(index) {
    const panel = document.getElementById("details");
    panel.hidden = index === null;
    if (index === null) return;
    const s = steps[index];
    panel.querySelector("h3").textContent = s.label;
    const entries = [["time", `${shown.seconds(s.seconds)}, ${shown.percent(s.share)}`], ["kind", s.kind === "host" ? "left to the reference" : s.kind]];
    if (s.flops > 0) entries.push(["arithmetic", `${withUnit(s.flops, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"])}, ${shown.rate(s.flops, s.seconds, "FLOP/s")}`]);
    if (s.bytes > 0) entries.push(["memory", `${shown.bytes(s.bytes)}, ${shown.rate(s.bytes, s.seconds, "B/s")}`]);
    if (data.peak && (s.flops > 0 || s.bytes > 0)) entries.push(["of peak", shown.percent(s.of_peak)]);
    if (s.launches) entries.push(["launches", String(s.launches)]);
    const threads = new Set(s.threads.map(t => t[0])).size;
    if (threads) entries.push(["threads", String(threads)]);
    entries.push(["fused", s.nodes.map((node, k) => `${s.ops[k]} ${node}`).join(", ")]);
    if (s.reads.length) entries.push(["reads", s.reads.join(", ")]);
    if (s.writes.length) entries.push(["writes", s.writes.join(", ")]);
    const names = new Set([...s.nodes, ...s.writes]);
    const why = data.decisions.filter(([what]) => what.split(" ").some(word => names.has(word)));
    for (const [what, reason] of why.slice(0, 6)) entries.push(["decided", `${what}: ${reason}`]);
    panel.querySelector("dl").replaceChildren(...entries.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
}

const page = {
    start() {
        document.getElementById("title").textContent = data.title;
        document.title = `${data.title}: profile`;
        totals();
        legend();
        const chart = id => document.querySelector(`#${id} .chart`);
        this.timeline = new Timeline(chart("timeline"));
        this.roofline = new Roofline(chart("roofline"));
        this.graph = new StepGraph(chart("graph"));
        this.steps = stepTable(document.getElementById("steps"));
        this.fusion = fusionTable(document.getElementById("fusion"));
        chosen.watchers.push(details);
        document.querySelector("#details button").addEventListener("click", () => chosen.choose(chosen.step));
        for (const link of document.querySelectorAll("nav a")) {
            const go = () => document.getElementById(link.dataset.to).scrollIntoView();
            link.addEventListener("click", go);
            link.addEventListener("keydown", e => { if (e.key === "Enter") go(); });
        }
        document.addEventListener("keydown", e => { if (e.key === "Escape" && chosen.step !== null) chosen.choose(chosen.step); });
    },

    // Everything is drawn, sorting sorts, filtering filters, zooming and choosing do what they say.
    selfTest() {
        const faults = [], expect = (holds, text) => { if (!holds) faults.push(text); };
        try {
            const rows = () => [...document.querySelectorAll("#steps tbody tr")].map(tr => +tr.dataset.step);
            expect(rows().length === steps.length, `${rows().length} rows`);
            const byTime = rows().map(i => steps[i].seconds);
            expect(byTime.every((s, i) => !i || byTime[i - 1] >= s), "not sorted by time");
            document.querySelector("#steps th button").click();
            expect(rows()[0] === steps.length - 1 || steps.length < 2, "a click does not sort");
            document.querySelector("#steps th button").click();
            expect(rows().every((step, i) => step === i), "a second click does not turn the order");
            this.steps.search.value = "no step is called so";
            this.steps.fill();
            expect(rows().length === 0, "the filter keeps what does not match");
            this.steps.search.value = steps[0].label;
            this.steps.fill();
            expect(rows().includes(0) && rows().every(i => i === 0 || rows().length <= steps.length), "the filter drops what matches");
            this.steps.search.value = "";
            this.steps.fill();
            const boxes = document.querySelectorAll("#graph rect[data-step]").length;
            expect(boxes === steps.length, `${boxes} boxes in the graph`);
            const bars = document.querySelectorAll("#timeline .bar").length;
            const spans = this.timeline.timed.reduce((sum, s) => sum + 1 + s.threads.length, 0);
            expect(bars <= spans && bars >= this.timeline.timed.length, `${bars} bars of ${spans}`);
            const dots = document.querySelectorAll("#roofline circle").length;
            expect(dots === this.roofline.points.length, `${dots} dots`);
            this.timeline.zoom(this.timeline.end / 2, this.timeline.end);
            const zoomed = document.querySelectorAll("#timeline .bar").length;
            expect(zoomed <= bars, "zooming shows more");
            this.timeline.zoom(0, this.timeline.end);
            chosen.choose(0);
            expect(!document.getElementById("details").hidden && document.querySelectorAll("#graph .chosen").length === 1, "choosing shows nothing");
            chosen.choose(0);
            expect(document.getElementById("details").hidden, "choosing again does not let go");
        } catch (e) {
            faults.push(`threw ${e && e.stack || e}`);
        }
        const verdict = {ok: !faults.length, faults, steps: steps.length, scripts: document.scripts.length, titles: document.title,
                         bars: document.querySelectorAll("#timeline .bar").length, dots: document.querySelectorAll("#roofline circle").length,
                         decisions: document.querySelectorAll("#fusion tbody tr").length, roof: document.querySelectorAll(".roof").length};
        const out = element("pre", JSON.stringify(verdict));
        out.id = "verdict";
        document.body.append(out);
        document.title = verdict.ok ? "selftest ok" : "selftest FAILED";
    },
};

page.start();
if (location.hash === "#selftest") page.selfTest();
