"""Bad input: each gives a clear error with its code, exit status 1, and no file."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


def info(name, elem=TensorProto.FLOAT, shape=("N", 3)):
    return helper.make_tensor_value_info(name, elem, shape)


def model(nodes, inputs=None, outputs=None, initializers=(), opset=21, **kwargs):
    graph = helper.make_graph(nodes, "g", inputs or [info("x")], outputs or [info("y")], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **kwargs)


def node(op, inputs=("x",), outputs=("y",), **kwargs):
    return helper.make_node(op, list(inputs), list(outputs), **kwargs)


def raw_tensor(name, dims, data=b"", elem=TensorProto.FLOAT):
    tensor = TensorProto(name=name, data_type=elem, raw_data=data)
    tensor.dims.extend(dims)
    return tensor


def external_tensor(name, location, length=None, dims=(2,)):
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.dims.extend(dims)
    tensor.external_data.add(key="location", value=location)
    if length is not None:
        tensor.external_data.add(key="length", value=str(length))
    return tensor


def with_constant(tensor):
    shape = [1] if any(d > 10**6 or d < 0 for d in tensor.dims) else list(tensor.dims)
    return model([node("Add", ["x", tensor.name])], [info("x", shape=shape)], [info("y", shape=None)], [tensor])


def recursive_functions():
    a = helper.make_function("local", "A", ["p"], ["q"], [node("B", ["p"], ["q"], domain="local")],
                             [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)])
    b = helper.make_function("local", "B", ["p"], ["q"], [node("A", ["p"], ["q"], domain="local")],
                             [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)])
    m = model([node("A", domain="local")], functions=[a, b])
    m.opset_import.append(helper.make_opsetid("local", 1))
    return m


def doubling_functions(levels=40):
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    functions = [helper.make_function("local", "F0", ["p"], ["q"], [node("Neg", ["p"], ["q"])], imports)]
    for i in range(1, levels):
        nodes = [node(f"F{i - 1}", ["p"], ["m"], domain="local"), node(f"F{i - 1}", ["m"], ["q"], domain="local")]
        functions.append(helper.make_function("local", f"F{i}", ["p"], ["q"], nodes, imports))
    m = model([node(f"F{levels - 1}", domain="local")], functions=functions)
    m.opset_import.append(helper.make_opsetid("local", 1))
    return m


def field(number, payload):
    """One length-delimited protobuf field."""
    out, size = bytearray([number << 3 | 2]), len(payload)
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out) + payload


def nested_ifs(depth):
    """A model whose If nodes stand in each other, written by hand: protobuf itself refuses to write that many."""
    graph = b""
    for _ in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, attribute)) + field(2, b"g")
    return b"\x08\x0a" + field(7, graph) + field(8, b"\x10\x15")


def nested_types(depth):
    payload = field(1, b"\x08\x01")
    for _ in range(depth):
        payload = field(4, field(1, payload))
    graph = field(1, field(1, b"x") + field(2, b"y") + field(4, b"Identity")) + field(11, field(1, b"x") + field(2, payload))
    return b"\x08\x0a" + field(7, graph + field(12, field(1, b"y"))) + field(8, b"\x10\x15")


def duplicate_inputs():
    return model([node("Add", ["x", "x"])], [info("x"), info("x")])


def loop_over_everything():
    """Runs out of its allowance of work, not of patience."""
    body = helper.make_graph([node("Identity", ["c"], ["d"]), node("Add", ["a", "a"], ["b"])], "body",
                             [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("a")],
                             [info("d", TensorProto.BOOL, []), info("b")])
    count = numpy_helper.from_array(np.int64(2**62), "count")
    return model([node("Loop", ["count", "", "x"], body=body)], initializers=[count])


def huge_at_run_time():
    dims = numpy_helper.from_array(np.int64([10**6, 10**6]), "dims")
    return model([node("Expand", ["x", "dims"])], [info("x", shape=(1,))], [info("y", shape=None)], [dims])


# name: the model, the codes that fit, and words that the message must have.
BAD_MODELS = {
    "empty": (b"", ["E0102"], []),
    "html": (b"<!DOCTYPE html><html><head><title>404</title></head></html>\n", ["E0103", "E0104"], []),
    "noise": (bytes(range(256)) * 8, ["E0103", "E0104"], []),
    "zeros": (bytes(4096), ["E0103"], []),
    "zip": (b"PK\x03\x04" + bytes(range(100)), ["E0103", "E0104"], []),
    "no_graph": (b"\x08\x0a", ["E0103"], []),
    "cycle": (model([node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["b"])]), ["E0205"], []),
    "self_loop": (model([node("Add", ["x", "y"], ["y"])]), ["E0205"], []),
    "unknown_op": (model([node("Konvolve", name="first")]), ["E0201"], ["Konvolve", "first", "21"]),
    "unknown_domain": (model([node("Conv", domain="com.example", name="first")]), ["E0201", "E0202"], ["com.example", "first"]),
    "op_too_new": (model([node("Gelu", name="first")], opset=13), ["E0201", "E0202"], ["Gelu", "13"]),
    "opset_too_new": (model([node("Neg")], opset=9999), ["E0202"], ["9999"]),
    "no_opset": (helper.make_model(helper.make_graph([node("Neg")], "g", [info("x")], [info("y")]), opset_imports=[]),
                 ["E0202"], []),
    "undefined_input": (model([node("Add", ["x", "nowhere"])]), ["E0203"], ["nowhere"]),
    "undefined_output": (model([node("Neg", outputs=["z"])]), ["E0203"], ["y"]),
    "duplicate_value": (model([node("Neg"), node("Abs")]), ["E0204"], ["y"]),
    "duplicate_input": (duplicate_inputs(), ["E0204"], ["x"]),
    "attribute_type": (model([node("Softmax", axis="last")]), ["E0206"], ["axis"]),
    "attribute_unknown": (model([node("Softmax", axes=1)]), ["E0206"], ["axes"]),
    "attribute_missing": (model([node("Cast")]), ["E0206"], ["to"]),
    "attribute_value": (model([node("Softmax", axis=7)]), ["E0212"], ["7"]),
    "too_many_inputs": (model([node("Neg", ["x", "x"])]), ["E0207"], []),
    "too_few_inputs": (model([node("Add", ["x"])]), ["E0207"], []),
    "too_many_outputs": (model([node("Neg", outputs=["y", "z"])]), ["E0207"], []),
    "element_types": (model([node("Add", ["x", "i"])], [info("x"), info("i", TensorProto.INT64)]), ["E0208"], []),
    "shapes": (model([node("MatMul", ["x", "w"])], [info("x", shape=(2, 3)), info("w", shape=(4, 5))], [info("y", shape=None)]),
               ["E0210"], ["[2,3]", "[4,5]"]),
    "broadcast": (model([node("Add", ["x", "w"])], [info("x", shape=(2, 3)), info("w", shape=(2, 4))], [info("y", shape=None)]),
                  ["E0210"], ["[2,3]", "[2,4]"]),
    "declared_shape": (model([node("Neg")], [info("x", shape=(2, 3))], [info("y", shape=(7, 7))]), ["E0209", "E0210"], []),
    "short_tensor": (with_constant(raw_tensor("w", [4], b"\0" * 8)), ["E0211"], ["w"]),
    "long_tensor": (with_constant(raw_tensor("w", [1], b"\0" * 8)), ["E0211"], ["w"]),
    "odd_tensor": (with_constant(raw_tensor("w", [2], b"\0" * 7)), ["E0211"], ["w"]),
    "negative_size": (with_constant(raw_tensor("w", [-1], b"")), ["E0108", "E0211"], ["w"]),
    "overflowing_sizes": (with_constant(raw_tensor("w", [2**32, 2**32, 2**32], b"")), ["E0108"], ["w"]),
    "trillion_elements": (with_constant(raw_tensor("w", [10**12], b"\0" * 4)), ["E0108", "E0211"], ["w"]),
    "trillion_strings": (with_constant(raw_tensor("w", [10**12], b"", TensorProto.STRING)), ["E0108", "E0211", "E0208"], []),
    "trillion_at_run_time": (huge_at_run_time(), ["E0408", "E0108"], []),
    "trillion_input": (model([node("Neg")], [info("x", shape=(10**6, 10**6))], [info("y", shape=None)]), ["E0408", "E0108"], []),
    "element_type": (with_constant(raw_tensor("w", [1], b"\0" * 4, 99)), ["E0213"], ["w"]),
    "absolute_path": (with_constant(external_tensor("w", "/etc/passwd")), ["E0106"], ["/etc/passwd"]),
    "parent_path": (with_constant(external_tensor("w", "../secret.bin")), ["E0106"], ["../secret.bin"]),
    "roundabout_path": (with_constant(external_tensor("w", "sub/../../secret.bin")), ["E0106"], []),
    "link_out": (with_constant(external_tensor("w", "link.bin")), ["E0106"], ["link.bin"]),
    "link_to_folder": (with_constant(external_tensor("w", "out/secret.bin")), ["E0106"], []),
    "missing_data": (with_constant(external_tensor("w", "nothing.bin")), ["E0107"], ["nothing.bin"]),
    "short_data": (with_constant(external_tensor("w", "short.bin")), ["E0107", "E0211"], ["w"]),
    "nested_graphs": (nested_ifs(3000), ["E0109"], []),
    "nested_types": (nested_types(3000), ["E0109"], []),
    "recursive_functions": (recursive_functions(), ["E0215"], ["A"]),
    "doubling_functions": (doubling_functions(), ["E0108"], []),
    "untyped_input": (model([node("Neg")], [onnx.ValueInfoProto(name="x")]), ["E0209"], ["x"]),
}


@pytest.fixture
def folder(tmp_path):
    """The model's folder, beside which lies what a model must not read."""
    (tmp_path.parent / "secret.bin").write_bytes(b"\0" * 64)
    (tmp_path / "short.bin").write_bytes(b"\0" * 4)
    os.symlink(tmp_path.parent / "secret.bin", tmp_path / "link.bin")
    os.symlink(tmp_path.parent, tmp_path / "out")
    return tmp_path


def files(path):
    return sorted(p.name for p in path.iterdir())


def check_refused(done, codes, words=()):
    assert done.status == 1, (done.status, done.out, done.err)
    error = done.json["error"]
    assert error["code"] in codes, done.err
    assert error["code"] in done.err
    for word in words:
        assert word in done.err, done.err


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models(tessera_command, folder, name):
    contents, codes, words = BAD_MODELS[name]
    (folder / "m.onnx").write_bytes(contents if isinstance(contents, bytes) else contents.SerializeToString())
    before = files(folder)
    done = tessera_command("run", "m.onnx", "--random", "--output-dir", "results", "--json", "--strict", timeout=60)
    check_refused(done, codes, words)
    assert "m.onnx" in done.err or "at_run_time" in name or "trillion" in name, done.err
    assert files(folder) == before
    if "run_time" not in name and name != "trillion_input":
        check_refused(tessera_command("convert", "m.onnx", "out.onnx", "--json", "--strict"), codes)
        check_refused(tessera_command("inspect", "m.onnx", "--json", "--strict"), codes)
        assert files(folder) == before


def test_truncated_anywhere(tessera_command, folder):
    w = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
    whole = model([node("MatMul", ["x", "w"])], outputs=[info("y", shape=("N", 2))], initializers=[w]).SerializeToString()
    for size in range(len(whole)):
        (folder / "m.onnx").write_bytes(whole[:size])
        done = tessera_command("run", "m.onnx", "--random", "--json")
        assert done.status == 1, (size, done.out, done.err)
        assert done.json["error"]["code"].startswith("E0"), size


def test_missing_file(tessera_command, folder):
    for command in (["run", "none.onnx"], ["inspect", "none.onnx"], ["convert", "none.onnx", "out.onnx"], ["run", "none.tsr"],
                    ["run", "."], ["run", "none.onnx/m.onnx"]):
        check_refused(tessera_command(*command, "--json"), ["E0101"])
    assert "out.onnx" not in files(folder)


def test_work_is_limited(tessera_command, folder):
    (folder / "m.onnx").write_bytes(loop_over_everything().SerializeToString())
    check_refused(tessera_command("run", "m.onnx", "--random", "--max-work", "1M", "--json", timeout=60), ["E0408"])


def test_memory_is_limited(tessera_command, folder):
    (folder / "m.onnx").write_bytes(model([node("Neg")]).SerializeToString())
    check_refused(tessera_command("run", "m.onnx", "--random", "--dim", "N=1000000", "--memory-limit", "1M", "--json"), ["E0408"])


@pytest.mark.parametrize("text, codes", [
    ("graph", ["E0301"]), ("graph g(x: f32[2]) {", ["E0301"]), ("graph g(x: f32[2]) { return nowhere }", ["E0302"]),
    ("graph g(x: f32[2]) { %0 = frobnicate(x) return %0 }", ["E0201", "E0302"]),
    ("graph g(x: f32[99999999999999999999]) { return x }", ["E0301"]),
    ("(" * 100000, ["E0301", "E0109"]), ("", ["E0102", "E0301"]), ("\0\1\2", ["E0301"]),
])
def test_bad_text(tessera_command, folder, text, codes):
    (folder / "m.tsr").write_text(text)
    check_refused(tessera_command("run", "m.tsr", "--random", "--json"), codes)


@pytest.fixture
def adder(folder):
    m = model([node("Add", ["x", "w"])], [info("x", shape=("N", 3)), info("w", shape=("N", 3))])
    (folder / "m.onnx").write_bytes(m.SerializeToString())
    np.save(folder / "good.npy", np.zeros((2, 3), np.float32))
    np.save(folder / "double.npy", np.zeros((2, 3)))
    np.save(folder / "flat.npy", np.zeros(6, np.float32))
    np.save(folder / "wide.npy", np.zeros((2, 4), np.float32))
    np.save(folder / "tall.npy", np.zeros((5, 3), np.float32))
    np.save(folder / "objects.npy", np.array([{}, {}]), allow_pickle=True)
    whole = (folder / "good.npy").read_bytes()
    (folder / "cut.npy").write_bytes(whole[:-1])
    (folder / "huge.npy").write_bytes(whole.replace(b"(2, 3), }      ", b"(1000000000000,), }")[:len(whole)])
    (folder / "empty.npy").write_bytes(b"")
    (folder / "noise.pb").write_bytes(b"\xff" * 40)
    (folder / "x.txt").write_text("1 2 3")
    return folder


@pytest.mark.parametrize("inputs, codes, words", [
    (["x=good.npy"], ["E0402"], ["w", "--random"]),
    (["x=good.npy", "w=good.npy", "q=good.npy"], ["E0401"], ["q"]),
    (["x=good.npy", "w=double.npy"], ["E0403"], ["f64"]),
    (["x=good.npy", "w=flat.npy"], ["E0404"], ["[6]"]),
    (["x=good.npy", "w=wide.npy"], ["E0405"], ["[2,4]"]),
    (["x=good.npy", "w=tall.npy"], ["E0405"], []),
    (["x=good.npy", "w=none.npy"], ["E0101"], ["none.npy"]),
    (["x=good.npy", "w=objects.npy"], ["E0110"], ["objects.npy"]),
    (["x=good.npy", "w=cut.npy"], ["E0110"], ["cut.npy"]),
    (["x=good.npy", "w=huge.npy"], ["E0110"], ["huge.npy"]),
    (["x=good.npy", "w=empty.npy"], ["E0102", "E0110"], ["empty.npy"]),
    (["x=good.npy", "w=x.txt"], ["E0110"], ["x.txt"]),
    (["x=good.npy", "w=m.onnx"], ["E0110"], ["m.onnx"]),
    (["x=good.npy", "w=noise.pb"], ["E0103", "E0104", "E0110"], ["noise.pb"]),
])
def test_bad_inputs(tessera_command, adder, inputs, codes, words):
    arguments = [a for i in inputs for a in ("--input", i)]
    before = files(adder)
    check_refused(tessera_command("run", "m.onnx", *arguments, "-o", "y=y.npy", "--json"), codes, words)
    assert files(adder) == before


@pytest.mark.parametrize("output, status, code", [
    ("q=y.npy", 1, "E0401"), ("y=nowhere/y.npy", 1, "E0105"), ("y=y.txt", 2, "E0501"), ("y=out", 2, "E0501")])
def test_bad_outputs(tessera_command, adder, output, status, code):
    before = files(adder)
    done = tessera_command("run", "m.onnx", "--random", "--output", output, "--json")
    assert (done.status, done.json["error"]["code"]) == (status, code), done.err
    assert files(adder) == before


def test_unknown_dim(tessera_command, adder):
    done = tessera_command("run", "m.onnx", "--random", "--dim", "M=3", "--json")
    check_refused(done, ["E0401"], ["M", "N"])


def test_a_failed_convert_leaves_the_old_file(tessera_command, adder):
    (adder / "out.onnx").write_bytes(b"before")
    (adder / "bad.onnx").write_bytes(b"\x08")
    check_refused(tessera_command("convert", "bad.onnx", "out.onnx", "--json"), ["E0103", "E0104"])
    (adder / "gelu.onnx").write_bytes(model([node("Gelu")]).SerializeToString())
    check_refused(tessera_command("convert", "gelu.onnx", "out.onnx", "--opset", "13", "--json"), ["E0214"])
    check_refused(tessera_command("convert", "gelu.onnx", "out.onnx", "--opset", "999", "--json"), ["E0214", "E0202"])
    assert (adder / "out.onnx").read_bytes() == b"before"
    check_refused(tessera_command("convert", "m.onnx", "nowhere/out.onnx", "--json"), ["E0105"])
