#include "graph/ops/conv_tiles.h"

#include <algorithm>

#include "base/block_tiles.h"
#include "graph/ops/conv_window.h"

namespace tessera {
namespace {

constexpr int64_t kUsualSide = 4;
constexpr int64_t kMostPoints = 10;  // with more, what is rounded away in between is too much
constexpr int64_t kUsualPoints = 6;  // the same along two axes, where nobody requested

// The side of tiles that is taken where nobody asks; 0: none.
int64_t usual_side(int64_t kernel, int64_t other) {
    if (kernel == 1) return 1;
    const int64_t side = std::min(kUsualSide, (other == 1 ? kMostPoints : kUsualPoints) - kernel + 1);
    return side < 2 ? 0 : side;
}

}  // namespace

bool ConvTiles::of_3x3() const { return axes[0].kernel == 3 && axes[1].kernel == 3; }

double ConvTiles::tiles() const {
    return double(images.as_int().value_or(1)) * double(axes[0].tiles() * axes[1].tiles());
}

double ConvTiles::direct() const {
    return 2 * double(images.as_int().value_or(1)) * double(channels) * double(outputs) *
           double(axes[0].output * axes[1].output) * double(axes[0].kernel * axes[1].kernel);
}

double ConvTiles::products() const {
    return 2 * tiles() * double(channels) * double(outputs) * double(axes[0].points() * axes[1].points());
}

// For each element that a transform writes, a point: measured.
double ConvTiles::transforms() const {
    return 36 * tiles() * double(axes[0].points() * axes[1].points()) * double(channels + outputs);
}

std::optional<ConvTiles> conv_tiles(const Node& node) {
    if (node.op().name != "conv") return std::nullopt;
    OpView view = node.view();
    const Shape &x = view.shape(0), &w = view.shape(1), &y = node.output()->type().tensor().shape;
    if (view.dtype(0) != DType::f32 || x.rank() != 4 || w.rank() != 4 || view.integer("group") != 1)
        return std::nullopt;
    auto window = weight_window(view, 0, 1);
    if (!window.ok() || !w[0].as_int() || !w[1].as_int()) return std::nullopt;
    ConvTiles c{};
    std::vector<int64_t> sides;
    if (view.has_attr("tiles") && view.ints("tiles").size() == 2) {
        sides = view.ints("tiles");
        c.requested = true;
    }
    for (size_t i = 0; i < 2; ++i) {
        const WindowAxis& axis = window->axes[i];
        const Dim& other = window->axes[1 - i].kernel;
        if (axis.stride != 1 || axis.dilation != 1) return std::nullopt;
        if (!axis.kernel.as_int() || !axis.pad_begin.as_int() || !axis.pad_end.as_int() || !axis.output.as_int())
            return std::nullopt;
        if (!other.as_int()) return std::nullopt;
        if (!c.requested) sides.push_back(usual_side(*axis.kernel.as_int(), *other.as_int()));
        c.axes[i] = {*axis.kernel.as_int(), *axis.output.as_int(), *axis.pad_begin.as_int(), *axis.pad_end.as_int(),
                     sides[i]};
        if (sides[i] < 1 || sides[i] > kMostPoints || c.axes[i].output < 1 || c.axes[i].points() > kMostPoints)
            return std::nullopt;
    }
    if (sides[0] == 1 && sides[1] == 1) return std::nullopt;
    c.outputs = *w[0].as_int();
    c.channels = *w[1].as_int();
    c.images = y[0];
    return c;
}

namespace {

constexpr double kAcross = 3;  // times as long, where results are stored far from each other

double images_of(const ConvTiles& c) { return double(c.images.as_int().value_or(1)); }

// Elements of the input and of the result.
double read_of(const ConvTiles& c) {
    double places = images_of(c);
    for (const ConvTiles::Axis& a : c.axes) places *= double(a.output + a.kernel - 1 - a.pad_begin - a.pad_end);
    return places * double(c.channels);
}
double made_of(const ConvTiles& c) {
    return images_of(c) * double(c.axes[0].output * c.axes[1].output) * double(c.outputs);
}

// A kernel that takes so long to compute and moves so many elements.
double kernel_seconds(const Machine& machine, double compute, double elements) {
    return std::max(compute, 4 * elements / machine.bandwidth) + machine.launch;
}

}  // namespace

double direct_seconds(const ConvTiles& c, const Machine& machine) {
    const int64_t taps = c.axes[0].kernel * c.axes[1].kernel;
    const auto places = int64_t(images_of(c)) * c.axes[0].output * c.axes[1].output;
    return kernel_seconds(machine, product_seconds(machine, 1, places, c.outputs, c.channels * taps),
                          read_of(c) + made_of(c) + double(taps * c.channels * c.outputs));
}

double tiled_seconds(const ConvTiles& c, const Machine& machine, bool leaves) {
    const int64_t points = c.axes[0].points() * c.axes[1].points();
    const double of_input = c.tiles() * double(points * c.channels), of_output = c.tiles() * double(points * c.outputs);
    const double product = product_seconds(machine, points, int64_t(c.tiles()), c.outputs, c.channels);
    return kernel_seconds(machine, 0, read_of(c) + of_input) +
           kernel_seconds(machine, product, of_input + of_output + double(points * c.channels * c.outputs)) +
           kernel_seconds(machine, 0, (of_output + made_of(c)) * (leaves ? kAcross : 1));
}

ConvTiles fastest_tiles(const ConvTiles& c, const Machine& machine) {
    ConvTiles best = c;
    for (int64_t side = c.axes[0].side - 1; side >= 2 && !c.requested; --side) {
        ConvTiles with = c;
        for (ConvTiles::Axis& axis : with.axes) axis.side = side;
        if (tiled_seconds(with, machine) < tiled_seconds(best, machine)) best = with;
    }
    return best;
}

std::optional<double> conv_seconds(const Node& node, bool known, const Machine& machine) {
    if (node.op().name != "conv") return std::nullopt;
    const OpView view = node.view();
    if (view.dtype(0) != DType::f32) return std::nullopt;
    if (auto tiles = known ? conv_tiles(node) : std::nullopt; tiles && (tiles->requested || tiles->of_3x3())) {
        const ConvTiles best = fastest_tiles(*tiles, machine);
        const double tiled = tiled_seconds(best, machine);
        return best.requested ? tiled : std::min(tiled, direct_seconds(best, machine));
    }
    auto elements = [](const Shape& shape) { return shape.elements().as_int(); };
    const Shape &x = view.shape(0), &w = view.shape(1), &y = node.output()->type().tensor().shape;
    const auto from = elements(x), taps = elements(w), to = elements(y);
    const int64_t groups = view.integer("group");
    if (!from || !taps || !to || *taps == 0 || *to == 0 || groups < 1) return std::nullopt;
    const int64_t outputs = *w[0].as_int();
    return kernel_seconds(machine, product_seconds(machine, groups, *to / outputs, outputs / groups, *taps / outputs),
                          double(*from + *taps + *to));
}

}  // namespace tessera
