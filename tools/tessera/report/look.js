// Colours, numbers and texts, as the graphs and the panel show them.
"use strict";

// What a name shows of itself: characters that would change the text around it are written out.
function shown(text) {
    return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g,
                        c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function clipped(text, most) {
    return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

function withUnit(n, units) {
    let unit = 0;
    while (Math.abs(n) >= 1000 && unit + 1 < units.length) {
        n /= 1000;
        ++unit;
    }
    const size = Math.abs(n);
    const digits = unit === 0 ? 0 : size < 10 ? 2 : size < 100 ? 1 : 0;
    return n.toFixed(digits) + units[unit];
}

const Numbers = {
    "": n => n.toLocaleString("en-US"),
    count: n => withUnit(n, ["", " k", " M", " G", " T", " P", " E"]),
    bytes: n => withUnit(n, [" B", " kB", " MB", " GB", " TB", " PB", " EB"]),
};
const Costs = {
    flops: {label: "FLOPs", number: Numbers.count},
    bytes: {label: "Bytes moved", number: Numbers.bytes},
};

function changeText(before, after) {
    if (before === null || after === null || before === after) return "";
    if (before === 0) return "new";
    const percent = 100 * (after - before) / before, sign = percent < 0 ? "−" : "+";
    if (Math.abs(percent) < 0.05) return "≈ 0 %";
    return `${sign}${Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0)} %`;
}

const Exactness = {
    exact: "Gives the same bits for every input.",
    reassociates: "Equal for real numbers: rounding and the sign of a zero may differ.",
    approximates: "Equal within a bound that is accepted in practice, or for finite inputs.",
};

// The page's colours, read from its style sheet so that light and dark are said once.
class Look {
    constructor(history) {
        this.ops = history.data.ops;
        this.most = history.most;
        this.cost = "flops";
        this.widths = new Map();
        this.context = document.createElement("canvas").getContext("2d");
        this.read();
    }

    read() {
        const style = getComputedStyle(document.documentElement), get = name => style.getPropertyValue("--" + name).trim();
        this.colours = {};
        for (const name of ["page", "surface", "text", "quiet", "line", "edge", "accent", "added", "removed", "changed",
                            "found", "node", "outline"])
            this.colours[name] = get(name);
        this.ramp = get("ramp").split(" ").map(parseColour);
        this.font = getComputedStyle(document.body).fontFamily;
        this.heats = new Map();
    }

    opName(version) {
        return Object.hasOwn(this.ops, version.op) ? this.ops[version.op] : version.op;
    }

    kindName(version) {
        return version.kind === Kind.Op ? this.opName(version) : ["", "Input", "Constant", "Output"][version.kind];
    }

    // The two lines in a node's box.
    label(version) {
        const type = version.types[0] || "", more = version.types.length - 1;
        const main = version.kind === Kind.Op ? this.opName(version) : version.outputs[0];
        return {main: clipped(shown(main), 24), sub: clipped(shown(type), 28) + (more > 0 ? ` +${more}` : "")};
    }

    boxWidth(version) {
        const {main, sub} = this.label(version);
        return Math.max(72, Math.ceil(Math.max(this.#width(main, 600, 13), this.#width(sub, 400, 10.5)) + 26));
    }

    #width(text, weight, size) {
        const key = `${weight} ${text}`;
        if (!this.widths.has(key)) {
            this.context.font = `${weight} ${size}px ${this.font}`;
            this.widths.set(key, this.context.measureText(text).width);
        }
        return this.widths.get(key);
    }

    // By order of magnitude: from a hundred-thousandth of the costliest on.
    level(value) {
        const most = this.most[this.cost];
        return value > 0 && most > 0 ? Math.max(0.03, Math.min(1, 1 + Math.log10(value / most) / 5)) : 0;
    }

    // The colour of a level, and of text on it.
    heat(level) {
        const key = Math.round(level * 64);
        if (!this.heats.has(key)) {
            const at = key / 64 * (this.ramp.length - 1), i = Math.min(this.ramp.length - 2, Math.floor(at));
            const rgb = this.ramp[i].map((c, k) => Math.round(c + (this.ramp[i + 1][k] - c) * (at - i)));
            const [r, g, b] = rgb.map(c => (c / 255) ** 2.2);
            const dark = 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.22;
            this.heats.set(key, {fill: `rgb(${rgb.join(",")})`, ink: dark ? "#ffffff" : "#12161d"});
        }
        return this.heats.get(key);
    }

    // How a box is filled, and the colour of its text.
    paint(version) {
        if (version.kind !== Kind.Op || !version[this.cost]) return {fill: this.colours.node, ink: this.colours.text};
        return this.heat(this.level(version[this.cost]));
    }
}

function parseColour(hex) {
    return [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
}
