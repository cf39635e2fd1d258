"""tessera.training: steps against NumPy, saving and resuming, and what is refused."""

import json
import os
import random
import re
import resource
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from onnx import TensorProto, helper, numpy_helper

import tessera

FLOAT = TensorProto.FLOAT


def onnx_model(nodes, inputs, outputs, initializers):
    info = lambda name, shape: helper.make_tensor_value_info(name, FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [info(*i) for i in inputs], [info(*o) for o in outputs],
                              initializer=[numpy_helper.from_array(value, name) for name, value in initializers.items()])
    return tessera.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def weights(widths, seed=0):
    draw = np.random.default_rng(seed)
    found = {}
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        found[f"fc{i}.weight"] = (draw.standard_normal((a, b)) / np.sqrt(a)).astype(np.float32)
        found[f"fc{i}.bias"] = (0.1 * draw.standard_normal(b)).astype(np.float32)
    return found


def mlp(widths=(5, 7, 3), seed=0, batch="N"):
    """x @ w + b, relu, and so on: f32[N, widths[0]] to f32[N, widths[-1]]."""
    nodes, x = [], "x"
    for i in range(len(widths) - 1):
        last = i == len(widths) - 2
        nodes += [helper.make_node("MatMul", [x, f"fc{i}.weight"], [f"m{i}"]),
                  helper.make_node("Add", [f"m{i}", f"fc{i}.bias"], ["y" if last else f"a{i}"])]
        if not last:
            nodes.append(helper.make_node("Relu", [f"a{i}"], [f"h{i}"]))
        x = f"h{i}"
    return onnx_model(nodes, [("x", (batch, widths[0]))], [("y", (batch, widths[-1]))], weights(widths, seed))


class Reference:
    """The same network and its gradients in f64, written out."""

    def __init__(self, widths=(5, 7, 3), seed=0):
        self.p = {name: value.astype(np.float64) for name, value in weights(widths, seed).items()}
        self.layers = len(widths) - 1

    def forward(self, x):
        self.inputs = []
        for i in range(self.layers):
            self.inputs.append(x)
            x = x @ self.p[f"fc{i}.weight"] + self.p[f"fc{i}.bias"]
            if i < self.layers - 1:
                x = np.maximum(x, 0)
        return x

    def backward(self, g):
        found = {}
        for i in reversed(range(self.layers)):
            x = self.inputs[i]
            found[f"fc{i}.weight"], found[f"fc{i}.bias"] = x.T @ g, g.sum(0)
            g = (g @ self.p[f"fc{i}.weight"].T) * (x > 0)
        return found


def cross_entropy(logits, labels, *, ignore_index=-100, smoothing=0.0, class_weights=None):
    n, classes = logits.shape
    w = np.ones(classes) if class_weights is None else np.asarray(class_weights)
    z = logits - logits.max(1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(1, keepdims=True))
    loss, total, g = 0.0, 0.0, np.zeros_like(logits)
    for i in range(n):
        if labels[i] == ignore_index:
            continue
        q = smoothing / classes * w
        q[labels[i]] += (1 - smoothing) * w[labels[i]]
        loss -= (q * logp[i]).sum()
        g[i] = np.exp(logp[i]) * q.sum() - q
        total += w[labels[i]]
    return loss / total, g / total


def mse(y, t):
    return np.mean((y - t) ** 2), 2 * (y - t) / y.size


def l1(y, t):
    return np.mean(np.abs(y - t)), np.sign(y - t) / y.size


def bce_with_logits(y, t):
    p = 1 / (1 + np.exp(-y))
    return -np.mean(t * np.log(p) + (1 - t) * np.log(1 - p)), (p - t) / y.size


def apply_update(o, p, g, s, t):
    """One parameter's update in f64, from the papers; `s` is what is remembered."""
    lr, wd = o.learning_rate, o.weight_decay
    if isinstance(o, tessera.SGD):
        g = g + wd * p
        if o.momentum:
            s["v"] = o.momentum * s.get("v", 0) + g
            g = g + o.momentum * s["v"] if o.nesterov else s["v"]
        return p - lr * g
    if isinstance(o, tessera.Adagrad):
        g = g + wd * p
        s["h"] = s.get("h", 0) + g * g
        return p - lr * g / (np.sqrt(s["h"]) + o.epsilon)
    if isinstance(o, tessera.Lion):
        m = s.get("m", 0)
        new = p - lr * wd * p - lr * np.sign(o.beta1 * m + (1 - o.beta1) * g)
        s["m"] = o.beta2 * m + (1 - o.beta2) * g
        return new
    if isinstance(o, tessera.AdamW):
        p = p - lr * wd * p
    else:
        g = g + wd * p
    s["m"] = o.beta1 * s.get("m", 0) + (1 - o.beta1) * g
    s["v"] = o.beta2 * s.get("v", 0) + (1 - o.beta2) * g * g
    m, v = s["m"] / (1 - o.beta1**t), s["v"] / (1 - o.beta2**t)
    return p - lr * m / (np.sqrt(v) + o.epsilon)


OPTIMIZERS = [tessera.SGD(0.1, weight_decay=0.01), tessera.SGD(0.05, momentum=0.9),
              tessera.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01), tessera.Adam(0.01, weight_decay=0.1),
              tessera.AdamW(0.01, weight_decay=0.1), tessera.Adagrad(0.05), tessera.Lion(0.002, weight_decay=0.1)]


def batches(count, n=6, width=5, classes=3, seed=3):
    draw = np.random.default_rng(seed)
    return [(draw.standard_normal((n, width)).astype(np.float32), draw.integers(0, classes, n)) for _ in range(count)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_steps_are_those_of_numpy(optimizer):
    step = tessera.training(mlp(), "cross_entropy", optimizer, threads=1)
    reference, remembered = Reference(), {}
    for t, (x, labels) in enumerate(batches(12), 1):
        loss, g = cross_entropy(reference.forward(x.astype(np.float64)), labels)
        gradients = reference.backward(g)
        assert step(x, labels) == pytest.approx(loss, rel=2e-5)
        for name, gradient in gradients.items():
            reference.p[name] = apply_update(optimizer, reference.p[name], gradient, remembered.setdefault(name, {}), t)
    for name, value in step.parameters().items():
        np.testing.assert_allclose(value, reference.p[name], rtol=2e-4, atol=2e-5)
    assert step.updates == 12 and step.skipped == 0


@pytest.mark.parametrize("kind,reference_loss", [("mse", mse), ("l1", l1), ("bce_with_logits", bce_with_logits)])
def test_losses_of_elements(kind, reference_loss):
    step = tessera.training(mlp(), kind, tessera.SGD(0.1), threads=1)
    reference = Reference()
    draw = np.random.default_rng(5)
    for x, _ in batches(5):
        target = draw.random((6, 3)).astype(np.float32)
        loss, g = reference_loss(reference.forward(x.astype(np.float64)), target)
        for name, gradient in reference.backward(g).items():
            reference.p[name] -= 0.1 * gradient
        assert step(x, target) == pytest.approx(loss, rel=2e-5)
    for name, value in step.parameters().items():
        np.testing.assert_allclose(value, reference.p[name], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("options", [{"ignore_index": 1}, {"smoothing": 0.2}, {"class_weights": [0.2, 1.0, 3.0]},
                                     {"ignore_index": 0, "smoothing": 0.1, "class_weights": [0.5, 2.0, 1.0]}], ids=repr)
def test_cross_entropy_with_options(options):
    loss = tessera.Loss("cross_entropy", ignore_index=options.get("ignore_index", -100),
                        label_smoothing=options.get("smoothing", 0), class_weights=options.get("class_weights", ()))
    step = tessera.training(mlp(), loss, tessera.SGD(0.1), threads=1)
    reference = Reference()
    for x, labels in batches(5):
        expected, g = cross_entropy(reference.forward(x.astype(np.float64)), labels, **options)
        for name, gradient in reference.backward(g).items():
            reference.p[name] -= 0.1 * gradient
        assert step(x, labels) == pytest.approx(expected, rel=2e-5)
    for name, value in step.parameters().items():
        np.testing.assert_allclose(value, reference.p[name], rtol=2e-4, atol=2e-5)


def test_rows_that_are_all_ignored_change_nothing():
    step = tessera.training(mlp(), "cross_entropy", tessera.SGD(0.1), threads=1)
    before = {name: value.copy() for name, value in step.parameters().items()}
    assert step(batches(1)[0][0], np.full(6, -100)) == 0
    for name, value in step.parameters().items():
        np.testing.assert_array_equal(value, before[name])


def test_the_models_own_loss():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Sub", ["m", "t"], ["d"]),
             helper.make_node("Mul", ["d", "d"], ["s"]), helper.make_node("ReduceMean", ["s"], ["loss"], keepdims=0)]
    model = onnx_model(nodes, [("x", ("N", 4)), ("t", ("N", 2))], [("loss", ())], {"w": np.ones((4, 2), np.float32)})
    step = tessera.training(model, None, tessera.SGD(0.1), threads=1)
    draw = np.random.default_rng(0)
    x, t = draw.standard_normal((5, 4)).astype(np.float32), draw.standard_normal((5, 2)).astype(np.float32)
    w = np.ones((4, 2))
    for _ in range(3):
        d = x @ w - t
        assert step(x, t) == pytest.approx(np.mean(d * d), rel=1e-5)
        w -= 0.1 * 2 * x.T @ d / d.size
    np.testing.assert_allclose(step.parameters()["w"], w, rtol=1e-4)


def test_clipping_by_norm_and_by_value():
    for options in ({"clip_norm": 0.05}, {"clip_value": 0.01}):
        step = tessera.training(mlp(), "cross_entropy", tessera.SGD(0.5), threads=1, **options)
        reference = Reference()
        for x, labels in batches(4):
            _, g = cross_entropy(reference.forward(x.astype(np.float64)), labels)
            gradients = reference.backward(g)
            norm = np.sqrt(sum((g * g).sum() for g in gradients.values()))
            step(x, labels)
            if "clip_norm" in options:
                assert step.report.gradient_norm == pytest.approx(norm, rel=1e-4) and norm > 0.05
            for name, gradient in gradients.items():
                clipped = gradient * min(1, 0.05 / (norm + 1e-6)) if "clip_norm" in options else np.clip(gradient, -0.01, 0.01)
                reference.p[name] -= 0.5 * clipped
        for name, value in step.parameters().items():
            np.testing.assert_allclose(value, reference.p[name], rtol=2e-4, atol=2e-5)


def test_accumulated_batches_are_one_update():
    step = tessera.training(mlp(), "cross_entropy", tessera.SGD(0.1, momentum=0.9), accumulate=3, threads=1)
    reference, remembered = Reference(), {}
    for turn in range(3):
        sums = {}
        for k, (x, labels) in enumerate(batches(3, seed=turn)):
            _, g = cross_entropy(reference.forward(x.astype(np.float64)), labels)
            for name, gradient in reference.backward(g).items():
                sums[name] = sums.get(name, 0) + gradient / 3
            step(x, labels)
            assert step.report.updated == (k == 2) and step.updates == turn + (k == 2)
        for name, gradient in sums.items():
            reference.p[name] = apply_update(tessera.SGD(0.1, momentum=0.9), reference.p[name], gradient,
                                             remembered.setdefault(name, {}), turn + 1)
    for name, value in step.parameters().items():
        np.testing.assert_allclose(value, reference.p[name], rtol=2e-4, atol=2e-5)


def test_parameters_are_the_steps_own_memory():
    step = tessera.training(mlp(), "cross_entropy", tessera.AdamW(0.01), threads=1)
    parameters = step.parameters()
    assert list(parameters) == ["fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"]
    before = {name: value.copy() for name, value in parameters.items()}
    x, labels = batches(1)[0]
    first = step(x, labels)
    assert all((parameters[name] != before[name]).any() for name in before)
    for name, value in before.items():
        parameters[name][...] = value
    assert step(x, labels) == first
    assert set(step.state()) == {f"{name}.{slot}" for name in parameters for slot in ("exp_avg", "exp_avg_sq")}


def test_which_parameters_are_trained():
    x, labels = batches(1)[0]
    for options, trained in (({"parameters": ["fc1.*"]}, ["fc1.weight", "fc1.bias"]), ({"frozen": ["*.bias"]}, ["fc0.weight", "fc1.weight"])):
        step = tessera.training(mlp(), "cross_entropy", tessera.SGD(0.1), threads=1, **options)
        step(x, labels)
        assert list(step.parameters()) == trained
    exported = step.trained()
    changed = tessera.compile(exported)(x) - tessera.compile(mlp())(x)
    assert np.abs(changed).max() > 1e-4


def test_a_learning_rate_for_each_update():
    step = tessera.training(mlp(), "cross_entropy", tessera.SGD(lambda update: 0.1 / (update + 1)), threads=1)
    reference = Reference()
    for t, (x, labels) in enumerate(batches(4)):
        _, g = cross_entropy(reference.forward(x.astype(np.float64)), labels)
        for name, gradient in reference.backward(g).items():
            reference.p[name] -= 0.1 / (t + 1) * gradient
        step(x, labels)
        assert step.learning_rate == pytest.approx(0.1 / (t + 1))
    np.testing.assert_allclose(step.parameters()["fc0.weight"], reference.p["fc0.weight"], rtol=2e-4, atol=2e-5)
    rate = tessera.warmup_cosine(1.0, 10, warmup=2)
    assert [rate(0), rate(1), rate(10)] == [0.5, 1.0, 0.0] and 0.4 < rate(6) < 0.6


def test_evaluation_and_export(tmp_path):
    step = tessera.training(mlp(), "cross_entropy", tessera.Adam(0.01), threads=1)
    for x, labels in batches(5):
        step(x, labels)
    loss, outputs = step.evaluate(x, labels)
    expected, _ = cross_entropy(outputs["y"].astype(np.float64), labels)
    assert loss == pytest.approx(expected, rel=1e-5)
    step.export(tmp_path / "trained.onnx")
    np.testing.assert_allclose(tessera.load(tmp_path / "trained.onnx")(x), outputs["y"], rtol=1e-4, atol=1e-5)


def losses(step, count, first=0):
    return [step(x, labels) for x, labels in batches(count + first)[first:]]


@pytest.mark.parametrize("optimizer", [tessera.AdamW(0.01), tessera.SGD(0.1, momentum=0.9)], ids=repr)
def test_a_resumed_run_gives_the_same_losses(optimizer, tmp_path):
    path = tmp_path / "run.safetensors"
    make = lambda: tessera.training(mlp(), "cross_entropy", optimizer, accumulate=2)
    whole = losses(make(), 20)
    step = make()
    assert losses(step, 9) == whole[:9]
    step.save(path, {"epoch": "3"})
    resumed = make()
    assert resumed.load(path) == {"epoch": "3"}
    assert losses(resumed, 11, 9) == whole[9:]
    with open(path, "rb") as file:  # the format, as others read it
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    assert header["__metadata__"]["updates"] == "4"
    entry = header["fc0.weight"]
    assert entry["dtype"] == "F32" and entry["shape"] == [5, 7]
    begin, end = entry["data_offsets"]
    np.testing.assert_array_equal(np.frombuffer(data[begin:end], np.float32).reshape(5, 7), step.parameters()["fc0.weight"])


def test_files_that_do_not_fit_change_nothing(tmp_path):
    step = tessera.training(mlp(), "cross_entropy", tessera.AdamW(0.01), threads=1)
    losses(step, 2)
    path = tmp_path / "run.safetensors"
    step.save(path)
    good = path.read_bytes()
    others = [tessera.training(mlp(), "cross_entropy", tessera.SGD(0.01), threads=1),
              tessera.training(mlp((5, 8, 3)), "cross_entropy", tessera.AdamW(0.01), threads=1)]
    for other in others:
        with pytest.raises(tessera.Error, match="E0110.*does not fit"):
            other.load(path)
    draw = random.Random(1)
    before = {name: value.copy() for name, value in step.parameters().items()}
    for _ in range(200):  # cut short, or with bytes of the header changed
        bad = bytearray(good[:draw.randrange(len(good))] if draw.random() < 0.5 else good)
        if len(bad) == len(good):
            bad[draw.randrange(700)] ^= 1 << draw.randrange(8)
        path.write_bytes(bad)
        try:
            step.load(path)
        except tessera.Error as e:
            assert e.code in ("E0110", "E0108")
            for name, value in step.parameters().items():
                np.testing.assert_array_equal(value, before[name])


def test_a_full_disk_loses_nothing(tmp_path):
    step = tessera.training(mlp(), "cross_entropy", tessera.AdamW(0.01), threads=1)
    path = tmp_path / "run.safetensors"
    step.save(path)
    good = path.read_bytes()
    losses(step, 2)
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, old[1]))  # a file takes no more, as on a disk that is full
        with pytest.raises(tessera.Error, match="E0105"):
            step.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == good and os.listdir(tmp_path) == ["run.safetensors"]
    step.save(path)
    assert path.read_bytes() != good


def test_labels_out_of_range():
    step = tessera.training(mlp(), "cross_entropy", tessera.SGD(0.1), threads=1)
    x, labels = batches(1)[0]
    for wrong in (3, -1):
        with pytest.raises(tessera.Error, match=rf'E0406: label 2 of "target" is {wrong}: there are 3 classes'):
            step(x, np.where(np.arange(6) == 2, wrong, labels))
    assert step.updates == 0
    step(x, labels.astype(np.int32))
    step(x, labels.astype(np.uint8))


def test_a_loss_that_is_not_finite():
    step = tessera.training(mlp(), "cross_entropy", tessera.AdamW(0.01), threads=1)
    x, labels = batches(1)[0]
    step(x, labels)
    before = {name: value.copy() for name, value in {**step.parameters(), **step.state()}.items()}
    bad = x.copy()
    bad[1, 2] = np.nan
    with pytest.raises(tessera.Error, match="E0407: the loss of step 2 is nan"):
        step(bad, labels)
    for name, value in {**step.parameters(), **step.state()}.items():
        np.testing.assert_array_equal(value, before[name])
    assert step.updates == 1 and np.isfinite(step(x, labels))


def test_loss_scaling_skips_and_recovers():
    step = tessera.training(mlp(), "cross_entropy", tessera.SGD(0.1), precision="f16", threads=1)
    x, labels = batches(1)[0]
    step(x, labels)
    assert step.loss_scale == 65536
    before = {name: value.copy() for name, value in step.parameters().items()}
    step(np.full_like(x, np.inf), labels)
    assert step.report.skipped and step.skipped == 1 and step.loss_scale == 32768 and step.updates == 1
    for name, value in step.parameters().items():
        np.testing.assert_array_equal(value, before[name])
    step(x, labels)
    assert not step.report.skipped


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_narrow_products_train_alike(precision):
    wide = tessera.training(mlp(), "cross_entropy", tessera.AdamW(0.01), threads=1)
    narrow = tessera.training(mlp(), "cross_entropy", tessera.AdamW(0.01), precision=precision, threads=1)
    for x, labels in batches(1) * 30:
        a, b = wide(x, labels), narrow(x, labels)
        assert abs(a - b) < 0.03
    assert b < 0.75 and all(value.dtype == np.float32 for value in narrow.parameters().values())


def conv_net():
    """Convolutions, batch normalization, a residual, pools, dropout and a product: f32[N,3,16,16] to f32[N,4]."""
    draw = np.random.default_rng(3)
    drawn = lambda fan, *shape: (draw.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
    values = {"c1": drawn(27, 8, 3, 3, 3), "c2": drawn(72, 8, 8, 3, 3), "fc": drawn(8, 8, 4), "fb": drawn(4, 4)}
    nodes = [helper.make_node("Conv", ["x", "c1"], ["h1"], pads=[1] * 4)]
    for i, source in ((1, "h1"), (2, "h2")):
        values |= {f"s{i}": np.ones(8, np.float32), f"b{i}": np.zeros(8, np.float32), f"m{i}": np.zeros(8, np.float32), f"v{i}": np.ones(8, np.float32)}
        nodes += [helper.make_node("BatchNormalization", [source, f"s{i}", f"b{i}", f"m{i}", f"v{i}"], [f"n{i}"]),
                  helper.make_node("Relu", [f"n{i}"], [f"r{i}"])]
        if i == 1:
            nodes += [helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]), helper.make_node("Conv", ["p1", "c2"], ["h2"], pads=[1] * 4)]
    nodes += [helper.make_node("Add", ["r2", "p1"], ["a"]), helper.make_node("GlobalAveragePool", ["a"], ["g"]), helper.make_node("Flatten", ["g"], ["f"]),
              helper.make_node("MatMul", ["f", "fc"], ["l"]), helper.make_node("Add", ["l", "fb"], ["y"])]
    return onnx_model(nodes, [("x", ("N", 3, 16, 16))], [("y", ("N", 4))], values), (6, 3, 16, 16), (6,)


def attention_net():
    """Two heads over a sequence, with norms and residuals: f32[N,12,16] to f32[N,12,16]."""
    draw = np.random.default_rng(4)
    values = {name: (draw.standard_normal((16, 16)) / 4).astype(np.float32) for name in "qkvo"} | {"w": np.ones(16, np.float32), "b": np.zeros(16, np.float32), "ob": np.full(16, 0.1, np.float32)}
    nodes = [helper.make_node("LayerNormalization", ["x", "w", "b"], ["n"], axis=-1)]
    nodes += [helper.make_node("MatMul", ["n", name], [name + "x"]) for name in "qkv"]
    nodes += [helper.make_node("Attention", ["qx", "kx", "vx"], ["a"], q_num_heads=2, kv_num_heads=2, is_causal=1), helper.make_node("MatMul", ["a", "o"], ["p"]),
              helper.make_node("Add", ["p", "ob"], ["pb"]), helper.make_node("Gelu", ["pb"], ["pg"]), helper.make_node("Add", ["x", "pg"], ["y"])]
    info = lambda name: helper.make_tensor_value_info(name, FLOAT, (3, 12, 16))
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], initializer=[numpy_helper.from_array(value, name) for name, value in values.items()])
    return tessera.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])), (3, 12, 16), (3, 12)


@pytest.mark.parametrize("net", [conv_net, attention_net])
def test_values_of_the_narrow_type_train_alike(net):
    model, shape, rows = net()
    draw = np.random.default_rng(5)
    x, labels = draw.standard_normal(shape).astype(np.float32), draw.integers(0, 4, rows)
    loss = tessera.Loss("cross_entropy", class_axis=-1)
    wide, narrow = (tessera.training(model, loss, tessera.AdamW(0.01), precision=p, threads=1) for p in ("f32", "bf16"))
    losses = np.array([(wide(x, labels), narrow(x, labels)) for _ in range(25)])
    assert np.abs(losses[:, 0] - losses[:, 1]).max() < 0.05
    assert losses[-1, 1] < 0.8 * losses[0, 1]
    assert np.abs(losses[0, 0] - losses[0, 1]) > 0  # it is another type
    assert all(value.dtype == np.float32 for value in narrow.parameters().values())


def test_what_is_refused():
    x, labels = batches(1)[0]
    cases = [(dict(loss="hinge"), "E0501: there is no loss"), (dict(parameters=["fc9.*"]), r"E0501.*names no initializer(.|\n)*there are: "),
             (dict(frozen=["*"]), "E0501.*no float initializer to train"), (dict(precision="f8"), "E0501.*precision"),
             (dict(optimizer=tessera.SGD(0.1, nesterov=True)), "E0501.*momentum"),
             (dict(optimizer="adam"), "E0501: optimizer: expected"), (dict(accumulate=0), "E0501"),
             (dict(loss=tessera.Loss(output="z")), "E0401"), (dict(loss=tessera.Loss(class_axis=3)), "E0210"),
             (dict(loss=tessera.Loss(class_weights=[1.0])), "E0501.*1 class weights for 3"), (dict(loss=None), "E0501.*scalar")]
    for options, message in cases:
        with pytest.raises(tessera.Error, match=message):
            tessera.training(mlp(), **options)
    step = tessera.training(mlp(), "cross_entropy", tessera.SGD(0.1), threads=1)
    for call, message in ((lambda: step(x), "E0402"), (lambda: step(x, labels, labels), "E0401"), (lambda: step(x, labels, z=x), "E0401"),
                          (lambda: step(x, labels[:5]), "E0405"), (lambda: step(x, labels[:1]), "E0405"), (lambda: step(x, labels.astype(np.float32)), "E0403"),
                          (lambda: step(x[:, :4], labels), "E0405")):
        with pytest.raises(tessera.Error, match=message):
            call()
    assert step.updates == 0
    step = tessera.training(mlp(), "mse", tessera.SGD(0.1), threads=1)
    with pytest.raises(tessera.Error, match=r'E0405: input "target": expected size \d+ in dimension 0 \(f32\[\w+,3\]\), got 1') as caught:
        step(x, np.zeros((1, 3), np.float32))
    assert f'is {len(x)} by input "x"' in caught.value.note and "one target for each" in caught.value.hint


def test_optimizers_check_their_numbers():
    for make, message in ((lambda: tessera.SGD(-1), "SGD: learning_rate: expected a finite number of at least 0, got -1"),
                          (lambda: tessera.Lion(float("nan")), "Lion: learning_rate"), (lambda: tessera.AdamW("3e-4"), "AdamW: learning_rate"),
                          (lambda: tessera.Adam(beta1=1), "Adam: beta1: .* below 1"), (lambda: tessera.SGD(0.1, momentum=-0.9), "SGD: momentum")):
        with pytest.raises(tessera.Error, match=f"E0501: {message}"):
            make()
    x, labels = batches(1)[0]
    step = tessera.training(mlp(), "cross_entropy", tessera.SGD(lambda update: 0.1 if update < 1 else float("nan")), threads=1)
    for rate in (-1, float("nan"), None):
        with pytest.raises(tessera.Error, match="E0501: learning_rate"):
            step.learning_rate = rate
    step(x, labels)
    with pytest.raises(tessera.Error, match="E0501: the learning rate of update 1: .* got nan"):
        step(x, labels)
    assert step.updates == 1


def test_a_parameter_that_no_gradient_reaches():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Shape", ["table"], ["s"]),
             helper.make_node("Cast", ["s"], ["f"], to=FLOAT), helper.make_node("ReduceSum", ["f"], ["k"], keepdims=0),
             helper.make_node("Mul", ["m", "k"], ["y"])]
    model = onnx_model(nodes, [("x", ("N", 4))], [("y", ("N", 2))], {"w": np.ones((4, 2), np.float32), "table": np.ones((3, 2), np.float32)})
    step = tessera.training(model, "mse", tessera.SGD(0.1), threads=1)
    assert list(step.parameters()) == ["w"]
    with pytest.raises(tessera.Error, match='E0501: no gradient reaches "table"'):
        tessera.training(model, "mse", tessera.SGD(0.1), parameters=["w", "table"])


def batch_norm_model(training_mode):
    outputs = ["y", "m2", "v2"] if training_mode else ["y"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]),
             helper.make_node("BatchNormalization", ["m", "scale", "bias", "mean", "var"], outputs, momentum=0.8, training_mode=training_mode)]
    draw = np.random.default_rng(1)
    return onnx_model(nodes, [("x", ("N", 4))], [("y", ("N", 3))],
                      {"w": draw.standard_normal((4, 3)).astype(np.float32), "scale": np.ones(3, np.float32), "bias": np.zeros(3, np.float32),
                       "mean": np.zeros(3, np.float32), "var": np.ones(3, np.float32)})


@pytest.mark.parametrize("exported_for_training", [0, 1])
def test_batch_normalization_follows_the_batch(exported_for_training):
    model = batch_norm_model(exported_for_training)
    step = tessera.training(model, "mse", tessera.SGD(0.1), threads=1)
    assert list(step.parameters()) == ["w", "scale", "bias"] and list(step.state()) == ["mean", "var"]
    draw = np.random.default_rng(2)
    x, target = draw.standard_normal((16, 4)).astype(np.float32), draw.standard_normal((16, 3)).astype(np.float32)
    w = step.parameters()["w"].astype(np.float64)
    m = x @ w
    y = (m - m.mean(0)) / np.sqrt(m.var(0) + 1e-5)
    assert step(x, target) == pytest.approx(np.mean((y - target) ** 2), rel=1e-4)
    np.testing.assert_allclose(step.state()["mean"], 0.2 * m.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(step.state()["var"], 0.8 + 0.2 * m.var(0), rtol=1e-4)
    # d y / d scale at scale 1, bias 0, and one update of both.
    g = 2 * (y - target) / y.size
    np.testing.assert_allclose(step.parameters()["scale"], 1 - 0.1 * (g * y).sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(step.parameters()["bias"], -0.1 * g.sum(0), rtol=1e-4, atol=1e-5)
    for _ in range(3):
        step(x, target)
    p, s = step.parameters(), step.state()
    used = (x @ p["w"] - s["mean"]) / np.sqrt(s["var"] + 1e-5) * p["scale"] + p["bias"]
    loss, outputs = step.evaluate(x, target)
    np.testing.assert_allclose(outputs["y"], used, rtol=1e-4, atol=1e-5)
    assert loss == pytest.approx(np.mean((used - target) ** 2), rel=1e-4)
    if not exported_for_training:
        np.testing.assert_allclose(step.trained()(x), used, rtol=1e-4, atol=1e-5)


def test_dropout_drops_and_is_repeated():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Dropout", ["m", "ratio"], ["d"]),
             helper.make_node("ReduceMean", ["d"], ["loss"], keepdims=0)]
    model = onnx_model(nodes, [("x", ("N", 64))], [("loss", ())],
                       {"w": np.eye(64, dtype=np.float32), "ratio": np.array(0.25, np.float32)})
    x = np.ones((128, 64), np.float32)
    make = lambda seed: tessera.training(model, None, tessera.SGD(1.0), parameters=["w"], seed=seed, threads=1)
    step = make(3)
    seen = [step(x) for _ in range(4)]
    assert 0.9 < seen[0] < 1.1 and len(set(seen)) == 4
    # The gradient at w[i, j] is how many rows kept column j, so all rows of it are alike, and about one each is kept.
    change = np.eye(64, dtype=np.float32) - make(3).parameters()["w"]
    assert not change.any()
    once = make(3)
    assert once(x) == seen[0]
    kept = (np.eye(64) - once.parameters()["w"])[0] * 64
    np.testing.assert_allclose((np.eye(64) - once.parameters()["w"]) * 64, np.tile(kept, (64, 1)), rtol=1e-4, atol=1e-4)
    assert abs(kept.mean() - 1) < 0.02 and kept.std() > 0.01
    assert make(4)(x) != seen[0]
    loss, _ = once.evaluate(x)
    assert loss == pytest.approx(float((x @ once.parameters()["w"]).mean()), rel=1e-4)


def test_the_tutorial(tmp_path):
    done = subprocess.run([sys.executable, str(ROOT / "tutorial" / "train_digits.py"), "--epochs", "10", "--plots", str(tmp_path)],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    right = float(re.findall(r"([\d.]+) % right", done.stdout)[-1])
    assert right > 90, done.stdout
    assert (tmp_path / "loss.svg").read_text().count("<polyline") == 2 and (tmp_path / "digits.svg").read_text().startswith("<svg")
    assert float(re.findall(r"at most (\S+)", done.stdout)[0]) < 1e-3
    assert tessera.load(tmp_path / "digits.onnx").inputs[0].dims == ["batch", "64"]


def test_the_forward_pass_is_computed_once():
    nodes, x = [], "x"
    for i in range(3):
        nodes += [helper.make_node("LayerNormalization", [x, f"s{i}", f"b{i}"], [f"n{i}"]), helper.make_node("MatMul", [f"n{i}", f"w{i}"], [f"m{i}"]),
                  helper.make_node("Softmax", [f"m{i}"], ["y" if i == 2 else f"p{i}"])]
        x = f"p{i}"
    draw = np.random.default_rng(0)
    initializers = {f"w{i}": draw.standard_normal((8, 8)).astype(np.float32) for i in range(3)}
    initializers |= {f"s{i}": np.ones(8, np.float32) for i in range(3)} | {f"b{i}": np.zeros(8, np.float32) for i in range(3)}
    model = onnx_model(nodes, [("x", ("N", 8))], [("y", ("N", 8))], initializers)
    step = tessera.training(model, "mse", tessera.SGD(1.0), threads=1, cache="")
    x, target = draw.standard_normal((5, 8)).astype(np.float32), draw.random((5, 8)).astype(np.float32)
    inputs = {"x": x, "target": target, "learning_rate": np.array(1.0), **step.parameters()}
    ops = [op for each in step.executable.profile(inputs, runs=1) for op in each.ops]
    assert ops.count("matmul") + ops.count("gemm") == 3 + 2 * 3  # the first normalization asks for its input's gradient
    w = step.parameters()["w1"]
    slopes = []
    for d in (1e-2, -1e-2):
        w[2, 3] += d
        slopes.append(step.evaluate(x, target)[0])
        w[2, 3] -= d
    before = w[2, 3]
    step(x, target)
    assert before - w[2, 3] == pytest.approx((slopes[0] - slopes[1]) / 2e-2, rel=2e-2, abs=1e-5)


def test_threads_of_a_mesh_train_what_one_device_does(tmp_path):
    draw = np.random.default_rng(3)
    x, y = draw.standard_normal((8, 5)).astype(np.float32), draw.integers(0, 3, 8)
    alone = tessera.training(mlp(), optimizer=tessera.AdamW(1e-2))
    mesh = tessera.training(mlp(), optimizer=tessera.AdamW(1e-2), mesh="data=2,model=2", shardings={"fc0.weight": "_,model"}, zero=1)
    assert mesh.mesh_use is None and alone.mesh_use is None
    for rows in (8, 8, 5):
        assert mesh(x[:rows], y[:rows]) == pytest.approx(alone(x[:rows], y[:rows]), rel=1e-5)
    assert mesh.mesh_use["ranks"] == 4 and mesh.mesh_use["rank_state_bytes"] < mesh.mesh_use["state_bytes"]
    for name, value in alone.parameters().items():
        assert np.abs(np.asarray(mesh.parameters()[name]) - np.asarray(value)).max() < 1e-5
    assert mesh.evaluate(x, y)[0] == pytest.approx(alone.evaluate(x, y)[0], rel=1e-5)
    mesh.save(tmp_path / "mesh.safetensors")
    again = tessera.training(mlp(seed=1), optimizer=tessera.AdamW(1e-2), mesh="data=4", zero=3)
    again.load(tmp_path / "mesh.safetensors")
    assert again(x, y) == pytest.approx(mesh(x, y), rel=1e-5)
    assert np.abs(np.asarray(again.trained()(x)) - np.asarray(mesh.trained()(x))).max() < 1e-4


def test_what_a_mesh_refuses():
    for words in ({"mesh": "data"}, {"mesh": "data=2", "shardings": {"fc0.weight": "model,_"}}, {"mesh": "model=2", "zero": 1}):
        with pytest.raises(tessera.Error) as caught:
            tessera.training(mlp(), **words)(np.ones((4, 5), np.float32), np.zeros(4, int))
        assert caught.value.code == "E0501"
    with pytest.raises(tessera.Error):
        tessera.training(mlp(), mesh="data=2").executable


def test_a_mesh_of_threads_goes_on_after_a_wrong_batch():
    step = tessera.training(mlp(), mesh="data=2")
    x, y = np.ones((4, 5), np.float32), np.zeros(4, int)
    loss = step(x, y)
    with pytest.raises(tessera.Error):
        step(x, y + 7)
    with pytest.raises(tessera.Error) as caught:
        step(x * np.nan, y)
    assert caught.value.code == "E0407"
    assert step(x, y) < loss
