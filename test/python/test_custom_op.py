"""Operators that are Python functions: in text, in ONNX files, evaluated, compiled, from several threads, and in error."""

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tessera

X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


@tessera.custom_op("com.example", "Scale", attrs={"factor": 2.0, "shift": [0, 0]})
def scale(x, factor, shift):
    return x * np.float32(factor) + np.float32(sum(shift))


@tessera.custom_op("com.example", "Rows", outputs=2, attrs={"mode": "sum"},
                   types=lambda x, mode: [tessera.TensorType(x.dtype, x.dims[:1]), tessera.TensorType("i64", [f"2*({x.dims[0]})", 1])])
def rows(x, mode):
    return [getattr(np, mode)(x, axis=1), np.repeat(np.argmax(x, axis=1), 2)[:, None]]


@tessera.custom_op("com.example", "Add", types=lambda a, b: a)
def plus(a, b):
    if a.shape != b.shape:
        raise ValueError(f"{a.shape} and {b.shape}")
    return a + b


@tessera.custom_op("com.example", "Same")
def same(x):
    return x


def in_text(call, shape="N,3"):
    return tessera.parse(f"graph g(x: f32[{shape}]) {{\n  a = add(x, x)\n  b = {call}\n  return relu(b)\n}}\n")


@pytest.mark.parametrize("run", (lambda m: m, lambda m: tessera.compile(m)), ids=("evaluated", "compiled"))
def test_it_runs(run):
    np.testing.assert_array_equal(run(in_text("com_example_scale(a)"))(X), np.maximum(4 * X, 0))
    np.testing.assert_array_equal(run(in_text("com_example_scale(a, factor=0.5, shift=[1, 2])"))(X), np.maximum(X + 3, 0))
    np.testing.assert_array_equal(run(in_text("com_example_same(a)"))(X), np.maximum(2 * X, 0))
    two = tessera.parse("graph g(x: f32[N,3]) {\n  s, i = com_example_rows(x)\n  return s, i\n}\n")
    assert [str(p.type) for p in two.outputs] == ["f32[N]", "i64[2*N,1]"]
    s, i = run(two)(X)
    np.testing.assert_array_equal(s, X.sum(1))
    np.testing.assert_array_equal(i, [[2], [2], [1], [1]])
    empty = np.zeros((0, 3), np.float32)
    assert run(in_text("com_example_scale(a)"))(empty).shape == (0, 3)


def test_onnx_files_name_it_by_domain():
    nodes = [helper.make_node("Scale", ["x"], ["y"], domain="com.example", factor=3.0)]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3]) for n in "xy"]
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]
    model = tessera.load(helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:]), opset_imports=sets))
    np.testing.assert_array_equal(tessera.compile(model)(X), 3 * X)
    written = onnx.load_from_string(model.to_onnx())
    assert [(n.domain, n.op_type) for n in written.graph.node] == [("com.example", "Scale")]
    np.testing.assert_array_equal(tessera.load(written)(X), 3 * X)


def test_from_many_threads():
    fast = tessera.compile(in_text("com_example_scale(a)"))
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((5, 3)).astype(np.float32)
        for _ in range(50):
            if not np.array_equal(fast(x), np.maximum(4 * x, 0)):
                wrong.append(seed)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_what_goes_wrong():
    model = tessera.parse("graph g(x: f32[N,3], y: f32[M,3]) {\n  return com_example_add(x, y)\n}\n")
    for run in (model, tessera.compile(model)):
        with pytest.raises(tessera.Error, match=r"E0407.*ValueError: \(2, 3\) and \(1, 3\)"):
            run(X, X[:1])
        np.testing.assert_array_equal(run(X, X), 2 * X)
    with pytest.raises(tessera.Error, match="IndexError"):
        in_text("com_example_rows(a)", "").outputs
    with pytest.raises(tessera.Error, match="E0204"):
        tessera.custom_op("com.example", "Scale")(lambda x: x)
    with pytest.raises(tessera.Error, match="fixed number"):
        tessera.custom_op("com.example", "Any")(lambda *x: x)
    with pytest.raises(tessera.Error, match='no parameter "k"'):
        tessera.custom_op("com.example", "K", attrs={"k": 1})(lambda x: x)
    with pytest.raises(tessera.Error, match="needs `types`"):
        tessera.custom_op("com.example", "Zero")(lambda: 0)
    tessera.custom_op("com.example", "Wider")(lambda x: x.astype(np.float64))
    with pytest.raises(tessera.Error, match="output 0 is f64, its type says f32"):
        in_text("com_example_wider(a)")(X)


def test_inputs_are_read_only():
    seen = []
    tessera.custom_op("com.example", "Look")(lambda x: (seen.append(x.flags.writeable), x)[1])
    tessera.compile(in_text("com_example_look(a)"))(X)
    assert seen == [False]
