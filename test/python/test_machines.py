"""The accelerator's RTL under a whole model, a second machine, and machines of several sizes compared."""

import pathlib
import stat
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from conftest import BINARY
from quantized_models import cnn, images

import tessera

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECOND = ROOT / "machines" / "tessel32x8.json"


def rtl(machine):
    program = pathlib.Path(BINARY).parent / f"{machine}-rtl"
    if not program.exists():
        pytest.skip(f"no {program}: Verilator makes it")
    return {"TESSERA_RTL": str(program)}


@pytest.fixture
def small(tmp_path):
    """The small network of the tests of quantization, of one image."""
    made = tessera.quantize(cnn(), samples=[{"x": x} for x in images(4)])[0].to_text().replace("[N,", "[1,")
    (tmp_path / "int8.tsr").write_text(made)
    np.save(tmp_path / "x.npy", images(1, 50)[0])
    return tmp_path / "int8.tsr"


def run(command, folder, model, *words, env=None):
    done = command("run", model, "--input", "x=x.npy", "--output", "y=y.npy", *words, env=env or {})
    assert done.status == 0, done.err
    return np.load(folder / "y.npy")


def test_a_model_on_the_rtl(small, tmp_path, tessera_command):
    want = run(tessera_command, tmp_path, small, "--target", "tessel")
    got = run(tessera_command, tmp_path, small, "--target", "tessel", "--rtl", env=rtl("tessel"))
    np.testing.assert_array_equal(got, want)


def test_the_second_machine(small, tmp_path, tessera_command):
    assert len(SECOND.read_text().splitlines()) <= 200
    want = run(tessera_command, tmp_path, small, "--target", "tessel")
    words = ("--target", "tessel", "--machine", SECOND)
    np.testing.assert_array_equal(run(tessera_command, tmp_path, small, *words), want)
    np.testing.assert_array_equal(run(tessera_command, tmp_path, small, *words, "--rtl", env=rtl("tessel32x8")), want)
    text = tessera_command("compile", small, *words, "--emit", "device").out
    operations = [line.split()[0] for line in text.splitlines()]
    assert "gemm" in operations and "alu" not in operations
    assert all("element=wide" in line for line in text.splitlines() if line.startswith("store"))  # int32 sums


def test_a_missing_program_of_the_rtl_is_told(small, tmp_path, tessera_command):
    words = ("run", small, "--random", "--target", "tessel", "--rtl")
    none = tessera_command(*words, env={"TESSERA_RTL": str(tmp_path / "none")})
    assert none.status == 1 and "E0701" in none.err and "ninja -C build tessel-rtl" in none.err
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(silent.stat().st_mode | stat.S_IXUSR)
    assert "does not say which machine" in tessera_command(*words, env={"TESSERA_RTL": str(silent)}).err
    silent.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    failed = tessera_command(*words, env={"TESSERA_RTL": str(silent)})
    assert failed.status == 1 and "E0702" in failed.err and "status 3: broken" in failed.err
    other = tessera_command(*words, "--machine", SECOND, env=rtl("tessel"))
    assert other.status == 1 and "E0701" in other.err and "has the RTL of tessel," in other.err
    assert "E0501" in tessera_command("run", small, "--random", "--rtl").err


def test_machines_of_several_sizes(small, tmp_path, tessera_command):
    words = ("explore", small, "--target", "tessel", "--array", "4,8,16x4,16", "--memory", "8,16")
    done = tessera_command(*words, "--json", "--plot", "machines.svg", "--progress", "always")
    assert done.status == 0, done.err
    assert "explore: 0 of 8, 4x4, 8 bytes a cycle" in done.err
    machines = {(*m["array"], m["bytes_per_cycle"]): m for m in done.json["machines"]}
    assert list(machines) == [(4, 4, 8), (4, 4, 16), (8, 8, 8), (8, 8, 16), (16, 4, 8), (16, 4, 16), (16, 16, 8), (16, 16, 16)]
    assert len({m["layers"] for m in machines.values()}) == len({m["macs"] for m in machines.values()}) == 1
    profile = tessera_command("profile", small, "--target", "tessel", "--json").json
    assert machines[16, 16, 16]["cycles"] == profile["cycles"]
    for m in machines.values():
        assert m["transistors"] == pytest.approx(sum(m["area"].values())) and 0 < m["utilization"] <= 1
        better = [o for o in machines.values() if o["cycles"] < m["cycles"] and o["transistors"] < m["transistors"]]
        assert m["best"] <= (not better)
    for array in ((4, 4), (8, 8), (16, 4), (16, 16)):
        assert machines[*array, 16]["cycles"] <= machines[*array, 8]["cycles"]
    assert machines[16, 16, 16]["cycles"] < machines[4, 4, 16]["cycles"]
    assert machines[16, 16, 16]["transistors"] > machines[8, 8, 16]["transistors"] > machines[4, 4, 16]["transistors"]
    drawn = ElementTree.parse(tmp_path / "machines.svg").getroot()
    assert sum(e.tag.endswith("circle") for e in drawn.iter()) == len(machines)
    table = tessera_command(*words)
    assert table.status == 0 and sum(line.split()[0] in ("4x4", "8x8", "16x4", "16x16") for line in table.out.splitlines() if line) == 8


def test_sizes_that_no_machine_has_are_told(small, tessera_command):
    explore = ("explore", small, "--target")
    for words, code in (((*explore, "host", "--array", "8"), "E0603"), ((*explore, "tessel", "--array", "12"), "E0501"),
                        ((*explore, "tessel", "--array", "x8"), "E0501"), ((*explore, "tessel", "--array", "0"), "E0501"),
                        ((*explore, "tessel", "--array", "8", "--memory", "3"), "E0501")):
        done = tessera_command(*words)
        assert done.status in (1, 2) and code in done.err, (words, done.err)
