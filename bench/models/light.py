"""Takes models to a machine that cannot export them: the graphs alone, and their weights drawn again over there.

usage: light.py strip  OUT.zip MODEL.onnx...   writes graphs without weights, each with the spread of its weights
       light.py refill IN.zip FOLDER           writes the models, with weights of that spread from a fixed seed
"""

import io
import json
import pathlib
import sys
import zipfile

import numpy as np
import onnx
from onnx import numpy_helper

LARGE = 256  # elements; smaller tensors travel as they are
FLOAT = onnx.TensorProto.FLOAT


def strip(out, paths):
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in map(pathlib.Path, paths):
            model = onnx.load(path)
            spread = {}
            for tensor in model.graph.initializer:
                values = numpy_helper.to_array(tensor)
                if tensor.data_type != FLOAT or values.size < LARGE:
                    continue
                spread[tensor.name] = [float(values.mean()), float(values.std()), bool(values.min() >= 0)]
                tensor.ClearField("raw_data")
                tensor.ClearField("float_data")
            archive.writestr(path.name, model.SerializeToString())
            archive.writestr(path.name + ".json", json.dumps(spread))


def refill(source, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if not name.endswith(".onnx"):
                continue
            model = onnx.load(io.BytesIO(archive.read(name)))
            spread = json.loads(archive.read(name + ".json"))
            draw = np.random.default_rng(0)
            for tensor in model.graph.initializer:
                if tensor.name not in spread:
                    continue
                mean, deviation, positive = spread[tensor.name]
                values = draw.standard_normal(tuple(tensor.dims), dtype=np.float32) * np.float32(deviation) + np.float32(mean)
                tensor.raw_data = (np.abs(values) if positive else values).tobytes()
            onnx.save(model, folder / name)


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "strip":
        strip(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) == 4 and sys.argv[1] == "refill":
        refill(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
