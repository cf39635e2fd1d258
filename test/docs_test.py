"""Holds the documentation to the tree: every path that it names exists, every link leads somewhere, lines fit, and the
README and the changelog have the sections that readers look for.

usage: docs_test.py [source folder]      checks README.md and docs/, prints each thing that does not hold
       docs_test.py --self-test          shows that such things are caught
"""

import pathlib
import re
import sys
import tempfile

COLUMNS = 120  # of lines in docs/, but for rows of tables and what a script writes
TOPS = "src include tools test docs rules python tutorial bench cmake"
PATH = re.compile(r"(?<![\w./<-])((?:%s)/[\w./*<>{},-]*[\w*}/])" % TOPS.replace(" ", "|"))
LINK = re.compile(r"\]\(([^)#:\s]*)(#[^)\s]*)?\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
GENERATED = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)
SECTIONS = {"README.md": "What it can't do", "CHANGELOG.md": "Unreleased"}
MADE_UP = ("rules/found/x.", "rules/<", "test/files/rules/<", "test/<")  # examples, not files


def anchor(heading):
    """The anchor that a heading gets: lower case, words joined by -, no punctuation."""
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


def exists(root, path):
    if "*" in path:
        return any(True for _ in root.glob(path))
    # A name without a suffix may be a folder, a program, or a file of either kind.
    return (root / path).exists() or any((root / (path + suffix)).exists() for suffix in (".h", ".cpp"))


def problems(root):
    for name, section in SECTIONS.items():
        if (root / name).exists() and section not in HEADING.findall((root / name).read_text(encoding="utf-8")):
            yield f"{name}: there is no section \"{section}\""
    files = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.exists()}
    for file, text in texts.items():
        name = file.relative_to(root)
        kept = GENERATED.sub(lambda m: "\n" * m[0].count("\n"), text)
        for number, line in enumerate(kept.split("\n"), 1):
            if name.parent.name == "docs" and len(line) > COLUMNS and not line.startswith("|"):
                yield f"{name}:{number}: {len(line)} columns, over {COLUMNS}"
            for path in PATH.findall(line):
                if not path.startswith(MADE_UP) and not exists(root, path.rstrip(".,")):
                    yield f"{name}:{number}: there is no {path}"
            for target, fragment in LINK.findall(line):
                other = (file.parent / target).resolve() if target else file.resolve()
                if not other.exists():
                    yield f"{name}:{number}: the link {target} leads nowhere"
                elif fragment and fragment[1:] not in map(anchor, HEADING.findall(other.read_text(encoding="utf-8"))):
                    yield f"{name}:{number}: {target} has no heading {fragment}"


def self_test():
    cases = [
        ("See `src/base/error.h`.", False),
        ("See `src/base/error`, and src/base/*.h.", False),
        ("See `src/base/gone.h`.", True),
        ("See src/base/x*.h.", True),
        ("[a](other.md#two-words)", False),
        ("[a](other.md#three)", True),
        ("[a](gone.md)", True),
        ("x" * (COLUMNS + 1), True),
        ("| " + "x" * COLUMNS + " |", False),
        ("<!-- table: begin -->\n" + "x" * (COLUMNS + 1) + "\n<!-- table: end -->", False),
        ("# Tessera\n## What it can't do\n", False, "README.md"),
        ("# Tessera\nWhat it can't do\n", True, "README.md"),
    ]
    for text, expected, *where in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {"docs/other.md": "## Two words\n", "src/base/error.h": "", (where or ["docs/page.md"])[0]: text}
            for path, content in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            found = list(problems(root))
            if bool(found) != expected:
                sys.exit(f"docs: {text!r}: expected {'a problem' if expected else 'none'}, got {found}")
    print(f"{len(cases)} cases")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(problems(root))
    print("\n".join(found) or "every path and link of the documentation leads somewhere")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
