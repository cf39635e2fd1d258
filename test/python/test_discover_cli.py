"""tessera discover: rules found over ops by name or from a file, written with their certificates, and bad input."""

import signal
import subprocess
import time

import pytest
from conftest import BINARY

OPS = """world rows
sizes m=2 k=3; m=3 k=1
var x y: [m, k]
op x, y: add(x, y)
op x: relu(x)
op x: transpose(x, perm=[1, 0])
"""


def test_rules_are_found_written_and_verified(tessera_command, tmp_path):
    done = tessera_command("discover", "--ops", "add,relu,transpose", "--max-ops", "2", "--out", "found.rules", "--json", "--show")
    assert done.status == 0, done.err
    counts = done.json["counts"]
    assert counts["graphs"] > counts["terms"] > counts["classes"] > 0
    assert counts["raw_pairs"] >= counts["pruned"] >= counts["irredundant"] >= counts["proved_irredundant"] > 3
    assert any("transpose(transpose(x" in rule["rule"] and rule["verdict"] == "proved" for rule in done.json["rules"])
    assert "[reassociates, proved]" in (tmp_path / "found.rules").read_text()
    verified = tessera_command("rules", "verify", "found.rules")
    assert verified.status == 0, verified.out + verified.err
    again = tessera_command("discover", "--ops", "add,relu,transpose", "--max-ops", "2", "--json", "--show", "--threads", "1")
    assert [rule["rule"] for rule in again.json["rules"]] == [rule["rule"] for rule in done.json["rules"]]


def test_ops_from_a_file(tessera_command, tmp_path):
    (tmp_path / "mine.ops").write_text(OPS)
    done = tessera_command("discover", "--ops", "mine.ops", "--max-ops", "4", "--work-dir", "work", "--no-proofs")
    assert done.status == 0, done.err
    assert "rows" in done.out and "mine.ops to 4 ops" in done.out
    assert list((tmp_path / "work").iterdir()) == []


def test_what_is_wrong(tessera_command, tmp_path):
    unknown = tessera_command("discover", "--ops", "reluu")
    assert unknown.status == 2 and "did you mean \"relu\"?" in unknown.err
    assert tessera_command("discover", "--ops", "add", "--max-ops", "5").status == 2
    assert tessera_command("discover", "--ops", "if").status == 2
    assert tessera_command("discover", "--ops", "missing.ops").status == 1
    (tmp_path / "bad.ops").write_text("world a\nsizes m=2\nvar x: [m]\nop x: reluu(x)\n")
    bad = tessera_command("discover", "--ops", "bad.ops", "--json")
    assert bad.status == 1 and bad.json["error"]["code"] == "E0302" and "bad.ops:4" in bad.json["error"]["where"]


def refused(done, status, code, *parts):
    assert done.status == status, done.out + done.err
    for part in (code, *parts):
        assert part in done.err, done.err
    assert "internal" not in done.err


@pytest.mark.parametrize("ops, part", [("top_k", "neither a body nor an expansion"), ("add,top_k", "top_k"),
                                       ("random_normal_like", "random"), ("", "is empty"), (",,", "names no op")])
def test_ops_that_have_no_meaning_to_compare(tessera_command, ops, part):
    refused(tessera_command("discover", "--ops", ops, "--max-ops", "2"), 2, "E0501", part, "hint")


@pytest.mark.parametrize("text, code, part", [
    ("nonsense here\n", "E0301", "mine.ops:1"),
    ("world a\nsizes m=2\nvar x [m]\n", "E0301", "mine.ops:3"),
    ("world a\nsizes m=0\nvar x: [m]\n", "E0301", "m=0"),
    ("world a\nsizes m\nvar x: [m]\n", "E0301", "mine.ops:2"),
    ("world ../../a\nsizes m=2\n", "E0301", "not a valid name for a world"),
    ("world a\nsizes m=2\nvar x: [m]\nworld a\n", "E0301", "two worlds"),
    ("world a\nsizes m=2\nvar x: [m]\nvar x: [m]\n", "E0301", "two variables"),
    ("world a\nsizes m=2\nvar x: [m]\nop x: relu(\n", "E0301", "mine.ops"),
    ("world a\nsizes m=2\nvar x: [m]\nop x: relu(y)\n", "E0302", "mine.ops"),
    ("world a\nsizes m=2\nvar x: [m]\nop : relu(1.0)\n", "E0301", "takes operands"),
    ("world a\nsizes m=2\nvar x: [m]\nop a, b, c, d: add(add(a, b), add(c, d))\n", "E0301", "at most 3"),
    ("world a\nsizes m=2\nvar x: [m, k]\nop x: relu(x)\n", "E0302", "k"),
    ("world a\nsizes m=1000\nvar x: [m, m]\nop x: relu(x)\n", "E0301", "small sizes"),
    ("world a\nsizes m=2\nvar x: [m]\n", "E0501", "names no op"),
    ("op x: relu(x)\n", "E0301", "no world"),
    ("\0\1\2\xff", "E0301", "mine.ops:1"),
])
def test_a_malformed_file_of_ops(tessera_command, tmp_path, text, code, part):
    (tmp_path / "mine.ops").write_text(text)
    refused(tessera_command("discover", "--ops", "mine.ops", "--max-ops", "2"), 2 if code == "E0501" else 1, code, part)


def test_an_op_without_a_body_in_a_file_is_named_with_its_line(tessera_command, tmp_path):
    (tmp_path / "mine.ops").write_text(OPS + "op x: relu(top_k(x, [1]))\n")
    refused(tessera_command("discover", "--ops", "mine.ops", "--max-ops", "2"), 2, "E0501", "top_k", "mine.ops:7")


def test_bounds_and_places_are_checked_before_anything_is_enumerated(tessera_command, tmp_path):
    for ops in ("0", "5", "-1", "many"):
        assert tessera_command("discover", "--ops", "taso", "--max-ops", ops).status == 2
    refused(tessera_command("discover", "--ops", "taso", "--max-ops", "4", "--out", "no/such/x.rules"), 1, "E0105", "x.rules")
    (tmp_path / "folder.rules").mkdir()
    refused(tessera_command("discover", "--ops", "taso", "--max-ops", "4", "--out", "folder.rules"), 1, "E0105")
    (tmp_path / "file").write_text("")
    refused(tessera_command("discover", "--ops", "taso", "--work-dir", "file"), 1, "E0105", "file")


MANY = """world rows
sizes m=2 k=3; m=3 k=1
var x y z: [m, k]
op x, y: add(x, y)
op x, y: mul(x, y)
op x, y: max(x, y)
op x: relu(x)
op x: neg(x)
"""


def interrupted_run(tmp_path, *arguments):
    """Starts a discovery and sends SIGINT once its work folder shows that it is under way."""
    running = subprocess.Popen([BINARY, "discover", *arguments], cwd=tmp_path, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    work = tmp_path / "work"
    for _ in range(3000):
        if any(f.name.endswith((".progress", ".proofs")) for f in work.glob("*")) or running.poll() is not None:
            break
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=300)
    return running.returncode, out, err


@pytest.mark.parametrize("max_ops, proofs", [("4", "--no-proofs"), ("2", "--all")])
def test_an_interrupted_discovery_goes_on_to_the_same_result(tessera_command, tmp_path, max_ops, proofs):
    (tmp_path / "many.ops").write_text(MANY)
    command = ["--ops", "many.ops", "--max-ops", max_ops, proofs, "--work-dir", "work", "--json", "--show"]
    status, out, err = interrupted_run(tmp_path, *command)
    if status == 130:
        assert "E0410: interrupted" in err and err.count("\n") == 1
        assert list((tmp_path / "work").iterdir())
    else:
        assert status == 0  # it was done before the signal came
    resumed = tessera_command("discover", *command, timeout=600)
    assert resumed.status == 0 and resumed.json["warnings"] == []
    assert list((tmp_path / "work").iterdir()) == []
    whole = tessera_command("discover", *command[:5], "--json", "--show", timeout=600)
    assert resumed.json["rules"] == whole.json["rules"]
    counted = [dict(answer.json["counts"], seconds=None) for answer in (resumed, whole)]
    assert counted[0] == counted[1]


def test_a_damaged_work_folder_is_noticed(tessera_command, tmp_path):
    (tmp_path / "many.ops").write_text(MANY)
    command = ["--ops", "many.ops", "--max-ops", "4", "--no-proofs", "--json", "--show"]
    whole = tessera_command("discover", *command, timeout=600).json
    status, _, _ = interrupted_run(tmp_path, *command, "--work-dir", "work")
    if status != 130:
        pytest.skip("it was done before the signal came")
    largest = max((tmp_path / "work").glob("*.shard*"), key=lambda f: f.stat().st_size)
    damaged = bytearray(largest.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    largest.write_bytes(damaged)
    again = tessera_command("discover", *command, "--work-dir", "work", timeout=600)
    assert again.status == 0 and "damaged" in again.err and "began anew" in again.json["warnings"][0]
    assert again.json["rules"] == whole["rules"]
    (tmp_path / "work" / "rows.progress").write_text("nonsense 1 2 3")
    again = tessera_command("discover", *command, "--work-dir", "work", timeout=600)
    assert again.status == 0 and again.json["rules"] == whole["rules"] and again.json["warnings"]
