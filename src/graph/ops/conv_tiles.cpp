#include "graph/ops/conv_tiles.h"

#include "graph/ops/conv_window.h"

namespace tessera {
namespace {

constexpr int64_t kUsualSide = 4, kUsualKernel = 3;
constexpr int64_t kMostPoints = 10;  // with more, what is rounded away in between is too much

}  // namespace

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
    std::vector<int64_t> sides = {kUsualSide, kUsualSide};
    if (view.has_attr("tiles") && view.ints("tiles").size() == 2) {
        sides = view.ints("tiles");
        c.asked = true;
    }
    for (size_t i = 0; i < 2; ++i) {
        const WindowAxis& axis = window->axes[i];
        if (axis.stride != 1 || axis.dilation != 1) return std::nullopt;
        if (!axis.kernel.as_int() || !axis.pad_begin.as_int() || !axis.pad_end.as_int() || !axis.output.as_int())
            return std::nullopt;
        c.axes[i] = {*axis.kernel.as_int(), *axis.output.as_int(), *axis.pad_begin.as_int(), *axis.pad_end.as_int(),
                     sides[i]};
        if (!c.asked && c.axes[i].kernel != kUsualKernel) return std::nullopt;
        if (sides[i] < 1 || sides[i] > kMostPoints || c.axes[i].output < 1 || c.axes[i].points() > kMostPoints) return std::nullopt;
    }
    if (sides[0] == 1 && sides[1] == 1) return std::nullopt;
    c.outputs = *w[0].as_int();
    c.channels = *w[1].as_int();
    c.images = y[0];
    return c;
}

}  // namespace tessera
