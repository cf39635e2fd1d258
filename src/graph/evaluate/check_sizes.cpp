#include "graph/evaluate/check_sizes.h"

#include <algorithm>
#include <deque>

#include "graph/evaluate/evaluate_node.h"
#include "graph/infer.h"

namespace tessera {
namespace {

bool has_symbols(const Type& type) {
    if (type.is_sequence() || type.is_optional()) return has_symbols(type.element());
    if (!type.is_tensor()) return false;
    for (const Dim& d : type.tensor().shape)
        if (!d.as_int()) return true;
    return false;
}

bool is_negative(const Shape& shape) {
    return std::any_of(shape.begin(), shape.end(), [](const Dim& d) { return d.as_int().value_or(0) < 0; });
}

Status check_node(const Node& node, const SymbolValues& symbols) {
    std::vector<Type> types;
    std::vector<const Tensor*> values;
    std::vector<const std::vector<Expr>*> contents;
    std::deque<std::vector<Expr>> known;
    for (const Value* v : node.inputs()) {
        types.push_back(v ? sized(v->type(), symbols) : Type());
        values.push_back(v && v->is_constant() && v->tensor()->data() ? &*v->tensor() : nullptr);  // not let go of
        contents.push_back(nullptr);
        if (!v || !v->contents()) continue;
        known.emplace_back();
        for (const Expr& e : *v->contents()) {
            auto n = evaluate_int(e, symbols);
            known.back().push_back(n ? Expr(*n) : e);
        }
        contents.back() = &known.back();
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < node.output_count(); ++i) names.push_back(node.output(i)->name());
    OpView view(node.op(), node.attrs(), std::move(types), node.output_count());
    view.with_values(std::move(values)).with_contents(std::move(contents)).with_output_names(std::move(names));
    view.at(node.where());
    Types found = TRY(infer_types(view));
    for (size_t i = 0; i < node.output_count() && i < found.size(); ++i) {
        const Type said = sized(node.output(i)->type(), symbols);
        if (!said.is_tensor() || !found[i].is_tensor()) continue;
        const Shape &a = said.tensor().shape, &b = found[i].tensor().shape;
        if (!a.ranked() || !b.ranked()) continue;
        bool same = a.rank() == b.rank();
        for (int64_t d = 0; same && d < a.rank(); ++d)
            same = !a[d].as_int() || !b[d].as_int() || a[d].as_int() == b[d].as_int();
        if (!same && is_negative(a))
            return view
                .error(Code::E0411, "\"{}\" comes out {}, as an input is empty, and its sizes are computed as {}",
                       node.output(i)->name(), b, a)
                .hint("compiled code does not support this empty input; the evaluator does");
        if (!same)
            return view.error(Code::E0411, "\"{}\" is {} at run time, but {} in the model", node.output(i)->name(), b,
                              a);
    }
    return {};
}

}  // namespace

Status check_sizes(const Graph& graph, const SymbolValues& symbols) {
    for (const auto& node : graph.nodes()) {
        bool depends = false;
        for (const Value* v : node->inputs()) depends |= v && (has_symbols(v->type()) || v->contents().has_value());
        if (depends) TRY(check_node(*node, symbols));
    }
    return {};
}

}  // namespace tessera
