"""Holds the dependency order of folders: each one includes only itself and the folders on its left.

usage: layers.py [source folder]      checks a tree, prints each include that points the wrong way
       layers.py --self-test          shows that such an include is caught
"""

import pathlib
import re
import sys
import tempfile

ORDER = ["base", "expr", "onnx", "graph", "rewrite", "search", "tile", "kernel", "llvm", "runtime", "tune"]
SUFFIXES = {".h", ".hpp", ".cpp", ".def"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
PUBLIC = "tessera"  # include/tessera, included as "tessera/..."


def allowed(path):
    """What a file may include of the project, as folder names; None where everything is allowed."""
    parts = path.parts
    if parts[0] == "include":  # the public API stands alone, so that users need no header of src/
        return {PUBLIC}
    if parts[0] == "src" and len(parts) > 2:
        if parts[1] not in ORDER:
            return set()
        return set(ORDER[: ORDER.index(parts[1]) + 1]) | {PUBLIC}
    if parts[0] == "python":
        return {PUBLIC}
    return None  # src/*.cpp ties the folders together; tools, tests and benchmarks may look inside


def folder_of(include, path, root):
    """The project folder that an include names, or None when it is not a file of the project."""
    for base in ((root / path).parent, root / "src", root / "include"):
        target = base / include
        if target.is_file():
            parts = target.resolve().relative_to(root.resolve()).parts
            return PUBLIC if parts[0] == "include" else parts[1] if parts[0] == "src" else None
    return None


def violations(root):
    for top in ("include", "src", "python"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root)
            may = allowed(path)
            if may is None:
                continue
            if top == "src" and path.parts[1] not in ORDER:
                yield f"{path}: folder '{path.parts[1]}' has no place in the order (test/layers.py)"
                continue
            owner = path.parts[1] if top == "src" else top
            text = file.read_text(encoding="utf-8", errors="replace")
            for match in INCLUDE.finditer(text):
                include = match[1]
                folder = folder_of(include, path, root)
                if folder and folder not in may:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path}:{line}: includes {include}, but {owner} must not see {folder}"


def self_test():
    cases = [
        ("src/base/a.h", '#include "graph/graph.h"', True),
        ("src/graph/a.cpp", '#include "base/error.h"', False),
        ("src/graph/a.cpp", '#include "graph/graph.h"', False),
        ("src/graph/ops/a.cpp", '  #  include "kernel/kernel.h"', True),
        ("src/graph/ops/a.cpp", '#include "../../kernel/kernel.h"', True),
        ("src/graph/ops/a.cpp", '#include "../graph.h"', False),
        ("src/onnx/a.cpp", '#include "graph/graph.h"', True),
        ("src/kernel/a.cpp", '#include "tessera/tensor.h"', False),
        ("src/kernel/a.cpp", "#include <graph/graph.h>", False),
        ("src/expr/a.cpp", "#include <graph/graph.h>", True),
        ("src/kernel/a.cpp", "#include <llvm/IR/Module.h>", False),
        ("src/compile.cpp", '#include "tune/tune.h"', False),
        ("src/oddity/a.cpp", "", True),
        ("include/tessera/a.h", '#include "tessera/tensor.h"', False),
        ("include/tessera/a.h", '#include "graph/graph.h"', True),
        ("python/module.cpp", '#include "tessera/tensor.h"', False),
        ("python/module.cpp", '#include "graph/graph.h"', True),
    ]
    for name, text, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for file in ("base/error.h", "graph/graph.h", "kernel/kernel.h", "tune/tune.h", "../include/tessera/tensor.h"):
                path = root / "src" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
            found = list(violations(root))
            if bool(found) != expected:
                sys.exit(f"layers: {name} with {text!r}: expected {'a violation' if expected else 'none'}, got {found}")
    print(f"{len(cases)} cases")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    print("\n".join(found) or "every include points left")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
