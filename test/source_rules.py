"""Holds rules for the source text that no compiler looks at:

- no file has more than 700 lines, no function more than 100 (tables apart);
- files of one folder, which are compiled together (cmake/unite.cmake), define no private name twice, nor one that a
  header has in the same namespace. Which files meet in one compilation follows their sizes, so a clash would otherwise
  be seen only when some file grows.

usage: source_rules.py [source folder]    checks a tree, prints what breaks a rule
       source_rules.py --self-test        shows that each rule can be broken
"""

import pathlib
import re
import sys
import tempfile

import layers

MOST_LINES = 700      # of a file
MOST_FUNCTION = 100   # lines of a function
# Functions that are one long table: a name and its meaning in each entry.
TABLES = {
    "src/rewrite/rules/functions_arithmetic.cpp": "arithmetic",
    "src/rewrite/rules/functions_axes.cpp": "axes",
    "src/rewrite/rules/functions_lists.cpp": "lists",
    "src/rewrite/rules/functions_tensors.cpp": "tensors",
}
FOLDERS = ("include", "src", "python", "tools", "bench", "tutorial", "test")
UNITED = ("src", "tools", "test")  # where the files of a folder are compiled together

RAW = re.compile(r'(?<![A-Za-z0-9_])(?:u8|[uUL])?R"([^()\s\\]{0,16})\(.*?\)\1"', re.DOTALL)
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*',
                   re.DOTALL | re.MULTILINE)


def plain(text):
    """The text without comments, strings and directives, every line where it was."""
    blank = lambda m: "\n" * m[0].count("\n")
    return TOKEN.sub(blank, RAW.sub(lambda m: '""' + blank(m), text))


NAMESPACE = re.compile(r"(?:^|\s)(?:inline\s+)?namespace(?:\s+([\w:]+))?\s*$")
TYPE = re.compile(r"\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:\[\[[^\]]*\]\]\s*)?(\w+)[^()=;]*$")
FUNCTION = re.compile(r"(~?[\w:]+|operator\s*[^\s\w(]+|operator\s*\(\s*\)|operator\s+[\w:]+)\s*\($")
NO_VARIABLE = r"$|(?:using|namespace|extern|friend|class|struct|static_assert|enum)\b"
VARIABLE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")


def outside_angles(head):
    """The head with template arguments blanked, so that commas and parentheses within them are not seen."""
    out, depth = [], 0
    for i, c in enumerate(head):
        if c == "<" and not head.endswith("operator", 0, i) and "<" not in (head[i - 1 : i], head[i + 1 : i + 2]):
            depth += 1
        elif c == ">" and depth and head[i - 1] != "-":
            depth -= 1
        elif depth == 0:
            out.append(c)
            continue
        out.append(" ")
    return "".join(out)


def function_name(head):
    """The name in `type name(parameters) rest`, with its parameters; None where the head is no function's."""
    whole, head, depth = head, outside_angles(head), 0
    for i, c in enumerate(head):
        if c == "(":
            if depth == 0:
                match = FUNCTION.search(head[: i + 1])
                if match and "=" not in head[: match.start()]:
                    end, level = i, 0
                    for end in range(i, len(head)):
                        level += {"(": 1, ")": -1}.get(head[end], 0)
                        if level == 0:
                            break
                    return match[1], whole[i + 1 : end]
            depth += 1
        elif c == ")":
            depth -= 1
    return None


class Scope:
    """An open brace: its kind (namespace, type, function, value, block), its name, where its head begins."""

    def __init__(self, kind, name, at, parens):
        self.kind, self.name, self.at, self.parens = kind, name, at, parens


class Definition:
    """What a file defines at namespace or class scope."""

    def __init__(self, kind, where, name, first, last, in_class=False, static=False, parameters="", text=""):
        self.kind, self.where, self.name, self.first, self.last = kind, where, name, first, last
        self.in_class, self.static, self.parameters, self.text = in_class, static, parameters, text

    def private(self):
        return "" in self.where or self.static

    def space(self):
        return "::".join(w for w in self.where if w)


def opened(head, at, parens, inside):
    """The scope that a brace after `head` opens, within a scope of kind `inside`."""
    if match := NAMESPACE.search(head):
        return Scope("namespace", match[1] or "", at, parens)
    if inside not in ("namespace", "type"):
        return Scope("block", None, at, parens)
    bare = re.sub(r"^\s*(?:template\s*<.*?>\s*)?", "", head.strip(), flags=re.DOTALL)
    if found := function_name(bare):
        return Scope("function", (*found, bare), at, parens)
    if match := TYPE.search(bare):
        return Scope("type", match[1], at, parens)
    return Scope("value", bare, at, parens)


def outside_brackets(text):
    """The text without what stands in parentheses, braces and brackets."""
    before = None
    while before != text:
        before, text = text, re.sub(r"\([^(){}\[\]]*\)|\{[^(){}\[\]]*\}|\[[^(){}\[\]]*\]", "", text)
    return text


def declared(text, where, first, last):
    """The variables, the alias or the function that a statement at namespace scope declares."""
    head = re.sub(r"^\s*template\s*<.*?>\s*", "", text, flags=re.DOTALL)
    flat = re.sub(r"\{.*", "", outside_angles(head).split("=")[0], flags=re.DOTALL).strip()
    if match := re.match(r"using\s+(\w+)$", flat):
        return [Definition("alias", where, match[1], first, last, text=" ".join(head.split()))]
    if re.match(NO_VARIABLE, flat):
        return []
    if "(" in flat:
        found = function_name(head)
        return [Definition("function", where, found[0], first, last, parameters=found[1])] if found else []
    match = VARIABLE.search(flat)
    if not match or match.start() == 0:
        return []
    others = [VARIABLE.search(part.split("=")[0].strip()) for part in outside_angles(outside_brackets(head)).split(",")[1:]]
    return [Definition("variable", where, name[1], first, last, static="static" in flat.split())
            for name in [match, *others] if name]


def definitions(text):
    """The definitions of a file, in order of their ends."""
    text = plain(text)
    scopes, start, parens = [], 0, 0
    line_of = lambda at: text.count("\n", 0, at) + 1
    where = lambda: tuple(s.name for s in scopes if s.kind == "namespace")
    for i in (m.start() for m in re.finditer(r"[(){};:]", text)):
        c = text[i]
        inside = scopes[-1].kind if scopes else "namespace"
        head = text[start:i]
        begins = start + len(head) - len(head.lstrip())
        if c == "(":
            parens += 1
        elif c == ")":
            parens -= 1
        elif c == "{":
            scope = opened(head, begins, parens, inside) if parens == 0 else Scope("block", None, i, parens)
            scopes.append(scope)
            parens = 0
            if scope.kind in ("namespace", "type"):
                start = i + 1
        elif c == "}" and scopes:
            scope = scopes.pop()
            parens = scope.parens
            in_class = any(s.kind == "type" for s in scopes)
            span = (line_of(scope.at), line_of(i))
            if scope.kind == "function":
                name, parameters, head = scope.name
                static = "static" in head.split(name)[0].split()
                yield Definition("function", where(), name, *span, in_class, static, parameters)
            elif scope.kind == "type":
                yield Definition("type", where(), scope.name, *span, in_class)
            if scope.kind in ("function", "type", "namespace"):
                start = i + 1  # a value's braces are part of its declaration, which ends at the semicolon
        elif c == ";" and parens == 0 and inside in ("namespace", "type"):
            if inside == "namespace":
                yield from declared(head, where(), line_of(begins), line_of(i))
            start = i + 1
        elif c == ":" and inside == "type" and re.fullmatch(r"\s*(?:public|private|protected)", head):
            start = i + 1


def signatures(parameters):
    """The lists of types that a call may have: names and spaces do not matter, defaults may be left out."""
    depth, parts = 0, [""]
    for c in parameters:
        depth += (c in "<({") - (c in ">)}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    types, required = [], 0
    for part in filter(str.strip, parts):
        type_and_name, default = (part.split("=", 1) + [None])[:2]
        words = re.sub(r"(?<=[\s&*>])\w+\s*$", "", type_and_name.strip())
        types.append("".join(words.split()))
        required = required if default is not None else len(types)
    return {tuple(types[:n]) for n in range(required, len(types) + 1)}


def clash(a, b):
    if a.space() != b.space() or a.name != b.name or not (a.private() or b.private()):
        return False
    if a.kind == b.kind == "function":
        return bool(signatures(a.parameters) & signatures(b.parameters))
    return not (a.kind == b.kind == "alias" and a.text == b.text)


def macros(text):
    defined = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.MULTILINE))
    return defined - set(re.findall(r"^[ \t]*#[ \t]*undef[ \t]+(\w+)", text, re.MULTILINE))


def may_see(path, header):
    """Whether what is compiled together with a file may include a header."""
    room, other = layers.room_of(path), layers.room_of(header)
    return room not in layers.ROOMS or other not in layers.ROOMS or layers.may_include(room, other)


def violations(root):
    folders = {}  # of .cpp files that are compiled together: folder, then name, then (path, definition)
    headers = {}  # what headers declare: name, then (path, definition)
    for top in FOLDERS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".cpp", ".h") or not file.is_file():
                continue
            path = file.relative_to(root)
            text = file.read_text(encoding="utf-8")
            if text.count("\n") > MOST_LINES:
                yield f"{path}: {text.count(chr(10))} lines, more than {MOST_LINES}: split the file"
            found = list(definitions(text))
            for d in found:
                lines = d.last - d.first + 1
                if d.kind == "function" and lines > MOST_FUNCTION and TABLES.get(str(path)) != d.name:
                    yield f"{path}:{d.first}: {d.name} has {lines} lines, more than {MOST_FUNCTION}: split the function"
            if file.suffix == ".h" and top in ("include", "src"):
                for d in found:
                    if not d.in_class and "::" not in d.name:
                        headers.setdefault(d.name, []).append((path, d))
            if top not in UNITED or file.suffix != ".cpp":
                continue
            names = folders.setdefault(path.parent, {})
            for d in found:
                if not d.in_class and "::" not in d.name:
                    names.setdefault(d.name, []).append((path, d))
            for macro in macros(text):
                names.setdefault(macro, []).append((path, Definition("macro", ("",), macro, 1, 1)))
    for names in folders.values():
        for name, places in names.items():
            for i, (path, d) in enumerate(places):
                for other, e in places[:i] + [h for h in headers.get(name, []) if d.private() and may_see(path, h[0])]:
                    if path != other and clash(d, e):
                        yield f"{path}:{d.first}: {name} is in {other}:{e.first} too, and files of a folder are compiled together"


HEADER = "#pragma once\n"  # a neighbour that begins so is a header
SELF_TEST = [  # the text of a file, of its neighbour, and whether they break a rule
    ("", "", False),
    ("int f() {\n" + "\n" * 99 + "}\n", "", True),
    ("int f() {\n" + "\n" * 98 + "}\n", "", False),
    ("struct S {\n    int f(int a) const {\n" + "\n" * 100 + "}\n};\n", "", True),
    ("struct S {\n    int a;\n" + "\n" * 100 + "};\n", "", False),
    ("\n" * 701, "", True),
    ("namespace {\nint f(int a) { return a; }\n}", "namespace {\nint f(int b = 1) { return b; }\n}", True),
    ("namespace {\nint f(int a) { return a; }\n}", "namespace {\nint f(char b) { return b; }\n}", False),
    ("namespace {\nint f(int a) { return a; }\n}", "namespace {\nint f(int b, char c = 0) { return b; }\n}", True),
    ("namespace {\nint f(V<int, 2> a) { return 0; }\n}", "namespace {\nint f(V<int, 3> a) { return 0; }\n}", False),
    ("namespace a {\nnamespace {\nint f() { return 0; }\n}\n}", "namespace b {\nnamespace {\nint f() { return 0; }\n}\n}", False),
    ("namespace {\nint f() { return 0; }\n}", "int f() { return 1; }", True),
    ("namespace {\nstruct A {};\n}", HEADER + "enum class A { B };", True),
    ("namespace {\nint f(int a) { return a; }\n}", HEADER + "int f(int a);", True),
    ("namespace {\nint f(int a) { return a; }\n}", HEADER + "namespace b {\nint f(int a);\n}", False),
    ("int f(int a) { return a; }", HEADER + "int f(int a);", False),
    ("static int f() { return 0; }", "static int f() { return 1; }", True),
    ("namespace {\nconstexpr int kA = 1;\n}", "namespace {\nconstexpr int kA[] = {1, 2};\n}", True),
    ("namespace {\nconstexpr int kA = g(1, 2), kC = 1 << 2, kB = 2;\n}", "namespace {\nconstexpr int kB = 1;\n}", True),
    ("namespace {\nconstexpr int kA[] = {a, kB}, kC = 2;\n}", "namespace {\nconstexpr int kB = 1;\n}", False),
    ("namespace {\nconst auto kA = g([] { int b = 1; return b; });\n}", "namespace {\nconst int b = 1;\n}", False),
    ("namespace {\nclass A final : public B<C> {};\n}", "namespace {\nstruct A {};\n}", True),
    ("namespace {\nusing A = B;\n}", "namespace {\nusing A = B;\n}", False),
    ("namespace {\nusing A = B;\n}", "namespace {\nusing A = C;\n}", True),
    ("#define A 1\n", "#define A 1\n", True),
    ("#define A 1\n#undef A\n", "#define A 1\n#undef A\n", False),
    ("namespace {\n// int f() {}\nint g() { return 'f' + \"int f() {\"[0]; }\n}", "namespace {\nint f() { return 0; }\n}", False),
]


def self_test():
    for text, neighbour, expected in SELF_TEST:
        with tempfile.TemporaryDirectory() as folder:
            room = pathlib.Path(folder) / "src" / "room"
            room.mkdir(parents=True)
            (room / "a.cpp").write_text(text)
            (room / ("b.h" if neighbour.startswith(HEADER) else "b.cpp")).write_text(neighbour)
            found = list(violations(pathlib.Path(folder)))
            if bool(found) != expected:
                sys.exit(f"source_rules: {text!r} beside {neighbour!r}: expected {'a violation' if expected else 'none'}, got {found}")
    print(f"{len(SELF_TEST)} cases")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(violations(root))
    print("\n".join(found) or "no file or function is too long, and no names clash")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
