#include "in_f64.h"

#include "graph/wider_floats.h"

namespace tessera::cli {
Result<Datum> in_f64(const Datum& value) {
    if (!value.is_tensor()) return value;
    return Datum(TRY(widened(value.tensor(), kSinglesToDoubles)));
}

Result<Model> in_f64(const Model& model) {
    const Graph& from = model.graph();
    auto to = std::make_shared<Graph>(from.name());
    to->info() = from.info();
    std::unordered_map<const Value*, Value*> map;
    for (const auto& v : from.inputs()) {
        std::optional<Tensor> fallback;
        if (v->tensor()) fallback = TRY(widened(*v->tensor(), kSinglesToDoubles));
        map[v.get()] = to->add_input(v->name(), widened(v->type(), kSinglesToDoubles), fallback);
    }
    for (const auto& v : from.constants())
        map[v.get()] = to->constant(TRY(widened(*v->tensor(), kSinglesToDoubles)), v->name());
    for (const auto& node : from.nodes()) TRY(add_widened(*to, *node, map, kSinglesToDoubles));
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
