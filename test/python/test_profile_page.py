"""The page of `tessera profile --report`: what is in the file, and what a browser makes of it."""

import re

import pytest
from test_report import HOSTILE, constant, in_browser, info, page_data, save

import numpy as np
from onnx import helper

SCRIPTS = 8  # in the page: its data and its own


@pytest.fixture
def small(tmp_path):
    """A product with a bias and an activation, which is one step, and a softmax."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Add", ["m", "b"], ["a"], name="bias"),
        helper.make_node("Relu", ["a"], ["r"], name="activation"),
        helper.make_node("Softmax", ["r"], ["y"], name="scores"),
    ]
    rng = np.random.default_rng(0)
    weights = [constant("w", rng.standard_normal((64, 48), np.float32)), constant("b", rng.standard_normal(48, np.float32))]
    return save(tmp_path / "small.onnx", nodes, [info("x", ("N", 64))], [info("y", ("N", 48))], weights)


def test_page_has_all_that_was_measured(tessera_command, small, tmp_path):
    done = tessera_command("profile", small, "--report", "p.html", "--trace", "t.json", "--dim", "N=256", "--runs", "3", "--json")
    assert done.status == 0, done.err
    text = (tmp_path / "p.html").read_text()
    assert not re.search(r'\b(?:src|href|action)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)|fetch\(|XMLHttpRequest|innerHTML|eval\(', text)
    assert "default-src 'none'" in text
    data = page_data(tmp_path / "p.html")
    assert data["sizes"] == {"N": 256} and data["peak"]["flops"] == done.json["peak"]["flops_per_second"]
    assert [s["label"] for s in data["steps"]] == [s["label"] for s in done.json["steps"]]
    fused = next(s for s in data["steps"] if "activation" in s["nodes"])
    assert len(fused["ops"]) > 1 and "relu" in fused["ops"] and fused["reads"] == ["x"] and len(fused["writes"]) == 1
    assert len(fused["nodes"]) == len(fused["ops"])
    assert any(what.startswith("fuse ") and why.startswith("yes: ") for what, why in data["decisions"])
    for s in data["steps"]:  # one after the other, and threads within their step
        assert 0 <= s["begin"] <= s["end"] and s["threads"]
        assert all(s["begin"] - 1e-9 <= begin <= end <= s["end"] + 1e-9 for _, begin, end in s["threads"])
    begins = [s["begin"] for s in data["steps"]]
    assert begins == sorted(begins) and begins[0] == 0


def test_threads_are_on_the_timeline(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text("graph g(x: f32[2048,2048]) {\n  return matmul(x, x)\n}\n")
    done = tessera_command("profile", "m.tsr", "--report", "p.html", "--threads", "2", "--runs", "5", env={"TESSERA_THREADS": "2"})
    assert done.status == 0, done.err
    threads = {t for s in page_data(tmp_path / "p.html")["steps"] for t, _, _ in s["threads"]}
    assert threads <= {0, 1} and 0 in threads


def test_page_works_in_a_browser(tessera_command, small, tmp_path):
    done = tessera_command("profile", small, "--report", "p.html", "--dim", "N=64", "--runs", "3")
    assert done.status == 0 and "p.html" in done.out
    verdict = in_browser(tmp_path / "p.html", tmp_path)
    assert verdict["steps"] >= 2 and verdict["bars"] >= 2 * verdict["steps"] and verdict["dots"] >= 1
    assert verdict["decisions"] >= 1 and verdict["roof"] == 1 and verdict["scripts"] == SCRIPTS


def test_page_of_many_steps(tessera_command, tmp_path):
    done = tessera_command("profile", "--report", "p.html", "--runs", "1", "--threads", "1", timeout=300)
    assert done.status == 0, done.err
    assert (tmp_path / "p.html").stat().st_size < 1e6
    assert in_browser(tmp_path / "p.html", tmp_path)["steps"] > 50


def test_names_are_only_text(tessera_command, tmp_path):
    nodes, before = [], "x"
    for i, name in enumerate(HOSTILE):
        nodes.append(helper.make_node("Softmax", [before], [f"{name} {i}"], name=name))
        before = f"{name} {i}"
    save(tmp_path / "m.onnx", nodes, [info("x", (4, 3))], [info(before, (4, 3))], name=HOSTILE[0])
    done = tessera_command("profile", "m.onnx", "--report", "p.html", "--runs", "1")
    assert done.status == 0, done.err
    text = (tmp_path / "p.html").read_text()
    assert text.count("<script") == SCRIPTS and "<img" not in text
    verdict = in_browser(tmp_path / "p.html", tmp_path)
    assert verdict["scripts"] == SCRIPTS and verdict["titles"].startswith("m.onnx")


def test_a_page_that_cannot_be_written_is_said_before_the_work(tessera_command, small):
    done = tessera_command("profile", small, "--report", "nowhere/p.html")
    assert done.status == 1 and "E0105" in done.err
