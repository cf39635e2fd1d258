"""Draws the README's pictures: docs/pictures/speed.svg (from the table in docs/benchmarks.md), graph.svg (a small graph
before and after the optimizer), roofline.svg (a profile of the built-in ResNet-50 on this machine) and layout.svg (which
thread of a GPU has which element; needs a Python that has tessera).

usage: pictures.py [speed] [graph] [roofline] [layout]     all of them without an argument; `make pictures` builds first
"""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "pictures"
TESSERA = os.environ.get("TESSERA_BINARY", str(ROOT / "build" / "bin" / "tessera"))
TEXT, QUIET, LINE, OURS, THEIRS = "#1a2029", "#677183", "#dfe3e9", "#2f6fde", "#b7c0cd"
RAMP = ["#fff6e0", "#fbd796", "#f6a95b", "#e8703e", "#c23b3b", "#7f1d44"]
# Work for rules (two transposes), for sharing (a sigmoid twice) and for folding (a sum of constants).
BEFORE = """graph example(x: f32[N,64]) {
  const c1: f32[64] = C1
  const c2: f32[64] = C2
  t = transpose(x, perm=[1,0])
  u = transpose(t, perm=[1,0])
  c = add(c1, c2)
  a = add(u, c)
  s1 = sigmoid(a)
  s2 = sigmoid(a)
  p = mul(s1, s2)
  i = identity(p)
  r = relu(i)
  q = relu(r)
  return q
}
"""


class Picture:
    """An SVG that is put together shape by shape, on white."""

    def __init__(self, width, height, title):
        self.size, self.title, self.shapes = (width, height), title, []

    def text(self, x, y, text, color=TEXT, size=12, anchor="start", weight="normal"):
        self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size}" text-anchor="{anchor}" '
                           f'font-weight="{weight}">{escape(text)}</text>')

    def line(self, x0, y0, x1, y1, color=LINE, width=1.0):
        self.shapes.append(f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{color}" stroke-width="{width}"/>')

    def box(self, x, y, width, height, fill, stroke="none", round_=3):
        self.shapes.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round_}" fill="{fill}" stroke="{stroke}"/>')

    def dot(self, x, y, radius, fill):
        self.shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" fill-opacity="0.85" stroke="#9aa5b4"/>')

    def save(self, name):
        width, height = self.size
        OUT.mkdir(exist_ok=True)
        (OUT / name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="system-ui, \'Segoe UI\', Roboto, \'DejaVu Sans\', sans-serif">\n<title>{escape(self.title)}</title>\n'
            f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>\n' + "\n".join(self.shapes) + "\n</svg>\n", encoding="utf-8")
        print(OUT / name)


def tessera(*words):
    return subprocess.run([TESSERA, *words], check=True, capture_output=True, text=True).stdout


def speed():
    """Bars: milliseconds of one run on one thread, ours beside ONNX Runtime's."""
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    table = re.search(r"<!-- speed: begin -->\n(.*?)<!-- speed: end -->", page, re.DOTALL)[1]
    made = table.splitlines()[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")][2:]
    rows = [(name, float(ours), float(theirs), ratio.split()[0]) for name, threads, ours, theirs, ratio, *_ in rows if threads == "1" and ours]
    most, left, row = max(theirs for _, _, theirs, _ in rows), 130, 34
    p = Picture(760, 74 + row * len(rows), "Tessera and ONNX Runtime, milliseconds of one run")
    p.text(16, 26, "Milliseconds of one run, one thread: less is better", size=14, weight="600")
    p.text(16, 44, made, QUIET, 11)
    scale = (760 - left - 150) / most
    for k, (name, ours, theirs, ratio) in enumerate(rows):
        y = 62 + row * k
        p.text(left - 10, y + 17, name, anchor="end")
        p.box(left, y, ours * scale, 12, OURS)
        p.box(left, y + 13, theirs * scale, 12, THEIRS)
        p.text(left + ours * scale + 6, y + 11, f"{ours:g}" + (" Tessera" if k == 0 else ""), size=11)
        p.text(left + theirs * scale + 6, y + 24, f"{theirs:g}" + (" ONNX Runtime" if k == 0 else ""), QUIET, 11)
        p.text(744, y + 17, f"{ratio} ×", OURS, 13, "end", "600")
    p.save("speed.svg")


def parsed_graph(text):
    """Ops in order: (result, op, inputs), and what each result is called."""
    return [(result, op, re.findall(r"[A-Za-z_][\w.]*(?!\w*=)", re.sub(r"\w+=\[[^\]]*\]|\w+=\S+", "", arguments)))
            for result, op, arguments in re.findall(r"^ *%?([\w.]+)(?:: \S+)? = (\w+)\(([^)]*)\)", text, re.MULTILINE)]


def layered(p, nodes, x, top, title):
    p.text(x, top - 14, f"{title}: {len(nodes)} node{'' if len(nodes) == 1 else 's'}", size=13, anchor="middle", weight="600")
    rows, places = {}, {}
    for result, _, inputs in nodes:
        rows[result] = max((rows[i] + 1 for i in inputs if i in rows), default=0)
    for level in sorted(set(rows.values())):
        here = [n for n in nodes if rows[n[0]] == level]
        for k, (result, _, _) in enumerate(here):
            places[result] = (x + (k - (len(here) - 1) / 2) * 120, top + 52 * level)
    for result, op, inputs in nodes:
        for i in inputs:
            if i in places:
                p.line(places[i][0], places[i][1] + 30, places[result][0], places[result][1], "#9aa5b4", 1.4)
    for result, op, _ in nodes:
        cx, cy = places[result]
        p.box(cx - 50, cy, 100, 30, "#e4edfc", OURS, 6)
        p.text(cx, cy + 19, op, anchor="middle")
    return max(rows.values()) + 1


def graph():
    with tempfile.TemporaryDirectory() as folder:
        numbers = "[" + ",".join(str(k / 64) for k in range(64)) + "]"
        (pathlib.Path(folder) / "before.tsr").write_text(BEFORE.replace("C1", numbers).replace("C2", numbers))
        tessera("optimize", f"{folder}/before.tsr", "-o", f"{folder}/after.tsr")
        before, after = parsed_graph(BEFORE), parsed_graph((pathlib.Path(folder) / "after.tsr").read_text())
    p = Picture(640, 560, "A graph before and after the optimizer")
    p.text(16, 26, "tessera optimize", size=14, weight="600")
    deep = layered(p, before, 170, 70, "before")
    layered(p, after, 480, 70, "after")
    p.size = (640, 70 + 52 * deep)
    p.save("graph.svg")


def roofline():
    j = json.loads(tessera("profile", "--threads", "1", "--json"))
    peak_flops, peak_bytes = j["peak"]["flops_per_second"], j["peak"]["bytes_per_second"]
    steps = [s for s in j["steps"] if s["flops"] > 0 and s["bytes"] > 0 and s["seconds"] > 0]
    xs, ys = (0.1, 1000.0), (10 ** math.floor(math.log10(min(s["flops"] / s["seconds"] for s in steps))), 10 ** math.ceil(math.log10(peak_flops) + 0.05))
    left, right, top, bottom = 90, 740, 60, 400
    p = Picture(760, 450, "Roofline of ResNet-50")
    at = lambda x, y: (left + math.log(x / xs[0]) / math.log(xs[1] / xs[0]) * (right - left),
                       bottom - math.log(y / ys[0]) / math.log(ys[1] / ys[0]) * (bottom - top))
    unit = lambda n: next(f"{n / size:g} {name}FLOP/s" for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1, "")) if n >= size)
    p.text(16, 26, f"tessera profile: {len(steps)} steps of ResNet-50, one thread, {1e3 * j['seconds']:.0f} ms in all", size=14, weight="600")
    p.text(16, 44, "Each dot is a step, as large as its time. The line is what the machine can do: memory on the left, arithmetic on the right.", QUIET, 11)
    for k in range(-1, 4):
        x, _ = at(10.0 ** k, ys[0])
        p.line(x, top, x, bottom)
        p.text(x, bottom + 18, f"{10.0 ** k:g}", QUIET, 11, "middle")
    n = ys[0]
    while n <= ys[1] * 1.01:
        _, y = at(xs[0], n)
        p.line(left, y, right, y)
        p.text(left - 6, y + 4, unit(n), QUIET, 11, "end")
        n *= 10
    p.text((left + right) / 2, bottom + 38, "FLOP per byte moved", QUIET, 11, "middle")
    begin = max(xs[0], ys[0] / peak_bytes)
    ridge = peak_flops / peak_bytes
    p.line(*at(begin, begin * peak_bytes), *at(ridge, peak_flops), TEXT, 1.8)
    p.line(*at(ridge, peak_flops), *at(xs[1], peak_flops), TEXT, 1.8)
    p.text(right - 4, at(ridge, peak_flops)[1] - 6, f"{peak_flops / 1e9:.0f} GFLOP/s, {peak_bytes / 1e9:.0f} GB/s", size=12, anchor="end")
    longest = max(s["seconds"] for s in steps)
    for s in sorted(steps, key=lambda s: -s["seconds"]):
        x, y = at(min(max(s["flops"] / s["bytes"], xs[0]), xs[1]), s["flops"] / s["seconds"])
        p.dot(x, y, 3 + 40 * math.sqrt(s["share"] / math.pi), RAMP[min(5, int(6 * math.sqrt(s["seconds"] / longest) * 0.9999))])
    p.save("roofline.svg")


def layout():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([TESSERA, "tile", "--python", sys.executable, "--emit=layouts", "--out", folder,
                        str(ROOT / "tutorial" / "tile" / "layout.py")], check=True, stdout=subprocess.DEVNULL)
        (OUT / "layout.svg").write_text((pathlib.Path(folder) / "transposed.svg").read_text())


if __name__ == "__main__":
    pictures = {"speed": speed, "graph": graph, "roofline": roofline, "layout": layout}
    for name in sys.argv[1:] or pictures:
        pictures[name]()
