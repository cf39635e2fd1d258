// Sampling an image at the points of a grid, and making such grids.
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/interpolate.h"

namespace tessera {
namespace {

// The ends between which positions along a dimension are reflected.
struct Border {
    Expr low, high;
};

Border border_of(const OpView& op, const Dim& size) {
    if (op.integer("align_corners")) return {real_const(0), f64(size - 1)};
    return {real_const(-0.5), f64(size) - real_const(0.5)};
}

// The position where a line ends up that is folded back at both ends.
Expr reflect(const Expr& at, const Border& border) {
    Expr range = border.high - border.low, beyond = call(Fn::Abs, {at - border.low});
    Expr folds = call(Fn::Floor, {beyond / range}), rest = beyond - folds * range;
    Expr there = eq(rem(folds, real_const(2)), real_const(0));
    return select(le(range, real_const(0)), border.low, select(there, border.low + rest, border.high - rest));
}

// A position in [-1, 1] as one among `size` elements, brought back inside as the padding mode says. Rounded to f32, as
// everybody computes it: where a position falls on a tie depends on that.
Expr grid_position(const OpView& op, const Expr& normal, const Dim& size, bool whole) {
    Expr half = real_const(0.5), at = f64(normal) + real_const(1);
    at = op.integer("align_corners") ? at * half * f64(size - 1) : (at * f64(size) - real_const(1)) * half;
    if (normal.dtype() != DType::f64) at = f64(cast(at, DType::f32));
    if (whole) at = call(Fn::Round, {at});
    const std::string& padding = op.string("padding_mode");
    Border border = border_of(op, size);
    if (padding == "reflection") return reflect(at, border);
    if (padding == "zeros") return at;
    Expr outside = logical_or(lt(at, border.low), gt(at, border.high));
    return select(outside, clamp(at, real_const(0), f64(size - 1)), at);
}

// An element's index, brought inside unless the padding is zeros.
Expr grid_element(const OpView& op, const Expr& element, const Dim& size) {
    const std::string& padding = op.string("padding_mode");
    if (padding == "zeros") return element;
    if (padding == "border") return clamp(element, 0, size - 1);
    return clamp(cast(reflect(f64(element), border_of(op, size)), DType::i64), 0, size - 1);
}

const OpDef kGridSample{
    .name = "grid_sample",
    .inputs = {"x: T", "grid: G"},
    .outputs = {"y: T"},
    .attrs = {int_attr("align_corners", 0), string_attr("mode", "linear").one_of({"linear", "nearest", "cubic"}),
              string_attr("padding_mode", "zeros").one_of({"zeros", "border", "reflection"})},
    .types = {{"T", kBodyTypes}, {"G", kWideFloats}},
    .onnx = {"GridSample",
             {{20,
               [](OnnxCall& call) -> Status {
                   auto it = call.attrs.find("mode");
                   if (it == call.attrs.end()) return {};
                   if (it->second == Attr(std::string("bilinear")))
                       it->second = std::string("linear");
                   else if (it->second == Attr(std::string("bicubic")))
                       it->second = std::string("cubic");
                   return {};
               },
               [](OnnxCall& call) -> Status {
                   auto it = call.attrs.find("mode");
                   if (it == call.attrs.end()) return {};
                   if (it->second == Attr(std::string("linear")))
                       it->second = std::string("bilinear");
                   else if (it->second == Attr(std::string("cubic")))
                       it->second = std::string("bicubic");
                   return {};
               }}}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &grid = op.shape(1);
        if (x.rank() < 3 || grid.rank() != x.rank())
            return op.shape_error("needs [N, C, D1, ...] and [N, E1, ..., r], has {} and {}", x, grid);
        if ((x[0].as_int() && grid[0].as_int() && x[0] != grid[0]) ||
            (grid[-1].as_int() && !grid[-1].is_int(x.rank() - 2)))
            return op.shape_error("the grid {} is incompatible with {}", grid, x);
        return op.like(0, x.slice(0, 2) + grid.slice(1, grid.rank() - 1));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto x = op.in(0), grid = op.in(1);
            const std::string& mode = op.string("mode");
            int64_t spatial = x.rank() - 2;
            Indices read = o.slice(0, 2);
            std::vector<ReduceAxis> axes;
            Expr weight = real_const(1);
            for (int64_t i = 0; i < spatial; ++i) {
                const Dim& size = x.dim(i + 2);
                // The grid lists positions from the innermost dimension to the outermost.
                Expr normal = grid.at(Indices{o[0]} + o.slice(2, o.rank()) + Indices{spatial - 1 - i});
                Expr at = grid_position(op, normal, size, mode == "nearest");
                if (mode == "nearest") {
                    read = read + Indices{grid_element(op, cast(at, DType::i64), size)};
                    continue;
                }
                Taps taps = taps_around(op, at, mode == "cubic" ? 4 : 2);
                axes.push_back(taps.axis);
                weight = weight * (mode == "cubic" ? cubic_weight(taps.distance, -0.75) : linear_weight(taps.distance));
                read = read + Indices{grid_element(op, taps.element, size)};
            }
            Expr value = x.at_or(read, like(op, 0), 2);
            return axes.empty() ? value : cast(sum(axes, weight * f64(value)), op.dtype(0));
        },
};

const OpDef kAffineGrid{
    .name = "affine_grid",
    .inputs = {"theta: T", "size: i64"},
    .outputs = {"grid: T"},
    .attrs = {int_attr("align_corners", 0)},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = "AffineGrid",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &theta = op.shape(0), &size = op.shape(1);
        if (theta.rank() != 3 || size.rank() != 1)
            return op.shape_error("needs [N, r, r + 1] and a vector, has {} and {}", theta, size);
        auto rows = theta[1].as_int(), columns = theta[2].as_int(), count = size[0].as_int();
        if (rows && count && *count != *rows + 2)
            return op.shape_error("size has {} entries for theta {}", *count, theta);
        if (rows && columns && *columns != *rows + 1) return op.shape_error("theta {} is not [N, r, r + 1]", theta);
        if (!rows && !count) return op.like(0, Shape::unknown());
        int64_t spatial = rows ? *rows : *count - 2;
        if (spatial < 1 || spatial > 8) return op.shape_error("needs [N, r, r + 1], has {}", theta);
        auto wanted = op.contents(1);
        Shape y = wanted ? Shape{theta[0]} + Shape(*wanted).slice(2, spatial + 2) : fresh_shape(op, 0, spatial + 1);
        for (const Dim& d : y)
            if (d.as_int() && *d.as_int() < 0) return op.error(Code::E0212, "size has {}", *d.as_int());
        y.push_back(spatial);
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto theta = op.in(0);
            int64_t spatial = o.rank() - 2;
            Expr y = f64(theta.at({o[0], o[-1], spatial}));
            for (int64_t i = 0; i < spatial; ++i) {
                const Dim& size = op.out().dim(spatial - i);
                Expr at = f64(o[spatial - i]), step = real_const(2);
                Expr normal = op.integer("align_corners")
                                  ? select(eq(size, 1), real_const(0), at * step / f64(size - 1) - real_const(1))
                                  : (at * step + real_const(1)) / f64(size) - real_const(1);
                y = y + f64(theta.at({o[0], o[-1], i})) * normal;
            }
            return cast(y, op.dtype(0));
        },
};

}  // namespace

std::vector<OpDef> grid_ops() { return {kGridSample, kAffineGrid}; }

}  // namespace tessera
