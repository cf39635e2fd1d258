"""tessera train --mesh: the losses and weights of one device, on threads and on processes of Open MPI; ZeRO's memory; checkpoints."""

import os
import re
import shutil
import subprocess

import numpy as np
import onnx
import onnx.parser
import pytest
from conftest import BINARY, Finished
from onnx import numpy_helper

MPI = pytest.mark.skipif(not shutil.which("mpirun"), reason="SKIP: no mpirun; tools/setup.sh mpi installs it")
HEADER = '<ir_version: 8, opset_import: ["" : 18]>\n'


def model(text, shapes, seed=0):
    made = onnx.parser.parse_model(HEADER + text)
    rng = np.random.default_rng(seed)
    for name, shape in shapes.items():
        if name.endswith(("_scale", "_var")):
            values = np.ones(shape)
        elif name.endswith(("_bias", "_mean")):
            values = np.zeros(shape)
        else:
            values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) if len(shape) == 4 else shape[-2] if len(shape) > 1 else 8)
        made.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    return made


def mlp():
    rng = np.random.default_rng(1)
    made = model("""mlp (float[N,32] x) => (float[N,8] y) {
        a = MatMul(x, w1)
        b = Add(a, b1_bias)
        c = Relu(b)
        y = MatMul(c, w2)
    }""", {"w1": (32, 64), "b1_bias": (64,), "w2": (64, 8)})
    return made, [rng.standard_normal((64, 32)).astype(np.float32), rng.integers(0, 8, 64)], ()


def dropout():
    made, arrays, words = mlp()
    del made.graph.node[:]
    made.graph.node.extend(onnx.parser.parse_model(HEADER + """d (float[N,32] x) => (float[N,8] y) {
        ratio = Constant <value_float = 0.3> ()
        a = MatMul(x, w1)
        b = Add(a, b1_bias)
        c = Relu(b)
        d = Dropout(c, ratio)
        y = MatMul(d, w2)
    }""").graph.node)
    return made, arrays, words


def transformer():
    rng = np.random.default_rng(2)
    made = model("""gpt (int64[N,8] ids) => (float[N,8,24] y) {
        heads = Constant <value_ints = [0, 0, 4, 8]> ()
        flat = Constant <value_ints = [0, 0, 32]> ()
        scale = Constant <value_float = 0.35355339> ()
        e = Gather(table, ids)
        x = Add(e, places)
        n1 = LayerNormalization(x, n1_scale, n1_bias)
        q = MatMul(n1, wq)
        k = MatMul(n1, wk)
        v = MatMul(n1, wv)
        qr = Reshape(q, heads)
        kr = Reshape(k, heads)
        vr = Reshape(v, heads)
        qt = Transpose <perm = [0, 2, 1, 3]> (qr)
        kt = Transpose <perm = [0, 2, 3, 1]> (kr)
        vt = Transpose <perm = [0, 2, 1, 3]> (vr)
        s = MatMul(qt, kt)
        ss = Mul(s, scale)
        p = Softmax(ss)
        o = MatMul(p, vt)
        ot = Transpose <perm = [0, 2, 1, 3]> (o)
        of = Reshape(ot, flat)
        od = MatMul(of, wo)
        r = Add(x, od)
        n2 = LayerNormalization(r, n2_scale, n2_bias)
        h = MatMul(n2, w1)
        g = Sigmoid(h)
        hg = Mul(h, g)
        m = MatMul(hg, w2)
        z = Add(r, m)
        y = MatMul(z, head)
    }""", {"table": (24, 32), "places": (8, 32), "n1_scale": (32,), "n1_bias": (32,), "wq": (32, 32), "wk": (32, 32), "wv": (32, 32),
           "wo": (32, 32), "n2_scale": (32,), "n2_bias": (32,), "w1": (32, 64), "w2": (64, 32), "head": (32, 24)})
    ids = rng.integers(0, 24, (32, 8))
    return made, [ids, np.roll(ids, -1, 1)], ("--class-axis", "-1")


def convnet():
    rng = np.random.default_rng(3)
    made = model("""resnet (float[N,3,8,8] x) => (float[N,5] y) {
        c1 = Conv <pads = [1, 1, 1, 1]> (x, k1)
        n1 = BatchNormalization(c1, n1_scale, n1_bias, n1_mean, n1_var)
        r1 = Relu(n1)
        c2 = Conv <pads = [1, 1, 1, 1]> (r1, k2)
        n2 = BatchNormalization(c2, n2_scale, n2_bias, n2_mean, n2_var)
        s = Add(n2, r1)
        r2 = Relu(s)
        mp = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r2)
        c3 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (mp, k3)
        r3 = Relu(c3)
        ap = GlobalAveragePool(r3)
        f = Flatten(ap)
        y = MatMul(f, w)
    }""", {"k1": (8, 3, 3, 3), "n1_scale": (8,), "n1_bias": (8,), "n1_mean": (8,), "n1_var": (8,), "k2": (8, 8, 3, 3), "n2_scale": (8,),
           "n2_bias": (8,), "n2_mean": (8,), "n2_var": (8,), "k3": (16, 8, 3, 3), "w": (16, 5)})
    return made, [rng.standard_normal((32, 3, 8, 8)).astype(np.float32), rng.integers(0, 5, 32)], ()


def experts():
    rng = np.random.default_rng(4)
    made = model("""moe (float[G,4,16] x, float[G,4,4,2] m) => (float[G,4,16] y) {
        l = MatMul(x, gate)
        g = Softmax(l)
        axis = Constant <value_ints = [3]> ()
        gu = Unsqueeze(g, axis)
        c = Mul(m, gu)
        i = Einsum <equation = "gsec,gsm->egcm"> (m, x)
        h = Einsum <equation = "egcm,emh->egch"> (i, w1)
        r = Relu(h)
        o = Einsum <equation = "egch,ehm->egcm"> (r, w2)
        y = Einsum <equation = "gsec,egcm->gsm"> (c, o)
    }""", {"gate": (16, 4), "w1": (4, 16, 32), "w2": (4, 32, 16)})
    to = rng.integers(0, 4, (32, 4))
    mask = np.zeros((32, 4, 4, 2), np.float32)
    for group in range(32):
        full = [0] * 4
        for token in range(4):
            expert = to[group, token]
            if full[expert] < 2:
                mask[group, token, expert, full[expert]] = 1
                full[expert] += 1
    x = rng.standard_normal((32, 4, 16)).astype(np.float32)
    return made, [x, mask, np.tanh(x[:, :, ::-1]).copy()], ("--loss", "mse")


MODELS = {f.__name__: f for f in (mlp, dropout, transformer, convnet, experts)}


@pytest.fixture
def prepare(tmp_path):
    def write(name):
        made, arrays, words = MODELS[name]()
        onnx.save(made, tmp_path / "model.onnx")
        files = []
        for i, array in enumerate(arrays):
            np.save(tmp_path / f"{i}.npy", array)
            files.append(f"{i}.npy")
        return ("train", "model.onnx", "--data", ",".join(files), "--batch", "16", "--epochs", "2", "--no-shuffle", "--lr", "0.01",
                "--json", *words)
    return write


def weights(path):
    return {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}


def compare(folder, one, mesh, tolerance):
    assert one.status == 0 and mesh.status == 0, one.err + mesh.err
    assert np.allclose(one.json["losses"]["points"], mesh.json["losses"]["points"], rtol=tolerance, atol=0)
    assert one.json["losses"]["points"][0] > one.json["losses"]["points"][-1]
    first, other = weights(folder / "one.onnx"), weights(folder / "mesh.onnx")
    assert first.keys() == other.keys()
    for name, values in first.items():
        assert np.abs(values - other[name]).max() <= 1e-4, name  # AdamW's steps are of 0.01 whatever the gradient


@pytest.mark.parametrize("name, words", [
    ("mlp", ("--mesh", "data=4")),
    ("mlp", ("--mesh", "data=2,model=2", "--shard", "w1=_,model", "--optimizer", "sgd", "--momentum", "0.9")),
    ("mlp", ("--mesh", "data=3", "--zero", "3", "--optimizer", "lion", "--clip-norm", "1")),
    ("mlp", ("--mesh", "data=2,model=2", "--shard", "w1=_,model", "--zero", "2", "--accumulate", "2", "--optimizer", "adam")),
    ("dropout", ("--mesh", "data=2,model=2", "--shard", "w1=_,model", "--seed", "5")),
    ("transformer", ("--mesh", "data=2,model=2", "--shard", "w[qk1]=_,model", "--zero", "1")),
    ("transformer", ("--mesh", "sequence=4", "--shard", "ids=-,sequence", "--optimizer", "adagrad")),
    ("transformer", ("--mesh", "data=4", "--zero", "3", "--optimizer", "sgd")),
    ("convnet", ("--mesh", "data=4", "--optimizer", "sgd", "--momentum", "0.9", "--nesterov")),
    ("convnet", ("--mesh", "data=2", "--zero", "3")),
    ("experts", ("--mesh", "expert=4", "--shard", "x=expert,_,_", "--shard", "m=expert,_,_,_", "--shard", "w[12]=expert,_,_",
                 "--shard", "target=expert,_,_", "--zero", "1")),
])
def test_threads_train_what_one_device_does(tmp_path, tessera_command, prepare, name, words):
    train = prepare(name)
    mesh = tessera_command(*train, *words, "--out", "mesh.onnx")
    plain = [w for i, w in enumerate(words) if w not in ("--mesh", "--shard", "--zero") and (i == 0 or words[i - 1] not in ("--mesh", "--shard", "--zero"))]
    compare(tmp_path, tessera_command(*train, *plain, "--out", "one.onnx"), mesh, 2e-5)


def test_stages_of_zero_save_memory(tmp_path, tessera_command, prepare):
    train = prepare("mlp")
    kept = []
    for zero in range(4):
        use = tessera_command(*train, "--mesh", "data=4", "--zero", zero, "--accumulate", "2", "--out", "mesh.onnx").json["mesh"]
        assert use["weight_bytes"] == (32 * 64 + 64 + 64 * 8) * 4 and use["state_bytes"] == 3 * use["weight_bytes"]
        kept.append((use["rank_weight_bytes"] * 4 / use["weight_bytes"], use["rank_state_bytes"] * 12 / use["state_bytes"]))
    assert kept == [(4, 12), (4, 6), (4, 3), (1, 3)]  # of twelve: two averages and the sum of gradients


def test_a_resumed_run_is_the_same(tmp_path, tessera_command, prepare):
    train = prepare("mlp")
    mesh = ("--mesh", "data=2,model=2", "--shard", "w1=_,model", "--zero", "1")
    whole = tessera_command(*train, *mesh, "--out", "whole.onnx")
    half = [*train, *mesh, "--checkpoint", "run.safetensors"]
    half[half.index("--epochs") + 1] = "1"
    assert tessera_command(*half).status == 0
    resumed = tessera_command(*train, *mesh, "--checkpoint", "run.safetensors", "--resume", "--out", "resumed.onnx")
    assert resumed.json["losses"]["points"] == whole.json["losses"]["points"]
    assert (tmp_path / "whole.onnx").read_bytes() == (tmp_path / "resumed.onnx").read_bytes()
    # A checkpoint is of no mesh: one device goes on with it.
    alone = tessera_command(*train, "--checkpoint", "run.safetensors", "--resume", "--out", "alone.onnx")
    assert alone.status == 0, alone.err


@pytest.mark.parametrize("words, said", [
    (("--zero", "1"), "there is none"),
    (("--mesh", "model=2", "--zero", "1"), "the batch is not divided"),
    (("--mesh", "data=2", "--shard", "q=data"), 'no value "q"'),
    (("--mesh", "data=2", "--shard", "w1=model,_"), 'has no axis "model"'),
])
def test_wrong_words(tmp_path, tessera_command, prepare, words, said):
    done = tessera_command(*prepare("mlp"), *words, "--out", "mesh.onnx")
    assert done.status in (1, 2) and said in done.out + done.err, done.out + done.err
    assert not (tmp_path / "mesh.onnx").exists()


def start(folder, words, ranks=4, **others):
    """By mpirun; `others`: words of single ranks, as r2="..."."""
    script = folder / "rank.sh"
    cases = "".join(f'{rank[1:]}) {text} ;;\n' for rank, text in others.items())
    script.write_text(f'case $OMPI_COMM_WORLD_RANK in\n{cases}*) exec "$@" ;;\nesac\n')
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TESSERA_CACHE=str(folder / "cache"))
    return subprocess.run(["mpirun", "--oversubscribe", "-n", str(ranks), "bash", script, BINARY, *words], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=300)


@MPI
@pytest.mark.parametrize("name, words", [
    ("mlp", ("--mesh", "data=2,model=2", "--shard", "w1=_,model", "--zero", "3")),
    ("transformer", ("--mesh", "data=2,model=2", "--shard", "w[qk1]=_,model", "--zero", "1")),
    ("convnet", ("--mesh", "data=4",)),
])
def test_processes_train_what_one_device_does(tmp_path, tessera_command, prepare, name, words):
    train = prepare(name)
    done = start(tmp_path, (*train, *words, "--out", "mesh.onnx", "--checkpoint", "run.safetensors"))
    assert done.returncode == 0, done.stderr
    mesh = Finished(done)  # one rank speaks
    compare(tmp_path, tessera_command(*train, "--out", "one.onnx"), mesh, 2e-5)
    threads = tessera_command(*train, *words, "--out", "threads.onnx", "--checkpoint", "threads.safetensors")
    assert threads.json["losses"] == mesh.json["losses"]
    assert (tmp_path / "threads.safetensors").read_bytes() == (tmp_path / "run.safetensors").read_bytes()


@MPI
@pytest.mark.parametrize("instead, said", [
    ('exec "$@" --data 0.npy,other.npy', "rank 2 has another batch"),
    ('exec "$@" --zero 2', "rank 2 has another annotations"),
    ('cp -r . ../rank2 && cd ../rank2 && cp other.onnx model.onnx && exec "$@" --data 0.npy,1.npy', "rank 2 has another model"),
])
def test_a_rank_that_trains_something_else_is_named(tmp_path, prepare, instead, said):
    train = list(prepare("mlp"))
    at = train.index("--data")
    del train[at:at + 2]
    onnx.save(model("""mlp (float[N,32] x) => (float[N,8] y) {
        a = MatMul(x, w1)
        b = Add(a, b1_bias)
        c = Relu(b)
        y = MatMul(c, w2)
    }""", {"w1": (32, 64), "b1_bias": (64,), "w2": (64, 8)}, seed=9), tmp_path / "other.onnx")
    np.save(tmp_path / "other.npy", np.load(tmp_path / "1.npy")[::-1].copy())
    usual = 'exec "$@" --data 0.npy,1.npy'
    instead = instead if "--data" in instead else instead.replace("--zero", "--data 0.npy,1.npy --zero")
    done = start(tmp_path, (*train, "--mesh", "data=4", "--out", "mesh.onnx"), r0=usual, r1=usual, r3=usual, r2=instead)
    text = done.stdout + done.stderr
    assert done.returncode == 1 and said in text and "E0702" in text, text


@MPI
def test_a_full_disk_on_the_first_rank_ends_all(tmp_path, prepare):
    done = start(tmp_path, (*prepare("mlp"), "--mesh", "data=4", "--checkpoint", "nowhere/run.safetensors"))
    text = done.stdout + done.stderr
    assert done.returncode == 1 and re.search("rank 0 stopped: cannot write|E0105", text), text


@MPI
@pytest.mark.parametrize("signal, said", [("STOP", "rank 2 is suspended|nothing came from rank 2"), ("KILL", "rank 2 has ended")])
def test_a_rank_that_is_gone_in_a_run_is_named(tmp_path, prepare, signal, said):
    """Rank 2 gets the signal once the ranks know one another, which is when it catches SIGTERM."""
    train = list(prepare("mlp"))
    train[train.index("--epochs") + 1] = "1000000"
    caught = "0x$(awk '/SigCgt/ {print $2}' /proc/$$/status)"
    sender = f'(until (( {caught} & 0x4000 )); do sleep 0.1; done; sleep 2; kill -{signal} $$) & exec "$@"'
    done = start(tmp_path, (*train, "--mesh", "data=4", "--out", "mesh.onnx"), r2=sender)
    assert done.returncode != 0 and re.search(f"E0702.*{said}", done.stdout + done.stderr, re.S), done.stdout + done.stderr
