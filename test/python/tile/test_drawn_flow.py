"""Random control flow on integers, and the same lines run by Python: branches on constants and on values, loops that are
unrolled and that are not, and returns in kernels and in the functions that they call."""

import linecache
import random

import numpy as np
import pytest

import tessera.tile as triton
import tessera.tile.language as tl
from cases import ALL

KNOWN = ["C == {}", "C > {}", "C % 2 == {}", "not C == {}", "C == 1 or C == {}", "C > 0 and C < {}", "D", "not D"]
AT_RUN_TIME = ["n > {}", "x % 3 == {}", "y > 10 * {}", "n == {}", "n > {} and x % 2 == 0", "n == 0 or y % 2 == {}", "not n > {}",
               "C == {} and n > 1", "D or n > {}"]


class Program:
    """Two functions and a kernel that calls them. Each store has a place of its own."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.stores, self.lines = 0, []
        for number in range(2):
            self.lines += ["@triton.jit", f"def f{number}(x, y, n, C: tl.constexpr, D: tl.constexpr):", "    z = x + y"]
            for _ in range(2):
                self.block(1, number, "")
            self.lines.append("    return x + y + z")
        self.lines += ["@triton.jit", "def kernel(out, n, C: tl.constexpr, D: tl.constexpr):", "    x, y, z = n + 1, n * 2, n + 7"]
        for _ in range(3):
            self.block(1, None, "")
        for name in "xyz":
            self.store(1, name)

    def add(self, depth, text): self.lines.append("    " * depth + text)
    def name(self, of="xyz"): return self.rng.choice(of)
    def number(self, count): return self.rng.randrange(count)

    def condition(self, known):
        return self.rng.choice(KNOWN if known else AT_RUN_TIME).format(self.number(3))

    def store(self, depth, name):
        self.add(depth, f"tl.store(out + {self.stores}, {name})")
        self.stores += 1

    def block(self, depth, within, loop):
        """`within`: the number of the function, None in the kernel; `loop`: the kind of loop around it."""
        for _ in range(1 + self.number(3)):
            self.statement(depth, within, loop)
        self.add(depth, "pass")

    def statement(self, depth, within, loop):
        kinds = [self.assign, self.choose, self.branch, self.branch, self.loop_over, self.leave, self.call]
        kind = self.rng.choice(kinds if depth < 5 else kinds[:2])
        kind(depth, within, loop)

    def assign(self, depth, within, loop):
        if within is None and self.number(2):
            self.store(depth, self.name())
        else:
            self.add(depth, f"{self.name()} = ({self.name('xyzn')} * {self.number(9)} + {self.name('xyzn')} + {self.number(50)}) % 997")

    def choose(self, depth, within, loop):
        self.add(depth, f"{self.name()} = x + 1 if {self.condition(self.number(2))} else y + {self.number(5)}")

    def branch(self, depth, within, loop):
        known = self.number(2)
        self.add(depth, f"if {self.condition(known)}:")
        self.block(depth + 1, within, loop)
        if self.number(3) == 0:
            self.add(depth, f"elif {self.condition(self.number(2))}:")
            self.block(depth + 1, within, loop)
        if self.number(2):
            self.add(depth, "else:")
            self.block(depth + 1, within, loop)

    def loop_over(self, depth, within, loop):
        kind = self.number(3)
        if kind == 0:
            self.add(depth, f"for i{depth} in tl.static_range({self.rng.choice(['3', 'C', '1, 4, 2'])}):")
            self.block(depth + 1, within, loop or "unrolled")
            self.add(depth + 1, f"z = z + i{depth}")
        elif kind == 1:
            self.add(depth, f"for i{depth} in range({self.rng.choice(['n', '3', 'C', '1, n', 'n, 5'])}):")
            self.block(depth + 1, within, "at run time")
            self.add(depth + 1, f"z = (z + i{depth}) % 997")
        else:
            self.add(depth, f"w{depth} = 0")
            self.add(depth, f"while w{depth} < {self.rng.choice(['n', '3'])}:")
            self.add(depth + 1, f"w{depth} += 1")
            self.block(depth + 1, within, "at run time")

    def leave(self, depth, within, loop):
        if loop != "at run time":
            self.add(depth, "return" if within is None else f"return {self.name()} + {self.number(9)}")

    def call(self, depth, within, loop):
        if within != 0:
            given = f"{self.rng.choice(['x', 'y', 'n', '3'])}, z, n, {self.rng.choice(['C', '0', '1', 'C + 1'])}, D"
            self.add(depth, f"{self.name()} = f{0 if within else self.number(2)}({given})")

    def run(self, seed, language, decorator):
        text, place = "\n".join(self.lines) + "\n", f"<flow {seed}>"
        linecache.cache[place] = (len(text), None, text.splitlines(True), place)
        scope = {"tl": language, "triton": decorator}
        exec(compile(text, place, "exec"), scope)
        return scope["kernel"]


class Place:
    """A pointer, as Python's lines have it."""

    def __init__(self, array, at=0): self.array, self.at = array, at
    def __add__(self, n): return Place(self.array, self.at + n)


class Python:
    constexpr, static_range, jit = int, range, staticmethod(lambda function: function)

    @staticmethod
    def store(place, value): place.array[place.at] = value


@pytest.mark.parametrize("seed", range(1000 if ALL else 40))
def test_random_control_flow(seed):
    program = Program(seed)
    known = {"C": seed % 3, "D": seed % 2 == 0}
    kernel, python = program.run(seed, tl, triton), program.run(seed, Python, Python)
    for n in (0, 2, 3, 5):
        made, wanted = np.full(program.stores, -1, np.int32), np.full(program.stores, -1, np.int32)
        kernel[(1,)](made, n, **known)
        python(Place(wanted), n, **known)
        assert made.tolist() == wanted.tolist(), f"n = {n}:\n" + "\n".join(program.lines)


@triton.jit
def adds(x, n):
    if n > 2:
        x = x + n
    for i in tl.static_range(2):
        if n > 3:
            k = i
        else:
            k = i + 10
        x += k
    return x


@triton.jit
def adds_to_constants(out, n):
    tl.store(out, adds(3, n))


@pytest.mark.parametrize("n, wanted", [(1, 24), (3, 27), (4, 8)])
def test_constants_that_a_branch_replaces(n, wanted):
    out = np.zeros(1, np.int32)
    adds_to_constants[(1,)](out, n)
    assert out[0] == wanted


@pytest.mark.parametrize("loop", ["for i in range(n):", "while n > 0:"])
@pytest.mark.parametrize("known", ["", "if C: "])
def test_returns_are_refused_in_loops_that_are_not_unrolled(loop, known):
    text = f"@triton.jit\ndef kernel(out, n, C: tl.constexpr):\n    {loop}\n        {known}return\n    tl.store(out, n)\n"
    scope = {"tl": tl, "triton": triton}
    linecache.cache["<returns>"] = (len(text), None, text.splitlines(True), "<returns>")
    exec(compile(text, "<returns>", "exec"), scope)
    with pytest.raises(triton.CompilationError, match="Cannot have `return` statements inside `while` or `for` statements in triton"):
        scope["kernel"][(1,)](np.zeros(1, np.int32), 3, C=True)
