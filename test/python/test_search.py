"""tessera.search and tessera.discover, as Python has them."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import tessera

PRODUCTS = """graph g(x: f32[3,7], a: f32[7,5], b: f32[7,2]) -> (y, z) {
  %y = matmul(x, a)
  %z = matmul(x, b)
  return %y, %z
}"""
GROWING = "grow [reassociates]: add(x:float, y:float) => add(add(x, 1.0), add(y, -1.0))\n"


def long_sum(count=10):
    inputs = ", ".join(f"x{i}: f32[5,3]" for i in range(count))
    lines = ["  %s1 = add(x0, x1)"] + [f"  %s{i} = add(%s{i - 1}, x{i})" for i in range(2, count)]
    return tessera.parse(f"graph g({inputs}) -> (y) {{\n" + "\n".join(lines) + f"\n  return %s{count - 1}\n}}")


@pytest.fixture
def interruptible():
    """What is started in the background ignores Ctrl-C, and so would this."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_after(seconds):
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()


def test_what_cannot_be_timed_is_said():
    for target, code in (("cuda:9999", "E0701"), ("wasm32", "E0603"), ("guess", "E0603")):
        with pytest.raises(tessera.Error) as failed:
            tessera.search(tessera.parse(PRODUCTS), seconds=1, target=target)
        assert failed.value.code == code
    assert tessera.search(tessera.parse(PRODUCTS), seconds=1)[1].device == "cpu"


@pytest.mark.parametrize("strategy", ["egraph", "backtrack"])
def test_search_gives_a_model_that_computes_the_same(strategy):
    model = tessera.parse(PRODUCTS)
    told = []
    faster, report = tessera.search(model, seconds=5, strategy=strategy, cost="estimate", time_candidates=False,
                                    progress=lambda what, done, total: told.append(what))
    for seed in range(3):
        inputs = model.random_inputs(seed)
        for name, value in model.run(inputs).items():
            np.testing.assert_allclose(faster.run(inputs)[name], value, rtol=1e-5, atol=1e-6)
    assert report.strategy == strategy and report.cost == "estimate" and report.nodes > 0
    assert report.candidates[0].what == "input" and report.chosen < len(report.candidates)
    assert strategy in report.explain() and "input" in str(report)
    assert told[:2] == ["rewrite", "search"]


def test_search_times_candidates_and_never_gets_slower(tmp_path):
    model = tessera.parse(PRODUCTS)
    for threads in (1, 2, 0):
        same, report = tessera.search(model, seconds=2, cache=tmp_path, threads=threads)
        assert report.speedup >= 1 and report.search_seconds >= 0
        for candidate in report.candidates:
            for rule in candidate.rules:
                assert rule.rule and rule.where


def test_search_keeps_its_limits_and_says_so(tmp_path):
    (tmp_path / "growing.rules").write_text(GROWING)
    model = long_sum()
    same, report = tessera.search(model, seconds=20, cost="estimate", rules=tmp_path / "growing.rules", max_nodes=300,
                                  time_candidates=False)
    assert not report.complete and report.stopped_by and report.nodes < 1000
    assert "stopped by its limit" in str(report) and "the best so far" in str(report)


def test_search_says_what_is_wrong(tmp_path):
    model = tessera.parse(PRODUCTS)
    for wrong in ({"strategy": "luck"}, {"cost": "free"}, {"precision": "exact"}):
        with pytest.raises(tessera.Error) as caught:
            tessera.search(model, seconds=1, **wrong)
        assert caught.value.code == "E0501" and caught.value.hint
    for name, value in (("seconds", -1), ("seconds", 0), ("seconds", float("nan")), ("mutate", -1), ("threads", -1)):
        with pytest.raises(tessera.Error, match=f"E0501: .*{name}.*{value}"):
            tessera.search(model, **{"seconds": 1, name: value})
    (tmp_path / "wrong.rules").write_text("wrong: relu(x) => x\n")
    with pytest.raises(tessera.Error) as caught:
        tessera.search(model, seconds=1, cost="estimate", rules=[tmp_path / "wrong.rules"])
    assert caught.value.code == "E0305" and "wrong" in caught.value.message


def test_what_progress_raises_stops_the_search():
    def fail(what, done, total):
        raise ValueError(what)

    with pytest.raises(ValueError, match="rewrite"):
        tessera.search(tessera.parse(PRODUCTS), seconds=5, cost="estimate", progress=fail)


def test_discover_finds_proves_and_writes(tmp_path):
    told = []
    found = tessera.discover(["add", "relu", "transpose"], 2, out=tmp_path / "found.rules", progress=told.append)
    assert found.ops == "add,relu,transpose" and found.max_ops == 2 and found.seed == 0
    counts = found.counts
    assert counts.graphs > counts.terms > counts.classes > 0
    assert counts.raw_pairs >= counts.pruned >= counts.irredundant >= counts.proved_irredundant > 3
    assert {name for name, _ in found.worlds} >= {"matrices"}
    proved = [rule for rule in found.rules if rule.verdict == "proved"]
    assert any("relu(relu(x:float)) => relu(x)" in rule.text and rule.certificate for rule in proved)
    assert found.files[:2] == [str(tmp_path / "found.rules"), str(tmp_path / "found.cert")]
    assert "proved" in (tmp_path / "found.rules").read_text() and found.warnings == []
    assert told and {p.phase for p in told} >= {"levels"} and all(p.done <= p.total for p in told)
    assert [r.text for r in tessera.discover("add,relu,transpose", 2, threads=1).rules] == [r.text for r in found.rules]
    # What was found can be searched with.
    model, _ = tessera.search(tessera.parse(PRODUCTS), seconds=2, cost="estimate", rules=tmp_path / "found.rules")


def test_discover_says_what_is_wrong(tmp_path):
    for ops, code, part in (("reluu", "E0501", "reluu"), ("top_k", "E0501", "top_k"), ("missing.ops", "E0101", "missing")):
        with pytest.raises(tessera.Error) as caught:
            tessera.discover(ops, 2)
        assert caught.value.code == code and part in caught.value.message
    with pytest.raises(tessera.Error) as caught:
        tessera.discover("add", 9)
    assert caught.value.code == "E0501"
    with pytest.raises(tessera.Error) as caught:
        tessera.discover("add", 2, out=tmp_path / "no" / "folder" / "x.rules")
    assert caught.value.code == "E0105"


def test_ctrl_c_stops_a_discovery_and_a_search(interruptible, tmp_path):
    began = time.monotonic()
    interrupt_after(1.0)
    with pytest.raises(KeyboardInterrupt):
        tessera.discover("extended", 4)
    (tmp_path / "growing.rules").write_text(GROWING)
    interrupt_after(1.0)
    with pytest.raises(KeyboardInterrupt):
        tessera.search(long_sum(), seconds=600, cost="estimate", rules=tmp_path / "growing.rules",
                       max_nodes=10**6, strategy="backtrack", budget=10**9, alpha=100.0)
    assert time.monotonic() - began < 100


DILATED = """
graph dilated(x: f32[1,8,12,12], w: f32[8,8,3,3]) {
  %y = conv(x, w, dilations=[2, 2], kernel_shape=[3, 3], pads=[2, 2, 2, 2])
  return %y
}
"""


def test_search_makes_rules_for_the_products_of_a_model():
    model = tessera.parse(DILATED)
    _, without = tessera.search(model, 2, cost="estimate", time_candidates=False)
    assert without.mutants == [] and without.mutate_seconds == 0
    _, report = tessera.search(model, 2, cost="estimate", time_candidates=False, mutate=60)
    assert report.mutate_seconds > 0 and report.mutants
    moved = [m for m in report.mutants if m.boxes == "equal everywhere"]
    assert moved and all(m.for_all_sizes and m.certificate and m.share == 0 for m in moved)
    assert any("dilations=[1, 2]" in m.text for m in moved)
    assert all(m.picture.startswith("<svg") for m in report.mutants)
    assert "rules made for" in report.explain() and "equal everywhere" in report.explain()


def test_discover_corrects_programs_that_are_equal_almost_everywhere(tmp_path):
    originals = tmp_path / "pairs.originals"
    originals.write_text("// two images\nconv(x, w, pads=[1, 1, 1, 1]) where x: [2*N,C,H,W], w: [M,C,3,3]\n")
    found = tessera.discover(originals, corrected=True, out=tmp_path / "pairs.rules")
    assert found.rules and all(rule.verdict == "proved" and rule.certificate for rule in found.rules)
    assert any(rule.boxes.startswith("recomputed: axis 3 from 0 to 1") for rule in found.rules)
    assert all(rule.picture.startswith("<svg") for rule in found.rules)
    assert "proved" in (tmp_path / "pairs.rules").read_text() and "end" in (tmp_path / "pairs.cert").read_text()
    originals.write_text("conv(x, w)\n")
    with pytest.raises(tessera.Error) as caught:
        tessera.discover(originals, corrected=True)
    assert caught.value.code == "E0301"


def test_open_sizes_are_measured_where_they_are_given(tmp_path):
    text = """graph g(x: f32[N,256], a: f32[256,256], b: f32[256,256]) -> (y) {
  %y = add(relu(matmul(x, a)), tanh(matmul(x, b)))
  return %y
}"""
    model = tessera.parse(text)
    fast, report = tessera.search(model, seconds=4, cache=tmp_path, sizes={"N": 128})
    assert report.measured > 0
    assert report.candidates[0].cost > 1e-5  # of 128 rows, not of one
    for rows in (1, 128, 33):
        inputs = model.random_inputs(rows, N=rows)
        np.testing.assert_allclose(fast.run(inputs)["y"], model.run(inputs)["y"], rtol=1e-4, atol=1e-4)
    with pytest.raises(tessera.Error, match="there is no symbolic dimension"):
        tessera.search(model, seconds=1, sizes={"M": 3})
