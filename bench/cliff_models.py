"""Models of the cases of bench/cliff_cases.py, and their inputs."""
import numpy as np
from onnx import helper, numpy_helper

from cliff_cases import ONNX

OPSET, IR = 21, 10
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32, "u8": np.uint8,
         "i8": np.int8, "bool": np.bool_}


def constant_of(text):
    """=f32:1.0,2.0 is a list and =i64s:3 a single number."""
    kind, values = text[1:].split(":")
    single = kind.endswith("s")
    numbers = [float(v) if "f" in kind else int(v) for v in values.split(",")]
    array = np.array(numbers, dtype=NUMPY[kind.removesuffix("s")])
    return array.reshape(()) if single else array


def array_of(spec, random):
    kind = spec["dtype"]
    if kind == "bool":
        return random.random(spec["shape"]) < 0.5
    if "low" in spec and not kind.startswith("f"):
        return random.integers(spec["low"], max(spec["low"] + 1, spec["high"]), spec["shape"]).astype(NUMPY[kind])
    drawn = random.standard_normal(spec["shape"]) * spec.get("scale", 1.0)
    if spec.get("positive"):
        drawn = np.abs(drawn) + 0.1
    return drawn.astype(NUMPY[kind])


def build(drawn):
    """The model's bytes, and inputs by name."""
    random = np.random.default_rng(drawn["seed"])
    inputs, weights, feeds = [], [], {}
    for name, spec in drawn["inputs"].items():
        array = array_of(spec, random)
        if spec.get("constant"):
            weights.append(numpy_helper.from_array(array, name))
            continue
        symbols = spec.get("symbols", {})
        dims = [symbols.get(str(d), int(n)) for d, n in enumerate(array.shape)]
        inputs.append(helper.make_tensor_value_info(name, ONNX[spec["dtype"]], dims))
        feeds[name] = array
    nodes = []
    for number, n in enumerate(drawn["nodes"]):
        names = []
        for place, name in enumerate(n["inputs"]):
            if name.startswith("="):
                own = f"c{number}_{place}"
                weights.append(numpy_helper.from_array(constant_of(name), own))
                name = own
            names.append(name)
        nodes.append(helper.make_node(n["op"], names, n["outputs"], domain=n["domain"], **n["attrs"]))
    outputs = [helper.make_empty_tensor_value_info(name) for name in drawn.get("outputs", ["y"])]
    graph = helper.make_graph(nodes, "case", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    return model.SerializeToString(), feeds


def describe(drawn):
    """One line."""
    def dims(spec):
        symbols = spec.get("symbols", {})
        text = "x".join(f"{symbols[str(d)]}={n}" if str(d) in symbols else str(n) for d, n in enumerate(spec["shape"]))
        return text + ("" if spec["dtype"] == "f32" else ":" + spec["dtype"])

    inputs = " ".join(dims(s) + ("" if not s.get("constant") else "*") for s in drawn["inputs"].values())
    ops = []
    for n in drawn["nodes"]:
        attrs = ",".join(f"{k}={'x'.join(map(str, v)) if isinstance(v, list) else v}" for k, v in n["attrs"].items()
                         if k != "kernel_shape" and not (isinstance(v, list) and len(set(v)) == 1 and v[0] == 1
                                                         and k in ("strides", "dilations")))
        constants = ",".join(i[1:].split(":")[1][:24] for i in n["inputs"] if i.startswith("="))
        ops.append(n["op"] + (f"({attrs})" if attrs else "") + (f"[{constants}]" if constants else ""))
    return f"{' > '.join(ops)}  {inputs}"
