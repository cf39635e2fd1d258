"""tessera discover: rules found over ops by name or from a file, written with their certificates."""

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
    assert unknown.status == 2 and "relu?" in unknown.err
    assert tessera_command("discover", "--ops", "add", "--max-ops", "5").status == 2
    assert tessera_command("discover", "--ops", "if").status == 2
    assert tessera_command("discover", "--ops", "missing.ops").status == 1
    (tmp_path / "bad.ops").write_text("world a\nsizes m=2\nvar x: [m]\nop x: reluu(x)\n")
    bad = tessera_command("discover", "--ops", "bad.ops", "--json")
    assert bad.status == 1 and bad.json["error"]["code"] == "E0302" and "bad.ops:4" in bad.json["error"]["where"]
