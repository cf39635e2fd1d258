"""Element types and types of values."""

from __future__ import annotations

from typing import Any


class dtype:
    """An element type. `core` is its name in the compiler."""

    _all: dict[str, "dtype"] = {}

    def __init__(self, name: str, core: str, bits: int, kind: str):
        self.name, self.core, self.primitive_bitwidth, self._kind = name, core, bits, kind
        self.int_bitwidth = bits if kind in "iu" else 0
        dtype._all[core] = self

    @property
    def scalar(self) -> "dtype":
        return self

    @property
    def itemsize(self) -> int:
        return max(1, self.primitive_bitwidth // 8)

    @property
    def mantissa(self) -> int:
        return {"f64": 52, "f32": 23, "f16": 10, "bf16": 7, "f8e4m3fn": 3, "f8e5m2": 2}.get(self.core, 3)

    def is_floating(self) -> bool: return self._kind == "f"
    def is_int(self) -> bool: return self._kind in "iub"
    def is_int_signed(self) -> bool: return self._kind == "i"
    def is_int_unsigned(self) -> bool: return self._kind in "ub"
    def is_bool(self) -> bool: return self._kind == "b"
    def is_fp8(self) -> bool: return self.core.startswith("f8")
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
    def __str__(self) -> str: return self.name
    def __repr__(self) -> str: return f"tl.{self.name}"
    def __hash__(self) -> int: return hash(self.core)
    def __eq__(self, other: Any) -> bool:
        other = getattr(other, "value", other)
        return isinstance(other, dtype) and not isinstance(other, (pointer_type, block_type)) and other.core == self.core
    def __ne__(self, other: Any) -> bool: return not self == other


class pointer_type(dtype):
    def __init__(self, element_ty: dtype, address_space: int = 1, const: bool = False):
        self.element_ty, self.name, self.core = element_ty, f"pointer<{element_ty}>", element_ty.core
        self.primitive_bitwidth, self._kind, self.int_bitwidth = 64, "p", 0

    def is_ptr(self) -> bool: return True
    def __eq__(self, other: Any) -> bool: return isinstance(other, pointer_type) and other.element_ty == self.element_ty
    def __hash__(self) -> int: return hash(self.name)


class block_type(dtype):
    def __init__(self, element_ty: dtype, shape: list[int]):
        self.element_ty, self.shape = element_ty, list(shape)
        self.name, self.core = f"<{shape}, {element_ty}>", element_ty.core
        self.primitive_bitwidth, self._kind, self.int_bitwidth = element_ty.primitive_bitwidth, element_ty._kind, element_ty.int_bitwidth

    @property
    def scalar(self) -> dtype: return self.element_ty
    def is_block(self) -> bool: return True
    def get_block_shapes(self) -> list[int]: return self.shape
    def __eq__(self, other: Any) -> bool:
        return isinstance(other, block_type) and other.element_ty == self.element_ty and other.shape == self.shape
    def __hash__(self) -> int: return hash(self.name)


int1 = dtype("int1", "bool", 1, "b")
int8, int16, int32, int64 = (dtype(f"int{n}", f"i{n}", n, "i") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (dtype(f"uint{n}", f"u{n}", n, "u") for n in (8, 16, 32, 64))
float16, bfloat16 = dtype("fp16", "f16", 16, "f"), dtype("bf16", "bf16", 16, "f")
float32, float64 = dtype("fp32", "f32", 32, "f"), dtype("fp64", "f64", 64, "f")
float8e4nv, float8e5 = dtype("fp8e4nv", "f8e4m3fn", 8, "f"), dtype("fp8e5", "f8e5m2", 8, "f")
float8e4b8, float8e5b16 = dtype("fp8e4b8", "f8e4m3fnuz", 8, "f"), dtype("fp8e5b16", "f8e5m2fnuz", 8, "f")
void = dtype("void", "void", 0, "v")


def of_core(core: str) -> dtype:
    return dtype._all[core]
