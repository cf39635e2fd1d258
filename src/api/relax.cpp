#include "api/relax.h"

#include <set>

#include "graph/evaluate/bind_inputs.h"
#include "graph/evaluate/check_sizes.h"

namespace tessera {

bool contradicts_sizes(const Error& error) {
    return error.code() == Code::E0405 || error.code() == Code::E0411 || error.code() == Code::E0210;
}

Warning warning_of_run(const Error& contradiction) {
    return {Code::W0203, contradiction.message(), contradiction.where(),
            "the run goes on by the sizes that are there; load the model with strict to refuse it"};
}

bool can_be_contradicted(const Model& model) {
    if (model.declared_sizes()) return true;
    std::set<std::string> seen;
    for (const auto& v : model.loaded()->inputs()) {
        if (!v->type().is_tensor()) continue;
        for (const Dim& d : v->type().tensor().shape)
            for (const std::string& name : free_symbols(d))
                if (!seen.insert(name).second || !d.is(ExprKind::Var)) return true;
    }
    return false;
}

bool has_dynamic_pools(const Graph& graph) {
    for (const auto& node : graph.nodes()) {
        if (!node->op().attr("ceil_mode")) continue;
        const Type& x = node->input(0)->type();
        if (!x.is_tensor() || !x.tensor().shape.ranked()) return true;
        for (int64_t d = 2; d < x.tensor().rank(); ++d)
            if (!x.tensor().shape[d].as_int()) return true;
    }
    return false;
}

Result<std::shared_ptr<Graph>> for_sizes_of(const Graph& graph, const NamedData& inputs) {
    std::optional<Error> ignored;
    const std::vector<Datum> bound = TRY(bind_inputs(graph, inputs, &ignored));
    std::shared_ptr<Graph> out = graph.clone();
    for (size_t i = 0; i < bound.size(); ++i) {
        Value& input = *out->inputs()[i];
        if (bound[i].is_tensor() && input.type().is_tensor())
            input.set_type(Type(input.type().tensor().dtype, Shape(bound[i].tensor().sizes())));
    }
    TRY(out->infer_again());
    return out;
}

Result<std::shared_ptr<Graph>> relaxed(const Graph& graph, const NamedData& inputs, bool all) {
    std::optional<Error> ignored;
    const std::vector<Datum> bound = TRY(bind_inputs(graph, inputs, &ignored));
    std::shared_ptr<Graph> out = graph.clone();
    SymbolValues sizes;
    for (size_t i = 0; i < bound.size(); ++i) {
        Value& input = *out->inputs()[i];
        if (!bound[i].is_tensor() || !input.type().is_tensor() || !input.type().tensor().shape.ranked()) continue;
        TensorType type = input.type().tensor();
        for (int64_t d = 0; d < type.rank(); ++d) {
            if (type.shape[d].as_int()) continue;
            const int64_t size = bound[i].tensor().size(d);
            const bool name = type.shape[d].is(ExprKind::Var);
            if (name) sizes.try_emplace(type.shape[d].node().name, size);
            auto said = evaluate_int(type.shape[d], sizes);
            if (!all && said == size) continue;
            type.shape[d] = symbol(fmt::format("{}.d{}", input.name(), d));
            sizes[type.shape[d].node().name] = size;
        }
        input.set_type(std::move(type));
    }
    TRY(out->infer_again());
    TRY(check_sizes(*out, sizes));
    return out;
}

}  // namespace tessera
