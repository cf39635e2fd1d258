// The dialog with the tables of before and after: what the model costs, its ops, the passes and the rules.
"use strict";

function fillSummary(history, look) {
    const {data} = history;
    const body = document.querySelector("#summary .body");
    const close = element("form", element("button", "Close"));
    close.method = "dialog";
    body.replaceChildren(
        element("h2", ["Summary of ", element("bdi", shown(data.title || data.graph))]),
        element("p.quiet", [`${Numbers[""](rewriteCount(history))} rewrites in ${data.rounds} iterations, precision ${data.precision}`,
                            data.sizes ? element("bdi", shown(`; costs${data.sizes}`)) : ""]),
        element("div.columns", [
            element("div", [costTable(data.summary), element("h3", "Passes"), passTable(data.passes)]),
            element("div", [element("h3", "Nodes by op"), opTable(history, look)]),
            element("div", [element("h3", "Rules, by use"), ruleTable(history)]),
        ]), close);
}

function rewriteCount(history) {
    return history.steps.filter(s => s.rule !== null).length;
}

function table(heads, rows) {
    return element("table.numbers", [
        element("thead", element("tr", heads.map(h => element("th", h)))),
        element("tbody", rows.map(cells => element("tr", cells.map((c, i) => element(i ? "td" : "th", c))))),
    ]);
}

function change(before, after) {
    const text = changeText(before, after), cell = element("span.change", text);
    if (text && text !== "≈ 0 %") cell.classList.add(after < before ? "less" : "more");
    return cell;
}

function costTable(rows) {
    return table(["", "before", "after", ""], rows.map(r => {
        const number = n => n === null ? "?" : Numbers[r.unit](n);
        return [r.name, number(r.before), number(r.after), change(r.before, r.after)];
    }));
}

function opTable(history, look) {
    const count = step => {
        const ops = new Map(), cursor = history.cursor(step);
        for (const item of cursor.items()) {
            const v = cursor.at(item);
            if (v.kind === Kind.Op) ops.set(look.opName(v), (ops.get(look.opName(v)) || 0) + 1);
        }
        return ops;
    };
    const before = count(0), after = count(history.steps.length);
    const ops = [...new Set([...before.keys(), ...after.keys()])].map(op => [op, before.get(op) || 0, after.get(op) || 0]);
    ops.sort((a, b) => b[1] - a[1] || b[2] - a[2] || (a[0] < b[0] ? -1 : 1));
    return table(["", "before", "after", ""], ops.map(([op, b, a]) => [element("bdi", shown(op)), Numbers[""](b),
                                                                        Numbers[""](a), change(b, a)]));
}

function passTable(passes) {
    return table(["", "runs", "rewrites"], passes.filter(p => p.runs).map(p => {
        const name = element("span", p.name);
        name.title = p.purpose;
        return [name, p.runs, Numbers[""](p.rewrites)];
    }));
}

function ruleTable(history) {
    const uses = new Map();
    for (const s of history.steps) if (s.rule !== null) uses.set(s.rule, (uses.get(s.rule) || 0) + 1);
    const rows = [...uses].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    return table(["", "uses"], rows.map(([rule, n]) => [element("bdi", shown(rule)), Numbers[""](n)]));
}
