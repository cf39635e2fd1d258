"""The C interface: its symbols, a C99 program, and a script of ctypes."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ.get("TESSERA_C_LIBRARY", ROOT / "build" / "libtessera_c.so"))
DOUBLE = "graph g(x: f32[N,4]) -> (y) { return add(x, x) }"


@pytest.fixture(scope="module")
def library():
    if not LIBRARY.exists():
        pytest.skip(f"SKIP: {LIBRARY.name} is not built: ninja -C build tessera_c")
    return LIBRARY


def test_the_symbols_are_those_of_the_list(library):
    """A symbol that goes or that comes is a decision: change test/c/symbols.txt with it, and TESSERA_C_API_VERSION."""
    listed = (ROOT / "test" / "c" / "symbols.txt").read_text().split()
    done = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    assert sorted(line.split()[-1] for line in done.stdout.splitlines()) == listed == sorted(listed)


@pytest.mark.skipif(not shutil.which("cc"), reason="SKIP: there is no C compiler")
@pytest.mark.parametrize("language", [["-std=c99", "-pedantic"], ["-x", "c++", "-std=c++17"]], ids=["c99", "c++"])
def test_a_program(library, tmp_path, language):
    (tmp_path / "double.tsr").write_text(DOUBLE)
    subprocess.run(["cc", *language, "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", ROOT / "test" / "c" / "program.c",
                    "-x", "none", "-o", tmp_path / "program", library, f"-Wl,-rpath,{library.parent}", "-lpthread"], check=True)
    done = subprocess.run([tmp_path / "program", "double.tsr", "double.tessera"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


CPP = """#include <tessera/tessera.h>
int main(int argc, char** argv) {
    auto model = tessera::Model::load(argv[argc - 1]);
    return model.ok() && tessera::compile(*model, {.cache = ""}).ok() ? 0 : 1;
}
"""


@pytest.mark.skipif(not shutil.which("c++") or not shutil.which("pkg-config"), reason="SKIP: there is no C++ compiler, or no pkg-config")
def test_pkg_config_says_how_to_build(library, tmp_path):
    """Of an installation that was moved."""
    (tmp_path / "double.tsr").write_text(DOUBLE)
    (tmp_path / "main.cpp").write_text(CPP)
    subprocess.run(["cmake", "--install", ROOT / "build", "--component", "cpp", "--prefix", tmp_path / "first"], check=True, capture_output=True)
    prefix = (tmp_path / "first").rename(tmp_path / "moved")
    [folder] = {pc.parent for pc in prefix.rglob("*.pc")}
    flags = {}
    for name in ("tessera", "tessera_c"):
        said = subprocess.run(["pkg-config", "--cflags", "--libs", name], capture_output=True, text=True, check=True,
                              env=dict(os.environ, PKG_CONFIG_PATH=str(folder)))
        flags[name] = said.stdout.split()
    c = ["cc", "-std=c99", str(ROOT / "test" / "c" / "program.c"), "-o", "c", *flags["tessera_c"], "-lpthread", f"-Wl,-rpath,{folder.parent}"]
    cpp = ["c++", "-std=c++20", "main.cpp", "-o", "cpp", *flags["tessera"]]
    for build, command in ((c, ["./c", "double.tsr", "double.tessera"]), (cpp, ["./cpp", "double.tsr"])):
        subprocess.run(build, cwd=tmp_path, check=True)
        assert subprocess.run(command, cwd=tmp_path, timeout=120).returncode == 0


class Port(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("sizes", ctypes.POINTER(ctypes.c_int64)), ("dims", ctypes.POINTER(ctypes.c_char_p)), ("has_default", ctypes.c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("sizes", ctypes.POINTER(ctypes.c_int64)), ("data", ctypes.c_void_p)]


def test_ctypes(library, tmp_path):
    (tmp_path / "double.tsr").write_text(DOUBLE)
    c = ctypes.CDLL(str(library))
    pointer = ctypes.c_void_p
    for name in ("tessera_model_load", "tessera_compile", "tessera_run"):
        getattr(c, name).restype = pointer
    c.tessera_error_code.restype = c.tessera_error_text.restype = ctypes.c_char_p
    c.tessera_error_code.argtypes = c.tessera_error_text.argtypes = c.tessera_error_free.argtypes = [pointer]
    c.tessera_input.restype, c.tessera_input.argtypes = ctypes.POINTER(Port), [pointer, ctypes.c_size_t]
    c.tessera_result.restype, c.tessera_result.argtypes = ctypes.POINTER(Tensor), [pointer, ctypes.c_size_t]
    c.tessera_run.argtypes = [pointer, ctypes.POINTER(Tensor), ctypes.c_size_t, ctypes.POINTER(pointer)]
    c.tessera_results_free.argtypes = c.tessera_executable_free.argtypes = c.tessera_model_free.argtypes = [pointer]

    model, executable = pointer(), pointer()
    error = c.tessera_model_load(b"/does/not/exist.onnx", ctypes.byref(model))
    assert c.tessera_error_code(error) == b"E0101" and b"exist.onnx" in c.tessera_error_text(error) and not model.value
    c.tessera_error_free(error)
    assert c.tessera_model_load(str(tmp_path / "double.tsr").encode(), ctypes.byref(model)) is None
    assert c.tessera_compile(model, None, ctypes.byref(executable)) is None
    port = c.tessera_input(executable, 0).contents
    assert (port.name, port.type, port.dtype, port.sizes[0], port.dims[0]) == (b"x", b"f32[N,4]", 1, -1, b"N")

    wrong = []

    def run(number):
        for rows in range(1, 20):
            x = (ctypes.c_float * (4 * rows))(*(number + i for i in range(4 * rows)))
            tensor = Tensor(1, 2, (ctypes.c_int64 * 2)(rows, 4), ctypes.cast(x, pointer))
            results = pointer()
            if c.tessera_run(executable, ctypes.byref(tensor), 1, ctypes.byref(results)) is not None:
                wrong.append("an error")
                continue
            y = c.tessera_result(results, 0).contents
            values = ctypes.cast(y.data, ctypes.POINTER(ctypes.c_float))[: 4 * rows]
            if y.sizes[0] != rows or values != [2 * v for v in x]:
                wrong.append((number, rows))
            c.tessera_results_free(results)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    c.tessera_executable_free(executable)
    c.tessera_model_free(model)
