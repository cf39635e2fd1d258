// What all charts share: the data, elements, numbers for people, and colours by share of the time.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function element(tag, text, attributes = {}) {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    return e;
}

function drawn(tag, attributes = {}, text) {
    const e = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    if (text !== undefined) e.textContent = text;
    return e;
}

function withUnit(n, units, base = 1000) {
    let i = 0;
    while (n >= base && i + 1 < units.length) { n /= base; ++i; }
    return `${n >= 100 || (i === 0 && Number.isInteger(n)) ? Math.round(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} ${units[i]}`;
}

const shown = {
    seconds(s) {
        if (!(s > 0)) return "0 s";
        if (s < 1e-6) return `${(s * 1e9).toPrecision(3)} ns`;
        if (s < 1e-3) return `${(s * 1e6).toPrecision(3)} µs`;
        return s < 1 ? `${(s * 1e3).toPrecision(3)} ms` : `${s.toPrecision(3)} s`;
    },
    rate(amount, seconds, unit) {
        return amount > 0 && seconds > 0 ? withUnit(amount / seconds, ["", "k", "M", "G", "T", "P"].map(u => u + unit)) : "–";
    },
    bytes(n) { return withUnit(n, ["B", "kB", "MB", "GB", "TB", "PB"]); },
    count(n) { return withUnit(n, ["", "k", "M", "G", "T", "P"]).trim(); },
    percent(share) { return `${(100 * share).toFixed(100 * share < 10 ? 1 : 0)} %`; },
    plural(n, what) { return `${n} ${what}${n === 1 ? "" : "s"}`; },
};

const steps = data.steps.map((step, index) => ({...step, index, share: data.seconds > 0 ? step.seconds / data.seconds : 0}));
const longest = Math.max(...steps.map(s => s.seconds), 1e-12);

// 0 for what takes next to nothing, 5 for the longest step.
function heat(step) {
    return Math.min(5, Math.floor(6 * Math.sqrt(step.seconds / longest) * 0.9999));
}

// One step is chosen at a time; whoever shows steps is told.
const chosen = {
    step: null,
    watchers: [],
    choose(index) {
        this.step = index === this.step ? null : index;
        for (const watcher of this.watchers) watcher(this.step);
    },
};

function choosable(e, step) {
    e.setAttribute("data-step", step.index);
    e.append(drawn("title", {}, `${step.label}\n${shown.seconds(step.seconds)}, ${shown.percent(step.share)} of the time`));
    e.addEventListener("click", () => chosen.choose(step.index));
    return e;
}

// Marks what stands for the chosen step among some elements.
function markChosen(root) {
    chosen.watchers.push(index => {
        for (const e of root.querySelectorAll(".chosen")) e.classList.remove("chosen");
        if (index !== null) for (const e of root.querySelectorAll(`[data-step="${index}"]`)) e.classList.add("chosen");
    });
}

function niceStep(range, count) {
    const rough = range / count, power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find(m => m * power >= rough);
}
