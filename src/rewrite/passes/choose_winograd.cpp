#include "rewrite/passes/winograd_matrices.h"

#include <algorithm>

#include "base/in_parallel.h"
#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "graph/ops/conv_tiles.h"
#include "rewrite/edit.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera {
namespace {

// Where n - 1 polynomials meet, infinity besides: chosen for their error, which is smaller than with 0, 1, -1, 2, -2,
// ...
const std::vector<double>& points_of(int64_t n) {
    static const std::vector<double> kPoints[] = {
        {},
        {0},
        {0, 1},
        {0, 1, -1},
        {0, 0.75, -0.75, 1.75},
        {0, 0.625, -0.625, 1.25, -1.25},
        {0, 0.875, -0.875, 2, -2, 0.375},
        {0, 0.5, -0.5, 1, -1, 2, -2},
        {0, 0.5, -0.5, 0.875, -0.875, 1.5, -1.5, 3},
        {0, 0.375, -0.375, 0.75, -0.75, 1.25, -1.25, 2.5, -2.5},
    };
    return kPoints[n - 1];
}

using Polynomial = std::vector<double>;

Polynomial times_root(const Polynomial& p, double root) {  // p(x) * (x - root)
    Polynomial out(p.size() + 1, 0);
    for (size_t i = 0; i < p.size(); ++i) {
        out[i + 1] += p[i];
        out[i] -= p[i] * root;
    }
    return out;
}

using Axis = ConvTiles::Axis;

constexpr double kWorthwhile = 1.3;  // times as fast, by what is counted
constexpr int kWideVector = 64;  // bytes: transforms in such vectors wait for memory, and are better off in one pass

Decision pays_on_gpu(const ConvTiles& c, bool leaves, const Machine& machine) {
    const double direct = direct_seconds(c, machine), tiled = tiled_seconds(c, machine, leaves);
    if (!c.requested && direct < kWorthwhile * tiled)
        return no("tiles of {}x{} would take {:.1f} us and direct {:.1f}", c.axes[0].side, c.axes[1].side, 1e6 * tiled,
                  1e6 * direct);
    return yes("{:.1f} us become {:.1f}, transforms and launches counted; tiles of {}x{}{}", 1e6 * direct, 1e6 * tiled,
               c.axes[0].side, c.axes[1].side, c.requested ? " as requested" : "");
}

Decision pays(const ConvTiles& c, bool leaves, bool known, const Machine& machine) {
    if (machine.blocks) return pays_on_gpu(c, leaves, machine);
    const double points = double(c.axes[0].points() * c.axes[1].points());
    const double kernel = double(c.axes[0].kernel * c.axes[1].kernel);
    // Weights come from memory, the later the faster operations are.
    const double operations_per_byte = double(machine.vector_bytes / 4 * machine.fma_pipes) / 4;
    double traffic = 4 * double(c.channels) * double(c.outputs) * (points - kernel) * operations_per_byte;
    // Where the result leaves in ONNX's order, the channels of a place are written far from each other, and beyond the
    // second cache.
    const bool near = 4 * c.tiles() * points * double(c.channels + c.outputs) < double(machine.l2_bytes);
    // Weights that are only known in a run are transformed there, read across.
    const double of_weights = known ? 0 : 4 * points * kernel * double(c.channels) * double(c.outputs);
    const double transforms = c.transforms() * (leaves && !near ? 3 : 1) + of_weights;
    double all = c.products() + transforms + traffic, saved = c.direct() / all;
    if (!c.requested && saved < kWorthwhile)
        return no("tiles would take {:.0f} Mflop and direct {:.0f}: {:.2f} times", all / 1e6, c.direct() / 1e6, saved);
    return yes("{:.0f} Mflop become {:.0f}: {:.2f} times, transforms and traffic counted; tiles of {}x{}{}",
               c.direct() / 1e6, c.products() / 1e6, saved, c.axes[0].side, c.axes[1].side,
               c.requested ? " as requested" : "");
}

Tensor as_f32(const Tensor& t) {
    auto made = evaluate_op(*find_op("cast"), {Datum(t)}, {{"to", Attr(int64_t(1))}});
    CHECK(made.ok(), "casting a matrix: {}", made.error().to_string());
    return made->front().tensor();
}

// One axis is transformed after the other, so that few values are at hand at a time; or both at once, where a tile
// has room in registers or is written in wide vectors.
class Tiling {
  public:
    Tiling(Graph& graph, Node& node, const ConvTiles& c, bool at_once)
        : graph_(graph),
          node_(node),
          c_(c),
          b_(graph, node.where()),
          matrices_{matrices_of(c.axes[0]), matrices_of(c.axes[1])},
          at_once_(at_once),
          both_(!at_once && c.axes[0].points() > 1 && c.axes[1].points() > 1) {}

    Result<Changed> run() {
        Value* u = TRY(weights());
        Value* product = b_.matmul(input(), u);
        Value* y = output(product);
        if (node_.input(2)) y = b_.add(y, b_.reshape(node_.input(2), {c_.outputs, 1, 1}));
        TRY(b_.status());
        if (!put_in_place(*node_.output(), *y, false)) return false;
        graph_.disconnect(node_);
        return true;
    }

  private:
    static WinogradMatrices matrices_of(const Axis& axis) {
        return winograd_matrices(axis.side, axis.kernel, points_of(axis.points()));
    }
    Value* matrix(const Tensor& t) { return b_.constant(as_f32(t)); }
    Value* one() { return matrix(Tensor::of<double>({1, 1}, std::vector<double>{1})); }

    Result<Value*> weights() {
        Value* w = node_.input(1);
        if (!w->is_constant()) return b_.op("winograd_weight", {w, matrix(matrices_[0].g), matrix(matrices_[1].g)});
        return b_.constant(TRY(winograd_weights(*w->tensor(), matrices_[0].g, matrices_[1].g)));
    }

    Value* input() {
        const Axis &h = c_.axes[0], &w = c_.axes[1];
        // Padded to whole tiles.
        std::vector<int64_t> begin, end;
        for (const Axis& axis : c_.axes) {
            begin.push_back(axis.pad_begin);
            end.push_back(axis.pad_end + axis.tiles() * axis.side - axis.output);
        }
        Value* x = node_.input(0);
        std::map<std::string, Attr> attrs;
        if (at_once_ && x->node())
            attrs["pads"] = Attr(std::vector<int64_t>{begin[0], begin[1], end[0], end[1]});
        else  // Before: the transform then reads without asking where it is, and from channels side by side.
            x = b_.op("pad", {x, b_.ints(std::vector<int64_t>{0, 0, begin[0], begin[1], 0, 0, end[0], end[1]})});
        auto transformed = [&](Value* of, Value* down, Value* along, int64_t height, int64_t width) {
            attrs["side"] = Attr(std::vector<int64_t>{height, width});
            return b_.op("winograd_input", {of, down, along}, attrs);
        };
        Value *down = matrix(matrices_[0].bt), *along = matrix(matrices_[1].bt);
        if (!both_) return transformed(x, down, along, h.side, w.side);
        // Tiles of one row are images of their own for the second.
        int64_t rows = (h.tiles() - 1) * h.side + h.points();
        Value* tiles = b_.reshape(transformed(x, one(), along, 1, w.side), {-1, rows, w.tiles(), c_.channels});
        Value* v = transformed(b_.transpose(tiles, {0, 3, 1, 2}), down, one(), h.side, 1);
        return b_.reshape(v, {h.points(), w.points(), -1, c_.channels});
    }

    Value* output(Value* product) {
        const Axis &h = c_.axes[0], &w = c_.axes[1];
        auto transformed = [&](Value* of, Value* down, Value* along, int64_t height, int64_t width) {
            return b_.op("winograd_output", {of, down, along}, {{"height", Attr(height)}, {"width", Attr(width)}});
        };
        Value *down = matrix(matrices_[0].at), *along = matrix(matrices_[1].at);
        if (!both_) return transformed(product, down, along, h.output, w.output);
        Value* rows =
            transformed(b_.reshape(product, {h.points(), 1, -1, c_.outputs}), down, one(), h.output, w.tiles());
        Value* tiles = b_.reshape(b_.transpose(rows, {0, 2, 3, 1}), {1, w.points(), -1, c_.outputs});
        return transformed(tiles, one(), along, h.output, w.output);
    }

    Graph& graph_;
    Node& node_;
    const ConvTiles& c_;
    Builder b_;
    WinogradMatrices matrices_[2];
    bool at_once_;
    bool both_;  // one after the other
};

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

Result<Tensor> winograd_weights(const Tensor& w, const Tensor& g_rows, const Tensor& g_columns) {
    const int64_t outputs = w.sizes()[0], channels = w.sizes()[1], r = w.sizes()[2], s = w.sizes()[3];
    const int64_t n = g_rows.sizes()[0], m = g_columns.sizes()[0];
    Tensor made = TRY(Tensor::zeros(DType::f32, {n, m, channels, outputs}));
    const float* from = w.as<float>().data();
    const double *down = g_rows.as<double>().data(), *along = g_columns.as<double>().data();
    float* to = made.mutable_as<float>().data();
    // One input channel after the other: its taps, then its columns transformed, then its rows.
    in_parallel(size_t(channels), 0, [&](size_t channel) {
        const auto c = int64_t(channel);
        const auto width = size_t(outputs);
        std::vector<double> taps(width * size_t(r * s)), columns(width * size_t(r * m)), sums(width);
        for (int64_t o = 0; o < outputs; ++o)
            for (int64_t k = 0; k < r * s; ++k) taps[size_t(k * outputs + o)] = from[(o * channels + c) * r * s + k];
        auto combine = [&](double* into, const double* of, int64_t step, const double* factors, int64_t count) {
            std::fill(into, into + outputs, 0);
            for (int64_t k = 0; k < count; ++k)
                for (int64_t o = 0; o < outputs; ++o) into[o] += factors[k] * of[k * step + o];
        };
        for (int64_t row = 0; row < r; ++row)
            for (int64_t j = 0; j < m; ++j)
                combine(&columns[size_t((row * m + j) * outputs)], &taps[size_t(row * s * outputs)], outputs,
                        along + j * s, s);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < m; ++j) {
                combine(sums.data(), &columns[size_t(j * outputs)], m * outputs, down + i * r, r);
                float* line = to + ((i * m + j) * channels + c) * outputs;
                for (int64_t o = 0; o < outputs; ++o) line[o] = float(sums[size_t(o)]);
            }
    });
    return made;
}

Result<Changed> choose_winograd(Graph& graph, const Machine& machine, PassContext& context) {
    Changed changed = false;
    const size_t count = graph.nodes().size();
    for (size_t i = 0; i < count; ++i) {
        Node& node = *graph.nodes()[i];
        auto c = conv_tiles(node);
        if (!c) continue;
        const bool known = node.input(1)->is_constant();
        if (machine.blocks && !known) continue;
        if (machine.blocks && !c->requested && !c->of_3x3()) continue;
        if (machine.blocks) c = fastest_tiles(*c, machine);
        const auto& uses = node.output()->uses();
        const bool leaves = std::any_of(uses.begin(), uses.end(), [](const Use& use) { return !use.node; });
        const bool admitted = c->requested || admits(context.precision, Exactness::Reassociates);
        Decision decision =
            admitted ? pays(*c, leaves, known, machine) : no("it rounds differently, and the precision is strict");
        if (decision) {
            Rewriting rewriting(context, "tiles", {&node});
            const bool at_once = machine.blocks || machine.vector_bytes >= kWideVector;
            Result<Changed> done = Tiling(graph, node, *c, at_once).run();
            if (!done.ok()) decision = no("{}", done.error().message());
            if (done.ok() && *done) rewriting.done();
            changed |= done.ok() && *done;
        }
        context.choices.push_back({fmt::format("Winograd for {}", node.output()->name()), decision});
    }
    if (graph.nodes().size() != count) {
        graph.erase_unused();
        graph.sort();
    }
    return changed;
}

}  // namespace tessera
