"""Compiles each public header alone: it includes no fmt, and defines no macro without the project's prefix.

usage: public_headers_test.py [compiler]
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def macros(compiler, text):
    done = subprocess.run([compiler, "-std=c++20", "-I", ROOT / "include", "-x", "c++", "-dM", "-E", "-"], input=text,
                          capture_output=True, text=True, check=True)
    return set(re.findall(r"^#define (\w+)", done.stdout, re.MULTILINE))


def main():
    compiler = sys.argv[1] if len(sys.argv) > 1 else "c++"
    headers = sorted((ROOT / "include" / "tessera").glob("*.h"))
    everything = "".join(f'#include "tessera/{h.name}"\n' for h in headers)
    assert "FMT_VERSION" not in macros(compiler, everything), "a public header includes fmt"
    for header in headers:
        own = re.findall(r"^#\s*define\s+(\w+)", header.read_text(), re.MULTILINE)
        wrong = [name for name in own if not name.startswith("TESSERA_")]
        assert not wrong, f"{header.name} defines {wrong}"
    uses = '#include "tessera/tessera.h"\ntessera::Status f() { return tessera::Error(tessera::Code::E0501, "a reason").hint("a hint"); }\n'
    subprocess.run([compiler, "-std=c++20", "-I", ROOT / "include", "-x", "c++", "-fsyntax-only", "-"], input=uses, text=True, check=True)


if __name__ == "__main__":
    main()
