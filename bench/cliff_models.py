"""Models of the cases of bench/cliff_cases.py, and their inputs."""
import numpy as np
from onnx import helper, numpy_helper

from cliff_cases import ONNX

OPSETS, IR = {"": 21, "ai.onnx.ml": 3, "com.microsoft": 1}, 10
MANY = 24  # nodes that a line describes
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
    nodes = nodes_of(drawn["nodes"], weights)
    outputs = [helper.make_empty_tensor_value_info(name) for name in drawn.get("outputs", ["y"])]
    graph = helper.make_graph(nodes, "case", inputs, outputs, weights)
    opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR)
    return model.SerializeToString(), feeds


def nodes_of(drawn, weights):
    """Constants written in place become weights, of the outermost graph."""
    nodes = []
    for n in drawn:
        names = []
        for name in n["inputs"]:
            if name.startswith("="):
                weights.append(numpy_helper.from_array(constant_of(name), f"constant_{len(weights)}"))
                name = weights[-1].name
            names.append(name)
        attrs = {k: nested(v["graph"], weights) if isinstance(v, dict) else v for k, v in n["attrs"].items()}
        nodes.append(helper.make_node(n["op"], names, n["outputs"], domain=n["domain"], **attrs))
    return nodes


def nested(drawn, weights):
    return helper.make_graph(nodes_of(drawn["nodes"], weights), "body", list(map(value_info, drawn["inputs"])),
                             list(map(value_info, drawn["outputs"])))


def value_info(spec):
    name, kind, shape = spec
    if kind.startswith("seq "):
        element = helper.make_tensor_type_proto(ONNX[kind[4:]], shape)
        return helper.make_value_info(name, helper.make_sequence_type_proto(element))
    return helper.make_tensor_value_info(name, ONNX[kind], shape)


def describe(drawn):
    """One line."""
    def dims(spec):
        symbols = spec.get("symbols", {})
        text = "x".join(f"{symbols[str(d)]}={n}" if str(d) in symbols else str(n) for d, n in enumerate(spec["shape"]))
        return text + ("" if spec["dtype"] == "f32" else ":" + spec["dtype"])

    inputs = " ".join(dims(s) + ("" if not s.get("constant") else "*") for s in drawn["inputs"].values())
    nodes = drawn["nodes"]
    ops = [shown(n) for n in nodes[:MANY]] + ([f"{len(nodes) - MANY} more"] if len(nodes) > MANY else [])
    return f"{' > '.join(ops)}  {inputs}"


def shown(n):
    def says_nothing(name, v):
        return name == "kernel_shape" or (name in ("strides", "dilations") and set(v) == {1})

    attrs = {k: "..." if isinstance(v, dict) or (isinstance(v, list) and len(v) > 12) else v
             for k, v in n["attrs"].items() if not says_nothing(k, v)}
    text = ",".join(f"{k}={'x'.join(map(str, v)) if isinstance(v, list) else v}" for k, v in attrs.items())
    constants = ",".join(i[1:].split(":")[1][:24] for i in n["inputs"] if i.startswith("="))
    return n["op"] + (f"({text})" if text else "") + (f"[{constants}]" if constants else "")
