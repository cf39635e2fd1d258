#include "graph/wider_floats.h"

#include <algorithm>

#include "graph/op_def.h"
#include "onnx/dtypes.h"

namespace tessera {
namespace {

constexpr const char* kTypeAttrs[] = {"to", "dtype", "stash_type", "softmax_precision"};

bool widens(DType dtype, const WiderFloats& w) {
    return std::find(w.from.begin(), w.from.end(), dtype) != w.from.end();
}

Result<AttrMap> widened_attrs(const Node& node, const WiderFloats& wider) {
    AttrMap attrs = node.attrs();
    for (auto& [name, attr] : attrs) {
        if (std::holds_alternative<GraphPtr>(attr))
            return Error(Code::E0208, "a nested graph has no {} form", dtype_name(wider.to)).at(node.where());
        if (auto* tensor = std::get_if<Tensor>(&attr)) *tensor = TRY(widened(*tensor, wider));
    }
    for (const AttrDef& def : node.op().attrs)
        for (const char* name : kTypeAttrs) {
            if (def.name != name) continue;
            auto it = attrs.find(name);
            auto* number = std::get_if<int64_t>(it != attrs.end() ? &it->second
                                                : def.fallback    ? &*def.fallback
                                                                  : nullptr);
            const auto named = number ? onnx::dtype_from_onnx(static_cast<int32_t>(*number)) : std::nullopt;
            if (named && widens(*named, wider)) attrs[name] = int64_t{onnx::dtype_to_onnx(wider.to)};
        }
    return attrs;
}

}  // namespace

Result<Tensor> widened(const Tensor& t, const WiderFloats& wider) {
    if (!widens(t.dtype(), wider)) return t;
    Tensor wide = TRY(Tensor::zeros(wider.to, t.sizes()));
    if (t.dtype() == DType::f32 && wider.to == DType::f64)
        std::copy_n(t.as<float>().begin(), t.elements(), wide.mutable_as<double>().begin());
    else
        for (int64_t i = 0; i < t.elements(); ++i) wide.set_real(i, t.real_at(i));
    return wide;
}

Type widened(const Type& type, const WiderFloats& wider) {
    if (!type.is_tensor() || !widens(type.tensor().dtype, wider)) return type;
    TensorType wide = type.tensor();
    wide.dtype = wider.to;
    return wide;
}

Status add_widened(Graph& to, const Node& node, std::unordered_map<const Value*, Value*>& map,
                   const WiderFloats& wider) {
    NodeSpec spec{.op = &node.op(), .inputs = {}};
    for (Value* v : node.inputs()) spec.inputs.push_back(v ? map.at(v) : nullptr);
    spec.attrs = TRY(widened_attrs(node, wider));
    spec.outputs = node.output_count();
    spec.name = node.name();
    for (size_t i = 0; i < node.output_count(); ++i) {
        spec.output_names.push_back(node.output(i)->name());
        spec.given.push_back(node.output_given(i));
    }
    Node* added = TRY(to.add(std::move(spec)));
    for (size_t i = 0; i < node.output_count(); ++i) map[node.output(i)] = added->output(i);
    return {};
}

}  // namespace tessera
