#!/usr/bin/env python3
"""Writes the kernels that a build makes of many models, so that two builds can be compared:

    tools/dump_kernels.py build/bin/tessera before      and, after a change, the same into another folder:
    tools/dump_kernels.py build/bin/tessera after --compare before

Models: the graphs of test/files and those inside the C++ tests, the node tests of the onnx package (one in --every),
and drawn cases and chains of bench/cliffs.py. For each target of TARGETS it writes the stages that are named there."""
import argparse
import concurrent.futures
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import cliff_cases  # noqa: E402
import cliff_chains  # noqa: E402
import cliff_idioms  # noqa: E402
import cliff_models  # noqa: E402

# The kernels of each target, and its machine code or PTX.
TARGETS = [("sm_90a", "kernel"), ("sm_90a", "ptx"), ("sm_80", "kernel"), ("x86_64-avx512", "kernel"),
           ("x86_64-avx512", "asm"), ("aarch64-neon", "kernel")]
GRAPH = re.compile(r"^ *(graph \w+\([^{}]*\) *\{.*?^ *\})", re.DOTALL | re.MULTILINE)
STRINGS = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*')
LONGEST_S = 120


def literals(source):
    """The strings of a C++ file, neighbours joined; of formats, braces as they come out and {0}[...] as f16[...]."""
    for match in STRINGS.finditer(source):
        joined = "".join(re.findall(r'"((?:\\.|[^"\\\n])*)"', match[0])).replace("\\n", "\n").replace('\\"', '"')
        if "{{" in joined:
            joined = joined.replace("{0}[", "f16[").replace("{{", "{").replace("}}", "}")
        yield joined
    yield from re.findall(r'R"\((.*?)\)"', source, re.DOTALL)


def texts():
    """Graphs in the text form, each once, by a name that its text gives."""
    found = {}
    for file in sorted((ROOT / "test/files").glob("*.tsr")) + sorted((ROOT / "test").rglob("*_test.cpp")):
        source = file.read_text()
        for text in [source] if file.suffix == ".tsr" else literals(source):
            for match in GRAPH.finditer(text):
                if "ERROR" not in match[1]:
                    found[f"{file.stem}-{hashlib.sha1(match[1].encode()).hexdigest()[:10]}"] = match[1]
    return found


def node_tests(every):
    from onnx.backend.test.case.node import collect_testcases
    cases = collect_testcases(None)
    return {case.name: case.model.SerializeToString() for case in cases[::every] if case.model}


def drawn(count):
    random = np.random.default_rng(42)
    families = cliff_cases.FAMILIES + cliff_chains.FAMILIES * 4 + cliff_idioms.FAMILIES
    return {f"drawn-{i}": cliff_models.build(cliff_cases.draw(random, families))[0] for i in range(count)}


def dump(binary, model, name, out):
    for target, stage in TARGETS:
        command = [binary, "compile", str(model), "--target", target, f"--emit={stage}"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=LONGEST_S)
            text = done.stdout if done.returncode == 0 else b"failed: " + (done.stderr.splitlines() or [b"?"])[0]
        except (subprocess.TimeoutExpired, IndexError) as error:
            text = type(error).__name__.encode()
        (out / f"{name}.{target}.{stage}").write_bytes(text.replace(str(model).encode(), name.encode()))


def compare(before, after):
    """Prints what differs; how many texts do."""
    names = sorted({p.name for p in before.iterdir()} | {p.name for p in after.iterdir()})
    differ = [n for n in names if not (before / n).exists() or not (after / n).exists()
              or (before / n).read_bytes() != (after / n).read_bytes()]
    failed = sum((after / n).read_bytes().startswith(b"failed: ") for n in names if (after / n).exists())
    print("\n".join(differ[:40]))
    print(f"{len(names)} texts, {len(differ)} differ, {failed} are of models that do not compile for the target")
    return len(differ)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path, metavar="FOLDER", help="what another build wrote")
    parser.add_argument("--every", type=int, default=8, help="node tests of the onnx package: one in so many (8)")
    parser.add_argument("--drawn", type=int, default=80, help="drawn cases (80)")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        models = []
        for name, text in texts().items():
            models.append((name, pathlib.Path(folder) / f"{name}.tsr"))
            models[-1][1].write_text(text + "\n")
        for name, data in (node_tests(options.every) | drawn(options.drawn)).items():
            models.append((name, pathlib.Path(folder) / f"{name}.onnx"))
            models[-1][1].write_bytes(data)
        list(pool.map(lambda m: dump(options.binary, m[1], m[0], options.out), models))
        print(f"{len(models)} models, {len(models) * len(TARGETS)} texts in {options.out}")
    return bool(options.compare and compare(options.compare, options.out))


if __name__ == "__main__":
    sys.exit(main())
