"""Holds the dependency order of rooms: a file includes only its own room and those before it in ROOMS, and what a
header declares is defined in the header's room.

usage: layers.py [source folder]      checks a tree, prints each include that points the wrong way
       layers.py --self-test          shows that such an include is caught
"""

import pathlib
import re
import sys
import tempfile

# Every folder of src/ with files of its own, in the order in which data flows.
ROOMS = """
base expr onnx tile
graph graph/gradient graph/evaluate/strip graph/evaluate graph/evaluate/tiles graph/ops graph/text graph/onnx
train
rewrite rewrite/rules rewrite/refute rewrite/passes
quantize
shard shard/search runtime/collectives
discover/claim discover/enumerate discover/check discover/prove discover/correct discover
search
kernel/ir kernel/interpret kernel/schedule kernel/passes kernel/lower kernel/analyse kernel/backend kernel/cpu kernel/gpu kernel/gpu/memory_bound kernel/gpu/attention kernel/gpu/lower
kernel/accelerator kernel/accelerator/compile
kernel/written kernel/from_tile kernel/from_graph
llvm/targets llvm/intrinsics llvm runtime/devices backends shard/simulate runtime tune api/mesh api
""".split()
# Folders that see nothing of each other, whatever their order.
APART = [("discover", "search"), ("kernel/cpu", "kernel/gpu"), ("kernel/cpu", "kernel/accelerator"),
         ("kernel/gpu", "kernel/accelerator")]
# What one room sees of another, and no more: the prover has its own arithmetic, and asks one question of the checker's.
ONLY = {("discover/prove", "discover/check"): {"discover/check/check_definedness.h", "discover/check/check_cancellation.h",
         "discover/check/check_cases.h", "discover/check/check_exactness.h", "discover/check/check_laws.h",
         "discover/check/check_types.h", "discover/check/verify_rule.h"}}
# What belief in a certificate rests on, beside what an op means: all of discover/check. The part that replays the steps
# of a proof sees nothing of the part that reads a rule for any rank. All of it sees nothing else of the project than
# OUTSIDE, and neither part grows past its number of lines without a change here (docs/proofs.md says them).
CHECKER = "src/discover/check"
REPLAY = """check_arithmetic check_cancellation check_certificate check_definedness check_demands check_element_types check_exactness check_facts
check_meaning check_statement check_types check_unify""".split()
OUTSIDE = """base/error.h base/gcd.h base/numeric.h base/random.h expr/expr.h expr/index_bound.h graph/expand_node.h graph/graph.h
graph/ops/conv_window.h onnx/dtypes.h rewrite/rule.h rewrite/rules/check_rule.h rewrite/rules/match.h
discover/claim/certificate.h discover/claim/claim.h""".split()
# Headers whose functions another room defines: the registry of ops, the text of rules and the lowering of schedules.
DEFINED_IN = {"graph/op_def.h": "graph/ops", "rewrite/rule.h": "rewrite/rules", "kernel/schedule/schedule.h": "kernel/lower"}
MOST_LINES = {"replay": 3950, "any rank": 3250}
MOST_FILES = 40  # of a room; graph/ops has one file for each family
SUFFIXES = {".h", ".hpp", ".cpp", ".def"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)
PUBLIC = "tessera"  # include/tessera, included as "tessera/..."


def within(room, folder):
    return room == folder or room.startswith(folder + "/")


def may_include(room, other, header=None):
    """Whether a file of one room may include a file of another."""
    if other == PUBLIC or other == room:
        return True
    if (room, other) in ONLY and header not in ONLY[room, other]:
        return False
    if any((within(room, a) and within(other, b)) or (within(room, b) and within(other, a)) for a, b in APART):
        return False
    return ROOMS.index(other) < ROOMS.index(room)


def room_of(path):
    """The room of a file by its path from the root; '' for one that lies loose in src/."""
    parts = path.parts
    if parts[0] == "src":
        return "/".join(parts[1:-1])
    return PUBLIC if parts[0] == "include" else parts[0]


def included_room(include, path, root):
    """The room that an include names, or None when it is not a file of the project's src/ or include/."""
    for base in ((root / path).parent, root / "src", root / "include"):
        target = base / include
        if target.is_file():
            target = target.resolve().relative_to(root.resolve())
            return room_of(target) if target.parts[0] in ("src", "include") else None
    return None


def violations(root):
    counts = {}
    for top in ("include", "src", "python"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root)
            room = room_of(path)
            counts[room] = counts.get(room, 0) + 1
            if top == "src" and room not in ROOMS:
                yield f"{path}: folder '{room}' has no place in the order (test/layers.py)"
                continue
            text = file.read_text(encoding="utf-8", errors="replace")
            for match in INCLUDE.finditer(text):
                other = included_room(match[1], path, root)
                if other is None or other == room:
                    continue
                if top != "src" and other != PUBLIC or top == "src" and not may_include(room, other, match[1]):
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{path}:{line}: includes {match[1]}, but {room} must not see {other}"
    for room, count in counts.items():
        if count > MOST_FILES and room != "graph/ops":
            yield f"src/{room}: {count} files, more than {MOST_FILES}: split the room"


NOT_A_FUNCTION = re.compile(r"$|[\s#}/*]|[A-Z_]+\(|"
                            r"(using|typedef|static|template|namespace|friend|extern|class|struct|enum|union)\b")


def functions(text):
    """(name, whether it is defined there) of the functions that stand at the beginning of a line, none of unnamed
    namespaces and none of classes."""
    lines = iter(re.sub(r"//[^\n]*", "", text).split("\n"))
    unnamed = False
    for line in lines:
        if line.startswith("namespace {"):
            unnamed = True
        elif line.startswith("}"):
            unnamed = False
        if unnamed or NOT_A_FUNCTION.match(line):
            continue
        while not re.search("[;{]", line) and (further := next(lines, None)) is not None:
            line += " " + further.strip()
        head, end = re.split("[;{]", line)[0], re.search("[;{]", line)
        before = head.split("(")[0]
        if "(" not in head or "=" in before or not end:
            continue
        yield before.split()[-1].lstrip("*&"), end[0] == "{"


def definitions(root):
    """Functions that the header of one room declares and only another room defines."""
    declared, defined = [], {}
    for file in sorted((root / "src").rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        path = file.relative_to(root)
        for name, here in functions(file.read_text(encoding="utf-8", errors="replace")):
            if here:
                defined.setdefault(name, set()).add(room_of(path))
            elif file.suffix == ".h":
                declared.append((name, path))
    for name, path in declared:
        rooms = defined.get(name, set())
        allowed = {room_of(path), DEFINED_IN.get(str(path.relative_to("src")))}
        if rooms and not rooms & allowed:
            yield f"{path}: declares {name}, which {', '.join(sorted(rooms))} defines"


def trusted(root):
    """What the checker must not include, and its parts that have grown."""
    lines = dict.fromkeys(MOST_LINES, 0)
    for file in sorted((root / CHECKER).glob("*")):
        path, text = file.relative_to(root), file.read_text(encoding="utf-8")
        replays = file.stem in REPLAY
        lines["replay" if replays else "any rank"] += text.count("\n")
        for include in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
            own = include.startswith("discover/check/")
            if not own and include not in OUTSIDE:
                yield f"{path}: includes {include}, which the checker does not rest on (OUTSIDE in test/layers.py)"
            if own and replays and pathlib.Path(include).stem not in REPLAY:
                yield f"{path}: replays steps, and must not see {include}"
    for part, count in lines.items():
        if count > MOST_LINES[part]:
            yield f"{CHECKER}: {count} lines are trusted for {part}, more than {MOST_LINES[part]}"


DECLARED = {"base/error.h": "int declared_in_base(int a, int b);\n", "graph/op_def.h": "const Op* declared_in_graph();\n"}


def self_test():
    cases = [
        ("src/base/a.h", '#include "graph/graph.h"', True),
        ("src/graph/a.cpp", '#include "base/error.h"', False),
        ("src/graph/a.cpp", '#include "graph/graph.h"', False),
        ("src/graph/a.cpp", '#include "graph/ops/common.h"', True),
        ("src/graph/ops/a.cpp", '  #  include "kernel/ir/kernel.h"', True),
        ("src/graph/ops/a.cpp", '#include "../../kernel/ir/kernel.h"', True),
        ("src/graph/ops/a.cpp", '#include "../graph.h"', False),
        ("src/onnx/a.cpp", '#include "graph/graph.h"', True),
        ("src/kernel/ir/a.cpp", '#include "tessera/tensor.h"', False),
        ("src/kernel/ir/a.cpp", "#include <graph/graph.h>", False),
        ("src/expr/a.cpp", "#include <graph/graph.h>", True),
        ("src/kernel/ir/a.cpp", "#include <llvm/IR/Module.h>", False),
        ("src/kernel/a.cpp", "", True),
        ("src/search/a.cpp", '#include "discover/discover.h"', True),
        ("src/discover/a.cpp", '#include "search/search.h"', True),
        ("src/kernel/gpu/lower/a.cpp", '#include "kernel/cpu/padding.h"', True),
        ("src/kernel/accelerator/compile/a.cpp", '#include "kernel/cpu/padding.h"', True),
        ("src/kernel/gpu/lower/a.cpp", '#include "kernel/ir/kernel.h"', False),
        ("src/discover/check/a.cpp", '#include "discover/prove/prove.h"', True),
        ("src/discover/a.cpp", '#include "discover/prove/prove.h"', False),
        ("src/discover/prove/a.cpp", '#include "discover/check/check_arithmetic.h"', True),
        ("src/discover/prove/a.cpp", '#include "discover/check/check_definedness.h"', False),
        ("src/discover/check/check_arithmetic.cpp", '#include "discover/check/check_laws.h"', True),
        ("src/discover/check/check_laws.cpp", '#include "discover/check/check_arithmetic.h"', False),
        ("src/discover/check/check_laws.cpp", '#include "discover/claim/claim.h"', False),
        ("src/discover/check/check_laws.cpp", '#include "rewrite/refute/refute.h"', True),
        ("src/discover/check/check_laws.cpp", "\n" * 4000, True),
        ("src/api/compile.cpp", '#include "tune/tune.h"', False),
        ("src/tune/a.cpp", '#include "api/stages.h"', True),
        ("src/compile.cpp", "", True),
        ("src/oddity/a.cpp", "", True),
        ("src/graph/a.cpp", "int declared_in_base(int a,\n                     int b) {\n  return a;\n}", True),
        ("src/graph/a.cpp", "namespace {\nint declared_in_base(int a) {\n  return a;\n}\n}  // namespace", False),
        ("src/base/a.cpp", "int declared_in_base(int a, int b) {\n  return a;\n}", False),
        ("src/graph/a.cpp", "int A::declared_in_base(int a) {\n  return a;\n}", False),
        ("src/graph/ops/a.cpp", "const Op* declared_in_graph() {\n  return nullptr;\n}", False),
        ("include/tessera/a.h", '#include "tessera/tensor.h"', False),
        ("include/tessera/a.h", '#include "graph/graph.h"', True),
        ("python/module.cpp", '#include "tessera/tensor.h"', False),
        ("python/module.cpp", '#include "graph/graph.h"', True),
    ]
    files = ("base/error.h", "graph/graph.h", "graph/op_def.h", "graph/ops/common.h", "discover/discover.h", "discover/prove/prove.h",
             "discover/check/check_arithmetic.h", "discover/check/check_definedness.h",
             "api/stages.h", "search/search.h", "kernel/ir/kernel.h", "kernel/cpu/padding.h", "tune/tune.h", "../include/tessera/tensor.h")
    for name, text, expected in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for file in files:
                path = root / "src" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(DECLARED.get(file, ""))
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
            found = list(violations(root)) + list(definitions(root)) + list(trusted(root))
            if bool(found) != expected:
                sys.exit(f"layers: {name} with {text[:80]!r}: expected {'a violation' if expected else 'none'}, got {found}")
    print(f"{len(cases)} cases")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root)) + list(definitions(root)) + list(trusted(root))
    print("\n".join(found) or "every include points to an earlier room; functions are defined where they are declared")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
