"""bench/mutate.py with a stand-in for the command: what it makes of answers, and that it goes on where it was."""

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
        if name == "bert_s128":
            sys.exit("error E0101: bert is too deep")
        pays = not name.startswith("resnet18")
        for flag in ("-o", "--without-mutants"):
            pathlib.Path(words[words.index(flag) + 1]).write_text(name + (flag if pays else ""))
        made = {{"rules": [{{"rule": "conv-moved-1", "boxes": "equal everywhere"}}], "targets": 2, "remembered": 0, "seconds": 3, "complete": True}}
        made |= {{"whole_seconds": 61 if name == "csrnet_b16" else 20, "gain": 1.5 if pays else 1}}
        used = [{{"rule": "conv-moved-1", "times": 6}}, {{"rule": "tiles-4", "times": 9}}]
        report = {{"mutate": made, "device": "a GPU", "chosen": 0, "candidates": [{{"what": "all", "rules": used}}]}}
        print(json.dumps({{"search": report}}))
    else:
        ratio = 0.9 if "inception" in words[1] else 1.5
        ours = {{"name": "tessera", "median_s": 0.002}}
        other = {{"name": "b", "median_s": 0.002 * ratio, "ratio": ratio, "ratio_quartiles": [ratio, ratio]}}
        other["difference"] = 1e-6
        if "--expected" in words:
            ours["error"], other["error"] = 1e-6, 0.1 if "inception" in words[1] else 2e-6
        runners = [ours, other] if "--against" in words else [ours]
        print(json.dumps({{"measured": [{{"threads": 1, "runners": runners}}]}}))
"""


@pytest.fixture
def bench(tmp_path):
    """Runs it on the models named."""
    for name in ("resnet18", "csrnet", "csrnet_b16", "inception_v3", "bert_s128"):
        (tmp_path / f"{name}.dynamo.onnx").touch()
        np.savez(tmp_path / f"{name}.npz", x=np.zeros(3, np.float32))
        if name != "csrnet_b16":
            np.savez(tmp_path / f"{name}.expected.npz", y=np.zeros(2, np.float32))

    def run(*words):
        command = tmp_path / "tessera"
        text = STAND_IN.format(python=sys.executable, log=tmp_path / "log")
        command.write_text(textwrap.dedent(text).lstrip())
        command.chmod(0o755)
        words = ["--models", tmp_path, "--tessera", command, "--out", tmp_path / "out", *words]
        command = [sys.executable, ROOT / "bench/mutate.py", *words]
        return subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=60)

    return run


def test_a_table_beside_pet(bench):
    done = bench("--only", "resnet18", "csrnet", "--threads", "1")
    assert done.returncode == 0, done.stderr
    rows = [[c.strip() for c in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line.startswith("|")]
    by_name = {row[0]: row for row in rows}
    assert by_name["resnet18"][5] == "1, the same program" and by_name["resnet18"][-1] == "1.04"
    assert by_name["csrnet"][3:9] == ["3.0", "2.0", "1.50 (1.50–1.50)", "1 of 2", "3.0", "20.0"]
    assert "under a load of " in done.stdout
    assert by_name["**geometric mean**"][5] == "**1.225**"


def test_what_is_broken_is_said(bench):
    done = bench("--only", "inception_v3", "bert_s128", "csrnet_b16", "--threads", "2")
    assert done.returncode == 1
    broken = done.stderr.split("not kept:")[1]
    assert "inception_v3@2: 0.900" in broken and "bert_s128@2: error E0101: bert is too deep" in broken
    assert "csrnet_b16@2: 61 s beyond the search" in broken


def test_goes_on_where_it_was(bench, tmp_path):
    words = ["--only", "resnet18", "csrnet", "--threads", "1,2", "--json", tmp_path / "all.json"]
    bench(*words)
    calls = (tmp_path / "log").read_text().splitlines()
    assert len([c for c in calls if c.startswith("optimize")]) == 4 and len([c for c in calls if c.startswith("bench")]) == 2
    assert all("--mutate=60" in c and "--search=60" in c for c in calls if c.startswith("optimize"))
    bench(*words)
    assert (tmp_path / "log").read_text().splitlines() == calls
    records = json.loads((tmp_path / "all.json").read_text())["models"]
    assert records["csrnet@2"]["recomputed"] == {"conv-moved-1": "equal everywhere"}
    assert len(set(records["csrnet@2"]["hashes"])) == 2 and len(set(records["resnet18@2"]["hashes"])) == 1
    assert records["csrnet@2"]["rules"] == {"conv-moved-1": 6} and records["csrnet@2"]["clock"] == "wall"
    assert "was made with" in bench(*words, "--mutate", "9").stderr


def test_on_a_gpu_all_is_timed_there(bench, tmp_path):
    done = bench("--only", "resnet18", "csrnet", "--target", "cuda:1", "--json", tmp_path / "all.json")
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "log").read_text().splitlines()
    assert len(calls) == 4 and all("--target cuda:1" in c for c in calls)
    timed = [c for c in calls if c.startswith("bench")]
    assert all("--clock device" in c and "--expected y=" in c for c in timed)
    assert ["--against" in c for c in timed] == [False, True]  # the same program is timed alone
    assert "a GPU, by its own clock" in done.stdout and "differ from torch's by 2e-06" in done.stdout
    records = json.loads((tmp_path / "all.json").read_text())["models"]
    assert records["csrnet@GPU"]["ratio"] == 1.5 and records["resnet18@GPU"]["without_s"] == 0.002


def test_on_a_gpu_answers_are_torchs(bench):
    done = bench("--only", "inception_v3", "csrnet_b16", "--target", "cuda")
    assert done.returncode == 1
    broken = done.stderr.split("not kept:")[1]
    assert "inception_v3@GPU: differs from torch by 1.0e-01" in broken
    assert "csrnet_b16@GPU: differs from torch by a number that is not known" in broken


def test_rows_end_in_time(bench, tmp_path):
    done = bench("--only", "resnet18", "csrnet", "--target", "cuda", "--minutes", "1e-9")
    assert "minutes are over: resnet18@GPU and what follows" in done.stderr
    assert not (tmp_path / "log").exists()
