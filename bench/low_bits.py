"""Times products of few bits, ours beside ONNX Runtime's: low_bits.py [NAME ...], with the packages of venv.sh.

One thread, processor time, by `tessera bench`. Behind each: the bytes of its weights at the rate that one core reads
memory, or its multiplications at the rate of the byte instruction (--read GB/s, --peak GOP/s), and the share of it."""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RANDOM = np.random.default_rng(0)
ROOT = pathlib.Path(__file__).resolve().parent.parent


def model(path, nodes, inputs, output, constants):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info(*i) for i in inputs], [info(*output)],
                              [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def four_bits(path, rows, k, n, level, block=32):
    blocks = k // block
    node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=4,
                            block_size=block, accuracy_level=level)
    model(path, [node], [("a", TensorProto.FLOAT, [rows, k])], ("y", TensorProto.FLOAT, [rows, n]),
          {"b": RANDOM.integers(0, 256, (n, blocks, block // 2), dtype=np.uint8),
           "s": RANDOM.uniform(0.001, 0.01, (n, blocks)).astype(np.float32)})
    return {"bytes": n * k / 2 + 4 * n * blocks, "operations": 2 * rows * n * k}


def integers(path, signed, size=1024):
    kind, zero = (TensorProto.INT8, np.int8(3)) if signed else (TensorProto.UINT8, np.uint8(128))
    model(path, [helper.make_node("MatMulInteger", ["a", "b", "z"], ["y"])], [("a", kind, [size, size])],
          ("y", TensorProto.INT32, [size, size]),
          {"b": RANDOM.integers(-128, 128, (size, size)).astype(np.int8), "z": zero})
    return {"bytes": size * size, "operations": 2 * size**3}


def convolution(path, channels, side, groups):
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], pads=[1] * 4,
                            group=groups)
    shape, scale = [1, channels, side, side], RANDOM.uniform(0.001, 0.01, channels).astype(np.float32)
    model(path, [node], [("x", TensorProto.UINT8, shape)], ("y", TensorProto.UINT8, shape),
          {"xs": np.float32(0.02), "xz": np.uint8(128), "ys": np.float32(0.5), "yz": np.uint8(120), "ws": scale,
           "w": RANDOM.integers(-128, 128, (channels, channels // groups, 3, 3)).astype(np.int8),
           "wz": np.zeros(channels, np.int8)})
    return {"bytes": 2 * channels * side**2, "operations": 18 * channels * side**2 * channels // groups}


def cases():
    for n in (4096, 14336):
        for rows in (1, 4, 16):
            for level in (0, 4):
                yield f"4 bits, {rows}x4096x{n}, level {level}", lambda p, a=(rows, 4096, n, level): four_bits(p, *a)
    yield "product u8 s8, 1024", lambda p: integers(p, False)
    yield "product s8 s8, 1024", lambda p: integers(p, True)
    yield "convolution 3x3, 64, 56x56", lambda p: convolution(p, 64, 56, 1)
    yield "depthwise 3x3, 96, 56x56", lambda p: convolution(p, 96, 56, 96)


def medians(path, seconds):
    command = [ROOT / "build/bin/tessera", "bench", path, "--against", "onnxruntime", "--clock", "processor", "--threads",
               "1", "--seconds", str(seconds), "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    unit = {"µs": 1e-3, "us": 1e-3, "ms": 1, "s": 1e3}
    return [float(v) * unit[u] for v, u in re.findall(r"(?:tessera|onnxruntime) \S+\s+([\d.]+) (µs|us|ms|s)\b", done)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only cases with one of these in their names")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--read", type=float, required=True, help="GB/s that one core reads")
    parser.add_argument("--peak", type=float, required=True, help="GOP/s of bytes that one core multiplies")
    args = parser.parse_args()
    print(f"{'case':36} {'ours':>10} {'ORT':>10} {'ORT/ours':>9} {'bound':>10} {'share':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, make in cases():
            if args.names and not any(wanted in name for wanted in args.names):
                continue
            path = pathlib.Path(folder) / "model.onnx"
            cost = make(path)
            ours, peer = medians(path, args.seconds)
            bound = max(cost["bytes"] / args.read, cost["operations"] / args.peak) / 1e6
            print(f"{name:36} {ours:7.3f} ms {peer:7.3f} ms {peer / ours:9.2f} {bound:7.3f} ms {bound / ours:6.0%}",
                  flush=True)


if __name__ == "__main__":
    main()
