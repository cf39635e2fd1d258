// The gradients of attention as two tile programs, which GPUs run (FlashAttention-2). Scores are computed again, tile
// by tile, and none is stored. The first program has a block for rows of queries: it gives their gradients and, of each
// row, the logarithm of its sum of weights, and the sum over keys that softmax subtracts. The second has a block for
// rows of keys. No sum is shared between blocks, so that the order of each is fixed.
#include "graph/ops/attention_tiles.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "graph/evaluate/tiles/run_call.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/tile_call.h"
#include "tile/expressions.h"

namespace tessera {
namespace {

using tile::Term;
using tile::Tile;
using As = TileCall::Argument::As;

constexpr double kLog2E = 1.4426950408889634;
constexpr int64_t kLeastSide = 16;  // of a tile
constexpr int64_t kShortHead = 64;  // elements of a head, for which four warps have registers enough
constexpr int64_t kFewKeys = 256;   // for which short tiles waste less
constexpr DTypes kHalves{DType::f16, DType::bf16};

struct In {
    enum : size_t { Query, Key, Value, Mask, Arrived, Result, Sums = Result, Along };
};

// Rows of a tile of queries and of keys, and the warps of a block. Fitted to times on an H200.
struct Sides {
    int64_t queries, keys;
    int warps;
};
Sides sides_by_query(const OpView& op) {
    if (*op.shape(In::Query)[3].as_int() > kShortHead) return {128, 64, 8};
    return {64, op.shape(In::Key)[1].as_int().value_or(kFewKeys + 1) <= kFewKeys ? 32 : 128, 4};
}
Sides sides_by_key(const OpView& op) {
    if (*op.shape(In::Query)[3].as_int() > kShortHead) return {64, 128, 8};
    return {128, 64, 4};
}

Tile both(const Tile& a, const Tile& b) {
    if (!a.program) return b;
    return b.program ? a & b : a;
}
Tile as_row(const Tile& t) { return t.program ? t.row() : t; }
Tile as_column(const Tile& t) { return t.program ? t.column() : t; }

// What both programs have in common: their parameters, and how tiles are read and written. An empty Tile stands for a
// condition that always holds.
class GradientWriter {
  protected:
    GradientWriter(const OpView& op, std::string name, Sides sides)
        : op_(op),
          sides_(sides),
          heads_(*op.shape(In::Query)[2].as_int()),
          key_heads_(*op.shape(In::Key)[2].as_int()),
          depth_(*op.shape(In::Query)[3].as_int()),
          columns_(*op.shape(In::Value)[3].as_int()),
          causal_(op.integer("is_causal") != 0),
          scale_(op.real("scale")),
          t_(std::move(name)) {}

    const Dim& query_count() const { return op_.shape(In::Query)[1]; }
    const Dim& key_count() const { return op_.shape(In::Key)[1]; }

    Tile input(std::string name, size_t index) {
        arguments_.push_back({As::Input, index});
        return t_.pointer(std::move(name), op_.dtype(index));
    }
    Tile output(std::string name, size_t index, DType dtype) {
        arguments_.push_back({As::Output, index});
        return t_.pointer(std::move(name), dtype);
    }
    // A number of the program where it is known, else a parameter.
    Term size(std::string name, const Dim& dim) {
        if (const auto known = dim.as_int()) return *known;
        arguments_.push_back({As::Size, 0, dim});
        return t_.number(std::move(name));
    }

    void find_common() {
        q_ = input("q", In::Query), k_ = input("k", In::Key), v_ = input("v", In::Value), g_ = input("g", In::Arrived);
        queries_ = size("queries", query_count()), keys_ = size("keys", key_count());
        along_depth_ = t_.up_to(width_of_tile(depth_)), along_columns_ = t_.up_to(width_of_tile(columns_));
        if (!op_.has(In::Mask)) return;
        mask_ = input("mask", In::Mask);
        const Shape& shape = op_.shape(In::Mask);
        Expr stride = 1;
        for (int64_t d = shape.rank(); d-- > 0;) {
            const auto axis = static_cast<size_t>(d + 4 - shape.rank());
            strides_[axis] = size(fmt::format("stride{}", axis), shape[d].is_int(1) ? Expr(0) : stride);
            stride = stride * shape[d];
        }
    }

    static int64_t width_of_tile(int64_t width) {
        return std::max(kLeastSide, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(width))));
    }
    // Whether rows, of which a tile has `step`, are among the first `count`.
    static Tile inside(const Tile& rows, const Term& count, const Dim& known, int64_t step) {
        return mod(known, step).is_int(0) ? Tile() : rows < count;
    }

    // Rows of one head of an array [batch, count, heads, width]; `first`: of its rows, among those of all heads. What
    // it is multiplied with stays in sight, so that vectors are found to be aligned.
    struct Rows {
        Tile array, first, row, inside;
        int64_t heads, width;
    };
    Tile column(const Rows& r) const { return r.width == depth_ ? along_depth_ : along_columns_; }
    Tile place(const Rows& r) const {
        return r.array + r.first * r.width + (r.row * (r.heads * r.width)).column() + column(r).row();
    }
    Tile there(const Rows& r) const {
        return both(as_column(r.inside), r.width == width_of_tile(r.width) ? Tile() : (column(r) < r.width).row());
    }
    Tile load(const Rows& r) { return t_.load(place(r), there(r)); }
    void store(const Rows& r, const Tile& value, DType dtype) { t_.store(place(r), value.as(dtype), there(r)); }

    Tile first_query(const Tile& batch, const Tile& head) const { return batch * queries_ * heads_ + head; }
    Tile first_key(const Tile& batch, const Tile& head) const { return batch * keys_ * key_heads_ + head; }

    // Scores as powers of two, -inf where a key is not seen. Queries and keys are a column and a row, or a row and a
    // column; `there`: both of them are.
    Tile scores(const Tile& product, const Tile& batch, const Tile& head, const Tile& query, const Tile& key,
                const Tile& there) {
        Tile made = product * (scale_ * kLog2E);
        if (mask_.program) {
            const Tile at =
                mask_ + (batch * strides_[0] + head * strides_[1]) + query * strides_[2] + key * strides_[3];
            const Tile mask = t_.load(at, there);
            made = op_.dtype(In::Mask) == DType::boolean ? where(mask, made, -INFINITY)
                                                         : made + mask.as(DType::f32) * kLog2E;
        }
        return causal_ ? where(key <= query, made, -INFINITY) : made;
    }

    Result<TileCall> finish(const Expr& blocks) {
        TileCall call{TRY(t_.finish()), std::move(arguments_), {blocks, 1, 1}, {}};
        call.initial.assign(op_.output_count(), -1);
        call.warps = sides_.warps;
        call.trusted = true;
        return call;
    }

    const OpView& op_;
    Sides sides_;
    int64_t heads_, key_heads_, depth_, columns_;
    bool causal_;
    double scale_;
    tile::Expressions t_;
    std::vector<TileCall::Argument> arguments_;
    Tile q_, k_, v_, g_, mask_;
    Term queries_ = 0, keys_ = 0;
    Tile along_depth_, along_columns_;
    std::array<Term, 4> strides_{0, 0, 0, 0};
};

class ByQuery : GradientWriter {
  public:
    explicit ByQuery(const OpView& op) : GradientWriter(op, "attention_gradient_by_query", sides_by_query(op)) {}

    Result<TileCall> write() {
        find_common();
        const Tile y = input("y", In::Result), dq = output("dq", 0, op_.dtype(In::Query));
        const Tile sums = output("sums", 1, DType::f32), alongs = output("along", 2, DType::f32);
        const int64_t m = sides_.queries, n = sides_.keys;
        const Dim count = ceil_div(query_count(), m);
        const Term blocks = size("blocks", count);
        const Tile id = t_.program_id(0), which = quotient(id, blocks);
        // The longest come first.
        const Tile block = causal_ ? blocks - (id % blocks + 1) : id % blocks;
        const Tile batch = quotient(which, heads_), head = which % heads_,
                   key_head = quotient(head, heads_ / key_heads_);

        const Tile query = block * m + t_.up_to(m), is_query = inside(query, queries_, query_count(), m);
        const Tile from = first_query(batch, head), from_key = first_key(batch, key_head);
        const Tile q = load({q_, from, query, is_query, heads_, depth_});
        const Tile g = load({g_, from, query, is_query, heads_, columns_});
        const Tile result = load({y, from, query, is_query, heads_, columns_});
        const Tile along = t_.reduce(tile::Reduction::Sum, g.as(DType::f32) * result.as(DType::f32), 1);
        const Term end = causal_ ? Term(smaller(block * m + m, keys_)) : keys_;
        const auto found =
            t_.loop(0, end, n, {t_.full({m}, -INFINITY), t_.full({m}, 0), t_.full({m, width_of_tile(depth_)}, 0)},
                    [&](const Tile& first, const std::vector<Tile>& before) -> std::vector<Tile> {
                        const Tile &most = before[0], &total = before[1];
                        const Tile key = first + t_.up_to(n), is_key = inside(key, keys_, key_count(), n);
                        const Tile k = load({k_, from_key, key, is_key, key_heads_, depth_});
                        Tile s = scores(t_.dot(q, k.transposed()), batch, head, query.column(), key.row(),
                                        both(as_column(is_query), as_row(is_key)));
                        if (is_key.program) s = where(is_key.row(), s, -INFINITY);
                        const Tile next = larger(most, t_.reduce(tile::Reduction::Max, s, 1));
                        const Tile base = mask_.program ? where(next == -INFINITY, 0.0, next) : next;
                        const Tile p = exp2(s - base.column()), shrunk = exp2(most - base);
                        const Tile v = load({v_, from_key, key, is_key, key_heads_, columns_});
                        const Tile to_scores = p * (t_.dot(g, v.transposed()) - along.column());
                        return {next, total * shrunk + t_.reduce(tile::Reduction::Sum, p, 1),
                                t_.dot(to_scores.as(op_.dtype(In::Query)), k, before[2] * shrunk.column())};
                    });
        const Tile &most = found[0], &total = found[1], blind = total == 0.0;
        const Tile factor = where(blind, 0.0, scale_ / total);
        store({dq, from, query, is_query, heads_, depth_}, found[2] * factor.column(), op_.dtype(In::Query));
        const Tile at = which * queries_ + query;
        t_.store(sums + at, where(blind, INFINITY, most + log2(total)), is_query);
        t_.store(alongs + at, along, is_query);
        return finish(op_.shape(In::Query)[0] * heads_ * count);
    }
};

class ByKey : GradientWriter {
  public:
    explicit ByKey(const OpView& op) : GradientWriter(op, "attention_gradient_by_key", sides_by_key(op)) {}

    Result<TileCall> write() {
        find_common();
        const Tile sums = input("sums", In::Sums), alongs = input("along", In::Along);
        const Tile dk = output("dk", 0, op_.dtype(In::Key)), dv = output("dv", 1, op_.dtype(In::Value));
        const int64_t m = sides_.queries, n = sides_.keys, group = heads_ / key_heads_;
        const Dim count = ceil_div(key_count(), n);
        const Term blocks = size("blocks", count);
        const Tile id = t_.program_id(0), which = quotient(id, blocks), block = id % blocks;
        const Tile batch = quotient(which, key_heads_), key_head = which % key_heads_;

        const Tile key = block * n + t_.up_to(n), is_key = inside(key, keys_, key_count(), n);
        const Tile from_key = first_key(batch, key_head);
        const Tile k = load({k_, from_key, key, is_key, key_heads_, depth_});
        const Tile v = load({v_, from_key, key, is_key, key_heads_, columns_});
        const Term begin = causal_ ? Term(quotient(block * n, m) * m) : Term(0);
        auto of_head = [&](const Tile& head, const std::vector<Tile>& so_far) {
            const Tile from = first_query(batch, head);
            const Tile of_rows = (batch * heads_ + head) * queries_;
            const Tile sums_head = sums + of_rows, alongs_head = alongs + of_rows;
            return t_.loop(begin, queries_, m, so_far, [&](const Tile& first, const std::vector<Tile>& before) {
                const Tile query = first + t_.up_to(m), is_query = inside(query, queries_, query_count(), m);
                const Tile q = load({q_, from, query, is_query, heads_, depth_});
                const Tile s = scores(t_.dot(k, q.transposed()), batch, head, query.row(), key.column(),
                                      both(as_column(is_key), as_row(is_query)));
                // A row that is none, or sees no key, has no weights.
                Tile p = exp2(s - t_.load(sums_head + query, is_query).row());
                if (is_query.program) p = where(is_query.row(), p, 0.0);
                const Tile g = load({g_, from, query, is_query, heads_, columns_});
                const Tile to_scores = p * (t_.dot(v, g.transposed()) - t_.load(alongs_head + query, is_query).row());
                return std::vector<Tile>{t_.dot(to_scores.as(op_.dtype(In::Query)), q, before[0]),
                                         t_.dot(p.as(op_.dtype(In::Value)), g, before[1])};
            });
        };
        const std::vector<Tile> none{t_.full({n, width_of_tile(depth_)}, 0), t_.full({n, width_of_tile(columns_)}, 0)};
        const auto found = group == 1 ? of_head(key_head, none)
                                      : t_.loop(0, group, 1, none, [&](const Tile& i, const std::vector<Tile>& before) {
                                            return of_head(key_head * group + i, before);
                                        });
        store({dk, from_key, key, is_key, key_heads_, depth_}, found[0] * scale_, op_.dtype(In::Key));
        store({dv, from_key, key, is_key, key_heads_, columns_}, found[1], op_.dtype(In::Value));
        return finish(op_.shape(In::Key)[0] * key_heads_ * count);
    }
};

Result<TileCall> call_by_query(const OpView& op) { return ByQuery(op).write(); }
Result<TileCall> call_by_key(const OpView& op) { return ByKey(op).write(); }

Result<std::vector<Datum>> evaluate_by_query(const OpView& op, EvalContext& context) {
    return run_call(op, TRY(call_by_query(op)), context);
}
Result<std::vector<Datum>> evaluate_by_key(const OpView& op, EvalContext& context) {
    return run_call(op, TRY(call_by_key(op)), context);
}

Status check_tiled(const OpView& op) {
    if (op.output_count() < op.def().outputs.size())
        return op.error(Code::E0207, "has {} outputs, not {}", op.def().outputs.size(), op.output_count());
    for (const size_t i : {In::Query, In::Key, In::Value}) {
        const Shape& s = op.shape(i);
        if (s.rank() != 4 || !s[2].as_int() || !s[3].as_int() || *s[2].as_int() < 1 || *s[3].as_int() < 1 ||
            *s[3].as_int() > kLongestTiledHead)
            return op.shape_error("{} must be [batch, rows, heads, elements], is {}", op.def().inputs[i].name, s);
    }
    const Shape &q = op.shape(In::Query), &k = op.shape(In::Key), &v = op.shape(In::Value);
    if (differ(q[3], k[3]) || differ(k[1], v[1]) || differ(k[2], v[2]) || *q[2].as_int() % *k[2].as_int() != 0)
        return op.shape_error("q {}, k {} and v {} are incompatible", q, k, v);
    return {};
}

const std::vector<AttrDef> kAttrs = {int_attr("is_causal", 0), float_attr("scale").required()};

const OpDef kByQuery{
    .name = "attention_gradient_by_query",
    .inputs = {"q: T", "k: T", "v: T", "attn_mask?: M", "g: T", "y: T"},
    .outputs = {"dq: T", "sums: f32", "along: f32"},
    .attrs = kAttrs,
    .types = {{"T", kHalves}, {"M", kBodyTypes}},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_tiled(op));
        const Shape& q = op.shape(In::Query);
        const Type rows(DType::f32, Shape{q[0], q[2], q[1]});
        return Types{op.type(In::Query), rows, rows};
    },
    .evaluate = evaluate_by_query,
    .tile = call_by_query,
};

const OpDef kByKey{
    .name = "attention_gradient_by_key",
    .inputs = {"q: T", "k: T", "v: T", "attn_mask?: M", "g: T", "sums: f32", "along: f32"},
    .outputs = {"dk: T", "dv: T"},
    .attrs = kAttrs,
    .types = {{"T", kHalves}, {"M", kBodyTypes}},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_tiled(op));
        return Types{op.type(In::Key), op.type(In::Value)};
    },
    .evaluate = evaluate_by_key,
    .tile = call_by_key,
};

}  // namespace

std::vector<Value*> attention_gradient_by_tiles(Builder& b, const TiledAttention& a) {
    const AttrMap attrs{{"is_causal", Attr(int64_t{a.causal})}, {"scale", Attr(static_cast<float>(a.scale))}};
    const auto first = b.ops(kByQuery.name, {a.q, a.k, a.v, a.mask, a.arrived, a.result}, attrs, 3);
    if (b.failed()) return {};
    const auto second = b.ops(kByKey.name, {a.q, a.k, a.v, a.mask, a.arrived, first[1], first[2]}, attrs, 2);
    if (b.failed()) return {};
    return {first[0], second[0], second[1]};
}

std::vector<OpDef> attention_tile_ops() {
    constexpr const char* kWhy = "lowering puts it in the place of attention_gradient";
    return {without_gradient(kByQuery, kWhy), without_gradient(kByKey, kWhy)};
}

}  // namespace tessera
