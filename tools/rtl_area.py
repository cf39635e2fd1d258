"""Synthesizes the accelerator's RTL with Yosys and prints cells and transistors by module for several arrays, the fit that
src/kernel/accelerator/area.cpp has, and how far the fit is from each array.

usage: rtl_area.py [KxN[:BEAT] ...]     by default 8x8 8x8:32 16x16; 32x32 takes minutes

Transistors are those of static CMOS gates, as `stat -tech cmos` counts them, after `abc -fast -g cmos`. Memories
(scratchpads and queues) are left out: area.cpp counts their bits. The lanes of the vector ALU are synthesized once.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LANE = "tessel_alu_lane"
MEMORIES = ["tessel_scratchpad", "tessel_accumulators"]
ARRAYS = ["8x8", "8x8:32", "16x16"]


def sources():
    files = sorted((ROOT / "hardware" / "tessel").glob("*.sv"), key=lambda f: (f.stem != "tessel_pkg", f.stem))
    return " ".join(str(f.relative_to(ROOT)) for f in files)


def synthesize(top, parameters, without=()):
    """Yosys's statistics of each module: {name: {num_cells, num_cells_by_type, estimated_num_transistors}}."""
    sets = "".join(f" -chparam {name} {value}" for name, value in parameters.items())
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "stat.json"
        script = "; ".join([f"read_verilog -sv {sources()}", f"hierarchy -check -top {top}{sets}"]
                           + [f"blackbox *{name}*" for name in without]
                           + ["hierarchy -check", "proc", "opt", "wreduce", "peepopt", "opt_clean", "alumacc", "opt", "memory -nomap", "opt_clean", "techmap", "opt", "dfflegalize -cell $_DFF_P_ x", "opt",
                              "abc -fast -g cmos", "opt_clean", f"tee -q -o {out} stat -json -tech cmos"])
        subprocess.run(["yosys", "-q", "-p", script], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        lines = out.read_text().splitlines()
        return json.loads("\n".join(line for line in lines if set(line) & set('"{}')))["modules"]  # the rest is a tree in text


def plain(name):
    """The name in the source of a module with parameters."""
    return name.split("\\")[-1] if not name.startswith("$paramod\\") else name.split("\\")[1]


def totals(modules, top):
    """{plain name: [instances, cells, transistors]} below a module, its own cells without those of what it contains."""
    found = {}

    def visit(name, times):
        types = modules[name]["num_cells_by_type"]
        inner = {t if t in modules else "\\" + t: n for t, n in types.items() if t in modules or "\\" + t in modules}
        boxes = [t for t in types if plain(t) in (LANE, *MEMORIES) and t not in inner]
        cells = modules[name]["num_cells"] - sum(inner.values()) - sum(types[t] for t in boxes)
        row = found.setdefault(plain(name), [0, 0, 0])
        row[0] += times
        row[1] += times * cells
        row[2] += times * int(str(modules[name].get("estimated_num_transistors", 0)).rstrip("+"))
        for t, n in inner.items():
            visit(t, times * n)

    visit(top, 1)
    return found


def least_squares(rows, values):
    """The coefficients c with rows x c nearest to values, by the normal equations."""
    n = len(rows[0])
    a = [[sum(r[i] * r[j] for r in rows) for j in range(n)] + [sum(r[i] * v for r, v in zip(rows, values))] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[pivot] = a[pivot], a[i]
        for r in range(n):
            if r != i:
                f = a[r][i] / a[i][i]
                a[r] = [x - f * y for x, y in zip(a[r], a[i])]
    return [a[i][n] / a[i][i] for i in range(n)]


def main():
    lane = totals(synthesize(LANE, {}), "\\" + LANE)
    lane_transistors = sum(row[2] for row in lane.values())
    print(f"one lane of the vector ALU: {sum(row[1] for row in lane.values())} cells, {lane_transistors} transistors")
    measured = []
    for text in sys.argv[1:] or ARRAYS:
        array, _, beat = text.partition(":")
        k, n = map(int, array.split("x"))
        beat = int(beat or 16)
        modules = synthesize("tessel_core", {"K": k, "N": n, "BEAT": beat}, [LANE, *MEMORIES])
        top = next(name for name in modules if plain(name) == "tessel_core")
        rows = totals(modules, top)
        dot = rows.pop("tessel_dot")
        rest = sum(row[2] for row in rows.values())
        measured.append((k, n, beat, dot[2], rest))
        print(f"\n{k} x {n}, {beat} bytes a cycle\n{'module':24}{'instances':>10}{'cells':>10}{'transistors':>13}")
        for name, (times, cells, transistors) in sorted({"tessel_dot": dot, **rows}.items(), key=lambda r: -r[1][2]):
            print(f"{name:24}{times:10}{cells:10}{transistors:13}")
        print(f"{LANE:24}{n:10}{n * sum(row[1] for row in lane.values()):10}{n * lane_transistors:13}", flush=True)
    matrix = least_squares([[k * n, n] for k, n, *_ in measured], [m[3] for m in measured])
    control = least_squares([[1, n] for _, n, *_ in measured], [m[4] for m in measured])
    print(f"\nkMultiplier = {matrix[0]:.0f}, kColumn = {matrix[1]:.0f}, kLane = {lane_transistors}, "
          f"kFixed = {control[0]:.0f}, kOutput = {control[1]:.0f}")
    for k, n, beat, dots, rest in measured:
        fitted = matrix[0] * k * n + matrix[1] * n + control[0] + control[1] * n
        print(f"{k} x {n}, {beat}: {dots + rest} without lanes, the fit {100 * (fitted / (dots + rest) - 1):+.1f} %")


if __name__ == "__main__":
    main()
