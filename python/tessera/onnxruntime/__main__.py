"""python -m tessera.onnxruntime PROGRAM [ARGUMENT...]: runs a program with `import onnxruntime` answered by Tessera.

With -m before it, PROGRAM is a module.
"""

import os
import runpy
import sys

import tessera.onnxruntime


def main() -> None:
    words = sys.argv[1:]
    as_module = words[:1] == ["-m"]
    if as_module:
        words = words[1:]
    if not words or (not as_module and words[0].startswith("-")):
        sys.exit("usage: python -m tessera.onnxruntime [-m] PROGRAM [ARGUMENT...]")
    tessera.onnxruntime.install()
    sys.argv = words
    if as_module:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


main()
