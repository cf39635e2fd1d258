"""Shows what becomes of the kernels of a script while it runs, or keeps it for programs of C.

usage: python -m tessera.tile [--emit=tile|kernel|llvm|asm|blocks|ptx|layouts|object] [--profile] [--kernel NAME] [--out FOLDER] SCRIPT [ARGUMENTS...]
"""

from __future__ import annotations

import argparse
import os
import pathlib
import runpy
import sys
from typing import Any, TextIO

from .._errors import Error
from . import _runtime
from ._profile import Profile

_STAGES = ["tile", "kernel", "llvm", "asm", "blocks", "ptx", "layouts", "object"]
_ENDINGS = {"tile": "tile", "kernel": "kernel", "llvm": "ll", "asm": "s", "blocks": "blocks", "ptx": "ptx",
            "layouts": "svg"}


def _keep(folder: pathlib.Path, name: str, stage: str, target: str, function: Any) -> list[pathlib.Path]:
    """Writes NAME.o and NAME.h, or NAME with the ending of the stage."""
    if stage != "object":
        path = folder / f"{name}.{_ENDINGS[stage]}"
        path.write_text(function.emit(stage))
        return [path]
    code, header = function.ahead_of_time(target)
    paths = [folder / f"{name}.o", folder / f"{name}.h"]
    paths[0].write_bytes(code)
    paths[1].write_text(header)
    return paths


def _own_output() -> TextIO:
    """Standard output for the stages alone: what the script prints goes to standard error from here on."""
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return own


def main(given: list[str] | None = None) -> None:
    try:
        _main(given)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os._exit(0)


def _main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="tessera tile", description="Shows what becomes of the kernels of a script.",
                                     epilog="A kernel that is compiled for several types of arguments has several codes: "
                                            "files of the second are called NAME_2, and so on.")
    parser.add_argument("--emit", default="tile", choices=_STAGES,
                        help="the stage to show; object: NAME.o and NAME.h, for programs of C without Tessera")
    parser.add_argument("--profile", action="store_true", help="what each line loads, stores and computes, and how long "
                                                               "launches take, instead of a stage")
    parser.add_argument("--kernel", help="of this kernel alone")
    parser.add_argument("--out", type=pathlib.Path, help="write files into this folder instead of printing")
    parser.add_argument("--target", default="host", help="of objects: a processor that `tessera compile --target` knows")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(given)
    if options.target != "host" and options.emit != "object":
        parser.error("--target is for --emit=object")
    if options.emit == "object" and options.out is None:
        options.out = pathlib.Path(".")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    if not pathlib.Path(options.script).is_file():
        parser.error(f"there is no file {options.script}")
    seen: dict[str, int] = {}
    failed = False
    output = _own_output()

    def show(name: str, function: Any) -> None:
        nonlocal failed
        if options.kernel not in (None, name):
            return
        seen[name] = seen.get(name, 0) + 1
        if options.out is None:
            print(function.emit(options.emit), file=output, flush=True)
            return
        file = name if seen[name] == 1 else f"{name}_{seen[name]}"
        try:
            for path in _keep(options.out, file, options.emit, options.target, function):
                print(path, file=output, flush=True)
        except Error as e:
            failed = True
            print(f"{name}: {e}", file=sys.stderr)

    profile = Profile(options.kernel)
    if options.profile:
        _runtime.on_launch.append(profile.launched)
    else:
        _runtime.on_compile.append(show)
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(pathlib.Path(options.script).resolve().parent))
    runpy.run_path(options.script, run_name="__main__")
    if profile.all:
        print(profile, end="", file=output, flush=True)
    if not seen and not profile.all:
        print(f"{options.script} launched no kernel" + (f" called {options.kernel}" if options.kernel else ""),
              file=sys.stderr)
    sys.exit(failed or not (seen or profile.all))


if __name__ == "__main__":
    main()
