// A convolution as products of transformed tiles (Winograd, Cook and Toom): conv(x, w) of stride 1 is
// winograd_output(matmul(winograd_input(x, ...), winograd_weight(w, ...)), ...) for matrices bt [n, n], g [n, r] and at
// [m, n] of each axis with m + r - 1 = n, which interpolate a product of polynomials at n points. Tiles of m x m'
// outputs are computed from n x n' inputs.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// How the output of size [N, O, H, W] is cut into tiles; tile t = (image * rows + row) * columns + column.
struct Tiles {
    Dim rows, columns;
    Tiles(const Dim& h, const Dim& w, const Dim& height, const Dim& width)
        : rows(ceil_div(h, height)), columns(ceil_div(w, width)) {}
    Expr row(const Expr& t) const { return mod(floor_div(t, columns), rows); }
    Expr column(const Expr& t) const { return mod(t, columns); }
    Expr image(const Expr& t) const { return floor_div(t, rows * columns); }
};

Status check_matrix(const OpView& op, size_t input, const Dim& rows, const Dim& columns) {
    const Shape& s = op.shape(input);
    if (s.rank() == 2 && s[0] == rows && s[1] == columns) return {};
    return op.shape_error("{} must be [{},{}], is {}", op.def().inputs[input].name, to_string(rows), to_string(columns),
                          s);
}

Status check_matrices(const OpView& op) {
    for (size_t i : {1, 2})
        if (op.shape(i).rank() != 2)
            return op.shape_error("{} must be a matrix, is {}", op.def().inputs[i].name, op.shape(i));
    return {};
}

// What is around x: at the beginning of both axes, then at their ends.
std::vector<int64_t> pads_of(const OpView& op) {
    return op.has_attr("pads") ? op.ints("pads") : std::vector<int64_t>(4, 0);
}

// Of x, padded: tiles begin every `side` and overlap.
Tiles input_tiles(const OpView& op) {
    const Shape& x = op.shape(0);
    const auto& side = op.ints("side");
    const auto pads = pads_of(op);
    auto outputs = [&](int64_t axis) {
        return x[2 + axis] + pads[size_t(axis)] + pads[size_t(axis) + 2] - op.shape(size_t(axis) + 1)[0] +
               side[size_t(axis)];
    };
    return Tiles(outputs(0), outputs(1), side[0], side[1]);
}

const OpDef kWinogradInput{
    .name = "winograd_input",
    .inputs = {"x: T", "bt_rows: T", "bt_columns: T"},
    .outputs = {"v: T"},
    .attrs = {ints_attr("side").required(), ints_attr("pads")},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear, Trait::OwnSums},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        const auto& side = op.ints("side");
        if (x.rank() != 4 || side.size() != 2 || side[0] < 1 || side[1] < 1)
            return op.shape_error("needs [N,C,H,W] and two sides, has {} and {}", x, side.size());
        if (pads_of(op).size() != 4) return op.shape_error("needs four pads, has {}", pads_of(op).size());
        TRY(check_matrices(op));
        const Dim &n = op.shape(1)[0], &m = op.shape(2)[0];
        TRY(check_matrix(op, 1, n, n));
        TRY(check_matrix(op, 2, m, m));
        Tiles tiles = input_tiles(op);
        return op.like(0, {n, m, x[0] * tiles.rows * tiles.columns, x[1]});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Tiles tiles = input_tiles(op);
            const auto& side = op.ints("side");
            auto x = op.in(0), down = op.in(1), along = op.in(2);
            auto r = op.reduce(down.dim(0)), s = op.reduce(along.dim(0));
            const Expr& t = o[2];
            const auto pads = pads_of(op);
            Indices at{tiles.image(t), o[3], tiles.row(t) * side[0] + r.var - pads[0],
                       tiles.column(t) * side[1] + s.var - pads[1]};
            Expr across = sum({s}, along.at({o[1], s.var}) * x.at_or(at, like(op, 0), 2));
            return sum({r}, down.at({o[0], r.var}) * across);
        },
    .input_layout = Layout::ChannelsLast,
};

const OpDef kWinogradWeight{
    .name = "winograd_weight",
    .inputs = {"w: T", "g_rows: T", "g_columns: T"},
    .outputs = {"u: T"},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear, Trait::OwnSums},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& w = op.shape(0);
        if (w.rank() != 4) return op.shape_error("needs [O,C,r,s], has {}", w);
        TRY(check_matrices(op));
        TRY(check_matrix(op, 1, op.shape(1)[0], w[2]));
        TRY(check_matrix(op, 2, op.shape(2)[0], w[3]));
        return op.like(0, {op.shape(1)[0], op.shape(2)[0], w[1], w[0]});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto w = op.in(0), down = op.in(1), along = op.in(2);
            auto r = op.reduce(down.dim(1)), s = op.reduce(along.dim(1));
            return sum({r, s}, down.at({o[0], r.var}) * along.at({o[1], s.var}) * w.at({o[3], o[2], r.var, s.var}));
        },
};

const OpDef kWinogradOutput{
    .name = "winograd_output",
    .inputs = {"m: T", "at_rows: T", "at_columns: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("height").required(), int_attr("width").required()},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear, Trait::OwnSums},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& m = op.shape(0);
        if (m.rank() != 4) return op.shape_error("needs [n,n,T,O], has {}", m);
        TRY(check_matrices(op));
        TRY(check_matrix(op, 1, op.shape(1)[0], m[0]));
        TRY(check_matrix(op, 2, op.shape(2)[0], m[1]));
        int64_t h = op.integer("height"), w = op.integer("width");
        if (h < 1 || w < 1) return op.error(Code::E0212, "an output of {} x {}", h, w);
        Tiles tiles(h, w, op.shape(1)[0], op.shape(2)[0]);
        return op.like(0, {floor_div(m[2], tiles.rows * tiles.columns), m[3], h, w});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto m = op.in(0), down = op.in(1), along = op.in(2);
            Dim height = down.dim(0), width = along.dim(0);
            Tiles tiles(op.out().shape[2], op.out().shape[3], height, width);
            Expr t = (o[0] * tiles.rows + floor_div(o[2], height)) * tiles.columns + floor_div(o[3], width);
            auto r = op.reduce(m.dim(0)), s = op.reduce(m.dim(1));
            Expr across = sum({s}, along.at({mod(o[3], width), s.var}) * m.at({r.var, s.var, t, o[1]}));
            return sum({r}, down.at({mod(o[2], height), r.var}) * across);
        },
    .layout = Layout::ChannelsLast,
};

}  // namespace

std::vector<OpDef> winograd_ops() {
    constexpr const char* kWhy = "it is made when a graph is lowered, after its gradients are taken";
    return {without_gradient(kWinogradInput, kWhy), without_gradient(kWinogradWeight, kWhy),
            without_gradient(kWinogradOutput, kWhy)};
}

}  // namespace tessera
