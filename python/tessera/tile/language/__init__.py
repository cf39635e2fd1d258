"""What kernels are written in: Triton's `tl`."""

from . import extra, math
from ._core import (advance, arange, associative_scan, assume, atomic_add, atomic_and, atomic_cas, atomic_max, atomic_min,
                    atomic_or, atomic_xchg, atomic_xor, block_pointer, broadcast, broadcast_to, builtin, cast, cat,
                    clamp, constexpr, debug_barrier, dot, expand_dims, full, gather, interleave, join, load,
                    load_tensor_descriptor, make_block_ptr, make_tensor_descriptor, max_constancy, max_contiguous,
                    maximum, minimum, multiple_of, num_programs, permute, program_id, range, ravel, reduce, reshape,
                    split, squeeze, static_assert, static_print, static_range, store, store_tensor_descriptor, tensor,
                    tensor_descriptor, trans, unsqueeze, view, where)
from ._random import (pair_uniform_to_normal, philox, philox_impl, rand, rand4x, randint, randint4x, randn, randn4x,
                      uint_to_uniform_float)
from ._standard import (abs, argmax, argmin, cdiv, ceil, cos, cumprod, cumsum, div_rn, erf, exp, exp2, fdiv, flip, floor,
                        fma, histogram, log, log2, max, min, rsqrt, sigmoid, sin, softmax, sort, sqrt, sqrt_rn, sum,
                        swizzle2d, topk, umulhi, xor_sum, zeros, zeros_like)
from ._types import (bfloat16, block_type, dtype, float8e4b8, float8e4nv, float8e5, float8e5b16, float16, float32,
                     float64, int1, int8, int16, int32, int64, pointer_type, uint8, uint16, uint32, uint64, void)

__all__ = [name for name in dir() if not name.startswith("_")]
