#include "quantize/plan.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>

namespace tessera {
namespace {

const std::set<std::string_view> kElementwiseOps = {
    "add",        "mul",     "concat", "average_pool", "global_average_pool",
    "leaky_relu", "sigmoid", "tanh",   "hard_sigmoid", "hard_swish",
    "swish",      "gelu",    "elu",    "prelu",        "reduce_mean"};
const std::set<std::string_view> kMovementOps = {"max_pool", "reshape",  "transpose",     "squeeze", "unsqueeze",
                                                 "flatten",  "slice",    "gather",        "split",   "depth_to_space",
                                                 "expand",   "identity", "space_to_depth"};

bool is_one_float(const Value* v) { return v && v->is_constant() && is_f32(v) && v->tensor()->elements() == 1; }
int64_t int_attr_of(const Node& node, const char* name) {
    const auto at = node.attrs().find(name);
    return at == node.attrs().end() ? 0 : std::get<int64_t>(at->second);
}
bool is_one(const Node& node, const char* name) {
    const auto at = node.attrs().find(name);
    return at == node.attrs().end() || std::get<float>(at->second) == 1;
}

// Why a layer cannot be computed with integers; empty if it can.
std::string obstacle(const Node& node, const QuantizeOptions& options) {
    if (!is_f32(node.input(0)) || !is_f32(node.input(1))) return "its inputs are not f32";
    if (!node.input(0)->type().tensor().shape.ranked()) return "the rank of its input is not known";
    const bool constant = node.input(1)->is_constant();
    if (node.input(0)->is_constant()) return "its first input is constant";
    if (node.op().name == "conv") return constant ? "" : "its weight is not constant";
    if (node.op().name == "conv_transpose") return "no integer form of ConvTranspose";
    if (node.op().name == "gemm") {
        if (!constant) return "its weight is not constant";
        if (int_attr_of(node, "transA")) return "its first input is transposed";
        return is_one(node, "alpha") && is_one(node, "beta") ? "" : "it is scaled by alpha or beta";
    }
    if (!constant) return options.products ? "" : "a product of two activations";
    return node.input(1)->tensor()->rank() == 2 ? "" : "its weight is not a matrix";
}

class Planner {
  public:
    Planner(Graph& graph, const Profile& profile, const QuantizeOptions& options, RangeChoice choice)
        : graph_(graph),
          profile_(profile),
          options_(options),
          choice_(std::move(choice)),
          matched_(options.keep.size(), false) {}

    Result<QuantizationPlan> run() {
        for (const auto& node : graph_.nodes()) visit(*node);
        for (size_t i = 0; i < matched_.size(); ++i)
            if (!matched_[i])
                return Error(Code::E0501, "\"{}\" matches no node that could be quantized", options_.keep[i])
                    .hint("a pattern matches nodes, values, or operators such as Conv");
        for (Value* v : order_) TRY(choose(v));
        plan_.values = std::move(order_);
        return std::move(plan_);
    }

  private:
    bool kept(const Node& node) {
        bool any = false;
        const std::string names[] = {node.name(), node.output()->name(), op_label(node)};
        for (size_t i = 0; i < matched_.size(); ++i)
            for (const std::string& name : names)
                if (!name.empty() && fnmatch(options_.keep[i].c_str(), name.c_str(), 0) == 0) any = matched_[i] = true;
        return any;
    }

    void demand(Value* v) {
        if (!v->is_constant() && plan_.params.emplace(v, QuantParams()).second) order_.push_back(v);
    }
    bool available(const Value* v) const {
        const auto at = plan_.everywhere.find(v);
        return at != plan_.everywhere.end();
    }
    // The value and all its uses are quantized; a rectifier that alone uses it goes before.
    Value* produce(Value* v) {
        while (v->uses().size() == 1 && v->uses()[0].node && v->uses()[0].graph == &graph_ &&
               kind_of(*v->uses()[0].node) == OpKind::Rectifier && !kept(*v->uses()[0].node))
            v = v->uses()[0].node->output();
        demand(v);
        plan_.everywhere[v] = true;
        return v;
    }

    void visit(Node& node) {
        switch (kind_of(node)) {
            case OpKind::Layer: return visit_layer(node);
            case OpKind::Elementwise: return visit_elementwise(node);
            case OpKind::Movement:
                if (node.input(0) && available(node.input(0)) && !kept(node) && node.output_count() == 1 &&
                    !available(node.output())) {
                    shares_[node.output()] = node.input(0);
                    demand(node.output());
                    plan_.everywhere[node.output()] = true;
                }
                return;
            case OpKind::Rectifier:
                if (available(node.input(0)) && !available(node.output()) && !kept(node)) (void)produce(node.output());
                return;
            case OpKind::Other: return;
        }
    }

    void visit_layer(Node& node) {
        std::string why = kept(node) ? "kept by request" : obstacle(node, options_);
        plan_.layers.push_back({&node, node.output(), why});
        if (!why.empty()) return;
        demand(node.input(0));
        if (!node.input(1)->is_constant()) demand(node.input(1));
        // A matrix product may leave floats, which a bias or a normalization reads; a convolution is fused with the
        // quantization of its output.
        if (node.op().name == "conv") plan_.layers.back().result = produce(node.output());
    }

    void visit_elementwise(Node& node) {
        if (!is_f32(node.output()) || available(node.output())) return;
        bool some = false;
        for (size_t i = 0; i < node.inputs().size(); ++i) {
            const Value* v = node.input(i);
            if (!v || !is_f32(v)) continue;
            if (v->is_constant() ? !is_one_float(v) : !available(v)) return;
            some |= !v->is_constant();
        }
        if (!some || kept(node)) return;
        plan_.elementwise.push_back(&node);
        (void)produce(node.output());
    }

    Status choose(const Value* v) {
        if (const auto shared = shares_.find(v); shared != shares_.end()) {
            plan_.params[v] = plan_.params[shared->second];
            return {};
        }
        const auto found = profile_.values.find(v->name());
        if (found == profile_.values.end() || found->second.count == 0)
            return Error(Code::E0501, "the profile has no data for \"{}\"", v->name())
                .hint("the samples must reach every layer; name a layer in keep to leave it in floating point");
        plan_.params[v] = choose_params(found->second, choice_);
        return {};
    }

    Graph& graph_;
    const Profile& profile_;
    const QuantizeOptions& options_;
    RangeChoice choice_;
    std::vector<bool> matched_;
    QuantizationPlan plan_;
    std::vector<Value*> order_;
    std::unordered_map<const Value*, const Value*> shares_;
};

// Clip with constant bounds, or without.
bool constant_bounds(const Node& node) {
    for (size_t i = 1; i < node.inputs().size(); ++i)
        if (node.input(i) && !node.input(i)->is_constant()) return false;
    return true;
}

}  // namespace

bool is_f32(const Value* v) { return v && v->type().is_tensor() && v->type().tensor().dtype == DType::f32; }

OpKind kind_of(const Node& node) {
    const std::string& op = node.op().name;
    if (op == "conv" || op == "conv_transpose" || op == "matmul" || op == "gemm") return OpKind::Layer;
    if (op == "relu" || (op == "clip" && constant_bounds(node))) return OpKind::Rectifier;
    if (kElementwiseOps.contains(op)) return OpKind::Elementwise;
    if (kMovementOps.contains(op)) return OpKind::Movement;
    return OpKind::Other;
}

int64_t channel_axis(const Node& layer) { return layer.op().has(Trait::Window) ? 1 : -1; }

std::string layer_name(const Node& node) { return node.name().empty() ? node.output()->name() : node.name(); }

std::string op_label(const Node& node) { return node.op().onnx.name.empty() ? node.op().name : node.op().onnx.name; }

Result<QuantizationPlan> plan_quantization(Graph& graph, const Profile& profile, const QuantizeOptions& options) {
    return Planner(graph, profile, options, TRY(range_choice(options))).run();
}

}  // namespace tessera
