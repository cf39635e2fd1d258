#include "shard/simulate/split_passes.h"

#include <fmt/ranges.h>

#include <unordered_map>
#include <unordered_set>

#include "graph/count.h"
#include "shard/simulate/kernel_time.h"

namespace tessera::shard {
namespace {

constexpr std::pair<Recompute, std::string_view> kRecomputes[] = {
    {Recompute::None, "none"}, {Recompute::Selective, "selective"}, {Recompute::Full, "full"}};

// Operations for a byte of the result up to which it is computed again, not kept. A product over 12288 features takes
// 12288 for a byte in bf16, the scores of attention with heads of 128 take 128, a norm some 10.
constexpr double kFewOperations = 512, kElementwise = 32;

double bytes_of_value(const Value& v) {
    double bytes = double(dtype_bytes(v.type().tensor().dtype));
    for (const Dim& d : v.type().tensor().shape) bytes *= double(d.as_int().value_or(1));
    return bytes;
}

bool takes_few_operations(const Value& v, double few) {
    const Cost cost = count(*v.node());
    if (!is_product(*v.node())) return cost.complete;  // a reduction over a row is a part of a kernel too
    return cost.complete && double(cost.flops.as_int().value_or(0)) < few * bytes_of_value(v);
}

class Splitting {
  public:
    Splitting(const Graph& graph, Recompute recompute) : graph_(graph), recompute_(recompute) {}

    Result<SplitPasses> run() {
        mark_forward(graph_.outputs()[0]);
        for (size_t i = 1; i < graph_.outputs().size(); ++i) visit(graph_.outputs()[i]);
        SplitPasses made{.forward = {}, .backward = {}, .inputs = graph_.inputs().size(), .kept = kept_.size()};
        const auto& outputs = graph_.outputs();
        const auto& names = graph_.output_names();
        std::vector<const Value*> of_forward{outputs[0]};
        std::vector<std::string> forward_names{names[0]};
        for (const Value* v : kept_) {
            of_forward.push_back(v);
            forward_names.push_back("kept_" + v->name());
        }
        made.forward = TRY(subgraph(graph_, "forward", {}, of_forward, forward_names));
        made.backward = TRY(subgraph(graph_, "backward", kept_, {outputs.begin() + 1, outputs.end()},
                                     {names.begin() + 1, names.end()}));
        return made;
    }

  private:
    void mark_forward(const Value* v) {
        if (!v || !v->node() || !forward_.insert(v->node()).second) return;
        for (const Value* in : v->node()->inputs()) mark_forward(in);
    }

    // What the backward pass reads.
    void visit(const Value* v) {
        if (!v || !v->node() || !seen_.insert(v).second) return;
        if (forward_.contains(v->node()) && keeps(*v)) {
            kept_.push_back(v);
            return;
        }
        for (const Value* in : v->node()->inputs()) visit(in);
    }
    bool keeps(const Value& v) {
        if (recompute_ == Recompute::Full || !v.type().is_tensor() || !depends(&v)) return false;
        if (v.node()->is(Trait::Movement) && v.node()->inputs().size() > 0) return false;  // its input is kept instead
        const double few = recompute_ == Recompute::None ? kElementwise : kFewOperations;
        if (!takes_few_operations(v, few)) return true;
        // The narrow copy of what would be kept otherwise.
        const Value* wide =
            v.node()->is(Trait::Elementwise) && v.node()->inputs().size() == 1 ? v.node()->input(0) : nullptr;
        return wide && wide->node() && forward_.contains(wide->node()) && bytes_of_value(v) < bytes_of_value(*wide) &&
               !takes_few_operations(*wide, few);
    }
    // On an input of the graph, not on constants alone.
    bool depends(const Value* v) {
        if (!v || v->is_constant()) return false;
        if (!v->node()) return true;
        if (auto at = depends_.find(v); at != depends_.end()) return at->second;
        bool any = false;
        for (const Value* in : v->node()->inputs()) any = any || depends(in);
        return depends_[v] = any;
    }

    const Graph& graph_;
    const Recompute recompute_;
    std::unordered_set<const Node*> forward_;
    std::unordered_set<const Value*> seen_;
    std::unordered_map<const Value*, bool> depends_;
    std::vector<const Value*> kept_;
};

}  // namespace

Result<Recompute> read_recompute(std::string_view name) {
    std::vector<std::string_view> names;
    for (const auto& [recompute, known] : kRecomputes) {
        if (known == name) return recompute;
        names.push_back(known);
    }
    return Error(Code::E0501, "there is no recomputation \"{}\"", name).hint("there are: {}", fmt::join(names, ", "));
}

Result<std::shared_ptr<Graph>> subgraph(const Graph& graph, const std::string& name,
                                        const std::vector<const Value*>& given,
                                        const std::vector<const Value*>& outputs,
                                        const std::vector<std::string>& output_names) {
    auto to = std::make_shared<Graph>(name);
    std::unordered_map<const Value*, Value*> copies;
    for (const auto& in : graph.inputs()) copies[in.get()] = to->add_input(in->name(), in->type());
    for (const Value* v : given) copies[v] = to->add_input(v->name(), v->type());
    std::unordered_set<const Node*> needed;
    std::vector<const Value*> work = outputs;
    while (!work.empty()) {
        const Value* v = work.back();
        work.pop_back();
        if (!v || copies.contains(v) || !v->node() || !needed.insert(v->node()).second) continue;
        work.insert(work.end(), v->node()->inputs().begin(), v->node()->inputs().end());
    }
    auto copy_of = [&](const Value* v) -> Value* {
        if (!v) return nullptr;
        if (v->is_constant() && !copies.contains(v)) copies[v] = to->constant(*v->tensor(), v->name());
        return copies.at(v);
    };
    for (const auto& node : graph.nodes()) {
        if (!needed.contains(node.get())) continue;
        NodeSpec spec{.op = &node->op(),
                      .inputs = {},
                      .attrs = node->attrs(),
                      .outputs = node->output_count(),
                      .name = node->name()};
        for (const Value* in : node->inputs()) spec.inputs.push_back(copy_of(in));
        for (size_t i = 0; i < node->output_count(); ++i) {
            spec.output_names.push_back(node->output(i)->name());
            spec.given.push_back(node->output_given(i));
        }
        const Node* copy = TRY(to->add(std::move(spec)));
        for (size_t i = 0; i < node->output_count(); ++i) copies.try_emplace(node->output(i), copy->output(i));
    }
    for (size_t i = 0; i < outputs.size(); ++i) to->add_output(copy_of(outputs[i]), output_names[i]);
    return to;
}

Result<SplitPasses> split_passes(const Graph& graph, Recompute recompute) { return Splitting(graph, recompute).run(); }

}  // namespace tessera::shard
