"""What is said while a kernel is compiled, and while it runs."""

from __future__ import annotations

from typing import Any

from ._core import builder, builtin, generator, operand, tensor, to_tensor


@builtin
def static_print(*values: Any, sep: str = " ", end: str = "\n", file: Any = None, flush: bool = False) -> None:
    print(*values, sep=sep, end=end, file=file, flush=flush)


class StaticAssertion(AssertionError):
    """A condition that does not hold when the kernel is compiled."""


@builtin
def static_assert(cond: Any, msg: str = "") -> None:
    if isinstance(cond, tensor):
        raise TypeError("static_assert() takes a condition that is known at compile time")
    if not cond:
        raise StaticAssertion(msg or "a static assertion does not hold")


@builtin
def device_print(prefix: str, *args: Any, hex: bool = False) -> None:
    """A line for each element, with its place in the grid and in the tile."""
    if not isinstance(prefix, str) or not all(32 <= ord(c) < 127 for c in prefix):
        raise ValueError("the first argument is a text of printable characters")
    if prefix.rstrip().endswith(":"):
        prefix = prefix.rstrip() + " "
    elif args or prefix:
        prefix = prefix.rstrip() + ": "
    if len(prefix) > 2 and not prefix.startswith(" "):
        prefix = " " + prefix
    builder().print(prefix, [to_tensor(a).handle for a in args], bool(hex))


@builtin
def device_assert(cond: Any, msg: str = "", mask: Any = None) -> None:
    """Where debugging is on (jit(debug=True), TRITON_DEBUG=1 or TESSERA_DEBUG=1), a launch in which it does not hold fails."""
    if not generator().debug:
        return
    builder().check(operand(to_tensor(cond)), msg or "a device assertion does not hold", None if mask is None else operand(mask))


@builtin
def inline_asm_elementwise(asm: str, constraints: str, args: Any, dtype: Any, is_pure: bool, pack: int) -> Any:
    raise NotImplementedError("inline GPU assembly is not supported: use operations of the tile language")
