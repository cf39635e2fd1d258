"""Random tile programs, by machine code, by the interpreter and by NumPy."""

import numpy as np
import pytest

import tessera
import tessera.tile._runtime as runtime
from tessera import _tessera

SHAPES = [(), (8,), (32,), (4, 8), (8, 4), (16, 16), (1, 16), (16, 1)]


class Drawn:
    """A program as a list of steps, each on numbered values, which can be built and computed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.steps = []
        self.shapes = []

    def pick(self, shape=None):
        fits = [i for i, s in enumerate(self.shapes) if s is not None and (shape is None or s == shape)]
        return int(self.rng.choice(fits)) if fits else None

    def add(self, shape, *step):
        self.steps.append(step)
        self.shapes.append(shape)
        return len(self.shapes) - 1

    def draw(self, count, depth=0):
        for _ in range(count):
            self.one(depth)

    def one(self, depth):
        rng = self.rng
        what = rng.choice(["load", "binary", "binary", "unary", "where", "move", "reduce", "dot", "store", "store", "loop", "if"])
        if what == "load" or not self.shapes:
            shape = SHAPES[rng.integers(len(SHAPES))]
            self.add(shape, "load", int(rng.integers(2)), shape, int(rng.integers(40)), bool(rng.integers(2)))
            return
        a = self.pick()
        shape = self.shapes[a]
        if what == "binary":
            self.add(shape, "binary", str(rng.choice(["+", "-", "*", "max"])), a, self.pick(shape))
        elif what == "unary":
            self.add(shape, "unary", str(rng.choice(["-", "abs"])), a)
        elif what == "where":
            self.add(shape, "where", a, self.pick(shape), self.pick(shape))
        elif what == "move" and len(shape) == 2:
            how = rng.choice(["permute", "reshape", "flip"])
            to = shape[::-1] if how == "permute" else (shape[0] * shape[1],) if how == "reshape" else shape
            self.add(to, how, a, to)
        elif what == "reduce" and shape:
            axis = int(rng.integers(len(shape)))
            self.add(shape[:axis] + shape[axis + 1:], "reduce", str(rng.choice(["sum", "max", "min"])), a, axis)
        elif what == "dot" and len(shape) == 2:
            others = [i for i, s in enumerate(self.shapes) if s is not None and len(s) == 2 and s[0] == shape[1]]
            if others:
                b = int(rng.choice(others))
                to = (shape[0], self.shapes[b][1])
                self.add(to, "dot", a, b, self.pick(to) if rng.integers(2) else None)
        elif what == "store":
            self.add(None, "store", int(rng.integers(2)), a, int(rng.integers(40)), bool(rng.integers(2)))
        elif what == "loop" and depth < 2 or what == "if" and depth < 2 and self.pick(()) is not None:
            self.nested(what, depth)

    def nested(self, what, depth):
        rng = self.rng
        carried = list(dict.fromkeys(self.pick() for _ in range(int(rng.integers(1, 4)))))
        control = int(rng.integers(0, 4)) if what == "loop" else self.pick(())
        self.shapes.append(None)  # the step itself gives no value
        outer, steps = self.shapes, self.steps
        bodies = []
        for _ in range(1 if what == "loop" else 2):
            self.shapes, self.steps = [*outer, *(outer[c] for c in carried)], []
            self.draw(int(rng.integers(1, 5)), depth + 1)
            bodies.append((self.steps, [self.pick(outer[c]) for c in carried]))
        self.shapes, self.steps = outer, [*steps, (what, carried, control, bodies)]
        for number, c in enumerate(carried):
            self.add(outer[c], "result", number)


def offsets(shape, start, turned):
    """Where a tile lies: row-major, or the other way round."""
    n = int(np.prod(shape, dtype=int))
    at = np.arange(n).reshape(shape) + start
    return at if not turned else 2 * start + n - 1 - at


class Computes:
    """The program by NumPy, in doubles."""

    def __init__(self, arrays):
        self.arrays, self.values, self.results = arrays, [], []

    def run(self, steps):
        for step in steps:
            self.values.append(self.one(*step))

    def one(self, what, *rest):
        v = self.values
        if what == "load":
            return self.arrays[rest[0]][offsets(*rest[1:])].copy()
        if what == "store":
            array, a, start, turned = rest
            self.arrays[array][offsets(np.shape(v[a]), start, turned)] = np.asarray(v[a], np.float32)
            return None
        if what == "binary":
            return {"+": np.add, "-": np.subtract, "*": np.multiply, "max": np.maximum}[rest[0]](v[rest[1]], v[rest[2]])
        if what == "unary":
            return -v[rest[1]] if rest[0] == "-" else np.abs(v[rest[1]])
        if what == "where":
            return np.where(v[rest[0]] > 0, v[rest[1]], v[rest[2]])
        if what in ("permute", "reshape"):
            return v[rest[0]].T if what == "permute" else v[rest[0]].reshape(rest[1])
        if what == "flip":
            return v[rest[0]][:, ::-1]
        if what == "reduce":
            return getattr(np, rest[0])(v[rest[1]], axis=rest[2])
        if what == "dot":
            return v[rest[0]] @ v[rest[1]] + (v[rest[2]] if rest[2] is not None else 0)
        if what == "result":
            return self.results[rest[0]]
        carried, control, bodies = rest
        held = [v[c] for c in carried]
        for body in ([bodies[0]] * control if what == "loop" else [bodies[0 if v[control] > 0 else 1]]):
            steps, results = body
            self.values = [*v, None, *held]
            self.run(steps)
            held = [self.values[r] for r in results]
            self.values = v
        self.results = held
        return None


class Builds:
    """The program as tile instructions."""

    def __init__(self, builder, pointers):
        self.b, self.pointers, self.values, self.results = builder, pointers, [], []

    def run(self, steps):
        for step in steps:
            self.values.append(self.one(*step))

    def places(self, array, shape, start, turned):
        b = self.b
        n = int(np.prod(shape, dtype=int))
        at = b.arange(0, n) if n > 1 else b.constant(0)
        if n > 1:
            at = b.reshape(at, list(shape))
        elif shape:
            at = b.broadcast(at, list(shape))
        at = b.binary("-", 2 * start + n - 1 - start, at) if turned else b.binary("+", at, start)
        return b.binary("+", self.pointers[array], at)

    def one(self, what, *rest):
        b, v = self.b, self.values
        if what == "load":
            return b.load(self.places(*rest))
        if what == "store":
            array, a, start, turned = rest
            b.store(self.places(array, tuple(v[a].shape), start, turned), v[a])
            return None
        if what == "binary":
            return b.binary(rest[0], v[rest[1]], v[rest[2]])
        if what == "unary":
            return b.unary(rest[0], v[rest[1]])
        if what == "where":
            return b.select(b.binary(">", v[rest[0]], 0.0), v[rest[1]], v[rest[2]])
        if what in ("permute", "reshape"):
            return b.permute(v[rest[0]], [1, 0]) if what == "permute" else b.reshape(v[rest[0]], list(rest[1]))
        if what == "flip":
            return b.flip(v[rest[0]], 1)
        if what == "reduce":
            return b.reduce(rest[0], v[rest[1]], rest[2], False)
        if what == "dot":
            return b.dot(v[rest[0]], v[rest[1]], v[rest[2]] if rest[2] is not None else None)
        if what == "result":
            return self.results[rest[0]]
        carried, control, bodies = rest
        made = []
        arguments = []
        if what == "loop":
            arguments = b.begin_for(0, control, 1, [v[c] for c in carried])[1:]
        else:
            b.begin_if(b.binary(">", v[control], 0.0))
        for n, (steps, results) in enumerate(bodies):
            self.values = [*v, None, *(arguments or [v[c] for c in carried])]
            self.run(steps)
            made.append([self.values[r] for r in results])
            if what == "if" and n == 0:
                b.begin_else()
        self.values = v
        self.results = b.end_for(made[0]) if what == "loop" else b.end_if(*made)
        return None


def numbers(seed):
    """Small whole numbers: sums of them are exact, in whatever order."""
    return np.random.default_rng(seed + 1000).integers(-2, 3, 400).astype(np.float32)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs(seed):
    drawn = Drawn(seed)
    drawn.draw(14)
    wanted = [numbers(seed).astype(np.float64), numbers(seed + 1).astype(np.float64)]
    computes = Computes(wanted)
    computes.run(drawn.steps)
    if any(np.abs(w).max() > 2**20 for w in wanted):
        pytest.skip("numbers that f32 rounds")
    builder = _tessera.TileBuilder("drawn")
    pointers = [builder.parameter(n, "f32", True) for n in "xy"]
    Builds(builder, pointers).run(drawn.steps)
    program = builder.finish()
    function = _tessera.compile_tile(program, ["array", "array"], 1, 1)
    for way in ("launch", "interpret"):
        x, y = numbers(seed), numbers(seed + 1)
        getattr(function, way)((1, 1, 1), [x.ctypes.data, y.ctypes.data], [400, 400])
        for made, right, name in ((x, wanted[0], "x"), (y, wanted[1], "y")):
            np.testing.assert_array_equal(made, right, err_msg=f"seed {seed}, {way}, {name}\n{program}")


def test_the_module_is_the_one_that_is_tested():
    assert runtime._tessera is _tessera and tessera.__name__ == "tessera"
