"""bench/search.py with a stand-in for the command: what it makes of answers, and that it goes on where it was."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import ROOT

STAND_IN = """
    #!{python}
    import json, pathlib, sys

    words = sys.argv[1:]
    with open("{log}", "a") as log:
        print(*words, file=log)
    if words[0] == "optimize":
        name = pathlib.Path(words[1]).name.split(".")[0]
        if name == "vgg19":
            sys.exit("error E0101: vgg19 is too deep")
        pays = name.startswith("nasrnn") and "1" not in words
        pathlib.Path(words[words.index("-o") + 1]).write_text(f"{{name}} {{pays}}")
        rules = [{{"rule": "stack", "times": 3}}, {{"rule": "merge", "times": 1}}]
        report = {{"{search_s}": 0.5, "measure_s": 2, "nodes": 17, "chosen": int(pays)}}
        report["candidates"] = [{{"what": "input", "rules": []}}, {{"what": "all", "rules": rules}}]
        print(json.dumps({{"search": report}}))
    else:
        ratio = 2.0 if "nasrnn" in words[1] else 1.0
        ours = {{"name": "tessera", "median_s": 0.001}}
        other = {{"name": "b", "median_s": 0.001 * ratio, "ratio": ratio, "ratio_quartiles": [ratio, ratio], "runs": 5}}
        other["difference"] = 0.5 if "bert" in words[1] else 1e-6
        print(json.dumps({{"measured": [{{"threads": 1, "runners": [ours, other]}}]}}))
"""


@pytest.fixture
def bench(tmp_path):
    """Runs it on the models named."""
    for name in ("nasrnn", "nasrnn_b16", "squeezenet1_1", "bert_s128", "vgg19"):
        (tmp_path / f"{name}.dynamo.onnx").touch()
        np.savez(tmp_path / f"{name}.npz", x=np.zeros(3, np.float32))

    def run(*words, search_s="search_seconds"):
        command = tmp_path / "tessera"
        text = STAND_IN.format(python=sys.executable, log=tmp_path / "log", search_s=search_s)
        command.write_text(textwrap.dedent(text).lstrip())
        command.chmod(0o755)
        words = ["--models", tmp_path, "--tessera", command, "--out", tmp_path / "out", "--no-onnxruntime", *words]
        command = [sys.executable, ROOT / "bench/search.py", *words]
        return subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=60)

    return run


def test_a_table_with_means_and_promises(bench):
    done = bench("--only", "nasrnn", "nasrnn_b16", "squeezenet1_1")
    assert done.returncode == 1, "not all models were measured"
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("|")]
    by_name = {(row[0], row[1]): row for row in rows}
    assert by_name["nasrnn", "1"][3:8] == ["2.00", "1.00", "2.000 (2.000–2.000)", "0.5", "1.5"]
    assert by_name["nasrnn", "16"][8:] == ["2.0", "-", "17", "1e-06", "stack ×3, merge"]
    assert by_name["squeezenet1_1", "1"][-1] == ""
    means = {key[1]: row[5] for key, row in by_name.items() if key[0] == "**geometric mean**"}
    assert means == {"1": "**1.414**", "16": "**2.000**", "all": "**1.587**"}
    assert by_name["**least**", "all"][5] == "**1.000**" and by_name["**most**", "all"][5] == "**2.000**"
    assert "not measured: resnet50, " in done.stderr and "nasrnn:" not in done.stderr.split("not kept:")[1]


def test_what_is_broken_is_said(bench):
    done = bench("--only", "bert_s128", "vgg19", search_s="search_processor_seconds")
    assert done.returncode == 1
    broken = done.stderr.split("not kept:")[1]
    assert "bert_s128: differs by 5.0e-01" in broken and "vgg19: error E0101: vgg19 is too deep" in broken
    assert "geometric mean 1.000, not 1.10" in broken and "best 1.000, not 1.3" in broken
    assert "failed: error E0101" in done.stdout


def test_goes_on_where_it_was(bench, tmp_path):
    bench("--only", "nasrnn", "--json", tmp_path / "all.json")
    first = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[0] for line in first] == ["optimize", "bench"]
    done = bench("--only", "nasrnn", "--json", tmp_path / "all.json", "--ablations")
    later = (tmp_path / "log").read_text().splitlines()[2:]
    assert [line.split()[0] for line in later] == ["optimize"] * 6, "nothing is measured twice"
    variants = json.loads((tmp_path / "all.json").read_text())["models"]["nasrnn"]["ablations"]
    assert {v: r["ratio"] for v, r in variants.items() if v != "rules of 1 op"} == {
        "2 ops": 2, "3 ops": 2, "4 ops": 2, "backtracking": 2, "summed cost": 2
    }
    assert variants["rules of 1 op"]["ratio"] == 1
    assert "**2.00**, 0.5 s" in done.stdout
    done = bench("--only", "nasrnn", "--json", tmp_path / "all.json", "--clock", "wall")
    assert done.returncode == 2 and "name another file" in done.stderr
