"""Times a compiled model over PyTorch's tensors on a GPU: python bench/in_place_gpu.py MODEL.onnx [N=16 ...]

Prints the time of a run by the GPU's clock, with one input and with another each time, what a call takes of the processor,
a run with NumPy arrays in and out, and in how many of 300 runs a bit differs from launches one by one."""

import argparse
import statistics
import time

import torch

import tessera


def between_events(call, calls=50, times=11):
    """Microseconds of a call, the median."""
    found = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / calls * 1e3)
    return statistics.median(found)


def on_the_processor(call, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    taken = (time.perf_counter() - begin) / calls * 1e6
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("sizes", nargs="*", help="of symbolic dimensions: N=16")
    given = parser.parse_args()
    sizes = {name: int(size) for name, size in (each.split("=") for each in given.sizes)}
    model = tessera.load(given.model)
    fast = tessera.compile(model, target="cuda")
    arrays = model.random_inputs(0, **sizes)
    inputs = [{name: torch.from_numpy(array).cuda() for name, array in arrays.items()} for _ in range(2)]
    first = fast.run(inputs[0])  # what comes after it is replayed
    differ = 0
    for i in range(300):
        found = fast.run(inputs[i % 2])
        differ += any(not torch.equal(found[name], first[name]) for name in first)
    turn = iter(range(10**9))
    print(f"a run: {between_events(lambda: fast.run(inputs[0])):.1f} us")
    print(f"another input each time: {between_events(lambda: fast.run(inputs[next(turn) % 2])):.1f} us")
    print(f"a call, of the processor's time: {on_the_processor(lambda: fast.run(inputs[0]), 50):.1f} us")
    print(f"NumPy in and out: {on_the_processor(lambda: fast.run(arrays), 20):.1f} us")
    print(f"runs of 300 in which a bit differs: {differ}")


if __name__ == "__main__":
    main()
