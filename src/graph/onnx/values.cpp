#include "graph/onnx/values.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "onnx/dtypes.h"
#include "onnx/tensor_data.h"

namespace tessera {
namespace {

constexpr int kMaxTypeDepth = 32;

// What files write where a dimension has no name: "?", "-1", "None".
bool is_anonymous(const std::string& param) {
    return param == "None" || std::none_of(param.begin(), param.end(), [](unsigned char c) { return std::isalpha(c); });
}

Result<Tensor> wrap(onnx::TensorData data) {
    if (data.dtype == DType::string) return Tensor::strings(std::move(data.dims), std::move(data.strings));
    return Tensor::view(data.dtype, std::move(data.dims), data.bytes.data(), std::move(data.owner));
}

Result<Type> convert(const onnx::Type& type, const std::string& name, const DimNamer& namer, int depth) {
    if (depth > kMaxTypeDepth) return Error(Code::E0109, "the type of \"{}\" is nested too deeply", name);
    switch (type.kind) {
        case onnx::Type::Kind::Tensor: {
            auto dtype = onnx::dtype_from_onnx(type.elem_type);
            if (!dtype && type.elem_type == 0) return Error(Code::E0209, "\"{}\" has no element type", name);
            if (!dtype)
                return Error(Code::E0213, "\"{}\" has element type {}, which is not supported", name,
                             onnx::data_type_name(type.elem_type));
            if (!type.shape) return Type(*dtype, Shape::unknown());
            Shape shape;
            for (const onnx::Dim& d : *type.shape) {
                if (d.kind == onnx::Dim::Kind::Value && d.value >= 0)
                    shape.push_back(Dim(d.value));
                else if (d.kind == onnx::Dim::Kind::Param && !is_anonymous(d.param))
                    shape.push_back(namer(d.param));
                else
                    shape.push_back(symbol(fmt::format("{}.d{}", name, shape.rank())));
            }
            return Type(*dtype, std::move(shape));
        }
        case onnx::Type::Kind::Sequence:
        case onnx::Type::Kind::Optional: {
            if (!type.elem) return Error(Code::E0209, "the type of \"{}\" has no element type", name);
            Type element = TRY(convert(*type.elem, name, namer, depth + 1));
            return type.kind == onnx::Type::Kind::Sequence ? Type::sequence(std::move(element))
                                                           : Type::optional(std::move(element));
        }
        case onnx::Type::Kind::None: return Error(Code::E0209, "\"{}\" has no type", name);
        case onnx::Type::Kind::SparseTensor:
            return Error(Code::E0209, "\"{}\" is a sparse tensor, which is supported for initializers only", name);
        case onnx::Type::Kind::Map: return Error(Code::E0209, "\"{}\" is a map, which is not supported", name);
        case onnx::Type::Kind::Opaque: return Error(Code::E0209, "\"{}\" is opaque, which is not supported", name);
    }
    return Error(Code::E0209, "\"{}\" has no type", name);
}

Result<Datum> convert(const onnx::Optional& optional, int depth);

Result<Datum> convert(const onnx::Sequence& sequence, int depth) {
    if (depth > kMaxTypeDepth) return Error(Code::E0109, "a sequence is nested too deeply");
    std::vector<Datum> items;
    switch (sequence.elem_type) {
        case onnx::ValueKind::Tensor:
            for (const auto& t : sequence.tensor_values) items.push_back(TRY(tensor_from_onnx(t)));
            break;
        case onnx::ValueKind::SparseTensor:
            for (const auto& t : sequence.sparse_tensor_values) items.push_back(TRY(tensor_from_onnx(t)));
            break;
        case onnx::ValueKind::Sequence:
            for (const auto& s : sequence.sequence_values) items.push_back(TRY(convert(s, depth + 1)));
            break;
        case onnx::ValueKind::Optional:
            for (const auto& o : sequence.optional_values) items.push_back(TRY(convert(o, depth + 1)));
            break;
        case onnx::ValueKind::Map: return Error(Code::E0209, "a sequence of maps is not supported");
        case onnx::ValueKind::Undefined: break;
    }
    return Datum::sequence(std::move(items));
}

Result<Datum> convert(const onnx::Optional& optional, int depth) {
    if (depth > kMaxTypeDepth) return Error(Code::E0109, "an optional is nested too deeply");
    switch (optional.elem_type) {
        case onnx::ValueKind::Tensor:
            if (!optional.tensor_value) return Datum::none();
            return Datum::some(TRY(tensor_from_onnx(*optional.tensor_value)));
        case onnx::ValueKind::SparseTensor:
            if (!optional.sparse_tensor_value) return Datum::none();
            return Datum::some(TRY(tensor_from_onnx(*optional.sparse_tensor_value)));
        case onnx::ValueKind::Sequence:
            if (!optional.sequence_value) return Datum::none();
            return Datum::some(TRY(convert(*optional.sequence_value, depth + 1)));
        case onnx::ValueKind::Optional:
            if (!optional.optional_value) return Datum::none();
            return Datum::some(TRY(convert(*optional.optional_value, depth + 1)));
        case onnx::ValueKind::Map: return Error(Code::E0209, "an optional map is not supported");
        case onnx::ValueKind::Undefined: break;
    }
    return Datum::none();
}

}  // namespace

Result<Type> type_from_onnx(const onnx::Type& type, const std::string& name, const DimNamer& namer) {
    return convert(type, name, namer, 0);
}

onnx::Type type_to_onnx(const Type& type) {
    onnx::Type out;
    switch (type.kind()) {
        case Type::Kind::None: break;
        case Type::Kind::Tensor: {
            out.kind = onnx::Type::Kind::Tensor;
            out.elem_type = onnx::dtype_to_onnx(type.tensor().dtype);
            if (!type.tensor().shape.ranked()) break;
            out.shape.emplace();
            for (const Dim& d : type.tensor().shape) {
                onnx::Dim dim;
                if (auto n = d.as_int()) {
                    dim.kind = onnx::Dim::Kind::Value;
                    dim.value = *n;
                } else {
                    dim.kind = onnx::Dim::Kind::Param;
                    dim.param = d.is(ExprKind::Var) ? d.node().name : to_string(d);
                }
                out.shape->push_back(std::move(dim));
            }
            break;
        }
        case Type::Kind::Sequence:
        case Type::Kind::Optional:
            out.kind = type.is_sequence() ? onnx::Type::Kind::Sequence : onnx::Type::Kind::Optional;
            out.elem = type_to_onnx(type.element());
            break;
    }
    return out;
}

Result<Tensor> tensor_from_onnx(const onnx::Tensor& tensor, const onnx::DataSource& source) {
    return wrap(TRY(onnx::tensor_data(tensor, source)));
}

Result<Tensor> tensor_from_onnx(const onnx::SparseTensor& tensor, const onnx::DataSource& source) {
    return wrap(TRY(onnx::dense_data(tensor, source)));
}

onnx::Tensor tensor_to_onnx(const Tensor& tensor, std::string name) {
    if (tensor.dtype() == DType::string)
        return onnx::make_string_tensor(std::move(name), tensor.sizes(), tensor.as_strings());
    std::string_view bytes(static_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
    return onnx::make_tensor(std::move(name), tensor.dtype(), tensor.sizes(), onnx::Bytes(bytes, tensor.owner()));
}

std::string hint_to_onnx(const Attr& attr) {
    if (const auto* one = std::get_if<int64_t>(&attr)) return std::to_string(*one);
    const auto* list = std::get_if<std::vector<int64_t>>(&attr);
    CHECK(list, "a hint of kind {}", attr_kind_name(attr_kind(attr)));
    return fmt::format("{}", fmt::join(*list, ","));
}

std::optional<Attr> hint_from_onnx(AttrKind kind, const std::string& text) {
    std::vector<int64_t> list;
    const char* end = text.data() + text.size();
    for (const char* at = text.data(); at < end; ++at) {
        int64_t n = 0;
        auto [stop, error] = std::from_chars(at, end, n);
        if (error != std::errc() || (stop != end && *stop != ',')) return std::nullopt;
        list.push_back(n);
        at = stop;
    }
    if (kind == AttrKind::Ints) return Attr(list);
    if (kind == AttrKind::Int && list.size() == 1) return Attr(list[0]);
    return std::nullopt;
}

Result<Datum> datum_from_onnx(const onnx::Sequence& sequence) { return convert(sequence, 0); }
Result<Datum> datum_from_onnx(const onnx::Optional& optional) { return convert(optional, 0); }

}  // namespace tessera
