"""Models over memory of others: NumPy's, PyTorch's, and what is given over DLPack."""

import gc
import threading
import weakref

import numpy as np
import pytest

import tessera

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
TWO = "graph g(x: f32[N,3]) {\n  y = mul(x, x)\n  z = neg(y)\n  return y, z\n}\n"
SWAP = "graph g(a: f32[N], b: f32[N]) {\n  return b, a\n}\n"


def runnables(text=TWO):
    model = tessera.parse(text)
    return [model, tessera.compile(model, cache=""), tessera.compile(model, cache="", threads=1)]


class OverDlpack:
    """What has nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnGpu:
    """What says that it lies on a GPU."""

    def __init__(self, array, **said):
        self.array = array
        self.__cuda_array_interface__ = {"shape": array.shape, "typestr": array.dtype.str, "version": 3,
                                         "data": (array.ctypes.data, False), **said}


def test_anything_over_dlpack():
    for run in runnables():
        for given in (OverDlpack(X), tessera.tensor_from(X), [OverDlpack(X)], {"x": OverDlpack(X)}):
            found = run.run(given)
            assert type(found["y"]) is np.ndarray
            np.testing.assert_array_equal(found["y"], X * X)
        y, z = run(OverDlpack(X))
        np.testing.assert_array_equal(z, -X * X)
        np.testing.assert_array_equal(np.from_dlpack(y), X * X)
        np.testing.assert_array_equal(np.from_dlpack(tessera.tensor_from(X)), X)
        with pytest.raises(tessera.Error, match='E0403.*input "x"'):
            run(OverDlpack(X.astype(np.float64)))
        with pytest.raises(tessera.Error, match='E0405.*input "x"'):
            run(OverDlpack(np.zeros((2, 4), np.float32)))


def test_outputs_in_place():
    for run in runnables():
        both = [np.full_like(X, 7), np.full_like(X, 7)]
        assert run.run(X, out=both)["z"] is both[1]
        np.testing.assert_array_equal(both[0], X * X)
        np.testing.assert_array_equal(both[1], -X * X)
        found = run.run(X, out=[None, both[1]])
        assert found["z"] is both[1] and (found["y"] == X * X).all()
        into = np.zeros(7, np.float32)[1:].reshape(2, 3)
        assert run.run(X, out={"y": OverDlpack(into)})["y"].array is into
        np.testing.assert_array_equal(into, X * X)
        turned = np.zeros((3, 2), np.float32).T
        assert run.run(X, outputs="z", out=turned)["z"] is turned
        np.testing.assert_array_equal(turned, -X * X)
        closed = np.zeros_like(X)
        closed.flags.writeable = False
        for wrong, code in ((closed, "E0501"), ([1], "E0501"), (np.zeros((2, 3)), "E0403"), (both, "E0501")):
            with pytest.raises(tessera.Error, match=code):
                run.run(X, outputs="z", out=wrong)


def test_no_element_of_an_output_lies_on_another():
    windows = np.lib.stride_tricks.as_strided
    for run in runnables():
        for shape, strides in (((2, 3), (0, 4)), ((2, 3), (0, 0)), ((2, 3), (8, 4)), ((2, 3), (4, -4)), ((2, 3), (12, 6))):
            memory = np.zeros(32, np.float32)
            into = windows(memory[8:], shape, strides)
            with pytest.raises(tessera.Error, match='E0501.*"z".*elements that share memory'):
                run.run(X, outputs="z", out=into)
            assert not memory.any()
        for strides in ((16, 4), (-16, 4), (4, 8), (8, 12), (-12, -4)):  # (8, 12): between one another
            into = windows(np.zeros(32, np.float32)[8:], (2, 3), strides)
            assert run.run(X, outputs="z", out=into)["z"] is into
            np.testing.assert_array_equal(into, -X * X)


def test_outputs_over_inputs():
    for run in runnables():
        x = X.copy()
        run.run(x, out={"z": x})
        np.testing.assert_array_equal(x, -X * X)
        x = X.copy()
        larger = np.concatenate([x, x])
        run.run(larger[1:3], out={"y": larger[:2]})  # in part
        np.testing.assert_array_equal(larger[:2], np.concatenate([X, X])[1:3] ** 2)
    for run in runnables(SWAP):
        a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
        run.run([a, b], out=[a, b])
        assert (a.tolist(), b.tolist()) == ([3, 4], [1, 2])
    for run in runnables()[1:]:
        room = np.zeros((3, 3), np.float32)
        with pytest.raises(tessera.Error, match='E0501.*"y" and "z".*overlap'):
            run.run(X, out=[room[:2], room[1:]])


PASSED_ON = """graph g(c: bool[], a: f32[N], b: f32[N]) {
  p, q = if(c, then_branch=graph yes() {
    return b, a
  }, else_branch=graph no() {
    return a, b
  })
  s = sequence_construct(a, b)
  r = sequence_at(s, 0)
  y = neg(a)
  return p, q, r, s, y
}
"""


@pytest.mark.parametrize("taken", [True, False])
def test_outputs_over_inputs_that_steps_pass_on(taken):
    a, b = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    p, q = (b, a) if taken else (a, b)
    for run in runnables(PASSED_ON):
        for over in ("p", "q", "r", "y"):
            x, other = a.copy(), b.copy()
            found = run.run([np.array(taken), x, other], out={over: x})
            assert found[over] is x
            for name, want in (("p", p), ("q", q), ("r", a), ("y", -a)):
                np.testing.assert_array_equal(found[name], want, err_msg=f"{name}, {over} over a")
            np.testing.assert_array_equal(found["s"], [a, b])
        x, other = a.copy(), b.copy()
        run.run([np.array(taken), x, other], out={"p": x, "q": other})
        assert (x.tolist(), other.tolist()) == (p.tolist(), q.tolist())


def test_outputs_over_inputs_in_a_sequence():
    text = "graph g(s: seq(f32[N])) {\n  a = sequence_at(s, 0)\n  y = neg(a)\n  z = mul(a, 2.0)\n  return y, z\n}\n"
    for run in runnables(text):
        for over in ("y", "z"):
            x = np.array([1, 2], np.float32)
            found = run.run({"s": [x]}, out={over: x})
            assert (found["y"].tolist(), found["z"].tolist()) == ([-1, -2], [2, 4])


def test_outputs_that_no_kernel_has():
    words, numbers = np.array(["a", "b"]), np.array([1 + 2j, 3j], np.complex64)
    for run in runnables("graph g(s: str[N], c: c64[N]) {\n  return string_concat(s, s), concat(c, c, axis=0)\n}\n"):
        text, twice = np.empty(2, object), np.zeros(4, np.complex64)
        found = run.run([words, numbers], out=[text, twice])
        assert all(one is given for one, given in zip(found.values(), (text, twice)))
        assert text.tolist() == ["aa", "bb"] and twice.tolist() == [*numbers, *numbers]
        with pytest.raises(tessera.Error, match=r"E0405.*expected shape \(2,\), got \(3,\)"):
            run.run([words, numbers], out=[np.empty(3, object), twice])


def test_no_two_outputs_in_one_place():
    for run in runnables():
        room = np.zeros((2, 6), np.float32)
        for out in ([room[:, :3], room[:, 2:5]], [room[:, ::2]] * 2, [room[:, 2::-1]] * 2, [OverDlpack(X)] * 2):
            with pytest.raises(tessera.Error, match='E0501.*"y" and "z".*overlap'):
                run.run(X, out=out)
        run.run(X, out=[room[:, ::2], room[:, 1::2]])  # in turn
        np.testing.assert_array_equal(room[:, 1::2], -X * X)
        with pytest.raises(tessera.Error, match='E0501.*"y".*twice'):
            run.run(X, outputs=["y", "y"], out=[X.copy(), X.copy()])


def test_results_stay_when_memory_serves_again():
    run = runnables()[2]
    first = run(X)[0]
    into = np.zeros_like(X)
    for _ in range(3):
        run.run(2 * X, out={"y": into})
    np.testing.assert_array_equal(first, X * X)


def test_a_gpu_is_somewhere_else():
    for run in runnables():
        with pytest.raises(tessera.Error, match='E0701.*input "x" is on GPU 0(.|\n)*compile for cuda:0'):
            run(OnGpu(X))
        with pytest.raises(tessera.Error, match='E0501.*input "x".*not contiguous'):
            run(OnGpu(X, strides=(4, 8)))
    with pytest.raises(tessera.Error, match='E0701.*"y" is on GPU 0'):
        runnables()[1].run(X, out={"y": OnGpu(X.copy())})


def test_arrays_on_a_gpu_that_say_nonsense():
    nonsense = ({"shape": (-2, 3)}, {"shape": ("a", 3)}, {"shape": (2**62, 2**62)}, {"data": (0, False)}, {"data": None},
                {"data": ("a", False)}, {"data": (-1, False)}, {"typestr": "<z4"}, {"typestr": 4}, {"stream": "a"})
    for run in runnables():
        for said in nonsense:
            with pytest.raises(tessera.Error, match="E0501.*input \"x\".*OnGpu.__cuda_array_interface__"):
                run(OnGpu(X, **said))
            with pytest.raises(tessera.Error, match="E0501.*OnGpu.__cuda_array_interface__"):
                run.run(X, outputs="y", out=OnGpu(X, **said))
        lost = OnGpu(X)
        lost.device = type("Device", (), {"id": -1})()
        with pytest.raises(tessera.Error, match="E0501.*GPU -1"):
            run(lost)
        empty = OnGpu(X)
        empty.__cuda_array_interface__ = None
        with pytest.raises(tessera.Error, match="E0501.*cannot be read"):
            run(empty)


def test_inputs_are_held_until_the_end():
    made = tessera.compile(tessera.parse("graph g(a: f32[3], b: f32[3]) {\n  return add(a, b)\n}\n"), cache="")
    held = []

    class Clears:
        @property
        def __cuda_array_interface__(self):
            given.clear()
            gc.collect()
            held.append(first() is not None)
            raise AttributeError

    given = {"a": np.ones(3, np.float32), "b": Clears()}
    first = weakref.ref(given["a"])
    with pytest.raises(tessera.Error):
        made.run(given)
    assert held[0]


def torch():
    return pytest.importorskip("torch")


def test_tensors_of_pytorch_in_and_out():
    t = torch()
    x = t.from_numpy(X.copy())
    for run in runnables():
        for given in (x, x.clone().requires_grad_(), t.cat([x, x], 1)[:, :3], t.from_numpy(X.T.copy()).T):
            y, z = run(given)
            assert isinstance(y, t.Tensor) and y.shape == (2, 3) and not y.requires_grad
            assert t.equal(y, x * x) and t.equal(z, -x * x)
        kept = run(x)[0]
        run(x + 1)
        assert t.equal(kept, x * x)
        with pytest.raises(tessera.Error, match='E0403.*input "x"'):
            run(x.double())
        with pytest.raises(tessera.Error, match='E0405.*input "x"'):
            run(t.zeros(2, 4))
        with pytest.raises(tessera.Error, match='E0701.*input "x".*meta'):
            run(t.zeros(2, 3, device="meta"))
        assert t.equal(run.run_async(x).result()["y"], x * x)


def test_outputs_into_tensors_of_pytorch():
    t = torch()
    x = t.from_numpy(X.copy())
    for run in runnables():
        into, turned = t.zeros(2, 3), t.zeros(3, 2).T
        found = run.run(x, out=[into, turned])
        assert found["y"] is into and found["z"] is turned
        assert t.equal(into, x * x) and t.equal(turned, -x * x)
        array = np.zeros_like(X)
        assert run.run(x, outputs="y", out=array)["y"] is array and (array == X * X).all()
        assert t.equal(run.run(X, outputs="y", out=into)["y"], x * x)
        same = x.clone()
        run.run(same, out={"z": same})
        assert t.equal(same, -x * x)
        for wrong, code in ((t.zeros(2, 3).double(), "E0403"), (t.zeros(3, 3), "E0405")):
            with pytest.raises(tessera.Error, match=code):
                run.run(x, outputs="z", out=wrong)


def test_tensors_that_are_not_what_lies_there():
    t = torch()
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake, gone, negated = FakeTensorMode().from_tensor(t.zeros(2, 3)), t.zeros(2, 3), t.tensor([1 + 2j]).conj().imag
    gone.untyped_storage().resize_(0)
    assert negated.is_neg() and negated.is_contiguous()
    for run in runnables():
        for none in (fake, gone):
            with pytest.raises(tessera.Error, match='E0403.*input "x"'):
                run(none)
            with pytest.raises(tessera.Error, match='E0501.*"y" has no memory'):
                run.run(X, out={"y": none})
        for wrong in (t.zeros(2, 3, device="meta"), t.zeros(2, 3).to_sparse()):
            with pytest.raises(tessera.Error, match='E0701.*"y"'):
                run.run(X, out={"y": wrong})
        with pytest.raises(tessera.Error, match='E0501.*"y".*elements that share memory'):
            run.run(X, out={"y": t.zeros(3).expand(2, 3)})
    for run in runnables("graph g(x: f32[1]) {\n  return mul(x, 3.0)\n}\n"):
        assert run(negated).tolist() == [-6]
        into = t.tensor([0j]).conj().imag
        assert run(t.ones(1), out=into) is into and into.tolist() == [3]


@pytest.mark.parametrize("name, ours", [("bfloat16", "bf16"), ("float16", "f16"), ("float64", "f64"), ("int64", "i64"),
                                        ("uint8", "u8"), ("bool", "bool"), ("float8_e4m3fn", "f8e4m3fn")])
def test_element_types_of_pytorch(name, ours):
    t = torch()
    x = t.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(t, name))
    model = tessera.parse(f"graph g(x: {ours}[N,3]) {{\n  y = transpose(x, [1,0])\n  return x, y\n}}\n")
    for run in (model, tessera.compile(model, cache="")):
        same, turned = run(x)
        assert same.dtype == turned.dtype == x.dtype
        assert t.equal(turned.float(), x.float().T) and t.equal(same.float(), x.float())


def test_tensors_beside_arrays():
    t = torch()
    model = tessera.parse("graph g(a: f32[N], b: f32[N]) {\n  return add(a, b)\n}\n")
    for run in (model, tessera.compile(model, cache="")):
        found = run(t.ones(3), np.arange(3, dtype=np.float32))
        assert isinstance(found, t.Tensor) and found.tolist() == [1, 2, 3]


def test_a_call_writes_into_arrays():
    made = tessera.compile(tessera.parse("graph g(x: f32[N, N]) {\n return matmul(x, x), relu(x)\n}"))
    x = np.random.default_rng(0).standard_normal((9, 9)).astype(np.float32)
    product, kept = np.empty_like(x), np.empty_like(x)
    given = made(x, out=[product, kept])
    assert given[0] is product and given[1] is kept
    np.testing.assert_allclose(product, x @ x, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(kept, np.maximum(x, 0))


def test_an_input_may_be_called_out():
    made = tessera.compile(tessera.parse("graph g(out: f32[2]) {\n return neg(out)\n}"))
    np.testing.assert_array_equal(made(out=np.float32([1, -2])), np.float32([-1, 2]))


def test_calls_one_after_the_other_may_differ():
    model = tessera.parse("graph g(a: f32[N], b: f32[N]) {\n  return add(a, b), sub(a, b)\n}\n")
    made = tessera.compile(model, cache="")
    names = [port.name for port in made.outputs]
    for n in (3, 3, 5, 0, 1, 3, 3):
        a, b = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
        into = [np.zeros(n, np.float32) for _ in range(4)]
        for found in (made(a, b), made(a=a, b=b), made(b=b, a=a), made(a, b=b), made(a, b, out=into[:2]),
                      made(a, b, out={names[0]: into[2]}), tuple(made.run({"b": b, "a": a}).values()),
                      tuple(made.run([a, b], out={names[1]: into[3]}).values()), tuple(made.run((a, b), seed=3).values())):
            assert type(found) is tuple and len(found) == 2
            np.testing.assert_array_equal(found[0], a + b)
            np.testing.assert_array_equal(found[1], a - b)
    a = np.ones(3, np.float32)
    for call, code in ((lambda: made(a, np.ones(4, np.float32)), "E0405"), (lambda: made(a, np.ones(3)), "E0403"),
                       (lambda: made(a), "E0402"), (lambda: made(a, a, a), "E0401"), (lambda: made(a, c=a), "E0401"),
                       (lambda: made(a, np.ones((3, 1), np.float32)), "E0404"), (lambda: made(a, a, out=a), "E0501"),
                       (lambda: made.run({"a": a, "b": a, "c": a}), "E0401"), (lambda: made.run([a]), "E0402"),
                       (lambda: made.run([a, a], out=[a, a]), "E0501"),
                       (lambda: made.run([a, a], out={"no": a}), "E0401")):
        with pytest.raises(tessera.Error, match=code):
            call()
        np.testing.assert_array_equal(made(a, a)[1], np.zeros(3, np.float32))


def test_results_belong_to_the_caller():
    made = tessera.compile(tessera.parse("graph g(x: f32[N]) {\n  return x, neg(x)\n}\n"), cache="")
    x = np.arange(4, dtype=np.float32)
    same, turned = made(x)
    same[:] = 9
    assert x.tolist() == [0, 1, 2, 3] and made(x)[1].tolist() == [0, -1, -2, -3] and turned.tolist() == [0, -1, -2, -3]


def test_calls_from_many_threads():
    made = tessera.compile(tessera.parse("graph g(x: f32[N]) {\n  return mul(x, x)\n}\n"), cache="", threads=1)
    failed = []

    def work(n):
        x = np.full(n, n, np.float32)
        into = np.zeros(n, np.float32)
        for i in range(200):
            found = made(x, out=into) if i % 2 else made(x)
            if found.shape != (n,) or not (found == n * n).all():
                failed.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_arrays_of_other_orders_and_kinds():
    made = tessera.compile(tessera.parse("graph g(x: f32[2,3]) {\n  return neg(x)\n}\n"), cache="")

    class Derived(np.ndarray):
        pass

    for given in (X.astype(">f4"), np.asfortranarray(X), np.repeat(X, 2, 1)[:, ::2], X.view(Derived), X.tolist(),
                  np.frombuffer(b"x" + X.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3)):
        np.testing.assert_array_equal(made(given), -X)
        into = np.zeros((3, 2), np.float32).T
        assert made(given, out=into) is into
        np.testing.assert_array_equal(into, -X)
