// Conversions between elements of every type and double or int64, for single elements and for strided ranges.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tessera {

// Conversion of a value outside the type's range: saturate to the nearest finite value, or as ONNX's unsaturated cast
// (infinity if the type has one, otherwise NaN).
enum class Overflow { Saturate, Special };

double float_from_bits(DType t, uint64_t bits);
uint64_t float_to_bits(DType t, double value, Overflow overflow = Overflow::Special);  // rounds to nearest even
double float_max(DType t);  // the largest finite value

int64_t int_min(DType t);
int64_t int_max(DType t);             // u64: -1, which has the same bits
int64_t int_wrap(DType t, int64_t v); // wraps to t's range, modulo 2^bits; bool: v != 0

// Element `index` of an array of t. read_int of a float truncates; read_real of an int converts.
double read_real(DType t, const void* data, int64_t index);
int64_t read_int(DType t, const void* data, int64_t index);
void write_real(DType t, void* data, int64_t index, double value);   // as Cast: ints truncate and wrap
void write_int(DType t, void* data, int64_t index, int64_t value);

// Strided ranges: out[i] = data[start + i * stride] for i < count, and back. Reals: float types; ints: all others.
void read_reals(DType t, const void* data, int64_t start, int64_t stride, int64_t count, double* out);
void read_ints(DType t, const void* data, int64_t start, int64_t stride, int64_t count, int64_t* out);
void write_reals(DType t, void* data, int64_t start, int64_t stride, int64_t count, const double* in);
void write_ints(DType t, void* data, int64_t start, int64_t stride, int64_t count, const int64_t* in);

}  // namespace tessera
