#include "train/training_mode.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "graph/expand_node.h"
#include "graph/gradient/gradient.h"

namespace tessera {
namespace {

constexpr std::string_view kBatchNormalization = "batch_normalization", kDropout = "dropout";

std::vector<Node*> nodes_called(const Graph& graph, std::string_view op) {
    std::vector<Node*> found;
    for (const auto& node : graph.nodes())
        if (node->op().name == op) found.push_back(node.get());
    return found;
}

void replace_node(Graph& graph, Node& node, const std::vector<Value*>& by) {
    for (size_t i = 0; i < std::min(by.size(), node.output_count()); ++i) graph.replace_uses(node.output(i), by[i]);
    graph.erase(node);
}

// 32 bits that look random, from 32: multiplications and shifts (Wellons' lowbias32).
Value* mixed(Builder& b, Value* x) {
    auto number = [&](uint32_t v) { return b.constant(Tensor::scalar<uint32_t>(v)); };
    auto shifted = [&](Value* v, uint32_t by) {
        return b.op("bitwise_xor",
                    {v, b.op("bit_shift", {v, number(by)}, {{"direction", Attr(std::string("RIGHT"))}})});
    };
    x = b.mul(shifted(x, 16), number(0x7feb352dU));
    x = b.mul(shifted(x, 15), number(0x846ca68bU));
    return shifted(x, 16);
}

// Ratios are of 2^24, which f32 holds exactly.
Value* kept_by_counter(Builder& b, Value* x, double ratio, Value* seed, uint32_t stream) {
    Value* places = b.op("range", {b.scalar(0, DType::i64), b.op("size", {x}), b.scalar(1, DType::i64)});
    Value* key =
        mixed(b, b.op("bitwise_xor", {b.cast(seed, DType::u32), b.constant(Tensor::scalar<uint32_t>(stream))}));
    Value* bits = mixed(b, b.add(mixed(b, b.cast(places, DType::u32)), key));
    Value* high =
        b.op("bit_shift", {bits, b.constant(Tensor::scalar<uint32_t>(8))}, {{"direction", Attr(std::string("RIGHT"))}});
    auto threshold = static_cast<uint32_t>(ratio * double(1 << 24));
    Value* kept = b.op("greater_or_equal", {high, b.constant(Tensor::scalar<uint32_t>(threshold))});
    return b.op("reshape", {kept, b.op("shape", {x})});
}

Result<double> ratio_of(const Node& node) {
    if (!node.input(1)) return 0.5;
    if (!node.input(1)->is_constant())
        return Error(Code::E0202, "the ratio of a dropout is not constant").at(node.where());
    const double ratio = node.input(1)->tensor()->real_at(0);
    if (ratio >= 0 && ratio < 1) return ratio;
    return Error(Code::E0407, "expected a dropout ratio from 0 to below 1, got {}", ratio).at(node.where());
}

}  // namespace

std::vector<Value*> running_statistics(const Graph& graph) {
    std::vector<Value*> found;
    for (const Node* node : nodes_called(graph, kBatchNormalization)) {
        found.push_back(node->input(3));
        found.push_back(node->input(4));
    }
    return found;
}

Result<std::vector<RunningStatistic>> normalize_by_batch(Graph& graph) {
    std::vector<RunningStatistic> updated;
    Builder b(graph);
    for (Node* node : nodes_called(graph, kBatchNormalization)) {
        AttrMap attrs = node->attrs();
        attrs["training_mode"] = int64_t{1};
        const std::vector<Value*> in = node->inputs();
        auto out = b.ops(kBatchNormalization, in, attrs, 3);
        TRY(b.status());
        replace_node(graph, *node, out);
        for (size_t i : {1, 2}) updated.push_back({in[i + 2], out[i]});
    }
    graph.sort();
    return updated;
}

Status normalize_by_statistics(Graph& graph) {
    Builder b(graph);
    for (Node* node : nodes_called(graph, kBatchNormalization)) {
        if (node->view().integer("training_mode") == 0) continue;
        AttrMap attrs = node->attrs();
        attrs["training_mode"] = int64_t{0};
        Value* y = b.op(kBatchNormalization, node->inputs(), attrs);
        TRY(b.status());
        replace_node(graph, *node, {y, node->input(3), node->input(4)});
    }
    graph.sort();
    return {};
}

Result<bool> drop_by_counter(Graph& graph, const std::function<Value*()>& seed) {
    Builder b(graph);
    uint32_t stream = 0;
    for (Node* node : nodes_called(graph, kDropout)) {
        const double ratio = TRY(ratio_of(*node));
        Value* x = node->input(0);
        if (ratio == 0) continue;
        Value* kept = kept_by_counter(b, x, ratio, seed(), ++stream);
        TRY(b.status());
        const DType own = x->type().tensor().dtype, wide = own == DType::f64 ? DType::f64 : DType::f32;
        Value* factor = b.op("where", {kept, b.scalar(1 / (1 - ratio), wide), b.scalar(0, wide)});
        Value* scaled = b.cast(b.mul(b.cast(x, wide), factor), own);
        TRY(b.status());
        replace_node(graph, *node, {scaled, kept});
    }
    graph.sort();
    return stream > 0;
}

Status write_out_batch_statistics(Graph& graph) {
    Builder b(graph);
    for (Node* node : nodes_called(graph, kBatchNormalization)) {
        if (node->view().integer("training_mode") == 0) continue;
        const auto smaller = expand_node(*node, b);
        TRY(b.status());
        if (smaller) replace_node(graph, *node, *smaller);
    }
    graph.sort();
    return {};
}

Status write_out_for_gradients(Graph& graph, const std::vector<Value*>& parameters) {
    Builder b(graph);
    std::unordered_set<const Node*> kept;  // that have no expansion here
    for (bool changed = true; changed;) {
        changed = false;
        std::unordered_set<const Value*> active(parameters.begin(), parameters.end());
        std::vector<Node*> composites;
        for (const auto& node : graph.nodes()) {
            const auto& in = node->inputs();
            if (std::none_of(in.begin(), in.end(), [&](const Value* v) { return active.contains(v); })) continue;
            for (size_t i = 0; i < node->output_count(); ++i) active.insert(node->output(i));
            const OpDef& op = node->op();
            const bool by_body = op.body && (!op.body_applies || op.body_applies(node->view()));
            if (op.expand && !has_rule(*node) && !by_body && !kept.contains(node.get()))
                composites.push_back(node.get());
        }
        for (Node* node : composites) {
            const auto smaller = expand_node(*node, b);
            TRY(b.status());
            std::vector<Value*> by = smaller.value_or(std::vector<Value*>());
            by.resize(node->output_count());
            bool whole = true;
            for (size_t i = 0; i < by.size(); ++i) {
                whole &= by[i] || node->output(i)->uses().empty();
                if (!by[i]) by[i] = node->output(i);
            }
            if (!whole) {
                kept.insert(node);
                continue;
            }
            replace_node(graph, *node, by);
            changed = true;
        }
        graph.sort();
    }
    return {};
}

}  // namespace tessera
