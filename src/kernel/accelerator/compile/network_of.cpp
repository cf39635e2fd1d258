// Layers that were found, as a network: their values numbered, additions fused into the convolutions before them.
#include <algorithm>
#include <unordered_map>

#include "graph/builder.h"
#include "kernel/accelerator/compile/find_layers.h"

namespace tessera::accelerator {
namespace {

class NetworkBuilder {
  public:
    NetworkBuilder(const Graph& graph, const Machine& machine) : graph_(graph), machine_(machine) {}

    Result<Network> build() {
        FoundLayers found = find_layers(graph_, machine_);
        for (const auto& input : graph_.inputs()) inputs_.push_back(input.get());
        for (FoundLayer& layer : found.layers) add(std::move(layer));
        for (const Value* v : inputs_) network_.inputs.push_back(TRY(number_of(*v)));
        for (const Value* v : graph_.outputs()) network_.outputs.push_back(TRY(number_of(*v)));
        fuse_additions();
        for (Layer& layer : network_.layers)
            if (auto* conv = std::get_if<Conv>(&layer.work)) TRY(take_windows(*conv));
        return std::move(network_);
    }

  private:
    Result<int> number_of(const Value& v) const {
        const auto at = numbers_.find(&v);
        if (at != numbers_.end()) return at->second;
        return Error(Code::E0601, "\"{}\" is no value of a layer", v.name());
    }
    int number(const Value* v, const Activation& type) {
        const auto [at, fresh] = numbers_.try_emplace(v, int(network_.values.size()));
        if (fresh) network_.values.push_back(type);
        return at->second;
    }

    void add(FoundLayer found) {
        const int in = number(found.inputs[0], found.input_types[0]);
        const int other = found.inputs.size() > 1 ? number(found.inputs[1], found.input_types[1]) : -1;
        const int out = number(found.output, found.output_type);
        if (auto* conv = std::get_if<Conv>(&found.layer.work)) {
            conv->input = in;
            conv->output = out;
        } else if (auto* pool = std::get_if<MaxPool>(&found.layer.work)) {
            pool->input = in;
            pool->output = out;
        } else {
            Addition& addition = std::get<Addition>(found.layer.work);
            addition.a = in;
            addition.b = other;
            addition.output = out;
        }
        network_.layers.push_back(std::move(found.layer));
    }

    int uses_of(int value) const {
        int uses = int(std::count(network_.outputs.begin(), network_.outputs.end(), value));
        for (const Layer& layer : network_.layers) {
            if (auto* conv = std::get_if<Conv>(&layer.work)) uses += (conv->input == value) + (conv->other == value);
            if (auto* pool = std::get_if<MaxPool>(&layer.work)) uses += pool->input == value;
            if (auto* sum = std::get_if<Addition>(&layer.work)) uses += (sum->a == value) + (sum->b == value);
        }
        return uses;
    }

    // The later of both operands' convolutions computes the sum too, in the addition's place.
    void fuse_additions() {
        std::vector<Layer>& layers = network_.layers;
        for (size_t i = 0; i < layers.size(); ++i) {
            auto* sum = std::get_if<Addition>(&layers[i].work);
            if (!sum || sum->a == sum->b) continue;
            for (size_t j = i; j-- > 0;) {
                auto* conv = std::get_if<Conv>(&layers[j].work);
                if (!conv || conv->rest || (conv->output != sum->a && conv->output != sum->b)) continue;
                if (uses_of(conv->output) != 1) continue;
                Sum both = sum->sum;
                const bool second = conv->output == sum->b;
                if (second) std::swap(both.a, both.b);
                conv->other = second ? sum->a : sum->b;
                conv->rest = both;
                conv->output = sum->output;
                layers[j].name += " + " + layers[i].name;
                layers[j].op = "conv+add";
                layers[i] = std::move(layers[j]);
                layers.erase(layers.begin() + std::ptrdiff_t(j));
                --i;
                break;
            }
        }
    }

    // An input with fewer channels than the matrix unit has: the host writes it with its windows as channels.
    Status take_windows(Conv& conv) {
        const Activation in = network_.values[size_t(conv.input)], out = network_.values[size_t(conv.output)];
        const bool is_input =
            std::find(network_.inputs.begin(), network_.inputs.end(), conv.input) != network_.inputs.end();
        const int64_t taps = conv.window.kernel_y * conv.window.kernel_x;
        if (!is_input || conv.groups != 1 || taps == 1 || in.channels >= machine_.inputs) return {};
        const int made = int(network_.values.size());
        network_.values.push_back({in.batch, in.channels * taps, out.height, out.width, in.dtype});
        network_.windows.push_back({conv.input, made, conv.window, conv.input_zero});
        conv.weights = conv.weights.reshaped({conv.weights.size(0), in.channels * taps, 1, 1});
        conv.window = {};
        conv.input = made;
        return {};
    }

    const Graph& graph_;
    const Machine& machine_;
    Network network_;
    std::vector<const Value*> inputs_;
    std::unordered_map<const Value*, int> numbers_;
};

}  // namespace

Result<Network> network_of(const Graph& graph, const Machine& machine) {
    return NetworkBuilder(graph, machine).build();
}

Result<bool> leave_rescaling(Graph& graph) {
    Builder b(graph, "leave_rescaling");
    std::vector<Node*> nodes;
    for (const auto& node : graph.nodes())
        if (node->op().name == "qlinear_conv") nodes.push_back(node.get());
    for (Node* node : nodes) {
        const OpView op = node->view();
        const Value *x_scale = node->input(1), *w_scale = node->input(4), *y_scale = node->input(6);
        if (!x_scale->is_constant() || !w_scale->is_constant() || !y_scale->is_constant()) continue;
        const DType to = op.out().dtype;
        const auto scales = w_scale->tensor()->as<float>();
        const float in = x_scale->tensor()->as<float>()[0], out = y_scale->tensor()->as<float>()[0];
        std::vector<float> factors;
        for (float s : scales) factors.push_back(in * s / out);
        const auto channels = int64_t(factors.size());
        Node* product = TRY(graph.add({.op = find_op("conv_integer"),
                                       .inputs = {node->input(0), node->input(3), node->input(2), node->input(5)},
                                       .attrs = node->attrs(),
                                       .name = node->name()}));
        Value* sum = product->output();
        if (Value* bias = node->input(8)) {
            if (!bias->is_constant()) continue;
            const int64_t count = bias->tensor()->elements();
            sum = b.add(sum, b.constant(bias->tensor()->reshaped({1, count, 1, 1})));
        }
        Value* y = b.mul(b.cast(sum, DType::f32), b.constant(Tensor::of({1, channels, 1, 1}, factors)));
        y = b.add(b.op("round", {y}), b.cast(node->input(7), DType::f32));
        const bool is_signed = to == DType::i8;
        y = b.op("clip", {y, b.scalar(is_signed ? -128 : 0, DType::f32), b.scalar(is_signed ? 127 : 255, DType::f32)});
        y = b.cast(y, to);
        TRY(b.status());
        graph.replace_uses(node->output(), y);
    }
    graph.erase_unused();
    graph.sort();
    return !nodes.empty();
}

}  // namespace tessera::accelerator
