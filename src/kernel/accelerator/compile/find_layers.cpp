#include "kernel/accelerator/compile/find_layers.h"

#include <algorithm>

#include "graph/ops/conv_window.h"
#include "quantize/match_qdq.h"

namespace tessera::accelerator {
namespace {

constexpr int64_t kMostSize = 1 << 15, kMostKernel = 255;
constexpr const char* kSizes = "its sizes are not constants, or larger than 32768";

bool is_byte(DType t) { return t == DType::u8 || t == DType::i8; }

// [batch, channels, height, width] of constants; nothing for other shapes.
std::optional<Activation> activation_of(const Value& v) {
    if (!v.type().is_tensor() || !v.type().tensor().shape.ranked()) return {};
    const auto sizes = v.type().tensor().shape.sizes();
    if (!sizes || sizes->size() != 4) return {};
    for (int64_t s : *sizes)
        if (s < 1 || s > kMostSize) return {};
    return Activation{(*sizes)[0], (*sizes)[1], (*sizes)[2], (*sizes)[3], v.type().tensor().dtype};
}

// Matrices as an image of one line: rows, those of all matrices, are places, columns channels.
std::optional<Activation> matrix_of(const Value& v) {
    if (!v.type().is_tensor() || !v.type().tensor().shape.ranked()) return {};
    const auto sizes = v.type().tensor().shape.sizes();
    if (!sizes || sizes->size() < 2) return {};
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < sizes->size() && rows <= kMostSize; ++d) rows *= (*sizes)[d];
    for (int64_t s : {rows, sizes->back()})
        if (s < 1 || s > kMostSize) return {};
    return Activation{1, sizes->back(), 1, rows, v.type().tensor().dtype, true};
}

std::optional<float> float_of(const Value* v) {
    if (!v || !v->is_constant() || v->tensor()->dtype() != DType::f32 || v->tensor()->elements() != 1) return {};
    return v->tensor()->as<float>()[0];
}
// The one value of a zero point; 0 where none is given.
std::optional<int64_t> zero_of(const Value* v) {
    if (!v) return 0;
    if (!v->is_constant() || v->tensor()->elements() < 1) return {};
    const int64_t zero = v->tensor()->int_at(0);
    for (int64_t i = 1; i < v->tensor()->elements(); ++i)
        if (v->tensor()->int_at(i) != zero) return {};
    return zero;
}

bool known_weights(const Value* w) { return w && w->is_constant() && w->tensor()->dtype() == DType::i8; }

std::optional<Window> window_of(const Result<ConvWindow>& found) {
    if (!found.ok() || found->axes.size() != 2) return {};
    int64_t at[2][4];
    for (size_t a = 0; a < 2; ++a) {
        const WindowAxis& axis = found->axes[a];
        const auto kernel = axis.kernel.as_int(), stride = axis.stride.as_int(), dilation = axis.dilation.as_int(),
                   pad = axis.pad_begin.as_int();
        if (!kernel || !stride || !dilation || !pad || *pad < 0 || *kernel * *dilation > kMostKernel) return {};
        at[a][0] = *kernel;
        at[a][1] = *stride;
        at[a][2] = *dilation;
        at[a][3] = *pad;
    }
    return Window{at[0][0], at[1][0], at[0][1], at[1][1], at[0][2], at[1][2], at[0][3], at[1][3]};
}

// What the input's zero point adds to each sum.
std::vector<int32_t> folded_bias(const Tensor& weights, const Value* bias, int64_t input_zero) {
    const int64_t outputs = weights.size(0), each = weights.elements() / outputs;
    const auto w = weights.as<int8_t>();
    std::vector<int32_t> folded;
    for (int64_t o = 0; o < outputs; ++o) {
        int64_t sum = 0;
        for (int64_t i = 0; i < each; ++i) sum += w[size_t(o * each + i)];
        const int64_t given = bias ? bias->tensor()->int_at(bias->tensor()->elements() == 1 ? 0 : o) : 0;
        folded.push_back(int32_t(uint32_t(given - input_zero * sum)));
    }
    return folded;
}

class Finder {
  public:
    Finder(const Graph& graph, const Machine& machine) : graph_(graph), machine_(machine) {}

    FoundLayers find() {
        for (const auto& node : graph_.nodes()) {
            const std::string& op = node->op().name;
            if (op == "qlinear_conv" || (op == "clip" && from(*node, "qlinear_conv")))
                rescaled_conv(*node);
            else if (op == "conv_integer" || op == "matmul_integer" || op == "add")
                sums(*node);
            else if (op == "max_pool")
                pool(*node);
            else if (op == "quantize_linear")
                addition(*node);
        }
        return std::move(found_);
    }

  private:
    static bool from(const Node& node, std::string_view op) {
        const Value* v = node.input(0);
        return v && v->node() && v->node()->op().name == op && used_once(v);
    }
    void refuse(const Node& node, std::string why) { found_.why.emplace_back(&node, std::move(why)); }
    static std::string label(const Node& node) { return node.name().empty() ? node.output()->name() : node.name(); }

    void rescaled_conv(Node& root) {
        const bool bounded = root.op().name == "clip";
        const Node& conv = bounded ? *root.input(0)->node() : root;
        if (!bounded && used_once(conv.output()) && conv.output()->uses()[0].node->op().name == "clip") {
            const Node& clip = *conv.output()->uses()[0].node;
            if (bounds_of(clip)) return;  // with the clip
        }
        if (bounded && !bounds_of(root)) return;
        if (!machine_.alu) return refuse(conv, "the accelerator has no vector ALU");
        const auto in = activation_of(*conv.input(0)), out = activation_of(*conv.output());
        if (!in || !out) return refuse(conv, kSizes);
        const auto x_scale = float_of(conv.input(1)), y_scale = float_of(conv.input(6));
        const auto x_zero = zero_of(conv.input(2)), w_zero = zero_of(conv.input(5)), y_zero = zero_of(conv.input(7));
        const Value *w_scale = conv.input(4), *bias = conv.input(8);
        if (!x_scale || !y_scale || !x_zero || w_zero != 0 || !y_zero || !w_scale->is_constant() ||
            !known_weights(conv.input(3)) || (bias && !bias->is_constant()))
            return refuse(conv,
                          "its weights, scales or zero points are not constants, or its weights have zero points");
        const auto window = window_of(weight_window(conv.view(), 0, 3));
        if (!window) return refuse(conv, "its window is too large");
        const Tensor& w = *conv.input(3)->tensor();
        Conv made{.window = *window,
                  .groups = conv.view().integer("group"),
                  .input_zero = *x_zero,
                  .weights = w,
                  .bias = folded_bias(w, bias, *x_zero)};
        const auto scales = w_scale->tensor()->as<float>();
        for (int64_t o = 0; o < w.size(0); ++o)
            made.scales.push_back(*x_scale * scales[scales.size() == 1 ? 0 : size_t(o)] / *y_scale);
        made.zero = *y_zero;
        std::tie(made.low, made.high) = bounded ? *bounds_of(root) : byte_range(out->dtype);
        add(root, conv, {conv.input(0)}, {*in}, *out, "conv", std::move(made));
    }

    static std::optional<std::pair<int64_t, int64_t>> bounds_of(const Node& clip) {
        const DType t = clip.output()->type().tensor().dtype;
        auto [low, high] = byte_range(t);
        for (size_t i : {1, 2}) {
            const Value* bound = clip.input(i);
            if (!bound) continue;
            if (!bound->is_constant() || bound->tensor()->elements() != 1) return {};
            (i == 1 ? low : high) = bound->tensor()->int_at(0);
        }
        return std::pair(low, high);
    }

    // A product or convolution of integers, and the bias that is added to it.
    void sums(Node& root) {
        const Node* product = &root;
        const Value* bias = nullptr;
        if (root.op().name == "add") {
            for (size_t i : {0, 1}) {
                const Value *sum = root.input(i), *other = root.input(1 - i);
                if (!sum->node() || !used_once(sum) || !other->is_constant()) continue;
                const std::string& op = sum->node()->op().name;
                if (op != "conv_integer" && op != "matmul_integer") continue;
                if (!is_bias(*other, *root.output(), op == "conv_integer")) continue;
                product = sum->node();
                bias = other;
            }
            if (!bias) return;
        } else if (used_once(root.output()) && root.output()->uses()[0].node->op().name == "add") {
            const Node& add = *root.output()->uses()[0].node;
            const Value* other = add.input(add.input(0) == root.output() ? 1 : 0);
            if (other->is_constant() && is_bias(*other, *add.output(), root.op().name == "conv_integer")) return;
        }
        const bool conv = product->op().name == "conv_integer";
        const Value *x = product->input(0), *w = product->input(1);
        const auto in = conv ? activation_of(*x) : matrix_of(*x);
        const auto out = conv ? activation_of(*root.output()) : matrix_of(*root.output());
        if (!in || !out) return refuse(*product, kSizes);
        const auto x_zero = zero_of(product->input(2)), w_zero = zero_of(product->input(3));
        if (!known_weights(w) || !x_zero || w_zero != 0)
            return refuse(*product, "its weights or zero points are not constants, or its weights have zero points");
        Conv made{.input_zero = *x_zero};
        if (conv) {
            const auto window = window_of(weight_window(product->view(), 0, 1));
            if (!window) return refuse(*product, "its window is too large");
            made.window = *window;
            made.groups = product->view().integer("group");
            made.weights = *w->tensor();
        } else {
            auto turned = transposed(*w->tensor());
            if (!turned.ok()) return refuse(*product, turned.error().message());
            made.weights = std::move(*turned);
        }
        made.bias = folded_bias(made.weights, bias, *x_zero);
        add(root, *product, {product->input(0)}, {*in}, *out, conv ? "conv" : "product", std::move(made));
    }

    // One number for each channel.
    static bool is_bias(const Value& v, const Value& sum, bool conv) {
        const auto sizes = sum.type().tensor().shape.sizes();
        if (!sizes || v.tensor()->dtype() != DType::i32) return false;
        const Sizes& own = v.tensor()->sizes();
        const int64_t channels = (*sizes)[conv ? 1 : sizes->size() - 1];
        if (v.tensor()->elements() != channels) return false;
        if (!conv) return !own.empty() && own.back() == channels;
        return own.size() >= 3 && own[own.size() - 3] == channels;
    }

    static Result<Tensor> transposed(const Tensor& w) {
        const int64_t rows = w.size(0), columns = w.size(1);
        Tensor made = TRY(Tensor::zeros(DType::i8, {columns, rows, 1, 1}));
        const auto from = w.as<int8_t>();
        auto to = made.mutable_as<int8_t>();
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < columns; ++c) to[size_t(c * rows + r)] = from[size_t(r * columns + c)];
        return made;
    }

    void pool(Node& node) {
        if (!is_byte(node.output()->type().tensor().dtype)) return;
        if (!machine_.alu) return refuse(node, "the accelerator has no vector ALU");
        const auto in = activation_of(*node.input(0)), out = activation_of(*node.output());
        if (!in || !out || node.output_count() != 1) return refuse(node, kSizes);
        const OpView op = node.view();
        const Shape& x = op.shape(0);
        const auto window = window_of(conv_window(op, x.slice(2, x.rank()), Shape(op.ints("kernel_shape"))));
        if (!window) return refuse(node, "its window is too large");
        add(node, node, {node.input(0)}, {*in}, *out, "max_pool", MaxPool{.window = *window});
    }

    void addition(Node& root) {
        const auto y = quantization_of(root);
        Rectified bounds;
        const Value* sum = y ? before_bounds(root.input(0), bounds) : nullptr;
        if (!sum || !sum->node() || sum->node()->op().name != "add" || !used_once(sum)) return;
        const auto a = match_dequantized(sum->node()->input(0)), b = match_dequantized(sum->node()->input(1));
        if (!a || !b || a->bytes->is_constant() || b->bytes->is_constant()) return;
        if (!machine_.alu) return refuse(root, "the accelerator has no vector ALU");
        const auto at_a = activation_of(*a->bytes), at_b = activation_of(*b->bytes),
                   out = activation_of(*root.output());
        if (!at_a || !at_b || !out) return refuse(root, kSizes);
        const auto like = [&](const Activation& v) {
            return v.batch == out->batch && v.channels == out->channels && v.height == out->height &&
                   v.width == out->width;
        };
        if (!like(*at_a) || !like(*at_b)) return refuse(root, "it broadcasts");
        Addition made{
            .sum = {.a = {a->by.scale, a->by.zero}, .b = {b->by.scale, b->by.zero}, .y = {y->scale, y->zero}}};
        std::tie(made.sum.low, made.sum.high) = byte_bounds(bounds, *y);
        add(root, *sum->node(), {a->bytes, b->bytes}, {*at_a, *at_b}, *out, "add", std::move(made));
    }

    template <typename Work>
    void add(Node& root, const Node& named, std::vector<Value*> inputs, std::vector<Activation> types, Activation out,
             const char* op, Work work) {
        found_.layers.push_back(
            {&root, std::move(inputs), std::move(types), root.output(), out, Layer{label(named), op, std::move(work)}});
    }

    const Graph& graph_;
    const Machine& machine_;
    FoundLayers found_;
};

}  // namespace

FoundLayers find_layers(const Graph& graph, const Machine& machine) { return Finder(graph, machine).find(); }

}  // namespace tessera::accelerator
