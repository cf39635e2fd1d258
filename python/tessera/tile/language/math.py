"""Functions of elements, by the names of tl.math."""

from ._core import clamp, maximum as max, minimum as min
from ._standard import (abs, ceil, cos, div_rn, erf, exp, exp2, fdiv, floor, fma, log, log2, rsqrt, sin, sqrt, sqrt_rn,
                        umulhi)

__all__ = ["abs", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "max",
           "min", "rsqrt", "sin", "sqrt", "sqrt_rn", "umulhi"]
