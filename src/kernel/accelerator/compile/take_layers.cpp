#include "kernel/accelerator/compile/take_layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "graph/builder.h"
#include "kernel/accelerator/compile/find_layers.h"
#include "quantize/integer_form.h"
#include "rewrite/edit.h"

namespace tessera::accelerator {
namespace {

// Layers that become one program, as a graph of their own.
struct Part {
    std::vector<const FoundLayer*> layers;
    GraphPtr body;
    std::vector<Value*> inputs, outputs;   // of the graph around
    std::unordered_set<const Node*> gone;  // nodes that only the part's layers use

    bool multiplies() const {
        return std::any_of(layers.begin(), layers.end(),
                           [](const FoundLayer* l) { return std::holds_alternative<Conv>(l->layer.work); });
    }
    std::string name() const {
        const std::string& first = layers.front()->layer.name;
        return layers.size() == 1 ? first : first + " to " + layers.back()->layer.name;
    }
};

class PartBuilder {
  public:
    PartBuilder(Graph& graph, std::vector<const FoundLayer*> layers) : graph_(graph) {
        part_.layers = std::move(layers);
        part_.body = graph.nested("part");
    }

    Result<Part> build() {
        for (const FoundLayer* layer : part_.layers) {
            const std::set<const Value*> ends(layer->inputs.begin(), layer->inputs.end());
            TRY(copy(layer->root->output(), ends));
        }
        for (const FoundLayer* layer : part_.layers) part_.gone.insert(layer->root);
        drop_shared();
        for (const FoundLayer* layer : part_.layers) {
            if (!needed(*layer->output)) continue;
            part_.outputs.push_back(layer->output);
            part_.body->add_output(own_.at(layer->output), layer->output->name());
        }
        return std::move(part_);
    }

  private:
    Result<Value*> copy(Value* v, const std::set<const Value*>& ends) {
        if (auto known = own_.find(v); known != own_.end()) return known->second;
        if (v->is_constant()) return own_[v] = part_.body->constant(*v->tensor(), v->name());
        if (ends.contains(v) || !v->node()) {
            part_.inputs.push_back(v);
            return own_[v] = part_.body->add_input(v->name(), v->type());
        }
        Node& node = *v->node();
        NodeSpec spec{.op = &node.op(), .attrs = node.attrs(), .name = node.name(), .output_names = {v->name()}};
        for (Value* in : node.inputs()) spec.inputs.push_back(in ? TRY(copy(in, ends)) : nullptr);
        part_.gone.insert(&node);
        Node* made = TRY(part_.body->add(std::move(spec)));
        return own_[v] = made->output();
    }

    bool is_gone(const Use& use) const { return use.node && part_.gone.contains(use.node); }
    bool needed(const Value& v) const {
        return std::any_of(v.uses().begin(), v.uses().end(), [&](const Use& use) { return !is_gone(use); });
    }
    // Nodes inside of layers that others read too stay.
    void drop_shared() {
        std::set<const Node*> roots;
        for (const FoundLayer* layer : part_.layers) roots.insert(layer->root);
        for (bool again = true; again;) {
            again = false;
            for (auto at = part_.gone.begin(); at != part_.gone.end();) {
                const Node& node = **at;
                const bool stays = !roots.contains(&node) && needed(*node.output());
                at = stays ? part_.gone.erase(at) : std::next(at);
                again |= stays;
            }
        }
    }

    Graph& graph_;
    Part part_;
    std::unordered_map<const Value*, Value*> own_;
};

// Of each layer how many times a path of nodes to it changes from the host to the accelerator. Layers of the same
// number depend on each other without a node of the host in between, or not at all.
std::vector<std::vector<const FoundLayer*>> stages_of(const Graph& graph, const FoundLayers& found,
                                                      const std::set<const Node*>& refused) {
    std::unordered_map<const Node*, const FoundLayer*> roots;
    for (const FoundLayer& layer : found.layers)
        if (!refused.contains(layer.root)) roots.emplace(layer.root, &layer);
    std::unordered_map<const Node*, int> stage;
    std::vector<std::vector<const FoundLayer*>> stages;
    int latest = -1;
    for (const auto& node : graph.nodes()) {
        int own = has_nested(*node) ? latest : -1;  // which may read anything before it
        const auto root = roots.find(node.get());
        if (root == roots.end()) {
            for (const Value* v : node->inputs())
                if (v && v->node()) own = std::max(own, stage.at(v->node()));
        } else {
            own = 0;
            for (const Value* v : root->second->inputs)
                if (v->node()) own = std::max(own, stage.at(v->node()) + (roots.contains(v->node()) ? 0 : 1));
            if (stages.size() <= size_t(own)) stages.resize(size_t(own) + 1);
            stages[size_t(own)].push_back(root->second);
        }
        stage.emplace(node.get(), own);
        latest = std::max(latest, own);
    }
    std::erase_if(stages, [](const auto& s) { return s.empty(); });
    return stages;
}

class Taker {
  public:
    Taker(Graph& graph, const Machine& machine, const NetworkOptions& options, PassContext& context)
        : graph_(graph), machine_(machine), options_(options), context_(context) {}

    Result<Changed> take() {
        Changed changed = TRY(integer_form(graph_));
        if (!machine_.alu) changed |= TRY(leave_rescaling(graph_));
        graph_.sort();
        const FoundLayers found = find_layers(graph_, machine_);
        for (const auto& [node, why] : found.why) reasons_.emplace(node, why);
        std::vector<Part> parts;
        for (;;) {
            parts.clear();
            const size_t before = refused_.size();
            for (auto& layers : stages_of(graph_, found, refused_)) {
                Part part = TRY(PartBuilder(graph_, std::move(layers)).build());
                if (TRY(accepted(part))) parts.push_back(std::move(part));
            }
            if (refused_.size() == before) break;
        }
        for (Part& part : parts) changed |= TRY(put_in_place(part));
        explain(parts);
        graph_.erase_unused();
        graph_.sort();
        return changed;
    }

  private:
    void refuse(const FoundLayer& layer, const std::string& why) {
        refused_.insert(layer.root);
        reasons_.emplace(layer.root, why);
    }

    Status compiles(const Part& part) const {
        Network network = TRY(network_of(*part.body, machine_));
        TRY(compile_network(std::move(network), machine_, options_));
        return {};
    }

    // Where it cannot be compiled, the layers at fault are refused.
    Result<bool> accepted(const Part& part) {
        if (!part.multiplies()) {
            for (const FoundLayer* layer : part.layers)
                refuse(*layer, "no convolution or product is beside it, and copies would cost more");
            return false;
        }
        const Status whole = compiles(part);
        if (whole.ok()) return true;
        const size_t before = refused_.size();
        for (const FoundLayer* layer : part.layers) {
            const Part alone = TRY(PartBuilder(graph_, {layer}).build());
            if (const Status one = compiles(alone); !one.ok()) refuse(*layer, one.error().message());
        }
        if (refused_.size() == before)
            for (const FoundLayer* layer : part.layers) refuse(*layer, whole.error().message());
        return false;
    }

    Result<Changed> put_in_place(Part& part) {
        if (part.outputs.empty()) return Changed(false);
        NodeSpec spec{.op = find_op("offload"), .inputs = part.inputs, .name = part.name()};
        for (Value*& in : spec.inputs)
            if (auto made = replaced_.find(in); made != replaced_.end()) in = made->second;
        spec.outputs = part.outputs.size();
        spec.attrs.emplace("body", Attr(std::move(part.body)));
        Node* made = TRY(graph_.add(std::move(spec)));
        for (size_t i = 0; i < part.outputs.size(); ++i) {
            graph_.replace_uses(part.outputs[i], made->output(i));
            replaced_.emplace(part.outputs[i], made->output(i));
        }
        return Changed(true);
    }

    void explain(const std::vector<Part>& parts) {
        std::unordered_set<const Node*> gone;
        for (size_t i = 0; i < parts.size(); ++i) {
            gone.insert(parts[i].gone.begin(), parts[i].gone.end());
            for (const FoundLayer* layer : parts[i].layers)
                context_.choices.push_back(
                    {fmt::format("{} {} on {}", layer->layer.op, layer->layer.name, machine_.name),
                     yes("in part {} of {}", i + 1, parts.size())});
        }
        for (const auto& node : graph_.nodes()) {
            if (gone.contains(node.get()) || node->op().name == "offload") continue;
            const auto why = reasons_.find(node.get());
            const std::string label = node->name().empty() ? node->output()->name() : node->name();
            context_.choices.push_back(
                {fmt::format("{} {} on {}", node->op().name, label, machine_.name),
                 no("{}",
                    why != reasons_.end() ? why->second : "it is no quantized layer of a kind that it computes")});
        }
    }

    Graph& graph_;
    const Machine& machine_;
    const NetworkOptions& options_;
    PassContext& context_;
    std::set<const Node*> refused_;                      // roots of layers that stay on the host
    std::unordered_map<const Value*, Value*> replaced_;  // outputs of layers by those of their parts
    std::unordered_map<const Node*, std::string> reasons_;
};

}  // namespace

Result<Changed> take_layers(Graph& graph, const Machine& machine, const NetworkOptions& options, PassContext& context) {
    return Taker(graph, machine, options, context).take();
}

}  // namespace tessera::accelerator
