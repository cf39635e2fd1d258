#include "quantize/integer_form.h"

#include <cmath>

#include "graph/builder.h"
#include "quantize/match_qdq.h"

namespace tessera {
namespace {

// A matrix of bytes with rows and columns exchanged.
Result<Tensor> exchanged(const Tensor& w) {
    const int64_t rows = w.size(0), columns = w.size(1);
    Tensor made = TRY(Tensor::zeros(DType::i8, {columns, rows}));
    const auto from = w.as<int8_t>();
    const auto to = made.mutable_as<int8_t>();
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) to[size_t(c * rows + r)] = from[size_t(r * columns + c)];
    return made;
}

class IntegerForm {
  public:
    explicit IntegerForm(Graph& graph) : graph_(graph), b_(graph, "integer_form") {}

    Result<bool> run() {
        std::vector<Node*> nodes;
        for (const auto& node : graph_.nodes()) nodes.push_back(node.get());
        for (Node* node : nodes) {
            if (node->op().name == "quantize_linear") quantize(*node);
            if (node->op().name == "gemm" || node->op().name == "matmul") product(*node);
        }
        TRY(b_.status());
        graph_.erase_unused();
        graph_.sort();
        return changed_;
    }

  private:
    Value* bias_of(const Value* v, float x_scale, const ByteWeights& w) {
        auto bias = match_bias(v, x_scale, w);
        return bias ? b_.constant(std::move(*bias)) : nullptr;
    }
    // A node under the name of the one that it replaces.
    Value* instead(const Node& of, std::string_view op, std::vector<Value*> inputs, AttrMap attrs = {}) {
        if (b_.failed()) return nullptr;
        auto made = graph_.add({.op = find_op(op),
                                .inputs = std::move(inputs),
                                .attrs = std::move(attrs),
                                .name = of.name().empty() ? of.output()->name() : of.name()});
        if (made.ok()) return (*made)->output();
        b_.fail(std::move(made.error()));
        return nullptr;
    }
    Value* scale(float s) { return b_.constant(Tensor::scalar(s)); }
    Value* zero(const ByteQuantization& s) {
        auto t = Tensor::zeros(s.dtype, {});
        if (t.ok()) t->set_int(0, s.zero);
        return t.ok() ? b_.constant(std::move(*t)) : nullptr;
    }

    Value* bounded(Value* y, const Rectified& bounds, const ByteQuantization& by) {
        const auto [low, high] = byte_bounds(bounds, by);
        if (std::pair(low, high) == byte_range(by.dtype)) return y;
        return b_.op("clip", {y, zero({by.scale, low, by.dtype}), zero({by.scale, high, by.dtype})});
    }

    void quantize(Node& q) {
        const auto by = quantization_of(q);
        if (!by || !is_ranked_f32(q.input(0)) || q.view().integer("precision")) return;
        Rectified bounds;
        const Value* from = before_bounds(q.input(0), bounds);
        if (!used_once(from) || !from->node()) return;
        const std::string& op = from->node()->op().name;
        Value* y = op == "conv" ? conv(*from->node(), *by) : nullptr;
        if (!y && op == "max_pool" && std::isinf(bounds.low) && std::isinf(bounds.high)) y = pool(*from->node(), *by);
        if (!y) return;
        y = bounded(y, bounds, *by);
        if (b_.failed()) return;
        graph_.replace_uses(q.output(), y);
        changed_ = true;
    }

    Value* conv(const Node& node, const ByteQuantization& by) {
        const auto x = match_dequantized(node.input(0));
        const auto w = match_weights(node.input(1), 0);
        if (!x || !w || w->bytes->tensor()->rank() != 4) return nullptr;
        Value* bias = nullptr;
        if (node.input(2) && !(bias = bias_of(node.input(2), x->by.scale, *w))) return nullptr;
        AttrMap attrs;
        for (const char* name : {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"})
            if (auto found = node.attrs().find(name); found != node.attrs().end()) attrs.insert(*found);
        const auto channels = int64_t(w->scales.size());
        Value* w_scale = channels > 1 ? b_.constant(Tensor::of({channels}, w->scales)) : scale(w->scales[0]);
        return instead(node, "qlinear_conv",
                       {x->bytes, scale(x->by.scale), zero(x->by), w->bytes, w_scale, zero({1, 0, DType::i8}),
                        scale(by.scale), zero(by), bias},
                       std::move(attrs));
    }

    Value* pool(const Node& node, const ByteQuantization& by) {
        const auto x = match_dequantized(node.input(0));
        if (!x || !(x->by == by) || node.output_count() != 1) return nullptr;
        return instead(node, "max_pool", {x->bytes}, node.attrs());
    }

    // Sums in integers, the bias among them; their scale in floating point.
    void product(Node& node) {
        const OpView op = node.view();
        if (!is_ranked_f32(node.output()) || op.rank(1) != 2) return;
        const bool gemm = node.op().name == "gemm";
        if (gemm && (op.integer("transA") || op.real("alpha") != 1 || op.real("beta") != 1)) return;
        const bool transposed = gemm && op.integer("transB");
        const auto x = match_dequantized(node.input(0));
        const auto w = match_weights(node.input(1), transposed ? 0 : 1);
        if (!x || !w) return;
        Value* bias = nullptr;
        if (node.input(2) && !(bias = bias_of(node.input(2), x->by.scale, *w))) return;
        Value* right = w->bytes;
        if (transposed) {
            auto swapped = exchanged(*w->bytes->tensor());
            if (!swapped.ok()) return b_.fail(std::move(swapped.error()));
            right = graph_.constant(std::move(*swapped), w->bytes->name() + "_transposed");
        }
        Value* sum = instead(node, "matmul_integer", {x->bytes, right, zero(x->by)});
        if (bias) sum = b_.add(sum, bias);
        std::vector<float> scales = w->scales;
        for (float& s : scales) s *= x->by.scale;
        const auto columns = int64_t(scales.size());
        Value* by = columns > 1 ? b_.constant(Tensor::of({columns}, scales)) : scale(scales[0]);
        Value* y = b_.mul(b_.cast(sum, DType::f32), by);
        if (b_.failed()) return;
        graph_.replace_uses(node.output(), y);
        changed_ = true;
    }

    Graph& graph_;
    Builder b_;
    bool changed_ = false;
};

}  // namespace

Result<bool> integer_form(Graph& graph) { return IntegerForm(graph).run(); }

}  // namespace tessera
