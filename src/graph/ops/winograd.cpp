// A convolution as products of transformed tiles (Winograd, Cook and Toom): conv(x, w) of stride 1 is
// winograd_output(matmul(winograd_input(x, bt), winograd_weight(w, g)), at) for matrices bt [n, n], g [n, r] and at [m,
// n] with m + r - 1 = n, which interpolate a product of polynomials at n points. Tiles of m x m outputs are computed
// from n x n inputs.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// How the output of size [N, O, H, W] is cut into tiles of `side` x `side`; tile t = (image * rows + row) * columns +
// column.
struct Tiles {
    Dim rows, columns, side;
    Tiles(const Dim& h, const Dim& w, const Dim& side)
        : rows(ceil_div(h, side)), columns(ceil_div(w, side)), side(side) {}
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

struct InputTiles {
    Tiles tiles;
    std::vector<int64_t> pads;
    explicit InputTiles(const OpView& op) : tiles(0, 0, 1), pads(op.ints("pads")) {
        int64_t r = op.integer("kernel");
        const Shape& x = op.shape(0);
        Dim side = op.shape(1)[0] - (r - 1);
        tiles = Tiles(x[2] + pads[0] + pads[2] - (r - 1), x[3] + pads[1] + pads[3] - (r - 1), side);
    }
};

const OpDef kWinogradInput{
    .name = "winograd_input",
    .inputs = {"x: T", "bt: T"},
    .outputs = {"v: T"},
    .attrs = {int_attr("kernel", 3), ints_attr("pads").required()},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &x = op.shape(0), &bt = op.shape(1);
        if (x.rank() != 4 || op.ints("pads").size() != 4)
            return op.shape_error("needs [N,C,H,W] and four pads, has {} and {}", x, op.ints("pads").size());
        if (bt.rank() != 2) return op.shape_error("bt must be a matrix, is {}", bt);
        TRY(check_matrix(op, 1, bt[0], bt[0]));
        InputTiles in(op);
        return op.like(0, {bt[0], bt[0], x[0] * in.tiles.rows * in.tiles.columns, x[1]});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            InputTiles in(op);
            auto x = op.in(0), bt = op.in(1);
            auto r = op.reduce(bt.dim(0)), s = op.reduce(bt.dim(0));
            const Expr& t = o[2];
            Indices at{in.tiles.image(t), o[3], in.tiles.row(t) * in.tiles.side + r.var - in.pads[0],
                       in.tiles.column(t) * in.tiles.side + s.var - in.pads[1]};
            Expr across = sum({s}, bt.at({o[1], s.var}) * x.at_or(at, like(op, 0), 2));
            return sum({r}, bt.at({o[0], r.var}) * across);
        },
};

const OpDef kWinogradWeight{
    .name = "winograd_weight",
    .inputs = {"w: T", "g: T"},
    .outputs = {"u: T"},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &w = op.shape(0), &g = op.shape(1);
        if (w.rank() != 4 || g.rank() != 2) return op.shape_error("needs [O,C,r,r] and a matrix, has {} and {}", w, g);
        TRY(check_matrix(op, 1, g[0], w[2]));
        TRY(check_matrix(op, 1, g[0], w[3]));
        return op.like(0, {g[0], g[0], w[1], w[0]});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto w = op.in(0), g = op.in(1);
            auto r = op.reduce(g.dim(1)), s = op.reduce(g.dim(1));
            return sum({r, s}, g.at({o[0], r.var}) * g.at({o[1], s.var}) * w.at({o[3], o[2], r.var, s.var}));
        },
};

const OpDef kWinogradOutput{
    .name = "winograd_output",
    .inputs = {"m: T", "at: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("height").required(), int_attr("width").required()},
    .types = {{"T", kWideFloats}},
    .traits = {Trait::Pure, Trait::Linear},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape &m = op.shape(0), &at = op.shape(1);
        if (m.rank() != 4 || at.rank() != 2)
            return op.shape_error("needs [n,n,T,O] and a matrix, has {} and {}", m, at);
        TRY(check_matrix(op, 1, at[0], m[0]));
        int64_t h = op.integer("height"), w = op.integer("width");
        if (h < 1 || w < 1) return op.error(Code::E0212, "an output of {} x {}", h, w);
        Tiles tiles(h, w, at[0]);
        return op.like(0, {floor_div(m[2], tiles.rows * tiles.columns), m[3], h, w});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto m = op.in(0), at = op.in(1);
            Dim side = at.dim(0);
            Tiles tiles(op.out().shape[2], op.out().shape[3], side);
            Expr t = (o[0] * tiles.rows + floor_div(o[2], side)) * tiles.columns + floor_div(o[3], side);
            auto r = op.reduce(m.dim(0)), s = op.reduce(m.dim(0));
            Expr across = sum({s}, at.at({mod(o[3], side), s.var}) * m.at({r.var, s.var, t, o[1]}));
            return sum({r}, at.at({mod(o[2], side), r.var}) * across);
        },
};

}  // namespace

std::vector<OpDef> winograd_ops() { return {kWinogradInput, kWinogradWeight, kWinogradOutput}; }

}  // namespace tessera
