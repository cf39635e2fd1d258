#include "kernel/choose_winograd.h"

#include "graph/builder.h"
#include "graph/evaluate.h"
#include "graph/ops/conv_window.h"
#include "rewrite/edit.h"

namespace tessera {
namespace {

constexpr int64_t kSide = 4, kKernel = 3, kPoints = kSide + kKernel - 1;

// Chosen for their error, which is smaller than with 0, +-1, +-2; bt and at are exact in f32.
const std::vector<double> kInterpolation = {0, 0.625, -0.625, 1.25, -1.25};

using Polynomial = std::vector<double>;

Polynomial times_root(const Polynomial& p, double root) {  // p(x) * (x - root)
    Polynomial out(p.size() + 1, 0);
    for (size_t i = 0; i < p.size(); ++i) {
        out[i + 1] += p[i];
        out[i] -= p[i] * root;
    }
    return out;
}

struct Tiled {
    int64_t channels, outputs, height, width, pads[4];
    Expr images;
};

Decision pays(const Tiled& c, const Machine& machine) {
    double images = double(c.images.as_int().value_or(1));
    double tiles = images * double((c.height + kSide - 1) / kSide) * double((c.width + kSide - 1) / kSide);
    double weights = double(c.channels) * double(c.outputs);
    double direct = 2 * 9.0 * images * double(c.height * c.width) * weights;
    double products = 2.0 * kPoints * kPoints * tiles * weights;
    // The transforms run at half the speed of products; weights come from memory, the later the faster operations are.
    double transforms = 4 * tiles * (432.0 * double(c.channels) + 576.0 * double(c.outputs));
    const double operations_per_byte = double(machine.vector_bytes / 4 * machine.fma_pipes) / 4;
    double traffic = 4 * weights * (kPoints * kPoints - 9) * operations_per_byte;
    double saved = direct / (products + transforms + traffic);
    if (saved < 1.3)
        return no("tiles would take {:.0f} Mflop and direct {:.0f}: {:.2f} times",
                  (products + transforms + traffic) / 1e6, direct / 1e6, saved);
    return yes("{:.0f} Mflop become {:.0f}: {:.2f} times, transforms and traffic counted", direct / 1e6, products / 1e6,
               saved);
}

std::optional<Tiled> tiled(const Node& node) {
    if (node.op().name != "conv" || !node.input(1)->is_constant()) return std::nullopt;
    OpView view = node.view();
    const Shape &x = view.shape(0), &w = view.shape(1), &y = node.output()->type().tensor().shape;
    if (view.dtype(0) != DType::f32 || x.rank() != 4 || view.integer("group") != 1) return std::nullopt;
    auto window = weight_window(view, 0, 1);
    if (!window.ok()) return std::nullopt;
    Tiled c{};
    for (size_t i = 0; i < 2; ++i) {
        const WindowAxis& axis = window->axes[i];
        if (!axis.kernel.is_int(kKernel) || axis.stride != 1 || axis.dilation != 1) return std::nullopt;
        if (!axis.pad_begin.as_int() || !axis.pad_end.as_int() || !axis.output.as_int()) return std::nullopt;
        c.pads[i] = *axis.pad_begin.as_int();
        c.pads[i + 2] = *axis.pad_end.as_int();
        (i == 0 ? c.height : c.width) = *axis.output.as_int();
    }
    if (!w[0].as_int() || !w[1].as_int()) return std::nullopt;
    c.outputs = *w[0].as_int();
    c.channels = *w[1].as_int();
    c.images = y[0];
    return c;
}

Tensor as_f32(const Tensor& t) {
    auto made = evaluate_op(*find_op("cast"), {Datum(t)}, {{"to", Attr(int64_t(1))}});
    CHECK(made.ok(), "casting a matrix: {}", made.error().to_string());
    return made->front().tensor();
}

Status rewrite(Graph& graph, Node& node, const Tiled& c, const WinogradMatrices& matrices) {
    auto wide = TRY(evaluate_op(*find_op("cast"), {Datum(*node.input(1)->tensor())}, {{"to", Attr(int64_t(11))}}));
    auto u = TRY(evaluate_op(*find_op("winograd_weight"), {wide.front(), Datum(matrices.g)}, {}));
    Builder b(graph, node.where());
    // Padded first, to whole tiles: the transform then reads without asking where it is.
    auto whole = [](int64_t n) { return (n + kSide - 1) / kSide * kSide; };
    std::vector<int64_t> around = {
        0, 0, c.pads[0], c.pads[1], 0, 0, c.pads[2] + whole(c.height) - c.height, c.pads[3] + whole(c.width) - c.width};
    Value* padded = b.op("pad", {node.input(0), b.ints(around)});
    Value* v = b.op("winograd_input", {padded, b.constant(as_f32(matrices.bt))},
                    {{"kernel", Attr(kKernel)}, {"pads", Attr(std::vector<int64_t>(4, 0))}});
    Value* y =
        b.op("winograd_output", {b.matmul(v, b.constant(as_f32(u.front().tensor()))), b.constant(as_f32(matrices.at))},
             {{"height", Attr(c.height)}, {"width", Attr(c.width)}});
    if (node.input(2)) y = b.add(y, b.reshape(node.input(2), {c.outputs, 1, 1}));
    TRY(b.status());
    if (put_in_place(*node.output(), *y, false)) graph.disconnect(node);
    return {};
}

}  // namespace

WinogradMatrices winograd_matrices(int64_t m, int64_t r, const std::vector<double>& points) {
    int64_t n = m + r - 1, last = n - 1;
    CHECK(int64_t(points.size()) == last, "{} points for {} outputs of a kernel of {}", points.size(), m, r);
    std::vector<double> at(size_t(m * n)), g(size_t(n * r)), bt(size_t(n * n));
    for (int64_t j = 0; j < last; ++j) {
        double scale = 1;
        Polynomial others = {1};
        for (int64_t k = 0; k < last; ++k) {
            if (k == j) continue;
            scale *= points[size_t(j)] - points[size_t(k)];
            others = times_root(others, points[size_t(k)]);
        }
        double power = 1;
        for (int64_t i = 0; i < std::max(m, r); ++i, power *= points[size_t(j)]) {
            if (i < m) at[size_t(i * n + j)] = power;
            if (i < r) g[size_t(j * r + i)] = power / scale;
        }
        std::copy(others.begin(), others.end(), bt.begin() + j * n);
    }
    Polynomial all = {1};
    for (double p : points) all = times_root(all, p);
    at[size_t((m - 1) * n + last)] = 1;
    g[size_t(last * r + r - 1)] = 1;
    std::copy(all.begin(), all.end(), bt.begin() + last * n);
    // A row of bt and one of g share a factor; a power of two that makes them alike in size costs no precision.
    for (int64_t j = 0; j < n; ++j) {
        double in_g = 0, in_bt = 0;
        for (int64_t i = 0; i < r; ++i) in_g += std::abs(g[size_t(j * r + i)]);
        for (int64_t i = 0; i < n; ++i) in_bt += std::abs(bt[size_t(j * n + i)]);
        double factor = std::exp2(std::round(std::log2(in_g / in_bt) / 2));
        for (int64_t i = 0; i < n; ++i) bt[size_t(j * n + i)] *= factor;
        for (int64_t i = 0; i < r; ++i) g[size_t(j * r + i)] /= factor;
    }
    return {Tensor::of<double>({m, n}, at), Tensor::of<double>({n, r}, g), Tensor::of<double>({n, n}, bt)};
}

std::vector<Choice> choose_winograd(Graph& graph, const Machine& machine) {
    std::vector<Choice> choices;
    WinogradMatrices matrices = winograd_matrices(kSide, kKernel, kInterpolation);
    for (size_t i = 0, count = graph.nodes().size(); i < count; ++i) {
        Node& node = *graph.nodes()[i];
        auto c = tiled(node);
        if (!c) continue;
        Decision decision = pays(*c, machine);
        if (decision)
            if (Status done = rewrite(graph, node, *c, matrices); !done.ok())
                decision = no("{}", done.error().message());
        choices.push_back({fmt::format("compute {} in tiles (Winograd)", node.output()->name()), decision});
    }
    graph.erase_unused();
    graph.sort();
    return choices;
}

}  // namespace tessera
