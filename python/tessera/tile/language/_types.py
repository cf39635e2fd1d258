"""Element types and types of values."""

from __future__ import annotations

from typing import Any

# By name: what the compiler calls it, its bits, its kind (bool, integer, unsigned, float, void), and its mantissa.
_ELEMENTS: dict[str, tuple[str, int, str, int]] = {
    "int1": ("bool", 1, "b", 0),
    **{f"int{n}": (f"i{n}", n, "i", 0) for n in (8, 16, 32, 64)},
    **{f"uint{n}": (f"u{n}", n, "u", 0) for n in (8, 16, 32, 64)},
    "fp8e4nv": ("f8e4m3fn", 8, "f", 3), "fp8e5": ("f8e5m2", 8, "f", 2),
    "fp8e4b8": ("f8e4m3fnuz", 8, "f", 3), "fp8e5b16": ("f8e5m2fnuz", 8, "f", 2),
    "fp16": ("f16", 16, "f", 10), "bf16": ("bf16", 16, "f", 7), "fp32": ("f32", 32, "f", 23), "fp64": ("f64", 64, "f", 52),
    "void": ("void", 0, "v", 0),
}
_BIASES = {"f8e4m3fn": 7, "f8e5m2": 15, "f8e4m3fnuz": 8, "f8e5m2fnuz": 16, "f16": 15, "bf16": 127, "f32": 127, "f64": 1023}
_BY_CORE = {core: name for name, (core, *_) in _ELEMENTS.items()}


class dtype:
    """An element type. `core` is its name in the compiler."""

    def __init__(self, name: Any):
        name = getattr(name, "value", name)
        if name not in _ELEMENTS:
            raise ValueError(f"there is no element type {name}")
        self.name: str = name
        self.core, self.primitive_bitwidth, self._kind, self.fp_mantissa_width = _ELEMENTS[name]
        self.int_bitwidth = self.primitive_bitwidth if self._kind in "biu" else 0

    @property
    def scalar(self) -> "dtype":
        return self

    @property
    def itemsize(self) -> int:
        return max(1, self.primitive_bitwidth // 8)

    @property
    def mantissa(self) -> int:
        return self.fp_mantissa_width

    def is_floating(self) -> bool: return self._kind == "f"
    def is_int(self) -> bool: return self._kind in "iub"
    def is_int_signed(self) -> bool: return self._kind == "i"
    def is_int_unsigned(self) -> bool: return self._kind in "ub"
    def is_bool(self) -> bool: return self._kind == "b"
    def is_fp8(self) -> bool: return self.core.startswith("f8")
    def is_fp8e4nv(self) -> bool: return self.core == "f8e4m3fn"
    def is_fp8e5(self) -> bool: return self.core == "f8e5m2"
    def is_fp8e4b8(self) -> bool: return self.core == "f8e4m3fnuz"
    def is_fp8e5b16(self) -> bool: return self.core == "f8e5m2fnuz"
    def is_fp16(self) -> bool: return self.core == "f16"
    def is_bf16(self) -> bool: return self.core == "bf16"
    def is_fp32(self) -> bool: return self.core == "f32"
    def is_fp64(self) -> bool: return self.core == "f64"
    def is_int1(self) -> bool: return self.core == "bool"
    def is_int8(self) -> bool: return self.core == "i8"
    def is_int16(self) -> bool: return self.core == "i16"
    def is_int32(self) -> bool: return self.core == "i32"
    def is_int64(self) -> bool: return self.core == "i64"
    def is_uint8(self) -> bool: return self.core == "u8"
    def is_uint16(self) -> bool: return self.core == "u16"
    def is_uint32(self) -> bool: return self.core == "u32"
    def is_uint64(self) -> bool: return self.core == "u64"
    def is_standard_floating(self) -> bool: return self.core in ("f16", "bf16", "f32", "f64")
    def is_ptr(self) -> bool: return False
    def is_block(self) -> bool: return False
    def is_const(self) -> bool: return False
    def is_void(self) -> bool: return self._kind == "v"

    @property
    def exponent_bias(self) -> int:
        """What is added to the exponents of a float."""
        if self.core not in _BIASES:
            raise AttributeError(f"{self.name} has no exponents")
        return _BIASES[self.core]

    def get_int_max_value(self) -> int:
        return (1 << self.int_bitwidth - (1 if self._kind == "i" else 0)) - 1
    def get_int_min_value(self) -> int:
        return -(1 << self.int_bitwidth - 1) if self._kind == "i" else 0

    def __str__(self) -> str: return self.name
    def __repr__(self) -> str: return f"tl.{self.name}"
    def __hash__(self) -> int: return hash(self.name)
    def __eq__(self, other: Any) -> bool:
        other = getattr(other, "value", other)
        return isinstance(other, dtype) and not isinstance(other, (pointer_type, block_type)) and other.core == self.core
    def __ne__(self, other: Any) -> bool: return not self == other


class pointer_type(dtype):
    def __init__(self, element_ty: Any, address_space: int = 1, const: bool = False):
        element = getattr(element_ty, "value", element_ty)
        if not isinstance(element, dtype):
            raise TypeError(f"a pointer points to elements of a type, not to {element!r}")
        self.element_ty, self.address_space, self.const = element, address_space, const
        self.name, self.core = f"pointer<{element}>", element.core
        self.primitive_bitwidth, self._kind, self.int_bitwidth, self.fp_mantissa_width = 64, "p", 0, 0

    def is_ptr(self) -> bool: return True
    def is_const(self) -> bool: return self.const
    def __eq__(self, other: Any) -> bool:
        other = getattr(other, "value", other)
        return isinstance(other, pointer_type) and other.element_ty == self.element_ty
    def __hash__(self) -> int: return hash(self.name)


class block_type(dtype):
    def __init__(self, element_ty: dtype, shape: Any):
        self.element_ty, self.shape = element_ty, tuple(getattr(s, "value", s) for s in shape)
        self.name, self.core = f"<{list(self.shape)}, {element_ty}>", element_ty.core
        self.primitive_bitwidth, self._kind = element_ty.primitive_bitwidth, element_ty._kind
        self.int_bitwidth, self.fp_mantissa_width = element_ty.int_bitwidth, element_ty.fp_mantissa_width

    @property
    def scalar(self) -> dtype: return self.element_ty
    def is_block(self) -> bool: return True
    def is_ptr(self) -> bool: return False
    def get_block_shapes(self) -> tuple[int, ...]: return self.shape
    def __eq__(self, other: Any) -> bool:
        return isinstance(other, block_type) and other.element_ty == self.element_ty and other.shape == self.shape
    def __hash__(self) -> int: return hash(self.name)


class const:
    """An annotation of a pointer that is not stored to."""


int1 = dtype("int1")
int8, int16, int32, int64 = (dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, bfloat16, float32, float64 = (dtype(n) for n in ("fp16", "bf16", "fp32", "fp64"))
float8e4nv, float8e5, float8e4b8, float8e5b16 = (dtype(n) for n in ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16"))
void = dtype("void")
pi32_t = pointer_type(int32)

# Names of types in annotations of parameters and in signatures.
NAMES: dict[str, dtype] = {
    **{f"i{n}": dtype(f"int{n}") for n in (1, 8, 16, 32, 64)}, **{f"u{n}": dtype(f"uint{n}") for n in (8, 16, 32, 64)},
    "u1": int1, "fp8e4nv": float8e4nv, "fp8e5": float8e5, "fp8e4b8": float8e4b8, "fp8e5b16": float8e5b16,
    "fp16": float16, "bf16": bfloat16, "fp32": float32, "fp64": float64,
    "bool": int1, "float16": float16, "bfloat16": bfloat16, "float32": float32, "float64": float64,
    "float8_e4m3fn": float8e4nv, "float8e4m3fn": float8e4nv, "float8_e5m2": float8e5, "float8e5m2": float8e5,
    "float8_e4m3fnuz": float8e4b8, "float8_e5m2fnuz": float8e5b16,
    **{f"int{n}": dtype(f"int{n}") for n in (1, 8, 16, 32, 64)}, **{f"uint{n}": dtype(f"uint{n}") for n in (8, 16, 32, 64)},
}


def str_to_ty(name: str, c: Any = None) -> dtype:
    """A type by its name in a signature: "*fp32", "i64"."""
    if name.startswith("*"):
        constant = name[1:].startswith("k")
        return pointer_type(str_to_ty(name[2 if constant else 1:]), const=constant)
    return NAMES[name]


def of_core(core: str) -> dtype:
    return dtype(_BY_CORE[core])
