"""What kernels are written in: Triton's `tl`."""

from builtins import tuple

from . import extra, math, random
from . import _core as core
from . import _standard as standard
from ._core import (PropagateNan, add, arange, associative_scan, assume, broadcast, broadcast_to, builtin, cast, cat, clamp,
                    condition, constexpr, constexpr_type, debug_barrier, expand_dims, full, gather, interleave, join, map_elementwise,
                    max_constancy, max_contiguous, maximum, minimum, mul, multiple_of, num_programs, permute, program_id,
                    range, ravel, reduce, reshape, split, squeeze, static_range, sub, tensor, to_tensor, trans, unsqueeze,
                    view, where)
from ._debug import device_assert, device_print, inline_asm_elementwise, static_assert, static_print
from ._memory import (advance, atomic_add, atomic_and, atomic_cas, atomic_max, atomic_min, atomic_or, atomic_xchg, atomic_xor,
                      block_pointer, load, load_tensor_descriptor, make_block_ptr, make_tensor_descriptor, store,
                      store_tensor_descriptor, tensor_descriptor)
from ._products import dot, dot_scaled
from ._random import (pair_uniform_to_normal, philox, philox_impl, rand, rand4x, randint, randint4x, randn, randn4x,
                      uint_to_uniform_float)
from ._standard import (abs, argmax, argmin, bitonic_merge, cdiv, ceil, cos, cumprod, cumsum, div_rn, erf, exp, exp2, fdiv, flip, floor,
                        fma, histogram, log, log2, max, min, reduce_or, rsqrt, sigmoid, sin, softmax, sort, sqrt, sqrt_rn,
                        sum, swizzle2d, topk, umulhi, xor_sum, zeros, zeros_like)
from ._types import (bfloat16, block_type, const, dtype, float8e4b8, float8e4nv, float8e5, float8e5b16, float16, float32,
                     float64, int1, int8, int16, int32, int64, pi32_t, pointer_type, str_to_ty, uint8, uint16, uint32,
                     uint64, void)

TRITON_MAX_TENSOR_NUMEL = 1048576

__all__ = [name for name in dir() if not name.startswith("_")]
