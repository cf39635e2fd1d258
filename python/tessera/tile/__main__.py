"""Shows what becomes of the kernels of a script while it runs.

usage: python -m tessera.tile [--emit=tile|kernel|llvm|asm] [--kernel NAME] SCRIPT [ARGUMENTS...]
"""

from __future__ import annotations

import argparse
import runpy
import sys

from . import _runtime


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tessera.tile", description="Shows what becomes of the kernels of a script.")
    parser.add_argument("--emit", default="tile", choices=["tile", "kernel", "llvm", "asm"], help="the stage to show")
    parser.add_argument("--kernel", help="of this kernel alone")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()

    def show(name: str, function: object) -> None:
        if options.kernel in (None, name):
            print(function.emit(options.emit))  # type: ignore[attr-defined]

    _runtime.on_compile.append(show)
    sys.argv = [options.script, *options.arguments]
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
