"""tessera rules: the built-in rules, and those of a user's file."""

GOOD = """// max(max(x, 0), 0) = max(x, 0)
relu-of-relu: relu(relu(x)) => relu(x)
"""
BAD = """relu-of-relu: relu(relu(x)) => relu(x)
through-relu: relu(neg(x)) => neg(relu(x))
"""


def test_check_says_that_rules_hold(tessera_command, tmp_path):
    (tmp_path / "good.rules").write_text(GOOD)
    done = tessera_command("rules", "check", "good.rules", "--seed", "3")
    assert done.status == 0, done.err
    assert done.out.startswith("holds") and "relu-of-relu" in done.out and "exact" in done.out and "seed 3" in done.out
    again = tessera_command("rules", "check", "good.rules", "--seed", "3", "--json", "--instances", "20")
    (rule,) = again.json["rules"]
    assert rule["verdict"] == "holds" and rule["instances"] == 20 and rule["by_bits"] == 20 and again.json["failed"] == []


def test_check_shows_a_counterexample(tessera_command, tmp_path):
    (tmp_path / "bad.rules").write_text(BAD)
    done = tessera_command("rules", "check", "bad.rules")
    assert done.status == 1
    assert "refuted" in done.out and "graph left(" in done.out and "graph right(" in done.out and "on the left and" in done.out
    assert "E0305" in done.err and "through-relu" in done.err and "--seed 0" in done.err
    as_json = tessera_command("rules", "check", "bad.rules", "--rule", "through-relu", "--json")
    assert as_json.status == 1 and as_json.json["failed"] == ["through-relu"]
    shown = as_json.json["rules"][0]["counterexample"]
    assert "relu" in shown["left"] and shown["inputs"] and shown["difference"]
    assert as_json.out == tessera_command("rules", "check", "bad.rules", "--rule", "through-relu", "--json").out


def test_check_points_at_what_is_wrong(tessera_command, tmp_path):
    (tmp_path / "syntax.rules").write_text("a: relu(x) => relu(y)\n")
    done = tessera_command("rules", "check", "syntax.rules", "--json")
    assert done.status == 1 and done.json["error"]["code"] == "E0302" and "syntax.rules:1:" in done.json["error"]["where"]
    assert tessera_command("rules", "check", "missing.rules").status == 1
    assert tessera_command("rules", "check", "--rule", "no-such-rule").status == 2
    assert tessera_command("rules", "check", "--instances", "0").status == 2
    assert tessera_command("rules").status == 2


def test_list_shows_rules_with_their_comments(tessera_command, tmp_path):
    (tmp_path / "good.rules").write_text(GOOD)
    done = tessera_command("rules", "list", "good.rules")
    assert done.status == 0 and GOOD.splitlines()[0] in done.out and GOOD.splitlines()[1] in done.out
    built_in = tessera_command("rules", "list", "--json").json["rules"]
    assert len(built_in) > 100
    assert {"exact", "reassociates", "approximates"} == {rule["class"] for rule in built_in}
    one = tessera_command("rules", "list", "--rule", built_in[0]["name"], "--json").json["rules"]
    assert one == built_in[:1]


def test_functions_are_listed(tessera_command):
    assert "is_identity" in tessera_command("rules", "functions").out
    functions = tessera_command("rules", "functions", "--json").json["functions"]
    assert any(f["name"] == "rank" and f["takes"] == ["a tensor"] and f["gives"] == "an integer" for f in functions)


def test_prove_says_for_which_shapes_or_why_not(tessera_command, tmp_path):
    (tmp_path / "mine.rules").write_text(
        "through-add [reassociates]: matmul(x, add(y, z)) => add(matmul(x, y), matmul(x, z)) if same_dims(y, z)\n"
        "through-relu [approximates]: relu(add(x, y)) => add(relu(x), relu(y))\n"
    )
    done = tessera_command("rules", "prove", "mine.rules")
    assert done.status == 0, done.err
    first, second, last = done.out.splitlines()
    assert first.startswith("proved") and "any rank" in first
    assert second.startswith("unproved") and "what remains" in second
    assert last.startswith("2 rules, 1 proved, 0 by cases")
    rules = tessera_command("rules", "prove", "mine.rules", "--json").json["rules"]
    assert [rule["proved"] for rule in rules] == [True, False]
    assert not any(rule["by_cases"] for rule in rules)


def test_verify_replays_certificates_and_names_a_false_step(tessera_command, tmp_path):
    found = tessera_command("discover", "--ops", "add,mul,relu", "--max-ops", "2", "--out", "found.rules", "--progress", "never")
    assert found.status == 0, found.err
    done = tessera_command("rules", "verify", "found.rules", "--json")
    assert done.status == 0 and done.json["proved"] > 3 and done.json["refused"] == 0
    certificates = (tmp_path / "found.cert").read_text()
    (tmp_path / "found.cert").write_text(certificates.replace("root 0\n", "root 0\ndrop 1\n", 1))
    done = tessera_command("rules", "verify", "found.rules")
    assert done.status == 1 and "E0305" in done.err and 'step 2, "drop 1"' in done.err
    as_json = tessera_command("rules", "verify", "found.rules", "--json")
    (failed,) = as_json.json["failed"]
    assert as_json.status == 1 and as_json.json["refused"] == 1 and failed in done.err and failed in certificates
    (tmp_path / "found.cert").write_text("nonsense\n")
    done = tessera_command("rules", "verify", "found.rules")
    assert done.status == 1 and "E0301" in done.err and "found.cert:1" in done.err
    (tmp_path / "found.cert").unlink()
    assert "E0101" in tessera_command("rules", "verify", "found.rules").err


def test_verify_counts_what_is_listed_apart(tessera_command, tmp_path):
    (tmp_path / "mine.rules").write_text(
        "twice: relu(relu(x)) => relu(x)\nlisted-one: neg(neg(x)) => x\nopen-one: abs(abs(x)) => abs(x)\n")
    (tmp_path / "mine.cert").write_text("rule twice\nelements\nend\nrule listed-one\nlisted no one proved it\nend\n")
    done = tessera_command("rules", "verify", "mine.rules")
    assert done.status == 0, done.err
    assert "3 rules, 1 said to be proved, 1 of their certificates hold, 1 listed without one" in done.out
    assert "listed    listed-one" in done.out and "no one proved it" in done.out
    found = tessera_command("rules", "verify", "mine.rules", "--json").json
    assert found["proved"] == found["hold"] == 1 and found["refused"] == 0
    assert found["listed"] == [{"rule": "listed-one", "reason": "no one proved it"}]


def test_prove_does_not_call_proved_what_was_not_tested(tessera_command, tmp_path):
    (tmp_path / "mine.rules").write_text("never: relu(relu(x)) => relu(x) if rank(x) == 1 and dim(x, 0) == 1000003\n")
    done = tessera_command("rules", "prove", "mine.rules")
    assert done.status == 0 and done.out.startswith("untested  never"), done.out
    assert "no graph" in done.out and "not believed" in done.out and "0 proved, 1 untested" in done.out
    (rule,) = tessera_command("rules", "prove", "mine.rules", "--json").json["rules"]
    assert not rule["proved"] and rule["untested"] and "not believed" in rule["reason"]
    tessera_command("rules", "prove", "--write", "mine.rules")
    assert "rule never" not in (tmp_path / "mine.cert").read_text()
