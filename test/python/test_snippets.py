"""Every snippet of README.md and docs/ runs, as it stands there.

A snippet is a fenced block with a language: `sh`, `python`, `cpp`, `c`, `cmake`, or one of our text forms (`tsr`, `tsk`, `tsc`,
`rules`, `ops`). `text` is what a command prints, a grammar or a drawing. The snippets of a page run in order, in one folder
with a model. What cannot run here stands below `<!-- not run: REASON -->`, with one of the reasons below."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import BINARY, ROOT

import tessera

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REASONS = {"needs a GPU", "needs Open MPI", "needs a model of images", "takes hours", "takes minutes", "installs packages", "needs the history", "builds again"}
FENCE = re.compile(r"^(?:<!-- not run: ([^>]*) -->\n)?```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"sh", "python", "cpp", "c", "cmake", "tsr", "tsk", "tsc", "rules", "ops", "text"}
# What the reader of any page has: a model, and an input for it.
MODEL = """graph g(x: f32[N,64]) {
  const w: f32[64,64] = WEIGHTS
  y = softmax(relu(relu(add(matmul(x, w), x))), axis=-1)
  return y
}
"""
PRELUDE = "import numpy as np\nimport onnx.parser\nimport tessera\nx = np.load('x.npy')\nmodel = tessera.load('model.onnx')\n"
CPP_PRELUDE = """#include "base/error.h"
#include "tessera/tessera.h"
"""


def blocks(page):
    """(line, reason why it does not run, language, text) of each block."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start()) + 1, m[1], m[2], m[3]) for m in FENCE.finditer(text)]


def name(page):
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path):
    """Where the snippets of a page run: a model and its input, and the checkout's folders."""
    for linked in ("build", "rules", "test", "tools", "tutorial", "bench", "docs"):
        if (ROOT / linked).exists():
            (tmp_path / linked).symlink_to(ROOT / linked)
    rng = np.random.default_rng(0)
    weights = "[" + ",".join("[" + ",".join(f"{v:.3f}" for v in row) + "]" for row in rng.standard_normal((64, 64)) / 8) + "]"
    tessera.parse(MODEL.replace("WEIGHTS", weights)).save(tmp_path / "model.onnx")
    shutil.copy(tmp_path / "model.onnx", tmp_path / "before.onnx")
    shutil.copy(tmp_path / "model.onnx", tmp_path / "after.onnx")
    np.save(tmp_path / "x.npy", rng.standard_normal((1, 64)).astype(np.float32))
    (tmp_path / "sum.tsr").write_text("graph g(a: f32[N], b: f32[N]) {\n  return add(a, b)\n}\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tessera").symlink_to(BINARY)
    (tmp_path / "bin" / "less").write_text("#!/bin/sh\nexec cat\n")
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for script in ("less", "python3"):
        (tmp_path / "bin" / script).chmod(0o755)
    (tmp_path / "cache").mkdir()
    return tmp_path


def run(command, folder, **kwargs):
    package = str(pathlib.Path(tessera.__file__).parents[1])
    environment = dict(os.environ, PATH=f"{folder}/bin:{os.environ['PATH']}", TESSERA_CACHE=str(folder / "cache"), PYTHONPATH=package)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, **kwargs)


def bash(text, folder):
    return run(["bash", "-euo", "pipefail", "-c", text], folder)


def python(texts, folder):
    """All of a page's, one after the other in one process; where each fails with a code of ours, its code is the last line."""
    script = PRELUDE + "import sys, warnings\nwarnings.simplefilter('error', tessera.ModelWarning)\n"
    for k, text in enumerate(texts):
        (folder / f"snippet{k}.py").write_text(text)
        script += (f"try:\n    exec(compile(open('snippet{k}.py').read(), 'snippet{k}.py', 'exec'))\n    print('@', 'done')\n"
                   f"except tessera.Error as e:\n    print('@', e.code)\nexcept tessera.ModelWarning as e:\n    print('@', str(e).split(':')[0])\n")
    done = run([sys.executable, "-c", script], folder)
    assert done.returncode == 0, done.stderr
    return re.findall(r"^@ (\w+)$", done.stdout, re.MULTILINE)


def stands_in_the_tree(text):
    """An excerpt: its lines stand in some file as they are, whatever the indent."""
    lines = [line.strip() for line in text.strip().splitlines()]
    for file in [*(ROOT / "src").rglob("*.cpp"), *(ROOT / "test").rglob("*_test.cpp"), *(ROOT / "test" / "files").rglob("*.tsr")]:
        there = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        if lines[0] in there and all(line in there for line in lines):
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_say_what_they_are(page):
    for line, reason, language, text in blocks(page):
        assert language in LANGUAGES, f"{name(page)}:{line}: a block of language {language!r}"
        assert reason is None or reason in REASONS, f"{name(page)}:{line}: not run: {reason}"
        if language == "sh":
            done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
            assert done.returncode == 0, f"{name(page)}:{line}: {done.stderr}"
    outside = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert not re.search(r"^[^\s*\d|-][^\n]*\n\n    \S", outside, re.MULTILINE), f"{name(page)} has a block that is only indented"


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "errors.md"], ids=name)
def test_commands_and_text_forms(page, folder):
    for k, (line, reason, language, text) in enumerate(blocks(page)):
        if reason or language in ("text", "python", "cpp", "c", "cmake"):
            continue
        where = f"{name(page)}:{line}"
        if language == "sh":
            done = bash(text, folder)
        else:
            (folder / f"snippet{k}.{language}").write_text(text)
            command = {"tsr": f"convert snippet{k}.tsr -", "tsk": f"compile snippet{k}.tsk --emit=kernel", "tsc": f"compile snippet{k}.tsc --emit=kernel",
                       "rules": f"rules list snippet{k}.rules", "ops": f"discover --ops snippet{k}.ops --max-ops 1 --no-proofs"}[language]
            done = bash("tessera " + command, folder)
        assert done.returncode == 0, f"{where}: {done.stderr or done.stdout}"


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "errors.md"], ids=name)
def test_python(page, folder):
    texts = [text for _, reason, language, text in blocks(page) if language == "python" and not reason]
    if texts:
        assert python(texts, folder) == ["done"] * len(texts)


def test_cpp(folder):
    """By find_package(tessera), after `make install`."""
    programs = []
    for page in PAGES:
        for line, reason, language, text in blocks(page):
            if language == "cpp" and not reason and not stands_in_the_tree(text):
                programs.append(f"static tessera::Status snippet{len(programs)}(const tessera::Model& model, const tessera::Tensor& tensor) {{  "
                                f"// {name(page)}:{line}\n(void)model; (void)tensor;\n{{\n{re.sub(r'#include.*', '', text)}\n}}\nreturn {{}};\n}}\n")
    assert len(programs) >= 3
    (folder / "main.cpp").write_text(
        CPP_PRELUDE + "".join(programs) + "int main() {\n  auto model = tessera::Model::load(\"model.onnx\");\n  if (!model.ok()) return 1;\n"
        "  auto tensor = *tessera::Tensor::filled(tessera::DType::f32, {1, 64}, 1);\n" + "".join(
            f"  if (auto s = snippet{k}(*model, tensor); !s.ok()) {{ fmt::print(\"{{}}\\n\", s.error().to_string()); return {k + 2}; }}\n"
            for k in range(len(programs))) + "}\n")
    cmake = [text for _, _, language, text in blocks(ROOT / "README.md") if language == "cmake"]
    (folder / "CMakeLists.txt").write_text("".join(cmake) + f"target_include_directories(my_program PRIVATE {ROOT}/src)\n")  # for TRY
    done = run(["cmake", "--install", str(ROOT / "build"), "--component", "cpp", "--prefix", str(folder / "prefix")], folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "prefix" / "bin" / "tessera").exists() and (folder / "prefix" / "include" / "tessera" / "tessera.h").exists()
    done = run(["cmake", "-S", ".", "-B", "made", f"-DCMAKE_PREFIX_PATH={folder}/prefix", "-DCMAKE_BUILD_TYPE=Debug"], folder)
    assert done.returncode == 0, done.stderr
    done = run(["cmake", "--build", "made"], folder)
    assert done.returncode == 0, done.stdout
    done = run(["made/my_program"], folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_c(folder):
    """The lines that call a bundle, with the bundle of the same page."""
    page = ROOT / "docs" / "bundles.md"
    lines = [text for _, _, language, text in blocks(page) if language == "c"]
    made = bash("tessera compile model.onnx --emit=bundle -o model --dim N=1", folder)
    assert made.returncode == 0 and lines, made.stderr
    program = '#include "model/model.h"\nint f(void* image, void* scores, void* file, void* arena);\n'
    program += "int f(void* image, void* scores, void* file, void* arena) {\n" + "".join(lines) + "return status;\n}\n"
    (folder / "f.c").write_text(program)
    done = run(["cc", "-Wall", "-Wextra", "-Werror", "-c", "f.c", "-o", "f.o"], folder)
    assert done.returncode == 0, done.stderr


def test_errors_have_examples_that_fail_so(folder):
    """Each example of docs/errors.md gives the code that it stands under."""
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    pythons, wanted = [], []
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        code = section.split(":")[0]
        for m in FENCE.finditer(section):
            if m[2] == "python":
                pythons.append(m[3])
                wanted.append(code)
            if m[2] != "sh" or m[1]:
                continue
            done = bash(m[3], folder)
            assert code in done.stderr, f"{code}: {done.stderr or done.stdout}"
            assert (done.returncode == 0) == code.startswith("W"), code
    assert python(pythons, folder) == wanted


def test_pictures_are_there_and_drawn_by_a_command(folder):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\((docs/pictures/\w+\.svg)\)", readme)
    assert len(pictures) == 3 and all((ROOT / p).read_text().startswith("<svg") for p in pictures)
    script = (ROOT / "tools" / "pictures.py").read_text()
    assert all(pathlib.Path(p).name in script for p in pictures)
