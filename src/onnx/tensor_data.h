// A Tensor's payload as plain contiguous elements: little-endian, row-major, one byte an element for types narrower
// than a byte (i4 and i2 sign-extended, the others as their bits), booleans 0 or 1, complex as pairs. What can stay
// where it lies in the file does; the rest is decoded. Nothing is allocated that the payload's real size does not
// justify.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "onnx/data_source.h"
#include "onnx/model.h"

namespace tessera::onnx {

inline constexpr int64_t kMaxElements = int64_t{1} << 40;    // E0108 above
inline constexpr int64_t kMaxDenseBytes = int64_t{1} << 30;  // what a sparse tensor may grow to; E0108 above

struct TensorData {
    DType dtype = DType::f32;
    std::vector<int64_t> dims;
    int64_t count = 0;                  // the product of dims
    std::string_view bytes;             // count * dtype_bytes(dtype), aligned for the element; empty for strings
    std::shared_ptr<const void> owner;  // of bytes: a mapped file or a buffer. Null when the caller gave the bytes
    std::vector<std::string> strings;   // dtype string: count of them
};

// E0213 unknown element type, E0108 shape too large or negative, E0211 payload and shape differ, E0106 and E0107.
Result<TensorData> tensor_data(const Tensor& tensor, const DataSource& source = {});
// The same for a sparse tensor, made dense. E0406 for an index outside the shape.
Result<TensorData> dense_data(const SparseTensor& tensor, const DataSource& source = {});

// What the payload takes in raw_data or in a file, by type and shape. E0213, E0108.
Result<uint64_t> raw_data_size(const Tensor& tensor);

// The other way: a Tensor holding these elements, laid out as TensorData's are. A type that is packed in files is
// packed into bytes of the tensor's own; others are viewed.
Tensor make_tensor(std::string name, DType dtype, std::vector<int64_t> dims, Bytes elements);
Tensor make_string_tensor(std::string name, std::vector<int64_t> dims, std::vector<std::string> strings);

// Integers as protobuf varints, for Tensor's typed fields.
Bytes encode_varints(const std::vector<int64_t>& values);

}  // namespace tessera::onnx
