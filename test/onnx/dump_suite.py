"""Writes ONNX's own backend tests as files: DIR/<kind>/<test>/model.onnx, test_data_set_<i>/{input,output}_<j>.pb.

The C++ suite runner (test/onnx/suite.cpp) reads that layout, so the same cases run without Python, under sanitizers too.
"""

import json
import pathlib
import shutil
import sys

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.model import collect_testcases

DATA = pathlib.Path(loader.DATA_DIR)


def proto_bytes(value, type_proto):
    if hasattr(value, "SerializeToString"):
        return value.SerializeToString()
    kind = type_proto.WhichOneof("value")
    if kind == "optional_type":
        if value is None:
            return onnx.OptionalProto().SerializeToString()
        return numpy_helper.from_optional(value, "").SerializeToString()
    if kind == "sequence_type" or isinstance(value, list):
        return numpy_helper.from_list(value, "").SerializeToString()
    return numpy_helper.from_array(np.asarray(value), "").SerializeToString()


def write_case(case, folder):
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    (folder / "tolerance.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        for kind, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
            for j, (value, info) in enumerate(zip(values, infos)):
                (data / f"{kind}_{j}.pb").write_bytes(proto_bytes(value, info.type))


def main(out):
    shutil.rmtree(out, ignore_errors=True)
    for case in loader.load_node_model_tests():
        write_case(case, out / "node" / case.name)
    for case in collect_testcases():
        if case.kind == "simple":
            write_case(case, out / "simple" / case.name)
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        shutil.copytree(DATA / kind, out / kind, dirs_exist_ok=True)
    for model in sorted((DATA / "light").glob("*.onnx")):
        folder = out / "light" / model.stem
        (folder / "test_data_set_0").mkdir(parents=True)
        shutil.copy(model, folder / "model.onnx")
        shutil.copy(model.with_name(model.stem + "_output_0.pb"), folder / "test_data_set_0" / "output_0.pb")
    for kind in sorted(p for p in out.iterdir()):
        print(f"{kind.name}: {sum(1 for _ in kind.iterdir())}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
