// Places the nodes of a graph in rows, each below what it uses. Edges that cross rows get a place in each of them, the
// edges of one value together; edges that are very long are cut, and drawn only when one of their ends is looked at.
"use strict";

const Layout = {
    nodeHeight: 40,
    rowHeight: 78,
    gap: 22,          // between nodes
    edgeGap: 14,      // beside an edge that passes
    longest: 40,      // rows that an edge may cross before it is cut
    mostPlaces: 60000 // of passing edges in all; with more of them, edges are cut sooner
};

// nodes: [{item, width, inputs: [item], fixed: stays above}]; hints: item -> where it may stand, from left to right.
function layoutGraph(nodes, hints) {
    const graph = indexNodes(nodes);
    const rows = assignRows(graph);
    let net = null;
    for (let longest = Layout.longest; !net; longest >>= 1) net = passEdges(graph, rows, longest);
    orderRows(net, hints);
    placeAcross(net);
    return drawing(graph, net);
}

function indexNodes(nodes) {
    const index = new Map(nodes.map((n, i) => [n.item, i]));
    const inputs = nodes.map(n => [...new Set(n.inputs.map(item => index.get(item)).filter(i => i !== undefined))]);
    const order = topologicalOrder(inputs);
    const place = new Int32Array(nodes.length);
    order.forEach((i, p) => place[i] = p);
    const users = nodes.map(() => []);
    inputs.forEach((list, i) => {
        inputs[i] = list.filter(j => place[j] < place[i]);  // no edge goes back, whatever the data
        for (const j of inputs[i]) users[j].push(i);
    });
    return {nodes, inputs, users, order};
}

function topologicalOrder(inputs) {
    const open = inputs.map(list => list.length), users = inputs.map(() => []);
    inputs.forEach((list, i) => list.forEach(j => users[j].push(i)));
    const order = [], done = new Uint8Array(inputs.length);
    open.forEach((n, i) => { if (!n) order.push(i); });
    for (let p = 0; p < order.length; ++p) {
        done[order[p]] = 1;
        for (const user of users[order[p]]) if (--open[user] === 0) order.push(user);
    }
    inputs.forEach((_, i) => { if (!done[i]) order.push(i); });
    return order;
}

// The longest way from the top; then what hangs on no input of the graph, or is used in more places than it uses, goes
// down to where it is used.
function assignRows({nodes, inputs, users, order}) {
    const rows = new Int32Array(order.length), loose = new Uint8Array(order.length);
    for (const i of order) {
        loose[i] = !nodes[i].fixed && inputs[i].every(j => loose[j]);
        for (const j of inputs[i]) rows[i] = Math.max(rows[i], rows[j] + 1);
    }
    for (let p = order.length - 1; p >= 0; --p) {
        const i = order[p];
        if (!users[i].length || (!loose[i] && users[i].length <= inputs[i].length)) continue;
        let lowest = Infinity;
        for (const user of users[i]) lowest = Math.min(lowest, rows[user]);
        rows[i] = Math.max(rows[i], lowest - 1);
    }
    const used = [...new Set(rows)].sort((a, b) => a - b), renumbered = new Map(used.map((r, i) => [r, i]));
    return rows.map(r => renumbered.get(r));
}

// Slots: one for each node, and one for each value in each row that it passes. Null where there would be too many.
function passEdges({nodes, inputs, users, order}, rows, longest) {
    const slots = nodes.map((n, i) => ({node: i, from: i, row: rows[i], width: n.width, up: [], down: [], x: 0}));
    const cut = [];
    for (const i of order) {
        let last = rows[i];
        for (const user of users[i]) {
            if (rows[user] - rows[i] > longest) cut.push([i, user]);
            else last = Math.max(last, rows[user] - 1);
        }
        const trunk = [slots[i]];
        for (let row = rows[i] + 1; row <= last; ++row) {
            const slot = {node: -1, from: i, row, width: 2, up: [], down: [], x: 0};
            slots.push(slot);
            if (slots.length - nodes.length > Layout.mostPlaces && longest > 1) return null;
            link(trunk[trunk.length - 1], slot);
            trunk.push(slot);
        }
        for (const user of users[i]) {
            const at = rows[user] - 1 - rows[i];
            if (rows[user] - rows[i] <= longest) link(trunk[at], slots[user]);
        }
    }
    const count = rows.reduce((a, b) => Math.max(a, b), -1) + 1;
    const table = Array.from({length: count}, () => []);
    for (const slot of slots) table[slot.row].push(slot);
    return {slots, table, cut};
}

function link(upper, lower) {
    upper.down.push(lower);
    lower.up.push(upper);
}

// Neighbours' middles, down and up again. With hints the order is nearly there, and stays close to it.
function orderRows({slots, table}, hints) {
    for (const slot of slots) slot.key = hints ? hints(slot.from) : slot.from;
    const number = row => row.forEach((slot, i) => slot.order = i - (row.length - 1) / 2);
    const sort = row => row.sort((a, b) => a.key - b.key || a.order - b.order || a.from - b.from || a.node - b.node);
    for (const row of table) {
        row.forEach((slot, i) => slot.order = i);
        sort(row);
        number(row);
    }
    const sweeps = hints ? 2 : 8;
    for (let sweep = 0; sweep < sweeps; ++sweep) {
        const down = sweep % 2 === 0;
        for (let r = 0; r < table.length; ++r) {
            const row = table[down ? r : table.length - 1 - r];
            for (const slot of row) {
                const near = down ? slot.up : slot.down;
                slot.key = near.length ? near.reduce((sum, n) => sum + n.order, 0) / near.length : slot.order;
            }
            sort(row);
            number(row);
        }
    }
}

// Each slot near the middle of its neighbours, in order and apart: the least squares of that, row by row.
function placeAcross({slots, table}) {
    for (const row of table) {
        let x = 0;
        row.forEach((slot, i) => slot.x = x += i ? apart(row[i - 1], slot) : 0);
        for (const slot of row) slot.x -= x / 2;
    }
    const rounds = slots.length > 4000 ? 8 : 14;
    for (let round = 0; round < rounds; ++round)
        for (let r = 0; r < table.length; ++r) {
            const row = table[round % 2 ? table.length - 1 - r : r];
            row.forEach(wish);
            isotonic(row);
        }
}

// What passes stays straight; a node stands under its one input, or between them.
function wish(slot) {
    let sum = 0, weight = 0;
    for (const list of [slot.up, slot.down])
        for (const n of list) {
            const w = slot.node < 0 && n.node < 0 ? 6 : slot.node >= 0 && list.length === 1 ? 2 : 1;
            sum += w * n.x;
            weight += w;
        }
    slot.wish = weight ? sum / weight : slot.x;
    slot.weight = slot.node < 0 ? 3 : 1;
}

function apart(a, b) {
    return (a.width + b.width) / 2 + (a.node < 0 || b.node < 0 ? Layout.edgeGap : Layout.gap);
}

// Pools neighbours that would overlap and puts each pool where its wishes are on average.
function isotonic(row) {
    const pools = [];
    let offset = 0;
    row.forEach((slot, i) => {
        if (i) offset += apart(row[i - 1], slot);
        slot.offset = offset;
        let pool = {sum: slot.weight * (slot.wish - offset), weight: slot.weight, first: i};
        while (pools.length && pools[pools.length - 1].sum / pools[pools.length - 1].weight >= pool.sum / pool.weight) {
            const before = pools.pop();
            pool = {sum: before.sum + pool.sum, weight: before.weight + pool.weight, first: before.first};
        }
        pools.push(pool);
    });
    pools.forEach((pool, p) => {
        const end = p + 1 < pools.length ? pools[p + 1].first : row.length;
        for (let i = pool.first; i < end; ++i) row[i].x = pool.sum / pool.weight + row[i].offset;
    });
}

function drawing({nodes}, {slots, table, cut}) {
    let left = Infinity, right = -Infinity;
    for (const slot of slots) {
        left = Math.min(left, slot.x - slot.width / 2);
        right = Math.max(right, slot.x + slot.width / 2);
    }
    if (!slots.length) left = right = 0;
    for (const slot of slots) slot.x -= left;
    const top = slot => slot.row * Layout.rowHeight, bottom = slot => top(slot) + Layout.nodeHeight;
    const boxes = nodes.map((n, i) => ({item: n.item, x: slots[i].x - n.width / 2, y: top(slots[i]), w: n.width,
                                        h: Layout.nodeHeight}));
    const segments = [];
    for (const slot of slots) {
        const from = nodes[slot.from].item;
        if (slot.node < 0) segments.push({x0: slot.x, y0: top(slot), x1: slot.x, y1: bottom(slot), from, to: -1});
        for (const lower of slot.down) {
            const to = lower.node < 0 ? -1 : nodes[lower.node].item;
            segments.push({x0: slot.x, y0: bottom(slot), x1: port(slot, lower), y1: top(lower), from, to});
        }
    }
    const rows = table.map(row => row.filter(s => s.node >= 0).map(s => boxes[s.node]));
    return {
        boxes, rows, segments, byItem: new Map(boxes.map(b => [b.item, b])),
        cut: cut.map(([from, to]) => ({from: boxes[from], to: boxes[to]})),
        width: right - left, height: Math.max(0, table.length * Layout.rowHeight - Layout.rowHeight + Layout.nodeHeight),
    };
}

// Where an edge enters a node: side by side, in the order in which they come.
function port(upper, lower) {
    if (lower.node < 0 || lower.up.length === 1) return lower.x;
    if (!lower.ports) lower.ports = [...lower.up].sort((a, b) => a.x - b.x);
    const step = Math.min(16, lower.width / (lower.up.length + 1));
    return lower.x + (lower.ports.indexOf(upper) - (lower.up.length - 1) / 2) * step;
}
