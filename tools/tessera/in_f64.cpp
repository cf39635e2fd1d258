#include "in_f64.h"

namespace tessera::cli {
namespace {

constexpr int64_t kOnnxFloat = 1, kOnnxDouble = 11;
constexpr const char* kTypeAttrs[] = {"to", "dtype", "stash_type", "softmax_precision"};

Result<Tensor> widened(const Tensor& t) {
    if (t.dtype() != DType::f32) return t;
    Tensor wide = TRY(Tensor::zeros(DType::f64, t.sizes()));
    auto from = t.as<float>();
    std::copy(from.begin(), from.end(), wide.mutable_as<double>().begin());
    return wide;
}

Type widened(const Type& type) {
    if (!type.is_tensor() || type.tensor().dtype != DType::f32) return type;
    TensorType wide = type.tensor();
    wide.dtype = DType::f64;
    return wide;
}

Result<AttrMap> widened(const Node& node) {
    AttrMap attrs = node.attrs();
    for (auto& [name, attr] : attrs) {
        if (std::holds_alternative<GraphPtr>(attr))
            return Error(Code::E0208, "a nested graph has no f64 form").at(node.where());
        if (auto* tensor = std::get_if<Tensor>(&attr)) *tensor = TRY(widened(*tensor));
    }
    for (const AttrDef& def : node.op().attrs)
        for (const char* name : kTypeAttrs) {
            if (def.name != name) continue;
            auto it = attrs.find(name);
            auto* number = std::get_if<int64_t>(it != attrs.end() ? &it->second
                                                : def.fallback    ? &*def.fallback
                                                                  : nullptr);
            if (number && *number == kOnnxFloat) attrs[name] = kOnnxDouble;
        }
    return attrs;
}

}  // namespace

Result<Datum> in_f64(const Datum& value) {
    if (!value.is_tensor()) return value;
    return Datum(TRY(widened(value.tensor())));
}

Result<Model> in_f64(const Model& model) {
    const Graph& from = model.graph();
    auto to = std::make_shared<Graph>(from.name());
    to->info() = from.info();
    std::unordered_map<const Value*, Value*> map;
    for (const auto& v : from.inputs()) {
        std::optional<Tensor> fallback;
        if (v->tensor()) fallback = TRY(widened(*v->tensor()));
        map[v.get()] = to->add_input(v->name(), widened(v->type()), fallback);
    }
    for (const auto& v : from.constants()) map[v.get()] = to->constant(TRY(widened(*v->tensor())), v->name());
    for (const auto& node : from.nodes()) {
        NodeSpec spec{.op = &node->op(), .inputs = {}};
        for (Value* v : node->inputs()) spec.inputs.push_back(v ? map.at(v) : nullptr);
        spec.attrs = TRY(widened(*node));
        spec.outputs = node->output_count();
        spec.name = node->name();
        for (size_t i = 0; i < node->output_count(); ++i) {
            spec.output_names.push_back(node->output(i)->name());
            spec.given.push_back(node->output_given(i));
        }
        Node* added = TRY(to->add(std::move(spec)));
        for (size_t i = 0; i < node->output_count(); ++i) map[node->output(i)] = added->output(i);
    }
    for (size_t i = 0; i < from.outputs().size(); ++i)
        to->add_output(map.at(from.outputs()[i]), from.output_names()[i]);
    return Model(to);
}

Result<std::vector<Datum>> evaluate_in_f64(const Model& model, const NamedData& given) {
    Model wide = TRY(in_f64(model));
    NamedData inputs;
    for (const auto& [name, value] : given) inputs.emplace(name, TRY(in_f64(value)));
    return wide.run(inputs, {.cancel = &interrupted()});
}

}  // namespace tessera::cli
