"""From the source of a kernel to a tile program."""

from __future__ import annotations

import ast
import builtins
import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any

from .._errors import Error
from .._tessera import TileBuilder
from ._arguments import put_together
from ._compiled import place_of
from ._errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct
from .language import _core as core
from .language import _types as types
from .language._core import constexpr, tensor, to_tensor, value_of
from .language._debug import StaticAssertion, device_assert, device_print
from .language._memory import block_pointer
from .language._products import dot

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.MatMult: lambda a, b: dot(a, b),
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_PYTHON: dict[str, Any] = {"range": range, "len": len, "float": float, "int": int, "bool": bool, "isinstance": isinstance, "type": type,
           "tuple": tuple, "list": list, "getattr": getattr, "hasattr": hasattr, "str": str, "True": True, "False": False,
           "None": None, "min": min, "max": max, "abs": abs, "print": print, "slice": slice, "zip": zip, "enumerate": enumerate,
           "sum": sum, "repr": repr, "all": all, "any": any, "reversed": reversed, "set": set, "dict": dict}


_NO_RETURN = "Cannot have `return` statements inside `while` or `for` statements in triton: a loop of a run has no return in it"


class Returned:
    def __init__(self, value: Any):
        self.value = value


def flatten(value: Any) -> list[tensor] | None:
    """The tiles in a value; None where there is something else in it."""
    if isinstance(value, tensor):
        return [value]
    if isinstance(value, block_pointer):
        return value.flatten()
    if isinstance(value, tuple):
        parts = [flatten(v) for v in value]
        return None if any(p is None for p in parts) else [t for p in parts for t in p or []]
    return None


def unflatten(like: Any, values: list[tensor]) -> Any:
    if isinstance(like, tensor):
        return core.as_const(values[0], like)
    if isinstance(like, block_pointer):
        return like.unflatten(values)
    made = []
    for part in like:
        n = len(flatten(part) or [])
        made.append(unflatten(part, values[:n]))
        values = values[n:]
    return like_tuple(like, made)


def like_tuple(like: Any, items: list[Any]) -> Any:
    """A tuple with the names that another has."""
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def assigned(nodes: list[ast.stmt]) -> list[str]:
    names: dict[str, None] = {}
    for node in nodes:
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                names[child.id] = None
    return list(names)


def returns(nodes: list[ast.stmt]) -> bool:
    return any(isinstance(child, ast.Return) for node in nodes for child in ast.walk(node))


def gives(nodes: list[ast.stmt]) -> bool:
    """Whether a value may be returned."""
    return any(isinstance(child, ast.Return) and child.value is not None for node in nodes for child in ast.walk(node))


def ends(nodes: list[ast.stmt]) -> bool:
    """Whether it always ends in a return."""
    last = nodes[-1] if nodes else None
    return isinstance(last, ast.Return) or (isinstance(last, ast.If) and ends(last.body) and ends(last.orelse))


def described(values: list[tensor]) -> str:
    """The types of tiles, as errors show them."""
    return ", ".join(t.description for t in values)


class Bind(ast.stmt):
    """Between the statements of a loop that is unrolled: its variable is another number from here on."""

    def __init__(self, target: ast.expr, value: Any):
        self.target, self.value, self.lineno, self.col_offset = target, value, target.lineno, target.col_offset


class Generator(ast.NodeVisitor):
    """Translates one function, with the values of its parameters."""

    def __init__(self, function: Any, names: dict[str, Any], sources: list[Any] | None = None, debug: bool = False,
                 sanitize: bool = True):
        self.function, self.names, self.debug = function, names, debug
        self.sanitize = sanitize  # where debugging is on, integers that overflow are found
        self.combining = False    # within the function of a reduction or scan
        self.scope: dict[str, Any] = function.scope
        self.node: ast.AST = function.tree
        # The functions whose sources the program is made of; places name them by their number.
        self.sources: list[Any] = sources if sources is not None else []
        if function not in self.sources:
            self.sources.append(function)
        self.read: list[tuple[Any, str, Any]] = []  # constants outside, of which another may take the place, and where they are
        self.file = self.sources.index(function)

    def place(self, node: Any) -> None:
        """What is added to the program from here on stands there in the source."""
        core.builder().place(self.function.first_line + node.lineno - 1, node.col_offset + 1, self.file)

    # Errors get the place that was last looked at.
    def fail(self, node: ast.AST, message: str, code: str = "E0501", hint: str = "",
             kind: type[CompilationError] = CompilationError) -> CompilationError:
        f = self.function
        return kind(code, message, f.file, f.lines, f.first_line, node, hint)

    def visit(self, node: ast.AST) -> Any:
        outer, self.node = self.node, node
        if hasattr(node, "lineno"):
            self.place(node)
        try:
            method = getattr(self, f"visit_{type(node).__name__}", None)
            if method is None:
                raise self.fail(node, f"unsupported AST node type: {type(node).__name__}", kind=UnsupportedLanguageConstruct)
            return method(node)
        except CompilationError:
            raise
        except Error as e:
            kind = TypeError if e.code == "E0208" else ValueError
            raise self.fail(node, e.message, e.code, e.hint) from kind(e.message)
        except StaticAssertion as e:
            f = self.function
            raise CompileTimeAssertionFailure("E0501", str(e), f.file, f.lines, f.first_line, node) from e
        except (TypeError, ValueError, AttributeError, AssertionError, IndexError, KeyError, NameError, NotImplementedError,
                RuntimeError, ZeroDivisionError, OverflowError) as e:
            raise self.fail(node, f"{e}" or type(e).__name__) from e
        finally:
            self.node = outer

    def run(self) -> Any:
        done = self.block(self.function.tree.body)
        return done.value if done is not None else None

    def block(self, nodes: list[ast.stmt]) -> Returned | None:
        for n, node in enumerate(nodes):
            rest = nodes[n + 1:]
            if isinstance(node, ast.If):
                done, over = self.branch(node, rest)
            elif isinstance(node, (ast.For, ast.While)) and returns(node.body):
                node.body, whole = self.without_dead_returns(node.body, assigned([node])), node.body
                try:
                    done, over = self.loop_with_returns(node, rest)
                finally:
                    node.body = whole
            else:
                made = self.visit(node)
                done, over = (made, True) if isinstance(made, Returned) else (None, False)
            if over:
                return done
        return None

    # Statements.
    def visit_Expr(self, node: ast.Expr) -> None: self.visit(node.value)
    def visit_Pass(self, node: ast.Pass) -> None: return None
    def visit_Bind(self, node: Bind) -> None: self.assign(node.target, node.value)
    def visit_Return(self, node: ast.Return) -> Returned:
        return Returned(self.visit(node.value) if node.value is not None else None)

    def visit_Assert(self, node: ast.Assert) -> None:
        held = self.visit(node.test)
        message = str(value_of(self.visit(node.msg))) if node.msg is not None else "an assertion does not hold"
        if isinstance(held, tensor):
            device_assert(held, message)
        elif not value_of(held):
            raise AssertionError(message)

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            value = value_of(value)
            if len(target.elts) != len(value):
                raise self.fail(target, f"{len(target.elts)} names for {len(value)} values")
            for t, v in zip(target.elts, value):
                self.assign(t, v)
            return
        if not isinstance(target, ast.Name):
            raise self.fail(target, "kernels assign to names")
        self.names[target.id] = value

    @staticmethod
    def kept(value: Any) -> Any:
        """What a name holds: numbers become tiles of one element."""
        if isinstance(value, (constexpr, bool, int, float)) and isinstance(value_of(value), (bool, int, float)):
            return to_tensor(value)
        if isinstance(value, tuple):
            return like_tuple(value, [Generator.kept(v) for v in value])
        return value

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.kept(self.visit(node.value))
        for target in node.targets:
            self.assign(target, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        value = self.visit(node.value) if node.value is not None else None
        annotation = self.visit(node.annotation)
        static = annotation is constexpr
        if static and isinstance(node.target, ast.Name) and node.target.id in self.names:
            raise ValueError(f"{node.target.id} is already defined. constexpr cannot be reassigned.")
        self.assign(node.target, constexpr(value) if static else self.kept(value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.fail(node, "kernels assign to names")
        old = self.lookup(node.target, node.target.id)
        value = self.binary(node, type(node.op), old, self.visit(node.value))
        self.names[node.target.id] = value if isinstance(old, constexpr) else self.kept(value)

    def branch(self, node: ast.If, rest: list[ast.stmt]) -> tuple[Returned | None, bool]:
        """Gives what was returned, and whether that is all: where a branch may return, it goes on with the rest itself."""
        condition = self.visit(node.test)
        if not isinstance(condition, tensor):
            side = node.body if value_of(condition) else node.orelse
            return (self.block([*side, *rest]), True) if returns(side) else (self.block(side), False)
        self.node = node
        leaves = returns(node.body) or returns(node.orelse)
        sides = [list(node.body), list(node.orelse)]
        if leaves:
            sides = [side if ends(side) else [*side, *rest] for side in sides]
        swapped = leaves and gives(sides[1]) and not gives(sides[0])  # zeros for the other come after
        self.begin_if(node.test, condition.logical_not() if swapped else condition)
        sides = sides[::-1] if swapped else sides
        before = self.names
        changed = assigned([*node.body, *node.orelse])
        after: list[dict[str, Any]] = []
        tiles: list[dict[str, Any]] = []
        done: list[Returned | None] = []
        for n, side in enumerate(sides):
            self.names = dict(before)
            ended = self.block(side)
            if ended is not None:
                ended.value = self.kept(ended.value)  # numbers become tiles inside of their branch
            done.append(ended)
            after.append(self.names)
            tiles.append({name: self.kept(self.names[name]) for name in changed if name in self.names} if not leaves else {})
            if n == 0:
                core.builder().begin_else()
        self.names = before
        if leaves:
            return self.merge_returns(node, done), True
        self.merge_names(node, changed, after, tiles)
        return None, False

    def begin_if(self, test: ast.expr, condition: tensor) -> None:
        if condition.shape:
            raise self.fail(test, "Boolean value of Tensor with more than one value is ambiguous", "E0208",
                            "use where() to select element by element", UnsupportedLanguageConstruct)
        try:
            core.builder().begin_if(condition.handle)
        except Error as e:
            raise self.fail(test, e.message, e.code, e.hint) from None

    def merge_returns(self, node: ast.If, done: list[Returned | None]) -> Returned | None:
        values = [d.value if d is not None else None for d in done]
        if values[0] is None and values[1] is None:
            core.builder().end_if([], [])
            return Returned(None) if any(done) else None
        like = values[0] if values[0] is not None else values[1]
        parts = [flatten(v) if v is not None else None for v in values]
        if values[0] is None or values[1] is None:  # one side returns nothing: what is there then is not defined
            if values[0] is None:
                raise self.fail(node, f"Inconsistent return types: None and {self.said(like)}", "E0208")
            return self.merge_with_nothing(node, like)
        if parts[0] is None or parts[1] is None or [t.description for t in parts[0]] != [t.description for t in parts[1]]:
            raise self.fail(node, f"Inconsistent return types: {self.said(values[0])} and {self.said(values[1])}", "E0208")
        made = core.builder().end_if([t.handle for t in parts[0]], [t.handle for t in parts[1]])
        return Returned(unflatten(like, [tensor(v) for v in made]))

    def merge_with_nothing(self, node: ast.If, like: Any) -> Returned:
        parts = flatten(like)
        if parts is None or any(t.dtype.is_ptr() for t in parts):
            raise self.fail(node, f"Inconsistent return types: {self.said(like)} and None", "E0208")
        zeros = [core.full(list(t.shape), 0, t.dtype) for t in parts]
        sides = [[t.handle for t in side] for side in (parts, zeros)]
        return Returned(unflatten(like, [tensor(v) for v in core.builder().end_if(*sides)]))

    @staticmethod
    def said(value: Any) -> str:
        """The type of a value, as errors show it."""
        parts = flatten(value) if value is not None else None
        return described(parts) if parts else repr(value)

    def merge_names(self, node: ast.If, names: list[str], after: list[dict[str, Any]], tiles: list[dict[str, Any]]) -> None:
        """`tiles`: what the branches assign, where numbers are tiles, for numbers that differ."""
        merged: list[tuple[str, Any, int]] = []
        parts: list[list[tensor]] = [[], []]
        for name in names:
            values = [a.get(name, core) for a in after]
            if any(v is core for v in values):
                self.names.pop(name, None)  # known in one branch alone
                continue
            if values[0] is values[1]:  # which may be another one than before
                self.names[name] = values[0]
                continue
            flat = [flatten(v) for v in values]
            if flat[0] is None or flat[1] is None:
                if flat[0] is flat[1] and value_of(values[0]) == value_of(values[1]):
                    self.names[name] = values[0]
                    continue
                flat = [flatten(t[name]) for t in tiles]
            if flat[0] is None or flat[1] is None or len(flat[0]) != len(flat[1]):
                raise self.fail(node, f"{name} is {values[0]!r} in one branch and {values[1]!r} in the other")
            for a, b in zip(flat[0], flat[1]):
                if a.description != b.description:
                    was = self.said(self.kept(self.names[name])) if name in self.names else None
                    redefined = [f"initial value for `{name}` is of type {was}, but the {side} block redefines it as {self.said(v)}: "
                                 for side, v in zip(("then", "else"), values) if was is not None and self.said(v) != was]
                    raise self.fail(node, "".join(redefined[:1]) + f"Mismatched type for {name} between then block ({a.description}) "
                                    f"and else block ({b.description})", "E0208")
            merged.append((name, tiles[0][name], len(flat[0])))
            parts[0] += flat[0]
            parts[1] += flat[1]
        made = [tensor(v) for v in core.builder().end_if([t.handle for t in parts[0]], [t.handle for t in parts[1]])]
        for name, like, count in merged:
            self.names[name] = unflatten(like, made[:count])
            made = made[count:]

    def visit_For(self, node: ast.For) -> None:
        if node.orelse:
            raise self.fail(node, "kernels have no else of a loop")
        steps = self.visit(node.iter)
        if isinstance(steps, core.static_range) or isinstance(value_of(steps), (tuple, list)):
            self.unroll(node, steps)
            return
        if isinstance(steps, range):
            steps = core.range(steps.start, steps.stop, steps.step)
        if not isinstance(steps, core.range):
            raise self.fail(node.iter, "kernels loop over range(), tl.range() and tl.static_range()")
        if not isinstance(node.target, ast.Name):
            raise self.fail(node.target, "the variable of a loop is one name")
        carried = [n for n in assigned(node.body) if n in self.names and n != node.target.id]
        for name in carried:
            self.names[name] = self.kept(self.names[name])
        likes = {n: self.names[n] for n in carried if flatten(self.names[n]) is not None}
        flat = [t for like in likes.values() for t in flatten(like) or []]
        bounds = [value_of(x) for x in (steps.start, steps.end, steps.step)]
        if any(isinstance(b, float) or isinstance(b, tensor) and (b.shape or not b.dtype.is_int()) for b in bounds):
            kinds = ", ".join(str(to_tensor(b).type) for b in bounds)
            raise TypeError(f"For loop bounds and step must all be ints, are ({kinds})")
        start, end, step = (core.operand(x) for x in (steps.start, steps.end, steps.step))
        began = [tensor(v) for v in core.builder().begin_for(start, end, step, [t.handle for t in flat])]
        before = self.names
        self.names = dict(before)
        self.names[node.target.id] = began[0]
        self.rebind(likes, began[1:])
        self.block(node.body)
        results = self.carried_on(node, likes)
        self.names = before
        self.rebind(likes, [tensor(v) for v in core.builder().end_for([t.handle for t in results])])

    def carried_on(self, node: ast.AST, likes: dict[str, Any]) -> list[tensor]:
        """What an iteration gives to the next."""
        results: list[tensor] = []
        for name, like in likes.items():
            now = flatten(self.kept(self.names.get(name)))
            was = flatten(like) or []
            if now is None or described(now) != described(was):
                is_now = described(now) if now is not None else repr(self.names.get(name))
                raise self.fail(node, f"Loop-carried variable {name} has initial type {described(was)} but is re-assigned to "
                                f"{is_now} in loop! Please make sure that the type stays consistent.", "E0208",
                                "cast it, so that its type stays the same")
            results += now
        return results

    def rebind(self, likes: dict[str, Any], values: list[tensor]) -> None:
        for name, like in likes.items():
            count = len(flatten(like) or [])
            self.names[name] = unflatten(like, values[:count])
            values = values[count:]

    def items(self, node: ast.For, steps: Any) -> Any:
        """What the variable of a loop that is unrolled is, one after the other."""
        if not isinstance(steps, core.range):
            return value_of(steps)
        bounds = [value_of(x) for x in (steps.start, steps.end, steps.step)]
        if any(isinstance(b, tensor) for b in bounds):
            raise self.fail(node.iter, "what is used as tl.static_range start, end or step value is not a constexpr: a number "
                            "that is known when the kernel is compiled")
        return [constexpr(i) for i in range(*bounds)]

    def unroll(self, node: ast.For, steps: Any) -> None:
        for item in self.items(node, steps):
            self.assign(node.target, item)
            self.block(node.body)

    def without_dead_returns(self, nodes: list[ast.stmt], changing: list[str]) -> list[ast.stmt]:
        """Without the branches that return but never run, as constants that are not `changing` say."""
        made: list[ast.stmt] = []
        for node in nodes:
            if not isinstance(node, (ast.If, ast.For, ast.While)) or not returns([node]):
                made.append(node)
                continue
            if isinstance(node, ast.If) and self.is_known(node.test, changing):
                side = node.body if value_of(self.visit(node.test)) else node.orelse
                made += self.without_dead_returns(side, changing)
                continue
            part = copy.copy(node)
            part.body, part.orelse = (self.without_dead_returns(side, changing) for side in (node.body, node.orelse))
            made.append(part)
        return made

    def is_known(self, test: ast.expr, changing: list[str]) -> bool:
        """Whether it is made of constants alone."""
        for part in ast.walk(test):
            if isinstance(part, ast.Name):
                held = self.names.get(part.id, self.scope.get(part.id))
                if part.id in changing or not isinstance(held, constexpr):
                    return False
            elif isinstance(part, (ast.Call, ast.Attribute, ast.Subscript, ast.Lambda)):
                return False
        return True

    def loop_with_returns(self, node: ast.For | ast.While, rest: list[ast.stmt]) -> tuple[Returned | None, bool]:
        if not returns(node.body):
            self.visit(node)
            return None, False
        if isinstance(node, ast.While):
            raise self.fail(node, _NO_RETURN, kind=UnsupportedLanguageConstruct)
        steps = self.visit(node.iter)
        if not isinstance(steps, core.static_range) and not isinstance(value_of(steps), (tuple, list)):
            raise self.fail(node, _NO_RETURN, kind=UnsupportedLanguageConstruct)
        unrolled = [s for item in self.items(node, steps) for s in (Bind(node.target, item), *node.body)]
        return self.block([*unrolled, *rest]), True

    def visit_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self.fail(node, "kernels have no else of a loop")
        carried = [n for n in assigned(node.body) if n in self.names]
        likes = {n: self.kept(self.names[n]) for n in carried}
        likes = {n: like for n, like in likes.items() if flatten(like) is not None}
        flat = [t for like in likes.values() for t in flatten(like) or []]
        began = [tensor(v) for v in core.builder().begin_while([t.handle for t in flat])]
        before = self.names
        self.names = dict(before)
        self.rebind(likes, began)
        condition = self.visit(node.test)
        if isinstance(condition, core.condition):
            condition = condition.condition
        core.builder().begin_do(core.operand(condition))
        self.block(node.body)
        results = self.carried_on(node, likes)
        self.names = before
        self.rebind(likes, [tensor(v) for v in core.builder().end_while([t.handle for t in results])])

    # Expressions.
    def depend(self, place: Any, name: str, value: Any) -> None:
        """The program is made of a constant or a function that stands there now; another may take its place."""
        if isinstance(value, (constexpr, bool, int, float, str, tuple)) or hasattr(value, "inline") or hasattr(value, "is_of_constants"):
            self.read.append((place, name, value))

    def lookup(self, node: ast.AST, name: str) -> Any:
        if name in self.names:
            return self.names[name]
        if name in self.scope:
            value = self.scope[name]
            if isinstance(value, (bool, int, float)) and not isinstance(value, type):
                raise NameError(f"Cannot access global variable {name} from within @jit'ed function: make it tl.constexpr({value})")
            fn = self.function.fn
            around = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
            self.depend(around.get(name, fn.__globals__), name, value)
            return value
        if name in _PYTHON:
            return _PYTHON[name]
        raise NameError(f"{name} is not defined")

    def visit_Name(self, node: ast.Name) -> Any: return self.lookup(node, node.id)
    def visit_Constant(self, node: ast.Constant) -> Any:
        return constexpr(node.value) if isinstance(node.value, (bool, int, float)) else node.value
    def visit_Tuple(self, node: ast.Tuple) -> Any: return tuple(self.visit(e) for e in node.elts)
    def visit_List(self, node: ast.List) -> Any: return [self.visit(e) for e in node.elts]
    def visit_Slice(self, node: ast.Slice) -> Any:
        parts = [None if p is None else value_of(self.visit(p)) for p in (node.lower, node.upper, node.step)]
        return slice(*parts)
    def visit_Subscript(self, node: ast.Subscript) -> Any:
        base, key = self.visit(node.value), value_of(self.visit(node.slice))
        made = base[key]
        return constexpr(made) if isinstance(made, (bool, int, float)) else made
    def visit_JoinedStr(self, node: ast.JoinedStr) -> str:
        return "".join(str(value_of(self.visit(v))) for v in node.values)
    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any: return self.visit(node.value)
    def visit_Lambda(self, node: ast.Lambda) -> Any:
        def call(*args: Any) -> Any:
            outer = self.names
            self.names = {**outer, **{a.arg: v for a, v in zip(node.args.args, args)}}
            try:
                return self.visit(node.body)
            finally:
                self.names = outer
        return call

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        made = []
        outer, self.names = self.names, dict(self.names)
        steps = value_of(self.visit(node.generators[0].iter))
        if isinstance(steps, core.range):
            steps = [constexpr(i) for i in range(*(value_of(x) for x in (steps.start, steps.end, steps.step)))]
        for item in steps:
            self.assign(node.generators[0].target, constexpr(item) if isinstance(item, int) else item)
            made.append(self.visit(node.elt))
        self.names = outer
        return tuple(made)

    def visit_Attribute(self, node: ast.Attribute) -> Any: return self.attribute(self.visit(node.value), node.attr)

    def attribute(self, base: Any, name: str, *otherwise: Any) -> Any:
        if isinstance(base, constexpr):
            if name == "value":
                return base
            base = base.value if not name == "type" else base
        if isinstance(base, tensor) and name == "shape":
            return tuple(constexpr(s) for s in base.shape)
        if isinstance(base, tuple) and name == "type":
            return tuple(t.type if isinstance(t, constexpr) else value_of(t).type for t in base)
        made = getattr(base, name, *otherwise)
        place = place_of(base, name)
        if place is not None:
            self.depend(place, name, made)
        return constexpr(made) if isinstance(made, (bool, int, float)) else made

    def binary(self, node: ast.AST, kind: type, a: Any, b: Any) -> Any:
        if kind not in _BINARY:
            raise self.fail(node, f"kernels have no {kind.__name__}")
        if isinstance(value_of(a), (tuple, list, str)) or not any(isinstance(x, (tensor, constexpr)) for x in (a, b)):
            return _BINARY[kind](value_of(a), value_of(b))
        return _BINARY[kind](a, b)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node, type(node.op), self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        x = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return x.logical_not() if isinstance(x, tensor) else constexpr(not value_of(x))
        return _UNARY[type(node.op)](x)

    def visit_Compare(self, node: ast.Compare) -> Any:
        made: Any = None
        left = self.visit(node.left)
        for op, right_node in zip(node.ops, node.comparators):
            right = self.visit(right_node)
            a, b = value_of(left), value_of(right)
            if isinstance(op, (ast.Is, ast.IsNot)):
                held: Any = constexpr((a is b) == isinstance(op, ast.Is))
            elif isinstance(op, (ast.In, ast.NotIn)):
                held = constexpr((a in b) == isinstance(op, ast.In))
            else:
                if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
                    a, b = list(a), list(b)
                held = _COMPARE[type(op)](a, b)
                held = held if isinstance(held, tensor) else constexpr(held)
            made = held if made is None else made & held
            left = right
        return made

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        both = isinstance(node.op, ast.And)
        made = self.visit(node.values[0])
        for value in node.values[1:]:
            if not isinstance(made, tensor) and bool(value_of(made)) != both:
                return made
            other = self.visit(value)
            if not isinstance(made, tensor):
                made = other
                continue
            made = made.logical_and(other) if both else made.logical_or(other)
        return made

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.visit(node.test)
        if not isinstance(condition, tensor):
            return self.visit(node.body if value_of(condition) else node.orelse)
        self.begin_if(node.test, condition)
        first = self.kept(self.visit(node.body))
        core.builder().begin_else()
        second = self.kept(self.visit(node.orelse))
        if first is None and second is None:
            core.builder().end_if([], [])
            return None
        parts = [flatten(first), flatten(second)]
        if parts[0] is None or parts[1] is None or described(parts[0]) != described(parts[1]):
            raise self.fail(node, "Ternary expression with dynamic condition has inconsistent types "
                            f"{self.said(first)} and {self.said(second)}", "E0208")
        made = core.builder().end_if(*([t.handle for t in part or []] for part in parts))
        return unflatten(first, [tensor(v) for v in made])

    def visit_Call(self, node: ast.Call) -> Any:
        function = value_of(self.visit(node.func))
        args: list[Any] = []
        for a in node.args:
            if isinstance(a, ast.Starred):
                args += list(value_of(self.visit(a.value)))
            else:
                args.append(self.visit(a))
        kwargs: dict[str, Any] = {}
        for k in node.keywords:
            if k.arg is None:
                kwargs.update(value_of(self.visit(k.value)))
            else:
                kwargs[k.arg] = self.visit(k.value)
        self.place(node)
        return self.call(function, args, kwargs)

    def call(self, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if hasattr(function, "inline"):
            return function.inline(args, kwargs)
        if function is range:
            return core.range(*args, **kwargs)
        if function is print:
            return device_print(*args, **kwargs) if args and isinstance(value_of(args[0]), str) else device_print("", *args)
        if function is abs and isinstance(value_of(args[0]), tensor):
            return value_of(args[0]).abs()
        if (function is min or function is max) and any(isinstance(a, tensor) for a in args):
            return (core.minimum if function is min else core.maximum)(*args)
        if function is getattr:
            return self.attribute(args[0], value_of(args[1]), *args[2:])
        if getattr(function, "__tile_builtin__", False) or not any(getattr(function, "__self__", None) is s for s in (None, builtins)) or \
                isinstance(function, type) and issubclass(function, core.range) or \
                getattr(function, "__module__", "").startswith("tessera.tile"):
            return function(*args, **kwargs)
        if function in _PYTHON.values() or getattr(builtins, getattr(function, "__name__", ""), None) is function:
            plain = [value_of(a) for a in args]
            if function in (int, float, bool) and plain and isinstance(plain[0], tensor):
                raise TypeError(f"{function.__name__}() takes numbers that are known at compile time; use .to()")
            made = function(*plain, **{k: value_of(v) for k, v in kwargs.items()})
            return constexpr(made) if isinstance(made, (bool, int, float)) else made
        if callable(function):
            return function(*args, **kwargs)
        raise TypeError(f"{function!r} cannot be called in a kernel")


def generate(function: Any, forms: tuple[Any, ...], kinds: tuple[tuple[Any, str], ...], debug: bool, sanitize: bool = True) -> Any:
    """The tile program of a function. `forms`: how each parameter is put together; `kinds`: of what is given at launch."""
    made = TileBuilder(function.name)
    outer = getattr(core._local, "builder", None), getattr(core._local, "generator", None)
    core._local.builder = made
    try:
        names = list(_leaf_names(forms))
        values = {name: tensor(made.parameter(name.replace(".", "_"), dtype, how == "array" or how == "anywhere" or isinstance(how, int)))
                  for name, (how, dtype) in zip(names, kinds)}
        parts = {name: put_together(form, values) for name, form in zip(function.arg_names, forms)}
        for parameter in function.params:
            if parameter.is_const and isinstance(parts[parameter.name], tensor):
                parts[parameter.name].const = True
        generator = Generator(function, parts, debug=debug, sanitize=sanitize)
        core._local.generator = generator
        generator.run()
        return made.finish(), generator.sources, generator.read
    finally:
        core._local.builder, core._local.generator = outer


def _leaf_names(forms: tuple[Any, ...]) -> Iterator[str]:
    for form in forms:
        if form[0] in ("leaf", "const", "cast"):
            yield form[1]
        elif form[0] == "tuple":
            yield from _leaf_names(form[2])
        elif form[0] == "descriptor":
            yield from _leaf_names(form[3])


__all__ = ["Generator", "generate", "types"]
