"""tessera shard and tessera run --mesh: figures, threads, processes of Open MPI, and what happens when a rank goes wrong."""

import os
import pathlib
import re
import shutil
import subprocess
import time

import numpy as np
import onnx
import onnx.parser
import pytest
from conftest import BINARY
from gpu_stand_in import STAND_IN
from onnx import numpy_helper

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
mlp (float[N,32] x) => (float[N,32] y) {
  h = MatMul(x, w1)
  r = Relu(h)
  z = MatMul(r, w2)
  y = Add(z, x)
}
"""
TENSOR_PARALLEL = ("--shard", "x=data,_", "--shard", "w1=_,model")
MPI = pytest.mark.skipif(not shutil.which("mpirun"), reason="SKIP: no mpirun; tools/setup.sh mpi installs it")


@pytest.fixture
def folder(tmp_path):
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    for name, shape in (("w1", (32, 128)), ("w2", (128, 32))):
        model.graph.initializer.append(numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(np.float32), name))
    onnx.save(model, tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", rng.standard_normal((64, 32)).astype(np.float32))
    np.save(tmp_path / "other.npy", rng.standard_normal((64, 32)).astype(np.float32))
    return tmp_path


def start(folder, words, ranks=4, **others):
    """By mpirun; `others`: words of single ranks, as r2="..."."""
    script = folder / "rank.sh"
    cases = "".join(f'{rank[1:]}) {text} ;;\n' for rank, text in others.items())
    script.write_text(f'case $OMPI_COMM_WORLD_RANK in\n{cases}*) exec "$@" ;;\nesac\n')
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TESSERA_CACHE=str(folder / "cache"))
    return subprocess.run(["mpirun", "--oversubscribe", "-n", str(ranks), "bash", script, BINARY, *words], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=300)


def test_figures(folder, tessera_command):
    done = tessera_command("shard", "model.onnx", "--mesh", "data=2,model=2", "--annotate", "x=data,_", "--annotate", "w1=_,model",
                           "--dim", "N=64", "--json")
    assert done.status == 0, done.err
    assert [(c["kind"], c["axes"]) for c in done.json["collectives"]] == [("all_reduce", "model"), ("all_gather", "data")]
    assert done.json["collectives"][0]["bytes"] == 32 * 32 * 4  # twice half of a rank's result
    assert done.json["rank_weight_bytes"] * 2 == done.json["weight_bytes"]
    shardings = {v["name"]: v["sharding"] for v in done.json["values"]}
    assert shardings["w2"] == "model,-" and shardings["x"] == "data,-"
    text = tessera_command("shard", "model.onnx", "--mesh", "data=4", "--annotate", "x=data,_", "--dim", "N=64", "--explain").out
    assert "x (given) f32[64,32]  data,-" in text and "1 all_gather over data" in text


def test_a_search_fits_into_the_memory(folder, tessera_command):
    words = ("shard", "model.onnx", "--mesh", "model=4", "--dim", "N=64", "--json")
    done = tessera_command(*words, "--memory", "33kB")
    assert done.status == 0, done.err
    cost = done.json["cost"]
    assert cost["memory_bytes"] <= 33000 and done.json["rank_weight_bytes"] < done.json["weight_bytes"] and done.json["plans"] > 1
    assert cost["memory_bytes"] == cost["weight_bytes"] + cost["activation_bytes"]
    again = tessera_command(*words, *(w for name, s in done.json["found"].items() for w in ("--annotate", f"{name}={s}")))
    assert again.json["collectives"] == done.json["collectives"] and again.json["cost"] == cost
    assert "E0408" in tessera_command(*words[:-1], "--memory", "1k").err


def test_estimates_follow_the_speed(folder, tessera_command):
    words = ("shard", "model.onnx", "--mesh", "data=2,model=2", *(w.replace("--shard", "--annotate") for w in TENSOR_PARALLEL), "--dim", "N=64", "--json")
    slow = tessera_command(*words, "--alpha", "1000", "--beta", "1M").json
    half = tessera_command(*words, "--alpha", "1000", "--alpha", "model=0", "--beta", "1M", "--beta", "model=2M").json
    for c, d in zip(slow["collectives"], half["collectives"]):
        assert c["seconds"] == pytest.approx(1e-3 + c["bytes"] / 1e6)
        assert d["seconds"] == pytest.approx(c["bytes"] / 2e6 if d["axes"] == "model" else c["seconds"])
    assert slow["cost"]["communicate_seconds"] == pytest.approx(sum(c["seconds"] for c in slow["collectives"]))
    # Collectives as slow as that are not worth a division; the faster the link, the more is divided.
    found = tessera_command(*words[:4], "--search", *words[-3:], "--alpha", "1000")
    assert found.status == 0 and found.json["collectives"] == [], found.err


def test_explanation_and_picture(folder, tessera_command):
    done = tessera_command("shard", "model.onnx", "--mesh", "data=4", "--dim", "N=4096", "--search", "--explain", "--flops", "1G",
                           "--picture", "model.svg")
    assert done.status == 0, done.err
    assert "--annotate 'x=data,-'" in done.out and "1 all_gather over data" in done.out and "second best: +" in done.out
    picture = (folder / "model.svg").read_text()
    assert picture.startswith("<svg") and picture.endswith("</svg>\n")
    for text in ("input x", "matmul", "relu", "data,-", "all-gather over data", "w1"):
        assert text in picture, text


@pytest.mark.parametrize("words, said", [
    (("--mesh", "data"), "expected NAME=SIZE"),
    (("--mesh", "data=2", "--annotate", "x=model,_"), 'has no axis "model"'),
    (("--mesh", "data=2", "--annotate", "x=data"), "it has 1 dimensions, and the tensor 2"),
    (("--mesh", "data=2", "--annotate", "q=data,_"), 'no value "q"'),
    (("--mesh", "data=2", "--annotate", "x"), "is not VALUE=SHARDING"),
    (("--mesh", "data=2", "--alpha", "model=1"), 'an axis "model", which data=2 does not have'),
    (("--mesh", "data=2", "--alpha", "fast"), "expected microseconds"),
    (("--mesh", "data=2", "--beta", "0"), "expected a number above 0"),
    (("--mesh", "data=2", "--picture", "model.png"), "end it in .svg"),
])
def test_wrong_words(folder, tessera_command, words, said):
    done = tessera_command("shard", "model.onnx", "--dim", "N=64", *words)
    assert done.status in (1, 2) and said in done.err, done.err


def test_threads_compute_what_one_device_does(folder, tessera_command):
    words = ("run", "model.onnx", "--input", "x=x.npy")
    assert tessera_command(*words, "--output", "y=one.npy").status == 0
    for how in ((), ("--backend", "evaluate")):
        done = tessera_command(*words, "--mesh", "data=2,model=2", *TENSOR_PARALLEL, *how, "--output", "y=four.npy")
        assert done.status == 0, done.err
        assert np.abs(np.load(folder / "one.npy") - np.load(folder / "four.npy")).max() < 1e-5


@MPI
def test_processes_compute_what_one_device_does(folder, tessera_command):
    assert tessera_command("run", "model.onnx", "--input", "x=x.npy", "--output", "y=one.npy").status == 0
    done = start(folder, ("run", "model.onnx", "--input", "x=x.npy", "--mesh", "data=2,model=2", *TENSOR_PARALLEL, "--output", "y=four.npy"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("  out  y") == 1  # one rank speaks
    assert np.abs(np.load(folder / "one.npy") - np.load(folder / "four.npy")).max() < 1e-5


@MPI
@pytest.mark.parametrize("instead, said", [
    ('exec "$@" --mesh data=4', "rank 2 has another mesh"),
    ('exec "$@" --input x=other.npy', "rank 2 has another input"),
])
def test_a_rank_that_differs_is_named(folder, instead, said):
    words = ("run", "model.onnx", "--shard", "x=data,_")
    given = () if "--input" in instead else ("--input", "x=x.npy")
    mesh = () if "--mesh" in instead else ("--mesh", "data=2,model=2")
    usual = f'exec "$@" {"--mesh data=2,model=2" if not mesh else ""} {"--input x=x.npy" if not given else ""}'
    done = start(folder, (*words, *given, *mesh), r0=usual, r1=usual, r3=usual, r2=instead)
    assert done.returncode == 1 and said in done.stderr and "E0702" in done.stderr, done.stderr


def on_stand_in(folder, *words, gpus=1):
    """With drivers and an NCCL that stand in: what they would refuse is an error, and nothing is computed."""
    if not (STAND_IN / "libnccl.so.2").exists():
        pytest.skip("SKIP: the library that stands in for NCCL is not built")
    environment = dict(os.environ, LD_LIBRARY_PATH=str(STAND_IN), STAND_IN_QUIET="1", STAND_IN_GPUS=str(gpus),
                       STAND_IN_NCCL_SAY="1", TESSERA_CACHE=str(folder / "cache"))
    words = ("run", "model.onnx", "--input", "x=x.npy", "--target", "cuda", *words)
    return subprocess.run([BINARY, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_one_rank_runs_the_same_program_over_nccl(folder):
    done = on_stand_in(folder, "--mesh", "data=1", "--shard", "x=data,_")
    assert done.returncode == 0 and "collectives by NCCL" in done.stdout, done.stdout + done.stderr


def test_gpus_exchange_by_nccl(folder):
    done = on_stand_in(folder, "--mesh", "model=2", *TENSOR_PARALLEL[2:], gpus=2)
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("nccl:") and "split" not in line]
    assert said == ["nccl: all_reduce of 2048, type 7, 2 ranks"] * 2, done.stdout


def test_ranks_that_share_a_gpu_exchange_through_the_host(folder):
    words = ("--mesh", "model=2", *TENSOR_PARALLEL[2:])
    done = on_stand_in(folder, *words, "--json")
    assert done.returncode == 0 and '"collectives": "host"' in done.stdout, done.stdout + done.stderr
    done = on_stand_in(folder, *words, "--collectives", "nccl")
    assert done.returncode == 1 and "E0701: NCCL needs a GPU for each of the 2 ranks" in done.stderr, done.stderr


@MPI
def test_a_rank_killed_before_it_starts_ends_the_others(folder):
    words = ("run", "model.onnx", "--input", "x=x.npy", "--mesh", "data=4", "--shard", "x=data,_")
    assert start(folder, words, r2="kill -KILL $$").returncode != 0


@pytest.fixture
def long_model(folder):
    """A run that takes long after the ranks know one another, which is when they catch SIGTERM."""
    weights = [numpy_helper.from_array(np.full((2048, 2048), 0.01, np.float32), f"w{i}") for i in range(2)]
    steps = " ".join(f"m{i} = MatMul(v{i}, w{i % 2}) v{i + 1} = Relu(m{i})" for i in range(30))
    model = onnx.parser.parse_model(f'''<ir_version: 8, opset_import: ["" : 18]>
        long (float[4096,2048] v0) => (float[4096,2048] v30) {{ {steps} }}''')
    model.graph.initializer.extend(weights)
    onnx.save(model, folder / "long.onnx")
    return folder / "long.onnx"


LONG_RUN = ("run", "long.onnx", "--random", "--mesh", "data=4", "--shard", "v0=data,_")
CATCHES = "0x$(awk '/SigCgt/ {print $2}' /proc/$$/status)"
IN_THE_RUN = f"until (( {CATCHES} & 0x4000 )); do sleep 0.1; done; sleep 1"


@MPI
def test_a_rank_killed_in_a_run_is_named(folder, long_model):
    done = start(folder, LONG_RUN, r2=f'({IN_THE_RUN}; kill -KILL $$) & exec "$@"')
    assert done.returncode != 0 and re.search("E0702: rank [013]: rank 2 has ended", done.stderr), done.stderr


@MPI
def test_ranks_do_not_outlive_mpirun(folder, long_model):
    done = start(folder, LONG_RUN, r2=f'echo $$ > process; ({IN_THE_RUN}; kill -KILL $PPID) & exec "$@"')
    assert done.returncode == -9
    process = int((folder / "process").read_text())
    state = pathlib.Path(f"/proc/{process}/stat")
    for _ in range(100):
        if not state.exists() or ") Z" in state.read_text():
            return
        time.sleep(0.1)
    os.kill(process, 9)
    pytest.fail("a rank goes on after mpirun")


def test_from_python(folder):
    tessera = pytest.importorskip("tessera")
    x = np.load(folder / "x.npy")
    model = tessera.load(folder / "model.onnx")
    parts = tessera.shard(model, "data=2,model=2", {"x": "data,_", "w1": "_,model"}, sizes={"N": 64})
    assert [(c.kind, c.axes) for c in parts.report.collectives] == [("all_reduce", "model"), ("all_gather", "data")]
    assert {v.name: v.sharding for v in parts.report.values}["w2"] == "model,-"
    whole = model(x)
    for evaluate in (False, True):
        y = parts.run({"x": x}, evaluate=evaluate)["y"]
        assert y.shape == whole.shape and np.abs(y - whole).max() < 1e-5
    speed = tessera.DeviceSpeed(operations=1e9, axes={"data": tessera.LinkSpeed(latency=1e-6)})
    steps = []
    found = tessera.shard(model, "data=4", sizes={"N": 4096}, search=True, speed=speed, progress=lambda *step: steps.append(step)).report
    assert found.found["x"] == "data,-" and found.plans > 1 and steps and found.second.cost.seconds > found.cost.seconds
    assert found.cost.seconds == pytest.approx(found.cost.compute_seconds + found.cost.communicate_seconds)
    with pytest.raises(tessera.Error, match="E0408"):
        tessera.shard(model, "data=4", sizes={"N": 64}, memory=1000)
    with pytest.raises(tessera.Error, match='no axis "model"'):
        tessera.shard(model, "data=4", {"x": "model,_"}, sizes={"N": 64})
