#include "train/precision.h"

#include <algorithm>
#include <map>
#include <unordered_set>

namespace tessera {
namespace {

enum class Takes : uint8_t {
    Narrow,   // operands of the narrow type
    AsGiven,  // the narrow type where all operands that depend on the batch have it
};

struct Row {
    std::string_view op;
    Takes takes;
    size_t operands = 8;  // the first so many, where they are f32
};

// Sums within these ops are in f32. Every op that is not listed, and only places no elements elsewhere, takes f32.
constexpr Row kTable[] = {
    {"attention", Takes::Narrow, 3},
    {"conv", Takes::Narrow},
    {"conv_transpose", Takes::Narrow},
    {"einsum", Takes::Narrow},
    {"gemm", Takes::Narrow},
    {"matmul", Takes::Narrow},
    {"abs", Takes::AsGiven},
    {"add", Takes::AsGiven},
    {"average_pool", Takes::AsGiven},
    {"batch_normalization", Takes::AsGiven, 1},  // computed in f32
    {"clip", Takes::AsGiven},
    {"concat", Takes::AsGiven, size_t(-1)},
    {"div", Takes::AsGiven},
    {"dropout", Takes::AsGiven, 1},
    {"elu", Takes::AsGiven},
    {"erf", Takes::AsGiven},
    {"gelu", Takes::AsGiven},
    {"global_average_pool", Takes::AsGiven},
    {"global_max_pool", Takes::AsGiven},
    {"hard_sigmoid", Takes::AsGiven},
    {"hard_swish", Takes::AsGiven},
    {"leaky_relu", Takes::AsGiven},
    {"max", Takes::AsGiven, size_t(-1)},
    {"max_pool", Takes::AsGiven},
    {"min", Takes::AsGiven, size_t(-1)},
    {"mul", Takes::AsGiven},
    {"neg", Takes::AsGiven},
    {"pad", Takes::AsGiven},
    {"prelu", Takes::AsGiven},
    {"reduce_max", Takes::AsGiven},
    {"reduce_mean", Takes::AsGiven},
    {"relu", Takes::AsGiven},
    {"sigmoid", Takes::AsGiven},
    {"softmax", Takes::AsGiven},  // computed in f32
    {"sub", Takes::AsGiven},
    {"swish", Takes::AsGiven},
    {"tanh", Takes::AsGiven},
    {"where", Takes::AsGiven},
};

bool is_f32(const Value* v) { return v && v->type().is_tensor() && v->type().tensor().dtype == DType::f32; }

class Narrowing {
  public:
    Narrowing(Graph& graph, DType narrow, const std::set<const Value*>& weights)
        : graph_(graph), b_(graph), narrow_(narrow), weights_(weights) {}

    Status run() {
        std::vector<Node*> nodes;
        for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
        for (Node* node : nodes) {
            for (size_t i = 0; i < node->output_count(); ++i) varies(node->output(i));
            TRY(visit(*node));
        }
        for (Node* node : replaced_) graph_.erase(*node);
        graph_.sort();
        return {};
    }

  private:
    static std::optional<Row> row_of(const Node& node) {
        const std::string_view op = node.op().name;
        for (const Row& row : kTable)
            if (row.op == op) return row;
        if (node.is(Trait::Movement)) return Row{op, Takes::AsGiven, size_t(-1)};
        return {};
    }

    // Whether it depends on the batch, by way of floats.
    bool varies(const Value* v) {
        if (!is_f32(v) || v->is_constant() || weights_.contains(v)) return false;
        if (!v->node()) return true;
        auto [at, first] = varies_.try_emplace(v, true);
        if (!first) return at->second;
        const auto& in = v->node()->inputs();
        return varies_[v] = std::any_of(in.begin(), in.end(), [&](const Value* i) { return varies(i); });
    }

    bool becomes_narrow(const Node& node, const Row& row) {
        bool any = false, all = true;
        for (size_t i = 0; i < node.inputs().size(); ++i) {
            const Value* v = node.input(i);
            if (!v || !v->type().is_tensor()) continue;
            if (i >= row.operands) continue;
            any |= narrow_of_.contains(v);
            if (row.takes == Takes::Narrow)
                all &= is_f32(v);
            else
                all &= !varies(v) || narrow_of_.contains(v);
        }
        return all && (any || row.takes == Takes::Narrow);
    }

    Value* narrow_form(Value* v) {
        if (auto known = narrow_of_.find(v); known != narrow_of_.end()) return known->second;
        if (varies(v)) return b_.cast(v, narrow_);  // for each reader, whose gradients add up in f32
        Value*& once = narrow_weights_[v];
        if (!once) once = b_.cast(v, narrow_);
        return once;
    }

    Status visit(Node& node) {
        const auto row = row_of(node);
        if (!row || !is_f32(node.output(0)) || !becomes_narrow(node, *row)) return {};
        std::vector<Value*> in = node.inputs();
        for (size_t i = 0; i < std::min(in.size(), row->operands); ++i)
            if (is_f32(in[i])) in[i] = narrow_form(in[i]);
        const std::vector<Value*> out = b_.ops(node.op().name, in, node.attrs(), node.output_count());
        TRY(b_.status());
        for (size_t i = 0; i < out.size(); ++i) {
            Value* same = out[i];
            if (out[i]->type().is_tensor() && out[i]->type().tensor().dtype == narrow_) {
                same = b_.cast(out[i], DType::f32);
                narrow_of_[same] = out[i];
                varies_[same] = true;
            }
            graph_.replace_uses(node.output(i), same);
        }
        TRY(b_.status());
        replaced_.push_back(&node);
        return {};
    }

    Graph& graph_;
    Builder b_;
    const DType narrow_;
    const std::set<const Value*>& weights_;
    std::map<const Value*, Value*> narrow_of_;       // of f32 values, what they were before they were widened
    std::map<const Value*, Value*> narrow_weights_;  // of those that do not vary
    std::map<const Value*, bool> varies_;
    std::vector<Node*> replaced_;
};

}  // namespace

Status narrow_values(Graph& graph, DType narrow, const std::set<const Value*>& weights) {
    return Narrowing(graph, narrow, weights).run();
}

}  // namespace tessera
