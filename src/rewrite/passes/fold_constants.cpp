#include <algorithm>
#include <limits>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/for_kernels.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

constexpr int64_t kMaxWork = int64_t{1} << 30;  // scalar operations for one node

// The elements of an integer value whose contents are all known numbers.
std::optional<Tensor> known_integers(const Value& v) {
    if (!v.contents() || !v.type().is_tensor()) return std::nullopt;
    DType dtype = v.type().tensor().dtype;
    auto sizes = v.type().tensor().shape.sizes();
    if (!sizes || (dtype != DType::i64 && dtype != DType::i32 && dtype != DType::boolean)) return std::nullopt;
    int64_t low = dtype == DType::i32 ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
    int64_t high = dtype == DType::i32 ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
    auto made = Tensor::zeros(dtype, *sizes);
    if (!made.ok() || made->elements() != int64_t(v.contents()->size())) return std::nullopt;
    for (int64_t i = 0; i < made->elements(); ++i) {
        auto n = (*v.contents())[size_t(i)].as_int();
        if (!n || *n < low || *n > high || (dtype == DType::boolean && *n != 0 && *n != 1)) return std::nullopt;
        made->set_int(i, *n);
    }
    return std::move(*made);
}

// How many bytes the outputs take; nothing where that is not known.
std::optional<int64_t> output_bytes(const Node& node) {
    int64_t total = 0;
    for (size_t i = 0; i < node.output_count(); ++i) {
        const Type& type = node.output(i)->type();
        if (!type.is_tensor() || type.tensor().dtype == DType::string) return std::nullopt;
        auto sizes = type.tensor().shape.ranked() ? type.tensor().shape.sizes() : std::nullopt;
        auto count = sizes ? element_count(*sizes) : Result<int64_t>(Error(Code::E0108, "not known"));
        if (!count.ok()) return std::nullopt;
        if (__builtin_add_overflow(total, *count * int64_t(dtype_bytes(type.tensor().dtype)), &total))
            return std::nullopt;
    }
    return total;
}

bool foldable(const Node& node) {
    if (!repeatable(node) || has_nested(node)) return false;
    for (const Value* v : node.inputs())
        if (v && (!v->is_constant() || v->tensor()->dtype() == DType::string)) return false;
    for (size_t i = 0; i < node.output_count(); ++i) {
        const Type& type = node.output(i)->type();
        if (!type.is_tensor() || type.tensor().dtype == DType::string) return false;
    }
    return true;
}

// The node's outputs where they are worth keeping instead of it; empty otherwise.
std::vector<Tensor> values_of(const Node& node, const PassContext& context) {
    int64_t given = 0;
    std::vector<std::optional<Datum>> inputs;
    for (const Value* v : node.inputs()) {
        inputs.push_back(v ? std::optional<Datum>(*v->tensor()) : std::nullopt);
        if (v) given += v->tensor()->bytes();
    }
    auto room = [&](int64_t bytes) { return bytes - given <= context.fold_limit; };
    if (auto bytes = output_bytes(node); bytes && !room(*bytes)) return {};
    EvaluateOptions options{.max_work = kMaxWork, .cancel = context.cancel};
    auto results = evaluate_op(node.op(), inputs, node.attrs(), node.output_count(), options);
    if (!results.ok() || results->size() < node.output_count()) return {};  // what fails is left to fail at run time
    std::vector<Tensor> values;
    int64_t bytes = 0;
    for (size_t i = 0; i < node.output_count(); ++i) {
        if (!(*results)[i].is_tensor()) return {};
        values.push_back((*results)[i].tensor());
        bytes += values.back().bytes();
    }
    return room(bytes) ? values : std::vector<Tensor>{};
}

void replace(Value& v, Tensor value, Rewriting::Replaced& replaced) {
    if (v.uses().empty()) return;
    Value* c = v.graph().constant(std::move(value));
    std::string was = v.name();
    if (put_in_place(v, *c, c->uses().empty())) replaced.emplace_back(was, c->name());
}

}  // namespace

Result<Changed> fold_constants(Graph& graph, PassContext& context) {
    size_t before = context.rewrites;
    for (Graph* g : all_graphs(graph)) {
        for (const auto& node : g->nodes()) {
            bool used = false;
            for (size_t i = 0; i < node->output_count(); ++i) used |= !node->output(i)->uses().empty();
            if (!used) continue;
            if (context.cancel && *context.cancel) return Error(Code::E0410, "folding constants was cancelled");
            std::vector<std::optional<Tensor>> values(node->output_count());
            if (foldable(*node) && !context.fold_bytes && feeds_bytes(*node)) continue;
            if (foldable(*node) && !context.fold_byte_floats && feeds_byte_floats(*node)) continue;
            if (foldable(*node)) {
                std::vector<Tensor> all = values_of(*node, context);
                std::move(all.begin(), all.end(), values.begin());
            } else if (repeatable(*node)) {
                for (size_t i = 0; i < node->output_count(); ++i) values[i] = known_integers(*node->output(i));
            }
            bool any = false;
            for (size_t i = 0; i < values.size(); ++i) any |= values[i] && !node->output(i)->uses().empty();
            if (!any) continue;
            Rewriting rewriting(context, "fold", {node.get()});
            Rewriting::Replaced replaced;
            for (size_t i = 0; i < values.size(); ++i)
                if (values[i]) replace(*node->output(i), std::move(*values[i]), replaced);
            if (!replaced.empty()) rewriting.done({}, std::move(replaced));
        }
    }
    if (context.rewrites == before) return false;
    sweep(graph);
    return true;
}

}  // namespace tessera
