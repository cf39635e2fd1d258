"""Holds that nothing but back ends knows which ones there are: target names stand in string literals, and components of
back ends are included, only in the places that are listed here. All else asks a Backend (src/backends/backend.h).

usage: target_names.py [source folder]      checks a tree, prints each place that knows a target
       target_names.py --self-test          shows that such a place is caught
"""

import pathlib
import re
import sys
import tempfile

# A literal that is a target's name, or begins with one as names of devices, architectures and features do.
NAME = re.compile(r'"(?:(?:cuda|nvidia|nvptx|nvvm|tessel|cpu)(?:[:._-][^"\s]*)?|(?:sm_|ptx)\d*[^"\s]*)"', re.IGNORECASE)
# Where the names are from: registrations, devices, code generation for one family, and what schedules for it.
OWN = ("src/backends/", "src/runtime/devices/", "src/llvm/targets/", "src/kernel/cpu/", "src/kernel/gpu/",
       "src/kernel/accelerator/")
# Other files with such a literal, and why it is no question of which target there is.
LITERALS = {
    "src/base/usable_cores.cpp": "the folder of a control group",
    "src/kernel/ir/intrinsic.cpp": "the feature that an instruction needs, as LLVM names it",
    "src/llvm/emit_blocks.cpp": "the metadata by which LLVM knows a kernel",
    "tools/tessera/compile.cpp": "a word of --emit",
    "tools/tessera/tile.cpp": "a word of --emit",
}
# What only back ends include: a component or a header, by its path from src/.
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(?:kernel/(?:cpu|gpu|accelerator)/|runtime/devices/'
                     r'(?:cuda|accelerator)_)[^"]*"', re.MULTILINE)
INCLUDES = {
    "src/kernel/from_graph/from_graph.cpp": "how a machine's kernels are scheduled where the caller names no back end",
}
RULES = ((NAME, LITERALS, "names a target"), (INCLUDE, INCLUDES, "includes a back end's"))
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
SUFFIXES = {".h", ".cpp", ".def"}


def violations(root):
    used = set()
    for file in sorted(f for folder in ("src", "tools/tessera") for f in (root / folder).rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in SUFFIXES or path.startswith(OWN):
            continue
        # Comments go, their line ends stay.
        text = COMMENT.sub(lambda m: m[1] or "\n" * m[0].count("\n"), file.read_text(encoding="utf-8"))
        for pattern, allowed, what in RULES:
            for match in pattern.finditer(text):
                if path in allowed:
                    used.add((path, what))
                    continue
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match[0].strip()}"
    for _, allowed, what in RULES:
        for path in allowed:
            if (root / path).exists() and (path, what) not in used:
                yield f"{path}: needs no exception any more (test/target_names.py)"


def self_test():
    cases = [
        ("src/api/a.cpp", 'if (target == "cuda") return;', True),
        ("src/api/a.cpp", 'return name.starts_with("sm_");', True),
        ("src/api/a.cpp", 'd.target = "cuda:1";', True),
        ("src/api/a.cpp", 'if (what == "ptx") return;', True),
        ("src/api/a.cpp", 'constexpr const char* kUsual = "sm_90a";', True),
        ("src/api/a.cpp", 'if (b.name() == "tessel:sim") return;', True),
        ("src/api/a.cpp", 'if (b.name() == "cpu") return;', True),
        ("src/api/a.cpp", '"a//b"; f("cuda");', True),
        ("src/api/a.cpp", 'std::string target;  // "cuda"', False),
        ("src/api/a.cpp", '/* such as\n "cuda" */', False),
        ("src/api/a.cpp", 'hint("copy it to the host, or compile for cuda:{}", n);', False),
        ("src/api/a.cpp", 'if (name == "host") return;', False),
        ("src/backends/a.cpp", 'return "cuda";', False),
        ("src/llvm/targets/a.cpp", 'if (tune == "sm_80") return;', False),
        ("src/llvm/a.cpp", 'if (tune == "sm_80") return;', True),
        ("src/base/usable_cores.cpp", 'mounts / "cpu";', False),
        ("src/base/usable_cores.cpp", 'mounts / "others";', True),
        ("src/kernel/from_graph/a.cpp", '#include "kernel/gpu/lower/gpu_schedule.h"', True),
        ("src/tune/a.cpp", '#include "kernel/cpu/attention.h"', True),
        ("tools/tessera/a.cpp", 'const bool gpu = target.starts_with("cuda");', True),
        ("src/api/a.cpp", '#include "runtime/devices/cuda_device.h"', True),
        ("src/api/a.cpp", '#include "runtime/devices/cpu_device.h"', False),
        ("src/backends/a.cpp", '#include "kernel/gpu/lower/gpu_schedule.h"', False),
        ("src/kernel/from_graph/from_graph.cpp", '#include "kernel/cpu/cpu_scheduling.h"', False),
    ]
    for name, text, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
            found = list(violations(root))
            if bool(found) != expected:
                sys.exit(f"target_names: {name} with {text!r}: expected {'one' if expected else 'none'}, got {found}")
    print(f"{len(cases)} cases")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    print("\n".join(found) or "only back ends know their names")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
