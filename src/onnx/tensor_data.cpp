#include "onnx/tensor_data.h"

#include <fmt/ranges.h>
#include <protozero/buffer_string.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/memory.h"
#include "onnx/dtypes.h"
#include "onnx/file.h"
#include "onnx/wire.h"

namespace tessera::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are viewed as they lie in the file");

Result<int64_t> element_count(const std::vector<int64_t>& dims) {
    int64_t count = 1;
    bool too_many = false, none = false;
    for (int64_t d : dims) {
        if (d < 0) return Error(Code::E0108, "shape [{}] has a negative size", fmt::join(dims, ","));
        none = none || d == 0;
        too_many = too_many || __builtin_mul_overflow(count, d, &count) || count > kMaxElements;
        if (too_many) count = 1;
    }
    if (none) return 0;
    if (too_many) return Error(Code::E0108, "shape [{}] has more than {} elements", fmt::join(dims, ","), kMaxElements);
    return count;
}

// A fresh buffer, and how TensorData holds it.
struct Buffer {
    char* data;
    std::shared_ptr<const void> owner;
};
Result<Buffer> make_buffer(int64_t bytes) {
    std::shared_ptr<void> owner = TRY(allocate_bytes(bytes));
    char* data = static_cast<char*>(owner.get());
    return Buffer{data, std::move(owner)};
}

void set_bytes(TensorData& out, Buffer buffer) {
    out.bytes = {buffer.data, static_cast<size_t>(out.count) * dtype_bytes(out.dtype)};
    out.owner = std::move(buffer.owner);
}

bool is_packed(DType t) { return dtype_bits(t) < 8 && t != DType::boolean; }

// How many units of the payload (bytes, or numbers of a typed field) hold the elements when each unit is a byte packed.
int64_t packed_units(DType t, int64_t count) {
    int per_byte = 8 / dtype_bits(t);
    return count / per_byte + (count % per_byte != 0);
}

uint64_t raw_size(DType t, int64_t count) {
    return is_packed(t) ? packed_units(t, count) : static_cast<uint64_t>(count) * dtype_bytes(t);
}

// Element i out of the byte it shares with its neighbours.
char unpack(DType t, uint8_t byte, int64_t i) {
    int bits = dtype_bits(t), per_byte = 8 / bits;
    auto value = static_cast<uint8_t>(byte >> (i % per_byte * bits) & ((1 << bits) - 1));
    if (is_signed_int(t) && value >> (bits - 1)) value |= static_cast<uint8_t>(0xFF << bits);
    return static_cast<char>(value);
}

Error misfit(const TensorData& out, std::string_view unit, uint64_t expected, uint64_t found) {
    return Error(Code::E0211, "shape [{}] of {} takes {} {}, the data has {}", fmt::join(out.dims, ","),
                 dtype_name(out.dtype), expected, unit, found)
        .hint("export the model again; if it has external data, check that the file belongs to it");
}

Status decode_raw(const Bytes& raw, TensorData& out) {
    uint64_t expected = raw_size(out.dtype, out.count);
    if (raw.size() != expected) return misfit(out, "bytes", expected, raw.size());
    if (is_packed(out.dtype)) {
        Buffer buffer = TRY(make_buffer(out.count));
        int per_byte = 8 / dtype_bits(out.dtype);
        for (int64_t i = 0; i < out.count; ++i)
            buffer.data[i] = unpack(out.dtype, static_cast<uint8_t>(raw.data()[i / per_byte]), i);
        set_bytes(out, std::move(buffer));
        return {};
    }
    if (out.dtype == DType::boolean && std::ranges::any_of(raw.view(), [](char c) { return (c & ~1) != 0; })) {
        Buffer buffer = TRY(make_buffer(out.count));
        for (int64_t i = 0; i < out.count; ++i) buffer.data[i] = raw.data()[i] != 0;
        set_bytes(out, std::move(buffer));
        return {};
    }
    size_t alignment = std::min<size_t>(dtype_bytes(out.dtype), 8);
    if (reinterpret_cast<uintptr_t>(raw.data()) % alignment != 0 && !raw.empty()) {
        Buffer buffer = TRY(make_buffer(static_cast<int64_t>(raw.size())));
        std::memcpy(buffer.data, raw.data(), raw.size());
        MappedFile::release_pages(raw.data(), raw.size());  // the copy is what will be read
        set_bytes(out, std::move(buffer));
        return {};
    }
    out.bytes = raw.view();
    out.owner = raw.owner();
    return {};
}

Status decode_varints(std::string_view varints, TensorData& out) {
    bool packed = is_packed(out.dtype);
    auto expected = static_cast<uint64_t>(packed ? packed_units(out.dtype, out.count) : out.count);
    // A varint ends in the one byte whose high bit is clear.
    auto found = static_cast<uint64_t>(std::ranges::count_if(varints, [](char c) { return (c & 0x80) == 0; }));
    if (found != expected) return misfit(out, "numbers", expected, found);
    Buffer buffer = TRY(make_buffer(out.count * static_cast<int64_t>(dtype_bytes(out.dtype))));
    const char *at = varints.data(), *end = at + varints.size();
    try {
        size_t width = dtype_bytes(out.dtype);
        int per_unit = packed ? 8 / dtype_bits(out.dtype) : 1;
        for (int64_t i = 0; i < out.count; i += per_unit) {
            uint64_t value = read_varint(&at, end);
            if (out.dtype == DType::boolean) value = value != 0;
            if (!packed) std::memcpy(buffer.data + i * width, &value, width);
            for (int64_t j = i; packed && j < std::min(i + per_unit, out.count); ++j)
                buffer.data[j] = unpack(out.dtype, static_cast<uint8_t>(value), j);
        }
    } catch (const WireFailure& failure) {
        return Error(Code::E0211, "the data is damaged: {}", failure.what);
    }
    if (at != end) return Error(Code::E0211, "the data is damaged: it ends inside a number");
    set_bytes(out, std::move(buffer));
    return {};
}

Status decode_typed(const Tensor& tensor, TensorData& out) {
    switch (out.dtype) {
        case DType::f32:
        case DType::c64: return decode_raw(tensor.float_data, out);
        case DType::f64:
        case DType::c128: return decode_raw(tensor.double_data, out);
        case DType::i64: return decode_varints(tensor.int64_data.view(), out);
        case DType::u32:
        case DType::u64: return decode_varints(tensor.uint64_data.view(), out);
        default: return decode_varints(tensor.int32_data.view(), out);
    }
}

Result<DType> element_type(const Tensor& tensor) {
    std::optional<DType> dtype = dtype_from_onnx(tensor.data_type);
    if (!dtype)
        return Error(Code::E0213, "unsupported element type {}", data_type_name(tensor.data_type))
            .hint("{}", tensor.data_type == 0
                            ? "the file does not give the tensor an element type; export the model again"
                            : "convert it to a supported element type");
    return *dtype;
}

Status decode(const Tensor& tensor, const DataSource& source, TensorData& out) {
    out.dtype = TRY(element_type(tensor));
    out.dims = tensor.dims;
    out.count = TRY(element_count(tensor.dims));
    if (tensor.segment) return Error(Code::E0211, "the tensor is stored in segments, which are not supported");
    bool external = tensor.data_location == Tensor::Location::External;
    if (out.dtype == DType::string) {
        if (external || !tensor.raw_data.empty())
            return Error(Code::E0211, "strings belong in string_data, not in {}", external ? "a file" : "raw_data");
        if (tensor.string_data.size() != static_cast<size_t>(out.count))
            return misfit(out, "strings", out.count, tensor.string_data.size());
        out.strings = tensor.string_data;
        return {};
    }
    if (external) return decode_raw(TRY(external_bytes(tensor, source, raw_size(out.dtype, out.count))), out);
    if (!tensor.raw_data.empty()) return decode_raw(tensor.raw_data, out);
    return decode_typed(tensor, out);
}

std::string where(const Tensor& tensor) {
    return tensor.name.empty() ? "an unnamed tensor" : fmt::format("tensor \"{}\"", tensor.name);
}

// The place of the k-th value in the dense tensor.
Result<int64_t> linear_index(std::span<const int64_t> indices, int64_t k, bool linear, const TensorData& out) {
    if (linear) {
        if (indices[k] < 0 || indices[k] >= out.count)
            return Error(Code::E0406, "sparse index {} is outside the {} elements of [{}]", indices[k], out.count,
                         fmt::join(out.dims, ","));
        return indices[k];
    }
    size_t rank = out.dims.size();
    int64_t place = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
        int64_t index = indices[k * rank + axis];
        if (index < 0 || index >= out.dims[axis])
            return Error(Code::E0406, "sparse index {} is outside axis {} of [{}]", index, axis,
                         fmt::join(out.dims, ","));
        place = place * out.dims[axis] + index;
    }
    return place;
}

Status scatter(const TensorData& values, const TensorData& indices, TensorData& out) {
    int64_t rank = static_cast<int64_t>(out.dims.size());
    bool linear = indices.dims.size() == 1;
    bool fits = values.dims.size() == 1 && indices.dtype == DType::i64 &&
                (linear || (indices.dims.size() == 2 && indices.dims[1] == rank)) && indices.dims[0] == values.count;
    if (!fits)
        return Error(Code::E0211, "a sparse tensor of shape [{}] has values [{}] and {} indices [{}]",
                     fmt::join(out.dims, ","), fmt::join(values.dims, ","), dtype_name(indices.dtype),
                     fmt::join(indices.dims, ","))
            .hint("values are [n], indices i64 [n] or [n,{}]", rank);
    int64_t width = out.dtype == DType::string ? sizeof(std::string) : dtype_bytes(out.dtype);
    if (out.count > kMaxDenseBytes / width)
        return Error(Code::E0108, "the sparse tensor of shape [{}] takes more than {} bytes when dense",
                     fmt::join(out.dims, ","), kMaxDenseBytes);
    std::span<const int64_t> places(reinterpret_cast<const int64_t*>(indices.bytes.data()), indices.count);
    if (out.dtype == DType::string) {
        out.strings.resize(out.count);
        for (int64_t k = 0; k < values.count; ++k)
            out.strings[TRY(linear_index(places, k, linear, out))] = values.strings[k];
        return {};
    }
    Buffer buffer = TRY(make_buffer(out.count * width));
    for (int64_t k = 0; k < values.count; ++k)
        std::memcpy(buffer.data + TRY(linear_index(places, k, linear, out)) * width, values.bytes.data() + k * width,
                    width);
    set_bytes(out, std::move(buffer));
    return {};
}

}  // namespace

Result<TensorData> tensor_data(const Tensor& tensor, const DataSource& source) {
    TensorData out;
    Status status = decode(tensor, source, out);
    if (!status.ok()) return std::move(status.error().at(where(tensor)));
    return out;
}

Result<TensorData> dense_data(const SparseTensor& tensor, const DataSource& source) {
    TensorData values = TRY(tensor_data(tensor.values, source));
    TensorData indices = TRY(tensor_data(tensor.indices, source));
    TensorData out;
    out.dtype = values.dtype;
    out.dims = tensor.dims;
    Result<int64_t> count = element_count(tensor.dims);
    if (!count.ok()) return std::move(count.error().at(where(tensor.values)));
    out.count = *count;
    Status status = scatter(values, indices, out);
    if (!status.ok()) return std::move(status.error().at(where(tensor.values)));
    return out;
}

Result<uint64_t> raw_data_size(const Tensor& tensor) {
    DType dtype = TRY(element_type(tensor));
    return raw_size(dtype, TRY(element_count(tensor.dims)));
}

Tensor make_tensor(std::string name, DType dtype, std::vector<int64_t> dims, Bytes elements) {
    CHECK(dtype != DType::string, "strings go through make_string_tensor");
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.data_type = dtype_to_onnx(dtype);
    tensor.dims = std::move(dims);
    if (!is_packed(dtype)) {
        tensor.raw_data = std::move(elements);
        return tensor;
    }
    int bits = dtype_bits(dtype), per_byte = 8 / bits;
    std::string packed(packed_units(dtype, static_cast<int64_t>(elements.size())), '\0');
    for (size_t i = 0; i < elements.size(); ++i)
        packed[i / per_byte] |= static_cast<char>((elements.data()[i] & ((1 << bits) - 1)) << (i % per_byte * bits));
    tensor.raw_data = Bytes::own(std::move(packed));
    return tensor;
}

Tensor make_string_tensor(std::string name, std::vector<int64_t> dims, std::vector<std::string> strings) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.data_type = dtype_to_onnx(DType::string);
    tensor.dims = std::move(dims);
    tensor.string_data = std::move(strings);
    return tensor;
}

Bytes encode_varints(const std::vector<int64_t>& values) {
    std::string encoded;
    for (int64_t value : values) protozero::add_varint_to_buffer(&encoded, static_cast<uint64_t>(value));
    return Bytes::own(std::move(encoded));
}

}  // namespace tessera::onnx
