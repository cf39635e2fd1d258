"""Sizes that nobody gave: what is chosen, and that it is said. What a search says, and how long it takes."""

import time

import pytest

IMAGE = "graph g(image: f32[batch,3,H,W]) -> (y) { return relu(image) }"
TOKENS = "graph g(ids: i64[N,seq], mask: i64[N,seq]) -> (y) { return add(ids, mask) }"
PAST = "graph g(x: f32[B,seq_len,8], past: f32[B,past_len,8]) -> (y) { return concat(past, x, axis=1) }"
# One size fits: a product with a constant of 7 rows.
FIXED = "graph g(x: f32[N,M]) {\n  const w: f32[7,1] = [[1],[2],[3],[4],[5],[6],[7]]\n  y = matmul(x, w)\n  return y\n}"
# Ten products one after the other, each of which a search looks at and times.
LAYERS = 10
DEEP = "graph g(x: f32[N,256], " + ", ".join(f"w{i}: f32[256,256]" for i in range(LAYERS)) + ") -> (y) {\n  x0 = relu(x)\n" + "".join(
    f"  m{i} = matmul(x{i}, w{i})\n  x{i + 1} = relu(m{i})\n" for i in range(LAYERS)) + f"  return x{LAYERS}\n}}"


@pytest.mark.parametrize("text, sizes", [
    (IMAGE, {"batch": 1, "H": 224, "W": 224}), (TOKENS, {"N": 1, "seq": 128}), (PAST, {"B": 1, "seq_len": 1, "past_len": 128}),
    ("graph g(x: f32[T]) -> (y) { return relu(x) }", {"T": 128}),
], ids=["image", "tokens", "past", "vector"])
def test_sizes_are_chosen_and_named(tessera_command, tmp_path, text, sizes):
    (tmp_path / "m.tsr").write_text(text)
    done = tessera_command("run", "m.tsr", "--random", "--json")
    assert done.status == 0 and done.json["dims"] == sizes
    assert done.err.startswith("sizes chosen for symbolic dimensions: ") and all(f"{n}={k}" in done.err for n, k in sizes.items())
    name = sorted(sizes)[0]
    given = tessera_command("run", "m.tsr", "--random", "--json", "--dim", f"{name}=3")
    assert given.json["dims"] == {**sizes, name: 3} and f"{name}=" not in given.err
    everything = [word for n, k in sizes.items() for word in ("--dim", f"{n}={k}")]
    assert tessera_command("run", "m.tsr", "--random", *everything).err == ""


def test_sizes_that_do_not_fit_are_not_chosen(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text(FIXED)
    done = tessera_command("run", "m.tsr", "--random", "--json", "--dim", "M=7")
    assert done.status == 0 and done.json["dims"] == {"N": 1, "M": 7}


def test_bench_and_profile_name_sizes(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text(TOKENS)
    assert "seq=128" in tessera_command("profile", "m.tsr", "--runs", "2").err
    assert "seq=128" in tessera_command("bench", "m.tsr", "--seconds", "0", "--runs", "1", "--threads", "1").err


def test_a_search_says_what_it_found(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text("graph g(x: f32[N,4]) -> (y) { return relu(x) }")
    done = tessera_command("compile", "m.tsr", "--search=2")
    assert done.status == 0 and "search: nothing faster found, in " in done.err and "sizes chosen" in done.err
    assert "nothing faster found" in tessera_command("optimize", "m.tsr", "--search=2").out


def test_seconds_bound_the_whole_search(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text(DEEP)
    began = time.monotonic()
    done = tessera_command("optimize", "m.tsr", "--search=3", "--dim", "N=512", "--json", env={"TESSERA_CACHE": str(tmp_path / "cache")})
    took = time.monotonic() - began
    assert done.status == 0, done.err
    report = done.json["search"]
    assert report["search_seconds"] + report["measure_seconds"] + report["timing_seconds"] < 4
    assert took < 8  # with loading, and on a busy machine


def test_a_peak_is_never_below_what_was_reached(tessera_command, tmp_path):
    (tmp_path / "m.tsr").write_text("graph g(a: f32[512,512], b: f32[512,512]) -> (y) { return matmul(a, b) }")
    here = {"TESSERA_CACHE": str(tmp_path / "cache")}
    peak = 0
    for _ in range(3):
        measured = tessera_command("profile", "m.tsr", "--runs", "5", "--threads", "1", "--json", env=here).json
        rates = [s["flops"] / s["seconds"] for s in measured["steps"] if s["seconds"] > 0]
        assert measured["peak"]["flops_per_second"] >= max(peak, *rates)
        peak = measured["peak"]["flops_per_second"]
