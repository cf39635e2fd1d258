#include "graph/ops/block_product.h"

#include "graph/ops/common.h"

namespace tessera {

Value* unpacked_bits(Builder& b, Value* bytes, int64_t bits, const std::vector<int64_t>& shape) {
    if (bits == 8) return b.reshape(bytes, shape);
    std::vector<Value*> parts;
    Value* mask = b.scalar(double((1 << bits) - 1), DType::u8);
    for (int64_t at = 0; at < 8; at += bits) {
        Value* shifted = at == 0 ? bytes
                                 : b.op("bit_shift", {bytes, b.scalar(double(at), DType::u8)},
                                        {{"direction", Attr(std::string("RIGHT"))}});
        parts.push_back(b.unsqueeze(b.op("bitwise_and", {shifted, mask}), {-1}));
    }
    return b.reshape(b.concat(parts, -1), shape);
}

namespace {

constexpr int64_t kMostSize = int64_t{1} << 40;

struct Blocks {
    int64_t k, n, bits, size, count;
};

Blocks blocks_of(const OpView& op) {
    Blocks b{op.integer("k"), op.integer("n"), op.integer("bits"), op.integer("block_size"), 0};
    b.count = b.size > 0 ? (b.k + b.size - 1) / b.size : 0;
    return b;
}

Status check_bits(const OpView& op) {
    const Blocks b = blocks_of(op);
    if (b.bits != 2 && b.bits != 4 && b.bits != 8) return op.error(Code::E0212, "bits must be 2, 4 or 8");
    if (b.k <= 0 || b.n <= 0 || b.size <= 0 || b.k >= kMostSize || b.n >= kMostSize || b.size >= kMostSize ||
        b.size * b.bits % 8)
        return op.error(Code::E0212, "sizes out of range");
    return {};
}

// a times the weights, whose bits lie in bytes, block after block of each column. One zero point for all, or one for
// each block. With an accuracy level of 4, a may be rounded to 8 bits, block by block.
const OpDef kMatmulNBits{
    .name = "matmul_nbits",
    .inputs = {"a: T", "b: u8", "scales: T", "zeros: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("accuracy_level").required(), int_attr("bits").required(), int_attr("block_size").required(),
              int_attr("k").required(), int_attr("n").required()},
    .types = {{"T", kWideFloats}},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_bits(op));
        const Blocks b = blocks_of(op);
        const Shape& a = op.shape(0);
        if (a.rank() < 1 || (a[-1].as_int() && !a[-1].is_int(b.k)))
            return op.shape_error("a {} must have {} columns", a, b.k);
        if (!(op.shape(2) == Shape{b.n, b.count}))
            return op.shape_error("scales {} must be [{}, {}]", op.shape(2), b.n, b.count);
        if (op.rank(3) != 0 && !(op.shape(3) == op.shape(2)))
            return op.shape_error("zero points {} must be one number, or [{}, {}]", op.shape(3), b.n, b.count);
        return op.like(0, a.slice(0, a.rank() - 1) + Shape{b.n});
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        const Blocks w = blocks_of(op);
        Value* weights = b.cast(unpacked_bits(b, in[1], w.bits, {w.n, w.count, w.size}), op.dtype(0));
        Value* zeros = op.rank(3) == 0 ? in[3] : b.unsqueeze(in[3], {-1});
        weights = b.mul(b.sub(weights, zeros), b.unsqueeze(in[2], {-1}));
        weights = b.reshape(weights, {w.n, w.count * w.size});
        if (w.count * w.size != w.k) weights = b.slice(weights, {0}, {w.k}, {1});
        return b.finish({b.matmul(in[0], b.transpose(weights, {1, 0}))});
    },
};

// --- the same of words: w[panel, block, word, column] holds eight nibbles of a column of a panel of 16.

Result<Types> infer_words(const OpView& op) {
    const Shape &x = op.shape(0), &w = op.shape(1), &scales = op.shape(2), &zeros = op.shape(3);
    const int64_t n = op.integer("n");
    if (x.rank() < 2 || w.rank() != 4 || !(x[-2] == w[1]) || !(x[-1] == w[2] * kNibblesOfWord) ||
        !w[3].is_int(kPanelColumns) || n <= 0)
        return op.shape_error("words {} do not fit {}", w, x);
    if (!(scales == Shape{w[0], w[1], w[3]}) || (!(zeros == scales) && !(zeros == Shape{1, 1, 1})))
        return op.shape_error("scales {} and zero points {} do not fit {}", scales, zeros, w);
    if (const auto known = w[0].as_int(); known && *known * kPanelColumns < n)
        return op.shape_error("words {} are not {} columns", w, n);
    for (int64_t i : {4, 5})
        if (op.has(size_t(i)) && !(op.shape(size_t(i)).elements() == x.slice(0, x.rank() - 1).elements()))
            return op.shape_error("{} does not fit {}", op.shape(size_t(i)), x);
    const int64_t panels = op.integer("panels"), tile = op.integer("tile");
    const auto count = w[0].as_int();
    if (panels < 1 || panels > 64 || tile < 1 || tile > 64 || (tile & (tile - 1)) || (panels & (panels - 1)) ||
        (count && *count % panels))
        return op.error(Code::E0212, "panels is {}, tile {}", panels, tile);
    return Types(Type(DType::f32, x.slice(0, x.rank() - 2) + Shape{n}));
}

// The sum over blocks of scale * (the sum of x * (nibble - zero)); of bytes, the inner sum is one of integers, and the
// sum of x is given.
Expr words_body(const OpView& op, const Indices& o) {
    const bool bytes = op.dtype(0) == DType::i8;
    auto block = op.reduce(op.shape(0)[-2]), i = op.reduce(op.shape(0)[-1]);
    const Expr panel = floor_div(o[-1], kPanelColumns), column = mod(o[-1], kPanelColumns);
    const Indices rows = o.slice(0, o.rank() - 1);
    const Expr at = mod(i.var, kNibblesOfWord), shift = mod(at, 4) * 8 + floor_div(at, 4) * 4;
    const Expr word = op.in(1).at({panel, block.var, floor_div(i.var, kNibblesOfWord), column});
    const Expr nibble =
        bit(ExprKind::BitAnd, bit(ExprKind::Shr, word, cast(shift, DType::i32)), int_const(15, DType::i32));
    const bool one = op.shape(3)[0].is_int(1) && op.shape(3)[1].is_int(1) && op.shape(3)[2].is_int(1);
    const Expr zero = one ? op.in(3).at({Expr(0), Expr(0), Expr(0)}) : op.in(3).at({panel, block.var, column});
    const Expr x = op.in(0).at(rows + Indices{block.var, i.var});
    Expr scale = op.in(2).at({panel, block.var, column});
    if (!bytes) return sum({block}, sum({i}, x * (cast(nibble, DType::f32) - zero)) * scale);
    const Indices of_block = rows + Indices{block.var, Expr(0)};
    scale = scale * op.in(4).at(of_block);
    const Expr inner = sum({i}, cast(x, DType::i32) * nibble) - zero * op.in(5).at(of_block);
    return sum({block}, cast(inner, DType::f32) * scale);
}

OpDef words_op(std::string name, DType x) {
    OpDef op{
        .name = std::move(name),
        .inputs = {"x: X", "words: i32", "scales: f32", "zeros: Z"},
        .outputs = {"y: f32"},
        .attrs = {int_attr("n").required(), int_attr("panels").required(), int_attr("signed_words").required(),
                  int_attr("tile").required()},
        .types = {{"X", {x}}, {"Z", {x == DType::i8 ? DType::i32 : x}}},
        .infer = infer_words,
        .body = words_body,
    };
    // Of bytes: what each block was divided by, and the sum of each.
    if (x == DType::i8) op.inputs.insert(op.inputs.end(), {"x_scales: f32", "x_sums: i32"});
    return without_gradient(std::move(op), "only lowering creates it");
}

}  // namespace

std::vector<OpDef> block_product_ops() {
    return {kMatmulNBits, words_op("nibble_product", DType::f32), words_op("nibble_product_of_bytes", DType::i8)};
}

}  // namespace tessera
