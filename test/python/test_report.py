"""The page of `tessera optimize --report`: what is in the file, and what a browser makes of it."""

import json
import re
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCRIPTS = 10  # in the page: its data and its own


def info(name, shape, elem=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, elem, shape)


def save(path, nodes, inputs, outputs, initializers=(), name="g"):
    graph = helper.make_graph(nodes, name, inputs, outputs, initializer=list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def constant(name, value):
    return numpy_helper.from_array(np.asarray(value), name)


@pytest.fixture
def small(tmp_path):
    """Something for rules, for constant folding and for sharing, with a nested graph and a symbolic size."""
    branches = {}
    for branch, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        nodes = [helper.make_node("Identity", ["a"], [f"{branch}_copy"]),
                 helper.make_node(op, [f"{branch}_copy"], [f"{branch}_out"])]
        branches[branch] = helper.make_graph(nodes, branch, [], [info(f"{branch}_out", ("N", 4))])
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0]),
        helper.make_node("MatMul", ["u", "w"], ["m"], name="product"),
        helper.make_node("Add", ["c1", "c2"], ["c"]),
        helper.make_node("Add", ["m", "c"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["s1"]),
        helper.make_node("Sigmoid", ["a"], ["s2"]),
        helper.make_node("Mul", ["s1", "s2"], ["p"]),
        helper.make_node("ReduceMax", ["p"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "half"], ["large"]),
        helper.make_node("If", ["large"], ["chosen"], name="choice", **branches),
        helper.make_node("Add", ["p", "chosen"], ["y"]),
    ]
    weights = [constant("w", np.ones((3, 4), np.float32)), constant("c1", np.ones(4, np.float32)),
               constant("c2", np.ones(4, np.float32)), constant("half", np.float32(0.5))]
    return save(tmp_path / "small.onnx", nodes, [info("x", ("N", 3))], [info("y", ("N", 4))], weights)


def deep_model(path, layers):
    """Blocks of eight nodes, each with work for the optimizer, and a value that all of them use."""
    nodes, before = [helper.make_node("Relu", ["mask"], ["m"])], "x"
    for i in range(layers):
        n = [f"b{i}_{k}" for k in range(8)]
        nodes += [
            helper.make_node("Identity", [before], [n[0]]),
            helper.make_node("Transpose", [n[0]], [n[1]], perm=[1, 0]),
            helper.make_node("Relu", [n[1]], [n[2]]),
            helper.make_node("Transpose", [n[2]], [n[3]], perm=[1, 0]),
            helper.make_node("Add", [n[3], "m"], [n[4]]),
            helper.make_node("Sigmoid", [n[4]], [n[5]]),
            helper.make_node("Sigmoid", [n[4]], [n[6]]),
            helper.make_node("Mul", [n[5], n[6]], [n[7]]),
        ]
        before = n[7]
    nodes.append(helper.make_node("Add", [before, "x"], ["y"]))
    return save(path, nodes, [info("x", (8, 8)), info("mask", (8, 8))], [info("y", (8, 8))])


def page_data(path):
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)
    assert len(found) == 1
    return json.loads(found[0])


def texts_after(data):
    """The nodes after all steps, by applying them one after the other."""
    strings, versions, state = data["strings"], data["versions"], {}
    for changes in [data["before"], *(step["changes"] for step in data["steps"])]:
        for item, version in zip(changes[::2], changes[1::2]):
            state[item] = version
    state = {item: versions[v] for item, v in state.items() if v >= 0}

    def name(ref):
        item, output = ref if isinstance(ref, list) else (ref, 0)
        return "_" if item < 0 else strings[state[item][6][output]]

    def text(v):
        own = [name(ref) for ref in v[5][:len(v[5]) - v[13]]] + ([strings[v[3]]] if strings[v[3]] else [])
        return f"{', '.join(strings[o] for o in v[6])} = {strings[v[1]]}({', '.join(own)})"

    return sorted(text(v) for v in state.values() if v[0] == 0)


def in_browser(page, tmp_path, size="1400,900"):
    """What the page says of itself: it walks through all steps and back, and presses its own buttons."""
    if not BROWSER:
        pytest.skip("there is no Chromium here (tools/setup.sh browser installs it)")
    done = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
         "--no-first-run", "--disable-background-networking", f"--user-data-dir={tmp_path / 'browser'}",
         f"--window-size={size}", "--dump-dom", f"{page.as_uri()}#selftest"],
        capture_output=True, text=True, timeout=300)
    found = re.search(r'<pre id="verdict">(.*?)</pre>', done.stdout, re.S)
    assert found, f"the page did not come up: {done.stderr[-2000:]}"
    verdict = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert verdict["ok"], verdict
    assert "<title>selftest ok</title>" in done.stdout
    return verdict


def test_page_is_whole_and_the_same_each_time(tessera_command, small, tmp_path):
    done = tessera_command("optimize", small, "--report", "a.html", "--dim", "N=8", "--json")
    assert done.status == 0, done.err
    assert done.json["report"] == "a.html"
    assert tessera_command("optimize", small, "--report", "b.html", "--dim", "N=8").status == 0
    text = (tmp_path / "a.html").read_text()
    assert text == (tmp_path / "b.html").read_text()
    assert not re.search(r'\b(?:src|href|action)\s*=|url\(|@import|https?://|fetch\(|XMLHttpRequest|innerHTML|eval\(', text)
    assert "default-src 'none'" in text
    assert not (tmp_path / "small.html").exists()


def test_steps_lead_to_the_optimized_graph(tessera_command, small, tmp_path):
    done = tessera_command("optimize", small, "--report", "a.html", "--dim", "N=8", "--json", "--explain")
    data = page_data(tmp_path / "a.html")
    assert data["title"] == "small.onnx" and data["sizes"] == " at N=8"
    assert texts_after(data) == sorted(data["after"])
    assert len(data["after"]) == done.json["after"]["nodes"] < done.json["before"]["nodes"]
    rewrites = [step for step in data["steps"] if "rule" in step]
    assert len(rewrites) == done.json["rewrites"]
    strings = data["strings"]
    assert [strings[r["rule"]] for r in rewrites] == [r["rule"] for r in done.json["rewrite_list"]]
    assert not any("unplaced" in step for step in data["steps"])
    by_name = {row["name"]: row for row in data["summary"]}
    assert by_name["nodes"]["before"] == done.json["before"]["nodes"]
    assert by_name["FLOPs"]["after"] == done.json["after"]["flops_at_dims"]
    rule = strings[rewrites[0]["rule"]]
    assert all("=>" in r["text"] and ".rules:" in r["source"] for r in data["rules"].values()), rule


def test_users_rules_are_shown_as_written(tessera_command, small, tmp_path):
    (tmp_path / "my.rules").write_text("// A sigmoid of ours.\nmine [approximates]: sigmoid(x:float) => relu(x)\n")
    done = tessera_command("optimize", small, "--rules", "my.rules", "--trust-rules", "--precision", "fast", "--report", "a.html")
    assert done.status == 0, done.err
    data = page_data(tmp_path / "a.html")
    assert "sigmoid" in data["rules"]["mine"]["text"] and data["rules"]["mine"]["source"].endswith("my.rules:2:1")
    step = next(s for s in data["steps"] if "rule" in s and data["strings"][s["rule"]] == "mine")
    assert data["strings"][step["class"]] == "approximates" and data["strings"][step["why"]] == "A sigmoid of ours."


def test_page_works_in_a_browser(tessera_command, small, tmp_path):
    assert tessera_command("optimize", small, "--report", "a.html").status == 0
    verdict = in_browser(tmp_path / "a.html", tmp_path)
    assert verdict["steps"] > 3 and verdict["nodesAfter"] < verdict["nodes"] and verdict["unplaced"] == 0
    assert verdict["scripts"] == SCRIPTS


def test_page_fits_a_narrow_window(tessera_command, small, tmp_path):
    assert tessera_command("optimize", small, "--report", "a.html").status == 0
    verdict = in_browser(tmp_path / "a.html", tmp_path, "400,800")
    assert verdict["width"] <= 500  # some browsers' windows are no narrower


def test_page_of_a_graph_that_stays(tessera_command, tmp_path):
    save(tmp_path / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"])], [info("x", (2,))], [info("y", (2,))])
    assert tessera_command("optimize", "relu.onnx", "--report", "a.html").status == 0
    assert page_data(tmp_path / "a.html")["steps"] == []
    assert in_browser(tmp_path / "a.html", tmp_path)["nodes"] == 1


def test_page_of_a_large_graph(tessera_command, tmp_path):
    deep_model(tmp_path / "deep.onnx", 320)
    done = tessera_command("optimize", "deep.onnx", "--report", "a.html")
    assert done.status == 0, done.err
    assert (tmp_path / "a.html").stat().st_size < 3e6
    verdict = in_browser(tmp_path / "a.html", tmp_path)
    assert verdict["nodes"] > 2500 and verdict["steps"] > 1200
    assert verdict["longestLayout"] < 3000  # ms


HOSTILE = ("</script><script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">",
           "--><svg onload=document.title='owned'>", "${document.title='owned'}", "__proto__", "constructor",
           "\u202egnp.exe", "<!--<script>", "]]>'\"&amp;\\u003c")


def test_names_are_only_text(tessera_command, tmp_path):
    nodes, before = [], "x"
    for i, name in enumerate(HOSTILE):
        nodes.append(helper.make_node("Identity", [before], [f"{name} {i}a"], name=name))
        nodes.append(helper.make_node("Relu", [f"{name} {i}a"], [f"{name}"], name=f"{name} again", doc_string=name))
        before = name
    nodes.append(helper.make_node("Neg", [before], ["<b>y</b>"]))
    (tmp_path / "<b>&.onnx").write_bytes(save(tmp_path / "m.onnx", nodes, [info("x", ("<i>N</i>", 3))], [info("<b>y</b>", ("<i>N</i>", 3))],
                                              name=HOSTILE[0]).read_bytes())
    (tmp_path / "my.rules").write_text(f"// {HOSTILE[1]} {HOSTILE[0]}\nmine: neg(x:float) => sub(0.0, x)\n")
    done = tessera_command("optimize", "<b>&.onnx", "--rules", "my.rules", "--trust-rules", "--report", "a.html")
    assert done.status == 0, done.err
    text = (tmp_path / "a.html").read_text()
    assert text.count("<script") == SCRIPTS and text.count("</script") == SCRIPTS
    assert "<img" not in text and "<svg onload" not in text and "<b>" not in text
    data = page_data(tmp_path / "a.html")
    assert all(name in data["strings"] for name in HOSTILE)
    verdict = in_browser(tmp_path / "a.html", tmp_path)
    assert verdict["scripts"] == SCRIPTS and verdict["titles"].startswith("<b>&.onnx")


def test_report_has_to_be_html_and_writable(tessera_command, small, tmp_path):
    before = small.read_bytes()
    done = tessera_command("optimize", small, "--report", "small.onnx")
    assert done.status == 2 and "E0501" in done.err and ".html" in done.err
    assert small.read_bytes() == before
    done = tessera_command("optimize", small, "--report", "nowhere/a.html")
    assert done.status == 1 and "E0105" in done.err
