// Tables that sort by a column and show what a filter leaves.
"use strict";

class SortedTable {
    // columns: {name, value(row), text(row), left, bar(row)}
    constructor(section, columns, rows, {order, text, choose}) {
        Object.assign(this, {columns, rows, text, choose, column: order, down: true});
        this.head = section.querySelector("thead");
        this.body = section.querySelector("tbody");
        this.search = section.querySelector("input");
        this.count = section.querySelector(".count");
        this.search.addEventListener("input", () => this.fill());
        this.headings();
        this.fill();
    }

    headings() {
        const row = element("tr");
        this.columns.forEach((column, k) => {
            const th = element("th", undefined, column.left ? {class: "text"} : {});
            const button = element("button", column.name, {type: "button"});
            button.addEventListener("click", () => this.sortBy(k));
            th.append(button);
            row.append(th);
        });
        this.head.replaceChildren(row);
    }

    sortBy(k) {
        this.down = k === this.column ? !this.down : !this.columns[k].left;
        this.column = k;
        this.fill();
    }

    shownRows() {
        const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
        const kept = this.rows.filter(row => { const text = this.text(row).toLowerCase(); return words.every(w => text.includes(w)); });
        const value = this.columns[this.column].value, sign = this.down ? -1 : 1;
        return kept.map((row, i) => [value(row), i, row])
            .sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : a[1] - b[1])).map(entry => entry[2]);
    }

    fill() {
        const rows = this.shownRows();
        this.count.textContent = rows.length === this.rows.length ? `${rows.length}` : `${rows.length} of ${this.rows.length}`;
        [...this.head.querySelectorAll("th")].forEach((th, k) => {
            if (k === this.column) th.setAttribute("aria-sort", this.down ? "descending" : "ascending");
            else th.removeAttribute("aria-sort");
            th.firstChild.textContent = this.columns[k].name + (k === this.column ? (this.down ? " ↓" : " ↑") : "");
        });
        this.body.replaceChildren(...rows.map(row => this.line(row)));
    }

    line(row) {
        const tr = element("tr");
        if (row.index !== undefined) tr.setAttribute("data-step", row.index);
        if (row.index !== undefined && row.index === chosen.step) tr.classList.add("chosen");
        if (this.choose) tr.addEventListener("click", () => this.choose(row));
        for (const column of this.columns) {
            const td = element("td", column.text(row), column.left ? {class: "text"} : {});
            if (column.bar) {
                const bar = drawn("svg", {width: 60, height: 8});
                bar.append(drawn("rect", {width: 60 * Math.min(1, column.bar(row)), height: 8, rx: 2}));
                td.append(bar);
            }
            tr.append(td);
        }
        return tr;
    }
}

function stepTable(section) {
    const columns = [
        {name: "#", value: s => s.index, text: s => String(s.index + 1)},
        {name: "time", value: s => s.seconds, text: s => shown.seconds(s.seconds)},
        {name: "share", value: s => s.share, text: s => shown.percent(s.share), bar: s => s.share * data.seconds / longest},
        {name: "FLOP/s", value: s => s.seconds > 0 ? s.flops / s.seconds : 0, text: s => shown.rate(s.flops, s.seconds, "FLOP/s")},
        {name: "B/s", value: s => s.seconds > 0 ? s.bytes / s.seconds : 0, text: s => shown.rate(s.bytes, s.seconds, "B/s")},
        ...(data.peak ? [{name: "of peak", value: s => s.of_peak, text: s => shown.percent(s.of_peak)}] : []),
        {name: "kind", value: s => s.kind, text: s => s.kind === "host" ? "reference" : s.kind, left: true},
        {name: "step", value: s => s.label, text: s => s.label, left: true},
        {name: "ops", value: s => s.ops.length, text: s => s.ops.join(", "), left: true},
    ];
    const table = new SortedTable(section, columns, steps, {
        order: 1, text: s => [s.label, s.kind, ...s.ops, ...s.nodes].join(" "), choose: s => chosen.choose(s.index),
    });
    markChosen(section);
    return table;
}

function fusionTable(section) {
    const rows = [...data.decisions.map(([what, why]) => ({what, why})),
                  ...data.host_reasons.map(([what, why]) => ({what: `leave ${what} to the reference`, why}))];
    const columns = [
        {name: "decision", value: r => r.what, text: r => r.what, left: true},
        {name: "why", value: r => r.why, text: r => r.why, left: true},
    ];
    const table = new SortedTable(section, columns, rows, {order: 0, text: r => `${r.what} ${r.why}`});
    table.sortBy(0);  // from a to z
    return table;
}
