"""Kernels of the tile language as operators of models."""

import re

import numpy as np
import pytest

import tessera
import tessera.tile as triton
import tessera.tile.language as tl


@triton.jit
def softmax(z, x, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + columns, mask=columns < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(z + row * stride + columns, e / tl.sum(e, axis=0), mask=columns < n)


@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    sums = tl.zeros((M, N), tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        left = tl.load(a + rows[:, None] * k + depth[None, :] + step * K,
                       mask=(rows[:, None] < m) & (depth[None, :] + step * K < k), other=0.0)
        right = tl.load(b + (depth[:, None] + step * K) * n + columns[None, :],
                        mask=(depth[:, None] + step * K < k) & (columns[None, :] < n), other=0.0)
        sums = tl.dot(left, right, sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def kinds(x, y, z, n, BLOCK: tl.constexpr):
    """One of everything that the interpreter does by itself."""
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    best = tl.argmax(v, axis=0)
    running = tl.cumsum(v, axis=0)
    back = tl.cumsum(v, axis=0, reverse=True)
    order = tl.sort(v)
    pairs = tl.reshape(v, (BLOCK // 2, 2))
    left, right = tl.split(pairs)
    both = tl.reshape(tl.join(right, left), (BLOCK,))
    turned = tl.flip(v)
    first = tl.gather(v, at // 2, axis=0)
    i = best
    while i > 2:
        i = i // 2
    if best > 3:
        i = i + 100
    else:
        i = i - 100
    total = running + back + order * 3 + both * 5 + turned * 7 + first * 11 + i + tl.xor_sum(v.to(tl.int32), axis=0)
    tl.store(y + at, total, mask=at < n)
    tl.atomic_add(z + (at & 3), v, mask=at < n)
    tl.atomic_max(z + 4 + (at & 1), v, mask=at < n)


@triton.jit
def everywhere(x, y, far: tl.constexpr, BLOCK: tl.constexpr):
    """Reads and writes far outside of its arrays."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at - 7) + tl.load(x + at.to(tl.int64) * far)
    tl.store(y + at - 3, v)
    tl.store(y + at.to(tl.int64) * far + far, v)
    tl.atomic_add(y + at.to(tl.int64) * far * at, v)


def softmax_op(block=64):
    return triton.op(softmax, triton.Output("f32", "in0.d0", "in0.d1"), triton.Input("f32"), "in0.d1", "in0.d1", BLOCK=block,
                     grid=("in0.d0",))


def both(model, *arrays):
    """What the evaluator and machine code give."""
    made = tessera.compile(model)
    assert made.report.host_steps == 0, made.report.host_reasons
    return model(*arrays), made(*arrays)


def test_a_kernel_between_other_ops():
    term = softmax_op()
    model = tessera.parse(f"graph g(x: f32[M, N]) {{\n %a = mul(x, x)\n %s = {term('%a')}\n return relu(sub(%s, 0.02))\n}}")
    x = np.random.default_rng(0).standard_normal((37, 50)).astype(np.float32)
    e = np.exp(x * x - (x * x).max(1, keepdims=True))
    want = np.maximum(e / e.sum(1, keepdims=True) - np.float32(0.02), 0)
    for found in both(model, x):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_a_product():
    term = triton.op(matmul, triton.Input("f32"), triton.Input("f32"), triton.Output("f32", "in0.d0", "in1.d1"), "in0.d0",
                     "in1.d1", "in0.d1", M=16, N=16, K=16, grid=("cdiv(in0.d0, 16)", "cdiv(in1.d1, 16)"))
    model = term.model("f32[M, K]", "f32[K, N]")
    rng = np.random.default_rng(0)
    for m, n, k in [(16, 16, 16), (33, 17, 50), (1, 1, 1), (5, 0, 3)]:
        a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        for found in both(model, a, b):
            np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [16, 11, 1])
def test_every_kind_of_instruction(n):
    term = triton.op(kinds, triton.Input("i32"), triton.Output("i32", "in0.d0"), triton.Output("i32", 6), "in0.d0", BLOCK=16,
                     grid=1)
    model = term.model("i32[N]")
    x = np.random.default_rng(n).integers(-50, 50, n).astype(np.int32)
    slow, fast = both(model, x)
    whole = np.zeros(16, np.int64)
    whole[:n] = x
    best = int(np.argmax(whole))
    i = best
    while i > 2:
        i //= 2
    i += 100 if best > 3 else -100
    swapped = whole.reshape(8, 2)[:, ::-1].reshape(16)
    want = (np.cumsum(whole) + np.cumsum(whole[::-1])[::-1] + 3 * np.sort(whole) + 5 * swapped + 7 * whole[::-1]
            + 11 * whole[np.arange(16) // 2] + i + np.bitwise_xor.reduce(whole))[:n]
    sums = np.zeros(6, np.int64)
    np.add.at(sums, np.arange(n) & 3, x)
    np.maximum.at(sums, 4 + (np.arange(n) & 1), x)
    for found in (slow, fast):
        np.testing.assert_array_equal(found[0], want)
        np.testing.assert_array_equal(found[1], sums)


@pytest.mark.parametrize("far", [1, 5, 2**31, 2**62, -2**62, 0x5555555555555555])
def test_nothing_outside_of_the_tensors_is_reached(far):
    term = triton.op(everywhere, triton.Input("i64"), triton.Output("i64", "in0.d0"), far=far, BLOCK=16, grid=("in0.d0",))
    model = term.model("i64[N]")
    x = np.arange(1, 22, dtype=np.int64)
    slow, fast = both(model, x)
    np.testing.assert_array_equal(slow, fast)


def test_outputs_begin_as_zeros_or_as_an_input():
    @triton.jit
    def one(x, y, z):
        tl.store(y + 1, tl.load(x))
        tl.atomic_add(z, 5.0)

    term = triton.op(one, triton.Input("f32"), triton.Output("f32", 3), triton.Output("f32", "in0.d0", initial=0), grid=2)
    x = np.array([1.5, 2, 3], np.float32)
    for y, z in both(term.model("f32[N]"), x):
        np.testing.assert_array_equal(y, [0, 1.5, 0])
        np.testing.assert_array_equal(z, [11.5, 2, 3])


@pytest.mark.parametrize("initial", [None, 0])
def test_a_kernel_that_reads_what_it_stores(initial):
    @triton.jit
    def adds(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        was = tl.load(y + at, mask=at < n)
        tl.store(y + at, was + tl.load(x + at, mask=at < n), mask=at < n)

    @triton.jit
    def counts(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        was = tl.atomic_add(y + at, 1.0, mask=at < n)
        tl.store(y + at, was + tl.load(x + at, mask=at < n), mask=at < n)

    x = np.arange(1, 38, dtype=np.float32)
    for kernel in (adds, counts):
        term = triton.op(kernel, triton.Input("f32"), triton.Output("f32", "in0.d0", initial=initial), "in0.d0", BLOCK=8,
                         grid="cdiv(in0.d0, 8)")
        model = term.model("f32[N]")
        made = tessera.compile(model)
        for run in (model, made, made, made):  # memory of a result that nobody has any more serves again
            np.testing.assert_array_equal(run(x), x if initial is None else 2 * x)


def test_a_number_of_a_tensor():
    @triton.jit
    def scaled(x, by, y, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) * by, mask=at < n)

    term = triton.op(scaled, triton.Input("f32"), triton.Input("f32", scalar=True), triton.Output("f32", "in0.d0"), "in0.d0",
                     BLOCK=8, grid=1)
    x = np.arange(5, dtype=np.float32)
    for found in both(term.model("f32[N]", "f32[]"), x, np.float32(1.5)):
        np.testing.assert_array_equal(found, x * 1.5)
    with pytest.raises(tessera.Error, match="a single element"):
        term.model("f32[N]", "f32[2]")


def test_files_hold_kernels(tmp_path):
    model = softmax_op().model("f32[M, N]")
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    want = model(x)
    for name in ("model.onnx", "model.tsr"):
        model.save(tmp_path / name)
        again = tessera.load(tmp_path / name)
        np.testing.assert_array_equal(again(x), want)
        assert str(again) == str(model)


def test_a_node_of_onnx():
    onnx = pytest.importorskip("onnx")
    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Neg", ["x"], ["n"]), softmax_op().node(["n"], ["s"]), helper.make_node("Neg", ["s"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", f32, ["M", 8])],
                              [helper.make_tensor_value_info("y", f32, ["M", 8])])
    model = tessera.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("tessera", 1)]))
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    e = np.exp(-x + x.min(1, keepdims=True))
    for found in both(model, x):
        np.testing.assert_allclose(found, -e / e.sum(1, keepdims=True), rtol=1e-5)


BAD = {
    "kernel": ("tile", "no such kernel"),
    "arguments": (["out0", "in0", "in0.d1"], "arguments: 3 for 4"),
    "grid": ([], "grid"),
    "outputs": (["f32[in0.d5, 2]"], "is not a size of"),
}


@pytest.mark.parametrize("attribute", BAD)
def test_what_does_not_fit_is_said(attribute):
    term = softmax_op()
    value, said = BAD[attribute]
    term.attributes[attribute] = value
    with pytest.raises(tessera.Error) as found:
        term.model("f32[M, N]")
    if attribute != "kernel":
        assert said in str(found.value)


def test_inputs_are_read_only():
    @triton.jit
    def spoil(x, y):
        tl.store(x, 1.0)
        tl.store(y, 1.0)

    with pytest.raises(tessera.Error, match="not an output"):
        triton.op(spoil, triton.Input("f32"), triton.Output("f32", 1), grid=1).model("f32[N]")


def test_pointers_are_no_numbers_in_models():
    @triton.jit
    def from_number(x, y, at):
        tl.store(y, tl.load(at.to(tl.int64).to(tl.pointer_type(tl.float32))))

    with pytest.raises(tessera.Error, match="pointer"):
        triton.op(from_number, triton.Input("f32"), triton.Output("f32", 1), "in0.d0", grid=1).model("f32[N]")


def test_a_loop_without_end_ends():
    @triton.jit
    def forever(x, y):
        i = 0
        while i < 1:
            i = i * 1
        tl.store(y, tl.load(x) + i)

    model = triton.op(forever, triton.Input("f32"), triton.Output("f32", 1), grid=1).model("f32[N]")
    x = np.ones(1, np.float32)
    np.testing.assert_array_equal(tessera.compile(model)(x), x)


def gradient_model(backward):
    onnx = pytest.importorskip("onnx")
    helper, f32 = onnx.helper, onnx.TensorProto.FLOAT

    @triton.jit
    def cube(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n)
        tl.store(y + at, v * v * v, mask=at < n)

    term = triton.op(cube, triton.Input("f32"), triton.Output("f32", "in0.d0"), "in0.d0", BLOCK=8, grid="cdiv(in0.d0, 8)")
    node = term.node(["x"], ["c"])
    if backward:
        value = lambda name: helper.make_tensor_value_info(name, f32, ["N"])
        nodes = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Mul", ["s", "g"], ["t"]),
                 helper.make_node("Add", ["t", "t"], ["u"]), helper.make_node("Add", ["t", "u"], ["d"])]
        graph = helper.make_graph(nodes, "backward", [value(name) for name in ("x", "y", "g")], [value("d")])
        node.attribute.append(helper.make_attribute("backward", graph))
    nodes = [node, helper.make_node("Exp", ["c"], ["e"]),
             helper.make_node("Gradient", ["x"], ["dx"], xs=["x"], y="e", domain="ai.onnx.preview.training")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", f32, ["N"])],
                              [helper.make_tensor_value_info("dx", f32, ["N"])])
    return tessera.load(helper.make_model(graph, opset_imports=[
        helper.make_opsetid("", 21), helper.make_opsetid("tessera", 1), helper.make_opsetid("ai.onnx.preview.training", 1)]))


def test_gradients_that_the_model_gives():
    x = np.linspace(-1, 1, 11).astype(np.float32)
    for found in both(gradient_model(True), x):
        np.testing.assert_allclose(found, 3 * x * x * np.exp(x ** 3), rtol=1e-5)
    with pytest.raises(tessera.Error, match="backward"):
        gradient_model(False)


def test_neighbours_become_part_of_a_kernel():
    term = softmax_op()
    model = tessera.parse(f"""graph g(x: f32[M, 50], b: f32[50], c: f32[M, 1]) {{
 %a = add(mul(x, 0.5), b)\n %s = {term('%a')}\n return exp(mul(%s, c))\n}}""")
    rng = np.random.default_rng(0)
    x, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in [(37, 50), (50,), (37, 1)])
    made = tessera.compile(model)
    assert made.report.kernels == 1, made.report
    a = x * np.float32(0.5) + b
    e = np.exp(a - a.max(1, keepdims=True))
    for found in (model(x, b, c), made(x, b, c)):
        np.testing.assert_allclose(found, np.exp(e / e.sum(1, keepdims=True) * c), rtol=1e-5, atol=1e-6)


def test_what_a_kernel_does_not_store_is_computed_as_well():
    @triton.jit
    def evens(x, y):
        at = tl.program_id(0) * 2
        tl.store(y + at, tl.load(x + at))

    term = triton.op(evens, triton.Input("f32"), triton.Output("f32", "in0.d0"), grid=("cdiv(in0.d0, 2)",))
    model = tessera.parse(f"graph g(x: f32[N]) {{\n %y = {term('x')}\n return add(%y, 1.0)\n}}")
    x = np.arange(1, 8, dtype=np.float32)
    for found in both(model, x):
        np.testing.assert_array_equal(found, np.array([2, 1, 4, 1, 6, 1, 8], np.float32))


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("m, n", [(5, 300), (1, 1), (3, 64), (0, 7), (4, 0)])
def test_neighbours_of_loops_over_pointers(kind, m, n):
    @triton.jit
    def running(x, y, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        row = tl.program_id(0) * n
        source, target = x + row + at, y + row + at
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, BLOCK):
            total += tl.load(source, mask=at + start < n)
            tl.store(target, total, mask=at + start < n)
            source += BLOCK
            target += BLOCK

    term = triton.op(running, triton.Input(kind), triton.Output(kind, "in0.d0", "in0.d1"), "in0.d1", BLOCK=32, grid=("in0.d0",))
    model = tessera.parse(f"""graph g(x: {kind}[M, N], b: {kind}[N], c: {kind}[M, 1]) {{
 %a = add(mul(x, c), b)\n %y = {term('%a')}\n return mul(relu(%y), c)\n}}""")
    rng = np.random.default_rng(n)
    draw = lambda *shape: tessera_array(rng.standard_normal(shape).astype(np.float32), kind)  # noqa: E731
    arrays = draw(m, n), draw(n), draw(m, 1)
    slow, fast = both(model, *arrays)
    tolerance = {"f32": 1e-5, "f16": 1e-2, "bf16": 6e-2}[kind]
    np.testing.assert_allclose(np.asarray(fast, np.float32), np.asarray(slow, np.float32), rtol=tolerance, atol=tolerance)


def tessera_array(values, kind):
    if kind == "bf16":
        return values.astype(pytest.importorskip("ml_dtypes").bfloat16)
    return values.astype({"f32": np.float32, "f16": np.float16}[kind])


@pytest.mark.parametrize("name", ["instance", "grid_x", "elements_x", "filled0", "part0", "i0", "i1", "lane0", "with0"])
def test_numbers_may_be_called_as_the_kernel_calls_its_own(name):
    @triton.jit
    def scale(x, y, number, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < number) * number, mask=at < number)

    term = triton.op(scale, triton.Input("f32"), triton.Output("f32", "in0.d0"), "in0.d0 / 2", BLOCK=8, grid=5)
    term.attributes["kernel"] = re.sub(r"\bnumber\b", name, term.attributes["kernel"])
    model = tessera.parse(f"graph g(x: f32[N]) {{\n %a = add(x, 1.0)\n %y = {term('%a')}\n return %y\n}}")
    x = np.arange(30, dtype=np.float32)
    for found in both(model, x):
        np.testing.assert_array_equal(found, np.where(x < 15, (x + 1) * 15, 0))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
def test_narrow_integers_of_masks_wrap_around(kind):
    @triton.jit
    def some(x, y, KIND: tl.constexpr, BY: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        end = tl.full((BLOCK,), BY, KIND) * 4
        tl.store(y + at, tl.load(x + at), mask=at < end)

    by = 2**14 if kind == "int16" else 2**6  # four times that is 0
    term = triton.op(some, triton.Input("f32"), triton.Output("f32", 64), KIND=getattr(tl, kind), BY=by, BLOCK=64, grid=1)
    model = tessera.parse(f"graph g(x: f32[64]) {{\n %y = {term('x')}\n return exp(%y)\n}}")
    for found in both(model, np.ones(64, np.float32)):
        np.testing.assert_array_equal(found, np.ones(64, np.float32))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_neighbours_round_as_nodes_do(kind):
    @triton.jit
    def copy(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

    term = triton.op(copy, triton.Input("f32"), triton.Output("f32", "in0.d0"), "in0.d0", BLOCK=16, grid="cdiv(in0.d0, 16)")
    into, back = {"f16": (10, 1), "bf16": (16, 1)}[kind]
    model = tessera.parse(f"""graph g(x: {kind}[N]) {{
 %a = cast(reciprocal(add(x, x)), to={back})\n %y = {term('%a')}
 %b = cast(%y, to={into})\n return cast(mul(%b, %b), to={back})\n}}""")
    made = tessera.compile(model)
    assert made.report.kernels == 1, made.report
    x = tessera_array(np.linspace(1, 2, 40).astype(np.float32), kind)
    np.testing.assert_array_equal(made(x), model(x))


@pytest.mark.parametrize("kind, code", [("f8e4m3fn", 17), ("f8e5m2", 19)])
@pytest.mark.parametrize("saturate", [0, 1])
def test_neighbours_that_make_floats_of_eight_bits(kind, code, saturate):
    @triton.jit
    def copy(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

    term = triton.op(copy, triton.Input(kind), triton.Output(kind, "in0.d0"), "in0.d0", BLOCK=16, grid="cdiv(in0.d0, 16)")
    model = tessera.parse(f"""graph g(x: f32[N]) {{
 %a = cast(x, to={code}, saturate={saturate})\n %y = {term('%a')}\n return cast(%y, to=1)\n}}""")
    x = np.array([1, 300, 448, 460, 464, 465, 1e5, -1e5, np.inf, -np.inf, np.nan, 0.001, -0.0, 1e-9, 3.3, 57344, 62000], np.float32)
    slow, fast = both(model, x)
    np.testing.assert_array_equal(fast, slow)


def test_kernels_make_floats_of_eight_bits_that_saturate():
    @triton.jit
    def narrow(x, y, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n).to(tl.float8e4nv), mask=at < n)

    term = triton.op(narrow, triton.Input("f32"), triton.Output("f8e4m3fn", "in0.d0"), "in0.d0", BLOCK=16, grid=1)
    for found in both(term.model("f32[N]"), np.array([3, 500, -1e6, np.inf], np.float32)):
        np.testing.assert_array_equal(found.astype(np.float32), [3, 448, -448, 448])
