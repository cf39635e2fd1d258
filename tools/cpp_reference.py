#!/usr/bin/env python3
"""Writes the reference of the C++ and the C interface, docs/api/cpp.md and docs/api/c.md, from the public headers.

usage: cpp_reference.py            writes the pages
       cpp_reference.py --check    fails if they are not up to date
       cpp_reference.py --self-test
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADERS = ROOT / "include" / "tessera"
# First, in the order in which a reader meets them.
FIRST = "model tensor dtype compile optimize search discover training kernel tile custom_op devices memory error".split()
NAMED = re.compile(r"\b(?:enum\s+class|enum|struct|class|concept|using|define)\s+(?:\[\[\w+\]\]\s+)?([A-Za-z_]\w*)")
FUNCTION = re.compile(r"([A-Za-z_]\w*)\s*\(")
CPP = FIRST + sorted({h.stem for h in HEADERS.glob("*.h")} - set(FIRST) - {"tessera", "c_api"})
HIDDEN = re.compile(r"^\s*(friend |Impl\b)|_\s*(=.*|\{.*)?;\s*(//.*)?$")


def split_comment(lines):
    """The leading comment's text, and the lines after it."""
    text = []
    while lines and lines[0].startswith("//"):
        text.append(lines[0][2:].strip())
        lines = lines[1:]
    return text, lines


def depth_change(line):
    code = re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'|//.*', "", line)
    return sum(code.count(c) for c in "{(") - sum(code.count(c) for c in "})"), code


def blocks(lines):
    """(comment, declaration lines) of everything at the level of the namespace."""
    comment, body, depth, found = [], [], 0, []
    for line in lines:
        if depth == 0 and not body:
            if line.startswith("//"):
                comment.append(line[2:].strip())
                continue
            if not line.strip():
                comment = []
                continue
            if re.match(r"(#(?!define)|namespace|}\s*// namespace|extern \"C\")", line):
                comment = []
                continue
        body.append(line)
        change, code = depth_change(line)
        depth += change
        is_macro = body[0].startswith("#define")
        ends = not line.endswith("\\") if is_macro else depth == 0 and (code.rstrip().endswith(";") or code.strip() == "}")
        if ends:
            found.append((comment, body))
            comment, body, depth = [], [], 0
    return found


def public_lines(body):
    """A declaration without its private members and without the bodies of its functions."""
    out, hidden, skip, depth = [], body[0].startswith("class "), None, 0
    is_class = bool(re.match(r"(template.*\n?)?\s*(class|struct) ", body[0])) or body[0].startswith("template")
    for line in body:
        change, code = depth_change(line)
        access = re.match(r"\s+(public|private|protected):", line)
        if access and depth == 1:
            hidden = access.group(1) != "public"
        elif depth == 0 or not hidden or depth + change == 0:
            if skip is not None:
                if depth + change <= skip:
                    skip = None
            elif is_class and depth == 1 and change > 0 and code.rstrip().endswith("{") and "(" in code and "enum" not in code:
                out.append(line[: line.rindex("{")].rstrip() + ";")
                skip = depth
            elif not (is_class and depth == 1 and HIDDEN.search(line) and "(" not in code):
                out.append(line)
        depth += change
    return out


def name_of(body):
    first = " ".join(line.strip() for line in body[:2])
    if named := NAMED.search(first):
        return named.group(1)
    if re.match(r"(inline )?constexpr", first) and (value := re.search(r"(\w+)\s*=", first)):
        return value.group(1)
    function = FUNCTION.search(re.sub(r"std::function<[^;]*?>\s", "", first))
    return function.group(1) if function else first.split("=")[0].split()[-1]


def page_of(header):
    text = header.read_text().replace("\r", "")
    intro, lines = split_comment(text.splitlines())
    out = [f"## `tessera/{header.name}`", "", *intro, ""]
    named, order = {}, []
    for comment, body in blocks(lines):
        if re.match(r"(class|struct|enum class) \w+;$", body[0]) or "using namespace" in body[0]:
            continue
        name = name_of(body)
        if name not in named:
            named[name] = []
            order.append(name)
        named[name].append((comment, public_lines(body)))
    for name in order:
        out += [f"### `{name}`", ""]
        for comment, body in named[name]:
            if comment:
                out += [*comment, ""]
            out += ["```cpp", *body, "```", ""]
    return out


def cpp_page():
    out = ["# C++ reference", "", "The public headers, as they are in `include/tessera`; `#include \"tessera/tessera.h\"` includes all of them. Everything",
           "is in the namespace `tessera`. `tools/cpp_reference.py` writes this page from the headers.", ""]
    for name in CPP:
        out += page_of(HEADERS / f"{name}.h")
    return "\n".join(out).rstrip() + "\n"


def c_page():
    text = (HEADERS / "c_api.h").read_text()
    intro = re.match(r"/\*(.*?)\*/", text, re.S).group(1)
    prose, sample = [], []
    for line in intro.splitlines():
        line = re.sub(r"^ ?\*? ?", "", line)
        (sample if line.startswith("    ") else prose).append(line.strip() if not line.startswith("    ") else line[4:])
    head, tail = "\n".join(prose).strip().split("\n\n", 1)
    body = re.search(r'extern "C" \{\n#endif\n(.*)#ifdef __cplusplus', text, re.S).group(1).strip()
    return "\n".join(["# C reference", "", head, "", "```c", *sample, "```", "", tail.strip(), "", "`tools/cpp_reference.py` writes this page from `include/tessera/c_api.h`.",
                      "", "```c", body, "```", ""])


PAGES = {"cpp.md": cpp_page, "c.md": c_page}


def self_test():
    sample = """// What it is.
#pragma once
namespace tessera {
// A box.
class Box {
   public:
    int size() const { return size_; }
    // Grows it.
    Result<int> grow(int by) {
        if (by < 0) return 0;
        return size_ += by;
    }

   private:
    int secret();
    int size_ = 0;
};
struct Hidden;
int open(const std::string& path);  // E0101
}  // namespace tessera
""".splitlines()
    found = blocks(sample[1:])
    assert [name_of(body) for _, body in found] == ["Box", "Hidden", "open"], found
    text = "\n".join(public_lines(found[0][1]))
    assert found[0][0] == ["A box."] and "Grows it" in text and "grow(int by);" in text and "secret" not in text and "size_ +=" not in text, text


def main():
    if "--self-test" in sys.argv:
        return self_test()
    folder = ROOT / "docs" / "api"
    folder.mkdir(exist_ok=True)
    stale = [name for name, make in PAGES.items() if not (folder / name).exists() or (folder / name).read_text() != make()]
    if "--check" in sys.argv:
        sys.exit(f"docs/api: {', '.join(stale)}: run tools/cpp_reference.py" if stale else 0)
    for name, make in PAGES.items():
        (folder / name).write_text(make())


if __name__ == "__main__":
    main()
