"""Random kernels on tiles, and the same computation by NumPy: mixed types, masks, branches, loops, reductions, scans, products.

`python test/python/tile/drawn.py --first 0 --count 5000` runs each on this processor, in the interpreter, and as blocks of
threads for sm_80 and sm_90a in the interpreter, and compares all with NumPy, bit by bit. Floats hold whole numbers whose sums
are exact in whatever order; those of 16 bits are rounded after each operation.
"""

import argparse
import linecache
import sys
import textwrap

import ml_dtypes
import numpy as np

import tessera.tile as triton
import tessera.tile.language as tl
from tessera import _tessera
from tessera.tile._arguments import element_name
from tessera.tile._codegen import generate

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
EXACT = {"float16": 2**11, "bfloat16": 2**8, "float32": 2**24, "float64": 2**53}  # whole numbers up to there are all there
LARGEST = {"float16": 60000, "bfloat16": 2**100, "float32": 2**100, "float64": 2**500}
SHAPES = [(16,), (64,), (16, 16), (32, 16), (4, 8), (8, 4)]
SPACE = 4096  # elements of each array


def np_dtype(name): return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
def bits(name): return 8 * np_dtype(name).itemsize
def is_float(name): return name in FLOATS
def is_unsigned(name): return name[0] == "u"
def most(name): return 1 if name == "bool" else 2**(bits(name) - (not is_unsigned(name))) if not is_float(name) else LARGEST[name]


def common(a, b):
    """The type in which two tiles are computed with."""
    if "bool" in (a, b):
        return b if a == "bool" else a
    for t in ("float64", "float32", "float16"):
        if t in (a, b):
            return t
    if "bfloat16" in (a, b):
        return a if a == b else "float32"
    if is_unsigned(a) == is_unsigned(b):
        return a if bits(a) > bits(b) else b
    unsigned, signed = (a, b) if is_unsigned(a) else (b, a)
    return unsigned if bits(unsigned) >= bits(signed) else signed


def cast(x, name):
    with np.errstate(all="ignore"):
        x = np.asarray(x)
        return x != 0 if name == "bool" else x.astype(np_dtype(name))


def shifted(x, by, name, kind):
    """To the right by a number: what comes in, the sign of the left operand says."""
    as_left = kind.lstrip("u") if kind[0] == "i" else "u" + kind.lstrip("u")
    wide = name.lstrip("u") if as_left[0] == "i" else "u" + name.lstrip("u")
    return np.right_shift(cast(x, name).view(wide), np.array(by, wide)).view(name)


class Value:
    def __init__(self, name, dtype, shape, bound):
        self.name, self.dtype, self.shape, self.bound = name, dtype, shape, bound


class Drawn:
    """A kernel and its NumPy, line by line, and what is in scope while they are drawn."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.tile, self.numpy = [], []
        self.values, self.indent, self.count = [], 1, 0
        self.arrays = list(self.rng.choice([*INTS, *FLOATS], 3, replace=False))
        self.draw(int(self.rng.integers(6, 16)))
        self.store_all()

    def line(self, tile, numpy=None):
        self.tile.append("    " * self.indent + tile)
        self.numpy.append("    " * self.indent + (tile if numpy is None else numpy))

    def new(self, dtype, shape, bound, tile, numpy):
        self.count += 1
        made = Value(f"v{self.count}", dtype, tuple(shape), min(bound, most(dtype)) if not is_float(dtype) else bound)
        self.line(f"{made.name} = {tile}", f"{made.name} = cast({numpy}, '{dtype}')")
        self.values.append(made)
        return made

    def pick(self, holds=lambda v: True):
        fits = [v for v in self.values if holds(v)]
        return fits[self.rng.integers(len(fits))] if fits else None

    def chance(self, *of): return of[self.rng.integers(len(of))]

    def draw(self, count, depth=0):
        for _ in range(count):
            steps = [self.load, self.binary, self.binary, self.binary, self.convert, self.unary, self.compare, self.choose, self.reduce,
                     self.scan, self.move, self.multiply, self.literal, self.shift, self.divide]
            if depth < 2:
                steps += [self.loop, self.branch]
            step = self.chance(*steps) if self.values else self.load
            if step in (self.loop, self.branch):
                step(depth)
            else:
                step()

    def place(self, shape):
        n = int(np.prod(shape))
        begin = int(self.rng.integers(0, SPACE - 2 * n))
        at = f"tl.reshape(tl.arange(0, {n}), {list(shape)})" if len(shape) > 1 else f"tl.arange(0, {n})"
        held = int(self.rng.integers(1, n + 1)) if self.rng.integers(2) else None
        return at, f"np.arange({n}).reshape({list(shape)})", begin, held

    def load(self):
        number = int(self.rng.integers(len(self.arrays)))
        dtype, shape = self.arrays[number], self.chance(*SHAPES)
        at, np_at, begin, held = self.place(shape)
        if held is None:
            self.new(dtype, shape, 9, f"tl.load(a{number} + {begin} + {at})", f"a{number}[{begin} + {np_at}]")
        else:
            self.new(dtype, shape, 9, f"tl.load(a{number} + {begin} + {at}, mask={at} < {held}, other=3)",
                     f"np.where({np_at} < {held}, a{number}[{begin} + {np_at}], np.array(3, a{number}.dtype))")

    def partner(self, a):
        return self.pick(lambda v: v.shape == a.shape)

    def binary(self):
        a = self.pick(lambda v: v.dtype != "bool")
        if a is None:
            return
        b = self.partner(a) if self.rng.integers(3) else self.pick(lambda v: v.shape == ()) or self.partner(a)
        if b.dtype == "bool":
            return
        t = common(a.dtype, b.dtype)
        op = self.chance("+", "-", "*", "min", "max") if is_float(t) else self.chance("+", "-", "*", "&", "|", "^", "min", "max")
        if t == "bfloat16" and op in ("min", "max"):
            t = "float32"
        bound = a.bound * b.bound if op == "*" else a.bound + b.bound
        if is_float(t) and (op == "*" and (bound > (EXACT[t] if t != "float16" else 60000) or t == "bfloat16" and bound > 2**20) or
                            t in ("float32", "float64") and bound > EXACT[t] or bound > LARGEST[t]):
            return
        if is_float(t) and op in "+-" and t in ("float32", "float64") and max(a.bound, b.bound) > EXACT[t] // 2:
            return
        x, y = f"cast({a.name}, '{t}')", f"cast({b.name}, '{t}')"
        if op in ("min", "max"):
            self.new(t, a.shape, max(a.bound, b.bound), f"tl.{op}imum({a.name}, {b.name})", f"np.{op}imum({x}, {y})")
        else:
            self.new(t, a.shape, bound if is_float(t) else most(t) if bound > most(t) or op in "&|^-" and is_unsigned(t) else bound,
                     f"{a.name} {op} {b.name}", f"{x} {op} {y}")
            if op in "&|^":
                self.values[-1].bound = most(t)

    def literal(self):
        a = self.pick(lambda v: v.dtype != "bool" and v.bound < 2**20)
        if a is None:
            return
        number, op = int(self.rng.integers(0, 8)), self.chance("+", "*", "max")
        if is_float(a.dtype) and a.bound * 8 > EXACT[a.dtype]:
            return
        t = a.dtype if op != "max" else common(a.dtype, "int32") if a.dtype != "bfloat16" else "float32"
        x, y = f"cast({a.name}, '{t}')", f"cast({number}, '{t}')"
        if op == "max":
            self.new(t, a.shape, most(t) if is_unsigned(t) else max(a.bound, 8), f"tl.maximum({number}, {a.name})", f"np.maximum({y}, {x})")
            return
        self.new(t, a.shape, a.bound * 8 + 8, f"{a.name} {op} {number}", f"{x} {op} {y}")

    def shift(self):
        a = self.pick(lambda v: v.dtype in INTS)
        b = self.chance(*INTS)
        if a is None:
            return
        t, by = common(a.dtype, b), int(self.rng.integers(0, 7))
        if self.rng.integers(2):
            self.new(t, a.shape, most(t), f"{a.name} >> tl.full({list(a.shape)}, {by}, tl.{b})", f"shifted({a.name}, {by}, '{t}', '{a.dtype}')")
        else:
            self.new(t, a.shape, most(t), f"{a.name} << tl.full({list(a.shape)}, {by}, tl.{b})", f"np.left_shift(cast({a.name}, '{t}'), cast({by}, '{t}'))")

    def divide(self):
        a = self.pick(lambda v: v.dtype in INTS)
        if a is None:
            return
        by, op = self.chance(2, 3, 7, 16), self.chance("//", "%")
        x = f"{a.name}.astype(object)"
        quotient = f"np.where({x} < 0, -(-{x} // {by}), {x} // {by})"
        self.new(a.dtype, a.shape, a.bound, f"{a.name} {op} {by}", quotient if op == "//" else f"{x} - {by} * {quotient}")

    def convert(self):
        a = self.pick()
        t = self.chance(*INTS, *FLOATS, "bool")
        if is_float(a.dtype) and not is_float(t) and t != "bool" and (a.bound >= min(most(t), 2**24) or is_unsigned(t)):
            return
        if is_float(t) and a.bound > min(LARGEST[t], 2**24 if t in ("float16", "bfloat16") else 2**60):
            return
        bound = 1 if t == "bool" else a.bound if is_float(t) else a.bound if a.bound < most(t) and not is_unsigned(t) else most(t)
        self.new(t, a.shape, bound * 2 if is_float(t) and a.bound > EXACT[t] else bound, f"{a.name}.to(tl.{'int1' if t == 'bool' else t})", a.name)

    def unary(self):
        a = self.pick(lambda v: v.dtype != "bool")
        if a is None:
            return
        op = self.chance("-", "abs") if is_float(a.dtype) else self.chance("-", "~", "abs")
        t, bound = a.dtype, a.bound if is_float(a.dtype) or op != "~" else a.bound + 1
        bound = most(t) if is_unsigned(t) else bound
        self.new(t, a.shape, bound, f"tl.abs({a.name})" if op == "abs" else f"{op}{a.name}",
                 f"np.abs({a.name})" if op == "abs" else f"np.negative({a.name})" if op == "-" else f"np.invert({a.name})")

    def compare(self):
        a = self.pick(lambda v: v.dtype != "bool")
        b = self.partner(a) if a is not None else None
        if b is None or b.dtype == "bool":
            return
        t, op = common(a.dtype, b.dtype), self.chance("<", "<=", "==", "!=", ">", ">=")
        if is_float(t) and max(a.bound, b.bound) > 2**60:
            return
        self.new("bool", a.shape, 1, f"{a.name} {op} {b.name}", f"cast({a.name}, '{t}') {op} cast({b.name}, '{t}')")

    def choose(self):
        c = self.pick(lambda v: v.dtype == "bool")
        if c is None:
            return
        a, b = self.partner(c), self.partner(c)
        t = common(a.dtype, b.dtype)
        if is_float(t) and max(a.bound, b.bound) > LARGEST[t]:
            return
        self.new(t, c.shape, most(t) if is_unsigned(t) else max(a.bound, b.bound), f"tl.where({c.name}, {a.name}, {b.name})",
                 f"np.where({c.name}, cast({a.name}, '{t}'), cast({b.name}, '{t}'))")

    def reduce(self):
        a = self.pick(lambda v: len(v.shape) > 0)
        if a is None:
            return
        axis = int(self.rng.integers(len(a.shape)))
        shape = a.shape[:axis] + a.shape[axis + 1:]
        how = self.chance("sum", "max", "min", "argmax") if a.dtype != "bool" else "sum"
        n = a.shape[axis]
        if how == "argmax":
            self.new("int32", shape, n, f"tl.argmax({a.name}, {axis})", f"np.argmax({a.name}, {axis})")
        elif how != "sum":
            t = a.dtype if bits(a.dtype) >= 32 else "float32" if is_float(a.dtype) else "int32"
            self.new(t, shape, a.bound, f"tl.{how}({a.name}, {axis})", f"np.{how}({a.name}, {axis})")
        else:
            if is_float(a.dtype) and a.bound * n > (EXACT["float32"] if a.dtype != "float16" else 60000):
                return
            t = "uint32" if a.dtype == "bool" or a.dtype in ("uint8", "uint16") else "int32" if a.dtype in ("int8", "int16") else a.dtype
            wide = "float64" if is_float(t) else t
            self.new(t, shape, a.bound * n if is_float(t) else most(t) if a.bound * n > most(t) else a.bound * n,
                     f"tl.sum({a.name}, {axis})", f"np.sum(cast({a.name}, '{wide}'), {axis}, dtype='{wide}')")

    def scan(self):
        a = self.pick(lambda v: len(v.shape) > 0 and v.dtype not in ("bool", "float16", "bfloat16") and bits(v.dtype) >= 32)
        if a is None:
            return
        axis, back = int(self.rng.integers(len(a.shape))), bool(self.rng.integers(2))
        n = a.shape[axis]
        if is_float(a.dtype) and a.bound * n > EXACT["float32"]:
            return
        turned = f"np.flip({a.name}, {axis})" if back else a.name
        made = f"np.cumsum({turned}, {axis}, dtype='{a.dtype}')"
        bound = a.bound * n if is_float(a.dtype) or a.bound * n < most(a.dtype) else most(a.dtype)
        self.new(a.dtype, a.shape, bound, f"tl.cumsum({a.name}, {axis}, reverse={back})", f"np.flip({made}, {axis})" if back else made)

    def move(self):
        a = self.pick(lambda v: len(v.shape) > 0)
        if a is None:
            return
        n, how = int(np.prod(a.shape)), self.chance("reshape", "trans", "flip", "expand", "join")
        if how == "trans" and len(a.shape) == 2:
            self.new(a.dtype, a.shape[::-1], a.bound, f"tl.trans({a.name})", f"{a.name}.T")
        elif how == "flip":
            self.new(a.dtype, a.shape, a.bound, f"tl.flip({a.name}, {len(a.shape) - 1})", f"np.flip({a.name}, -1)")
        elif how == "reshape" and n in (16, 32, 64, 256):
            shape = (n,) if len(a.shape) > 1 else {16: (4, 4), 32: (4, 8), 64: (8, 8), 256: (16, 16)}[n]
            self.new(a.dtype, shape, a.bound, f"tl.reshape({a.name}, {list(shape)})", f"{a.name}.reshape({list(shape)})")
        elif how == "expand" and len(a.shape) == 1 and n == 16:
            across = bool(self.rng.integers(2))
            self.new(a.dtype, (16, 16), a.bound, f"tl.broadcast_to({a.name}[{':, None' if across else 'None, :'}], [16, 16])",
                     f"np.broadcast_to({a.name}[{':, None' if across else 'None, :'}], (16, 16))")
        elif how == "join" and n <= 64:
            b = self.pick(lambda v: v.shape == a.shape and v.dtype == a.dtype)
            self.new(a.dtype, (*a.shape[:-1], 2 * a.shape[-1]), max(a.bound, b.bound), f"tl.interleave({a.name}, {b.name})",
                     f"np.stack([{a.name}, {b.name}], -1).reshape({[*a.shape[:-1], 2 * a.shape[-1]]})")

    def multiply(self):
        a = self.pick(lambda v: len(v.shape) == 2 and v.shape[1] >= 16 and v.shape[0] >= 16 and
                      v.dtype in ("int8", "uint8", "float16", "bfloat16", "float32") and (v.dtype in INTS or v.bound <= 256))
        b = self.pick(lambda v: a is not None and len(v.shape) == 2 and v.shape[0] == a.shape[1] and v.shape[1] >= 16 and
                      v.dtype == a.dtype and (v.dtype in INTS or v.bound <= 256))
        if b is None:
            return
        t, bound = "int32" if a.dtype in INTS else "float32", a.bound * b.bound * a.shape[1]
        wide = "int64" if t == "int32" else "float64"
        shape = (a.shape[0], b.shape[1])
        c = self.pick(lambda v: v.shape == shape and v.dtype == t and v.bound + bound <= EXACT["float32"]) if self.rng.integers(2) else None
        self.new(t, shape, bound + (c.bound if c else 0), f"tl.dot({a.name}, {b.name}{f', {c.name}' if c else ''})",
                 f"cast({a.name}, '{wide}') @ cast({b.name}, '{wide}'){f' + {c.name}' if c else ''}")

    def nested(self, depth, carried):
        """Statements deeper in, at whose end each carried name is a new value of its type."""
        outer = list(self.values)
        self.indent += 1
        self.draw(int(self.rng.integers(1, 4)), depth + 1)
        for v in carried:
            other = self.pick(lambda w: w.dtype == v.dtype and w.shape == v.shape and w.bound <= v.bound)
            if other is not None and other is not v:
                self.line(f"{v.name} = {other.name}")
        self.line("pass")
        self.indent -= 1
        self.values = outer

    def carried(self): return list({v.name: v for v in (self.pick() for _ in range(3)) if v is not None}.values())

    def loop(self, depth):
        name, times = f"i{self.count}_{len(self.tile)}", int(self.rng.integers(0, 4))
        self.line(f"for {name} in range({times}):" if self.rng.integers(2) else f"for {name} in tl.static_range({times}):", f"for {name} in range({times}):")
        self.nested(depth, self.carried())

    def branch(self, depth):
        a = self.pick(lambda v: v.shape == () and v.dtype != "bool")
        if a is None:
            return
        carried = self.carried()
        self.line(f"if {a.name} > 2:")
        self.nested(depth, carried)
        if self.rng.integers(2):
            self.line("else:")
            self.nested(depth, carried)

    def store_all(self):
        place = 0
        self.outputs = []
        for v in self.values[-8:]:
            n = int(np.prod(v.shape))
            at = f"tl.reshape(tl.arange(0, {n}), {list(v.shape)})" if len(v.shape) > 1 else f"tl.arange(0, {n})" if v.shape else "0"
            number = len(self.outputs)
            self.outputs.append(v.dtype)
            held = int(self.rng.integers(1, n + 1)) if v.shape else 1
            mask = f", mask={at} < {held}" if v.shape else ""
            self.line(f"tl.store(z{number} + {at}, {v.name}{mask})", f"z{number}[:{held}] = {v.name}.reshape(-1)[:{held}]")
            place += n

    @property
    def text(self):
        names = [*(f"a{i}" for i in range(len(self.arrays))), *(f"z{i}" for i in range(len(self.outputs)))]
        return f"def drawn({', '.join(names)}):\n" + "\n".join(self.tile) + "\n"

    @property
    def reference(self):
        names = [*(f"a{i}" for i in range(len(self.arrays))), *(f"z{i}" for i in range(len(self.outputs)))]
        return f"def reference({', '.join(names)}):\n" + "\n".join(self.numpy) + "\n"

    def inputs(self, seed):
        rng = np.random.default_rng(seed + 77)
        return [rng.integers(0 if is_unsigned(t) else -9, 10, SPACE).astype(np_dtype(t)) for t in self.arrays]

    def blank(self): return [np.zeros(1024, np_dtype(t)) for t in self.outputs]


def kernel_of(text, name):
    """A kernel of its text, whose lines errors can show."""
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope = {"tl": tl, "triton": triton}
    exec(compile(text, file, "exec"), scope)
    return triton.jit(scope["drawn"])


WAYS = [("host", False, False), ("host", True, False), ("sm_80", True, True), ("sm_90a", True, True)]


def check(seed, ways=WAYS):
    """Raises where a way to run the kernel gives something else than NumPy."""
    drawn = Drawn(seed)
    wanted = drawn.blank()
    scope = {"np": np, "cast": cast, "shifted": shifted}
    exec(drawn.reference, scope)
    with np.errstate(all="ignore"):
        scope["reference"](*drawn.inputs(seed), *wanted)
    made = kernel_of(drawn.text, f"drawn {seed}")
    arrays = [*drawn.inputs(seed), *drawn.blank()]
    forms = tuple(("leaf", name) for name in made.arg_names)
    kinds = tuple(("array", element_name(a.dtype)) for a in arrays)
    program = generate(made, forms, kinds, False)[0]
    for target, interpreted, blocks in ways:
        function = _tessera.compile_tile(program, ["array"] * len(arrays), 1, 1, target, 4, 3)
        arrays = [*drawn.inputs(seed), *drawn.blank()]
        given = (1, 1, 1), [a.ctypes.data for a in arrays], [a.size for a in arrays]
        if interpreted:
            function.interpret(*given, blocks)
        else:
            function.launch(*given)
        for number, (z, right) in enumerate(zip(arrays[len(drawn.arrays):], wanted)):
            x, y = (v.astype(np.float64) if is_float(v.dtype.name) else v for v in (z, right))
            if not ((x == y) | (x != x) & (y != y)).all():
                where = int(np.argmin(x == y))
                raise AssertionError(f"seed {seed}, {target}{' interpreted' * interpreted}: z{number}[{where}] is {z[where]}, not "
                                     f"{right[where]}\n{drawn.text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args()
    wrong, refused = 0, 0
    for seed in range(given.first, given.first + given.count):
        try:
            if given.show:
                print(Drawn(seed).text, Drawn(seed).reference)
            check(seed)
        except AssertionError as e:
            wrong += 1
            print(textwrap.shorten(str(e), 3000) if not given.show else e, flush=True)
        except triton.TritonError as e:
            refused += 1
            print(f"seed {seed}: {e}", flush=True)
    print(f"{given.count} programs: {wrong} wrong, {refused} refused")
    return wrong + refused


if __name__ == "__main__":
    sys.exit(min(main(), 1))
