"""tessera.compile: machine code called with arrays."""

import threading

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tessera


@pytest.fixture
def model():
    """relu(x @ w): f32[N,16] to f32[N,8]."""
    w = numpy_helper.from_array(np.random.default_rng(1).standard_normal((16, 8), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"), helper.make_node("Relu", ["m"], ["y"], name="relu")]
    info = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", width))
    graph = helper.make_graph(nodes, "g", [info("x", 16)], [info("y", 8)], initializer=[w])
    return tessera.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))


def test_called_with_arrays_of_any_size(model):
    compiled = tessera.compile(model)
    assert [p.name for p in compiled.inputs] == ["x"] and compiled.outputs[0].dims == ["N", "8"]
    for n in (1, 3, 64):
        x = np.random.default_rng(n).standard_normal((n, 16), np.float32)
        np.testing.assert_allclose(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(compiled.run({"x": x})["y"], model(x=x), rtol=1e-4, atol=1e-5)


def test_report_profile_check_and_stages(model):
    compiled = tessera.compile(model, threads=1, keep_weights=True, cache="")
    assert compiled.report.kernels >= 1 and compiled.report.host_steps == 0 and not compiled.report.from_cache
    assert compiled.report.phases and compiled.weight_bytes > 0 and compiled.arena_bytes(N=4) >= 0
    x = np.ones((4, 16), np.float32)
    steps = compiled.profile([x], runs=3)
    assert "relu" in {n for s in steps for n in s.nodes} and all(s.seconds >= 0 for s in steps)
    assert all(error < 1e-4 for _, error in compiled.check({"x": x}))
    assert "define" in compiled.emit("llvm")


def test_wrong_inputs_and_options_are_errors(model):
    compiled = tessera.compile(model)
    with pytest.raises(tessera.Error, match="E0402"):
        compiled.run({})
    with pytest.raises(tessera.Error, match="E0405"):
        compiled(np.ones((2, 5), np.float32))
    with pytest.raises(tessera.Error, match="E0603"):
        tessera.compile(model, target="pdp11")
    assert tessera.compile_targets()


def test_many_threads_share_one(model):
    compiled = tessera.compile(model)
    x = np.random.default_rng(0).standard_normal((32, 16), np.float32)
    expected, wrong = compiled(x), []

    def work():
        for _ in range(50):
            if not np.array_equal(compiled(x), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


@pytest.mark.parametrize("op, constants, attrs", [("BatchNormalization", 4, {}), ("InstanceNormalization", 2, {}),
                                                  ("GroupNormalization", 2, {"num_groups": 1}), ("LayerNormalization", 2, {"axis": 1})])
def test_sizes_that_an_op_asks_for_are_asked_for_when_it_is_written_out(op, constants, attrs, tmp_path):
    shape = [8, 4] if "axis" in attrs else [8]
    names = [f"c{i}" for i in range(constants)]
    graph = helper.make_graph([helper.make_node(op, ["x", *names], ["y"], **attrs)], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "c", "d"])],
                              [helper.make_empty_tensor_value_info("y")],
                              [numpy_helper.from_array(np.full(shape, i + 1, np.float32), n) for i, n in enumerate(names)])
    text = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    wanted = tessera.load(text)
    x = np.random.default_rng(0).standard_normal((2, 8, 4)).astype(np.float32)
    for _ in range(2):  # also from the cache
        compiled = tessera.compile(text, cache=str(tmp_path))
        np.testing.assert_allclose(compiled(x), wanted(x), rtol=1e-4, atol=1e-5)
        for channels in (1, 2):
            for each in (wanted, compiled):
                with pytest.raises(tessera.Error):
                    each(x[:, :channels])


def test_loops_that_do_not_run_give_empty_stacks():
    text = """graph g(x: f32[N], n: i64[]) {
  y, z = loop(n, true, x, body=graph body(i: i64[], c: bool[], v: f32[N]) {
    w = mul(v, 2.0)
    return c, w, w
  })
  return y, z
}
"""
    model = tessera.parse(text)
    for run in (model, tessera.compile(model, cache="")):
        for n in (0, 2):
            y, z = run(np.ones(3, np.float32), np.int64(n))
            assert y.tolist() == [2.0**n] * 3 and z.shape == (n, 3)
