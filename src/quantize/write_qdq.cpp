#include "quantize/write_qdq.h"

#include <cmath>

#include "quantize/quantize_weights.h"

namespace tessera {
namespace {

constexpr int kLeastOpset = 13;       // scales by axis
constexpr int kLeastOpset16Bit = 21;  // 16-bit integers

Result<Node*> add_node(Graph& graph, const char* op, std::vector<Value*> inputs, AttrMap attrs,
                       const std::string& output) {
    return graph.add({.op = find_op(op),
                      .inputs = std::move(inputs),
                      .attrs = std::move(attrs),
                      .name = output,
                      .output_names = {output}});
}

struct Written {
    Node* quantize = nullptr;
    Value* dequantized = nullptr;
};

class Writer {
  public:
    Writer(Graph& graph, const QuantizationPlan& plan, const Profile& profile, const QuantizeOptions& options)
        : graph_(graph), plan_(plan), profile_(profile), options_(options) {}

    Result<std::vector<WrittenLayer>> run() {
        for (Value* v : plan_.values) TRY(write_value(v));
        for (const PlannedLayer& layer : plan_.layers)
            if (layer.why.empty()) TRY(write_layer(*layer.node));
        for (Node* node : plan_.elementwise)
            for (size_t i = 0; i < node->inputs().size(); ++i)
                if (Value* v = node->input(i); v && v->is_constant() && is_f32(v)) TRY(write_scalar(*node, i));
        int& opset = graph_.info().opset;
        const bool wide = options_.activations.ends_with("16");
        if (opset) opset = std::max(opset, wide ? kLeastOpset16Bit : kLeastOpset);
        graph_.erase_unused();
        graph_.sort();
        return std::move(made_);
    }

  private:
    Value* zero_point(const QuantParams& p) {
        Tensor t = *Tensor::zeros(p.dtype, {});
        t.set_int(0, p.zero_point);
        return graph_.constant(std::move(t));
    }

    Status write_value(Value* v) {
        const QuantParams& p = plan_.params.at(v);
        Value* scale = graph_.constant(Tensor::scalar(p.scale));
        Value* zero = zero_point(p);
        const std::string name = v->name();
        Node* q = TRY(add_node(graph_, "quantize_linear", {v, scale, zero}, {}, name + "_quantized"));
        Node* dq = TRY(add_node(graph_, "dequantize_linear", {q->output(), scale, zero}, {}, name + "_dequantized"));
        written_[v] = {q, dq->output()};
        if (!plan_.everywhere.contains(v)) return {};
        graph_.replace_uses(v, dq->output());
        graph_.set_input(*q, 0, v);
        return {};
    }

    // The input as the plan quantizes it.
    void read_quantized(Node& node, size_t i) {
        Value* v = node.input(i);
        if (const auto at = written_.find(v); at != written_.end()) graph_.set_input(node, i, at->second.dequantized);
    }
    // The params of an input that reads a quantized value already.
    const QuantParams& params_of_input(const Node& node) {
        const Value* original = node.input(0)->node()->input(0)->node()->input(0);
        return plan_.params.at(original);
    }

    Status write_layer(Node& node) {
        const Value* input = node.input(0);
        const ValueProfile* seen = find_profile(input);
        read_quantized(node, 0);
        if (!node.input(1)->is_constant()) {
            read_quantized(node, 1);
            made_.push_back({&node, INFINITY, 0});
            return {};
        }
        const QuantParams& in = params_of_input(node);
        const Tensor weight = *node.input(1)->tensor();
        const int64_t axis = output_axis(node);
        const std::optional<int64_t> by = options_.per_channel ? std::optional(axis) : std::nullopt;
        std::vector<float> scales = weight_scales(weight, by, options_.weight_scheme);
        std::optional<Tensor> bias = constant_bias(node);
        if (bias) fit_bias(*bias, in.scale, scales);
        const QuantizedWeight quantized = TRY(quantize_weight(weight, by, std::move(scales)));
        if (options_.bias_correction && node.op().name != "matmul")
            TRY(correct_bias(node, weight, quantized, axis, seen, bias));
        TRY(write_weight(node, quantized, by));
        int64_t bytes = quantized.values.bytes() + int64_t(quantized.scales.size() * sizeof(float));
        if (bias) {
            TRY(write_bias(node, *bias, in.scale, quantized.scales));
            bytes += bias->elements() * int64_t(sizeof(int32_t));
        }
        made_.push_back({&node, quantized.snr, bytes});
        return {};
    }

    const ValueProfile* find_profile(const Value* input) const {
        // Of the value that is quantized, where this is its dequantized form.
        const Node* dq = input->node();
        if (dq && dq->op().name == "dequantize_linear" && dq->input(0)->node()) input = dq->input(0)->node()->input(0);
        const auto at = profile_.values.find(input->name());
        return at == profile_.values.end() ? nullptr : &at->second;
    }

    static int64_t output_axis(const Node& node) {
        if (node.op().name == "conv") return 0;
        const auto at = node.attrs().find("transB");
        const bool transposed = at != node.attrs().end() && std::get<int64_t>(at->second) != 0;
        return transposed ? 0 : node.input(1)->tensor()->rank() - 1;
    }

    // A bias with one element for each output channel.
    std::optional<Tensor> constant_bias(const Node& node) const {
        const Value* b = node.input(2);
        if (!b || !b->is_constant() || !is_f32(b) || b->tensor()->rank() != 1) return {};
        const int64_t channels = node.input(1)->tensor()->size(output_axis(node));
        return b->tensor()->elements() == channels ? b->tensor() : std::nullopt;
    }

    // bias += sum over inputs of (weight - rounded weight) * mean of the input's channel.
    Status correct_bias(Node& node, const Tensor& weight, const QuantizedWeight& quantized, int64_t axis,
                        const ValueProfile* seen, std::optional<Tensor>& bias) const {
        if (!seen || seen->channel_sum.empty() || (node.input(2) && !bias)) return {};
        const auto w = weight.as<float>();
        const auto q = quantized.values.as<int8_t>();
        const int64_t out = weight.size(axis);
        const bool conv = node.op().name == "conv";
        const auto group = node.attrs().find("group");
        const int64_t groups = conv && group != node.attrs().end() ? std::get<int64_t>(group->second) : 1;
        const int64_t channels = int64_t(seen->channel_sum.size());
        const double each = double(seen->count) / double(channels);
        std::vector<double> added(size_t(out), 0);
        int64_t window = 1;
        for (int64_t d = 2; conv && d < weight.rank(); ++d) window *= weight.size(d);
        for (int64_t i = 0; i < weight.elements(); ++i) {
            const int64_t row = conv ? i / (weight.elements() / out) : axis == 0 ? i / weight.size(1) : i % out;
            const int64_t in = conv        ? i / window % weight.size(1) + row / (out / groups) * weight.size(1)
                               : axis == 0 ? i % weight.size(1)
                                           : i / out;
            if (in >= channels) return {};
            const float scale = quantized.scales[quantized.scales.size() == 1 ? 0 : size_t(row)];
            added[size_t(row)] +=
                (double(w[size_t(i)]) - double(q[size_t(i)]) * scale) * seen->channel_sum[size_t(in)] / each;
        }
        Tensor corrected = TRY(Tensor::zeros(DType::f32, {out}));
        for (int64_t i = 0; i < out; ++i) corrected.set_real(i, (bias ? bias->real_at(i) : 0) + added[size_t(i)]);
        bias = std::move(corrected);
        return {};
    }

    Status write_weight(Node& node, const QuantizedWeight& quantized, std::optional<int64_t> axis) {
        const std::string name = node.input(1)->name();
        Value* values = graph_.constant(quantized.values, name + "_quantized");
        Value* scale = graph_.constant(axis ? Tensor::of({int64_t(quantized.scales.size())}, quantized.scales)
                                            : Tensor::scalar(quantized.scales[0]),
                                       name + "_scale");
        Value* zero = graph_.constant(TRY(Tensor::zeros(DType::i8, scale->tensor()->sizes())));
        AttrMap attrs;
        if (axis) attrs["axis"] = Attr(*axis);
        Node* dq =
            TRY(add_node(graph_, "dequantize_linear", {values, scale, zero}, std::move(attrs), name + "_dequantized"));
        graph_.set_input(node, 1, dq->output());
        return {};
    }

    Status write_bias(Node& node, const Tensor& bias, float input_scale, const std::vector<float>& scales) {
        const std::string name = node.input(2) ? node.input(2)->name() : layer_name(node) + "_bias";
        std::vector<float> products;
        for (float s : scales) products.push_back(input_scale * s);
        Value* values = graph_.constant(TRY(quantize_bias(bias, input_scale, scales)), name + "_quantized");
        const bool by_channel = products.size() > 1 || options_.per_channel;
        Value* scale =
            graph_.constant(by_channel ? Tensor::of({int64_t(products.size())}, products) : Tensor::scalar(products[0]),
                            name + "_scale");
        Value* zero = graph_.constant(TRY(Tensor::zeros(DType::i32, scale->tensor()->sizes())));
        AttrMap attrs;
        if (by_channel) attrs["axis"] = Attr(int64_t{0});
        Node* dq =
            TRY(add_node(graph_, "dequantize_linear", {values, scale, zero}, std::move(attrs), name + "_dequantized"));
        graph_.set_input(node, 2, dq->output());
        return {};
    }

    Status write_scalar(Node& node, size_t i) {
        Value* v = node.input(i);
        const double x = v->tensor()->real_at(0);
        const RangeChoice choice = TRY(range_choice(options_));
        const QuantParams p = params_of({std::min(x, 0.0), std::max(x, 0.0)}, choice);
        const auto [lowest, highest] = integer_range(p.dtype);
        Tensor q = TRY(Tensor::zeros(p.dtype, v->tensor()->sizes()));
        q.set_int(0, std::clamp(int64_t(std::nearbyint(x / p.scale)) + p.zero_point, lowest, highest));
        Node* dq = TRY(add_node(graph_, "dequantize_linear",
                                {graph_.constant(std::move(q), v->name() + "_quantized"),
                                 graph_.constant(Tensor::scalar(p.scale)), zero_point(p)},
                                {}, v->name() + "_dequantized"));
        graph_.set_input(node, i, dq->output());
        return {};
    }

    Graph& graph_;
    const QuantizationPlan& plan_;
    const Profile& profile_;
    const QuantizeOptions& options_;
    std::unordered_map<const Value*, Written> written_;
    std::vector<WrittenLayer> made_;
};

}  // namespace

Result<std::vector<WrittenLayer>> write_qdq(Graph& graph, const QuantizationPlan& plan, const Profile& profile,
                                            const QuantizeOptions& options) {
    return Writer(graph, plan, profile, options).run();
}

}  // namespace tessera
