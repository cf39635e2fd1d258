"""tessera optimize --search: what it gives, what it says, and bad input."""

import json
import signal
import subprocess
import time

import pytest
from conftest import BINARY

BRANCHES = """graph g(x: f32[1,3,7,5], a: f32[4,3,3,1], b: f32[2,3,3,1], c: f32[3,6,1,1]) -> (z) {
  %p = conv(x, a, pads=[1,0,1,0], strides=[2,1])
  %q = conv(x, b, pads=[1,0,1,0], strides=[2,1])
  %r = relu(concat(%p, %q, axis=1))
  %z = conv(%r, c)
  return %z
}"""
GATES = """graph g(x: f32[1,5], h: f32[1,3], a: f32[5,3], b: f32[5,3], c: f32[3,3], d: f32[3,3]) -> (y) {
  %p = sigmoid(add(matmul(x, a), matmul(h, c)))
  %q = tanh(add(matmul(x, b), matmul(h, d)))
  %s = mul(%p, %q)
  %t = sigmoid(add(matmul(x, a), matmul(%s, c)))
  %u = tanh(add(matmul(x, b), matmul(%s, d)))
  %y = mul(%t, %u)
  return %y
}"""
GROWING = """assoc [reassociates]: add(add(x:float, y:float), z:float) => add(x, add(y, z)) if same_dims(x, y)
back [reassociates]: add(x:float, add(y:float, z:float)) => add(add(x, y), z) if same_dims(x, y)
grow [reassociates]: add(x:float, y:float) => add(add(x, 1.0), add(y, -1.0))
"""


def long_sum(count=12):
    inputs = ", ".join(f"x{i}: f32[5,3]" for i in range(count))
    lines = ["  %s1 = add(x0, x1)"] + [f"  %s{i} = add(%s{i - 1}, x{i})" for i in range(2, count)]
    return f"graph g({inputs}) -> (y) {{\n" + "\n".join(lines) + f"\n  return %s{count - 1}\n}}"


@pytest.mark.parametrize("strategy", ["egraph", "backtrack"])
@pytest.mark.parametrize("text", [BRANCHES, GATES], ids=["branches", "gates"])
def test_what_is_found_equals_its_source(tessera_command, tmp_path, strategy, text):
    (tmp_path / "g.tsr").write_text(text)
    for seed in (0, 1, 2):
        done = tessera_command("optimize", "g.tsr", "--search=4", "--strategy", strategy, "--cost", "estimate", "--check",
                               "--seed", seed, "-o", "faster.tsr", "--json")
        assert done.status == 0, f"seed {seed}: {done.err}"
        found = done.json["search"]
        assert found["strategy"] == strategy and found["cost"] == "estimate" and found["speedup"] >= 1
        assert found["candidates"][0]["what"] == "input" and found["chosen"] < len(found["candidates"])


def test_it_explains_itself(tessera_command, tmp_path):
    (tmp_path / "g.tsr").write_text(GATES)
    done = tessera_command("optimize", "g.tsr", "--search=4", "--cost", "estimate", "--explain")
    assert done.status == 0, done.err
    assert "egraph: " in done.out and "* input: " in done.out or "by its cost" in done.out
    assert "all that follows from the rules" in done.out or "stopped by its limit of" in done.out


@pytest.mark.parametrize("strategy", ["egraph", "backtrack"])
def test_rules_without_end_are_stopped_and_that_is_said(tessera_command, tmp_path, strategy):
    (tmp_path / "g.tsr").write_text(long_sum())
    (tmp_path / "growing.rules").write_text(GROWING)
    command = ["optimize", "g.tsr", "--search=6", "--strategy", strategy, "--cost", "estimate", "--rules", "growing.rules",
               "--max-nodes", "2000", "--check"]
    began = time.monotonic()
    done = tessera_command(*command)
    assert done.status == 0, done.err
    assert "stopped by its limit of" in done.out and "the best so far" in done.out
    found = tessera_command(*command, "--json").json["search"]
    assert not found["complete"] and found["stopped_by"] and found["nodes"] < 4000
    assert time.monotonic() - began < 100  # two searches of 6 s, on a machine that may be busy


def test_what_is_wrong(tessera_command, tmp_path):
    (tmp_path / "g.tsr").write_text(GATES)
    for wrong in (["--search=0"], ["--search=-3"], ["--search", "--strategy", "luck"], ["--search", "--cost", "free"]):
        assert tessera_command("optimize", "g.tsr", *wrong).status == 2, wrong
    (tmp_path / "lie.rules").write_text("lie [reassociates, proved]: tanh(x:float) => x\n")
    lie = tessera_command("optimize", "g.tsr", "--search=2", "--cost", "estimate", "--rules", "lie.rules", "--json")
    assert lie.status == 1 and lie.json["error"]["code"] == "E0305" and "lie" in lie.json["error"]["message"]
    elsewhere = tessera_command("optimize", "g.tsr", "--search=2", "--target", "no-such-processor")
    assert elsewhere.status != 0 and "no-such-processor" in elsewhere.err


def test_ctrl_c_ends_a_search(tmp_path):
    (tmp_path / "g.tsr").write_text(long_sum())
    (tmp_path / "growing.rules").write_text(GROWING)
    running = subprocess.Popen([BINARY, "optimize", "g.tsr", "--search=500", "--strategy", "backtrack", "--cost", "estimate",
                                "--rules", "growing.rules", "--json"], cwd=tmp_path, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    time.sleep(2)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=100)
    if running.returncode == 0:
        assert json.loads(out)["search"]["stopped_by"]  # its graphs came to an end first
    else:
        assert running.returncode == 130 and "E0410" in err
