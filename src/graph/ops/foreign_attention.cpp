// Attention and what belongs to it, as com.microsoft has them. Masks of all forms become one that is added to the
// scores.
#include <cmath>
#include <limits>

#include "graph/ops/common.h"
#include "graph/ops/foreign.h"

namespace tessera {
namespace {

// [B, S, N*h] as [B, N, S, h].
Value* into_heads(Builder& b, Value* x, int64_t heads) {
    return b.transpose(b.reshape(x, {0, 0, heads, -1}), {0, 2, 1, 3});
}
Value* out_of_heads(Builder& b, Value* x) { return b.reshape(b.transpose(x, {0, 2, 1, 3}), {0, 0, -1}); }

// What attention computes, in heads: q [B, N, S, h], k and v [B, M, T, h].
struct Heads {
    Value *q, *k, *v;
};

struct Scores {
    Value* added = nullptr;  // broadcasts to [B, N, S, T]
    float scale = 0;         // 0: 1 / sqrt(h)
    float softcap = 0;
    void add(Builder& b, Value* more) { added = added ? b.add(added, more) : more; }
};

// 0 where `keep` holds, else `filtered`.
Value* filtered(Builder& b, Value* keep, double value, DType type) {
    return b.op("where", {keep, b.scalar(0, type), b.scalar(value, type)});
}

double lowest_of(DType type) {
    if (type == DType::f16) return -65504;
    return type == DType::f64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
}

// Query i sees keys up to i + T - S: [S, T].
Value* sees_the_past(Builder& b, const Heads& h) {
    Value* rows = positions_along(b, h.q, 2);
    Value* columns = positions_along(b, h.k, 2);
    Value* before = b.sub(size_along(b, h.k, 2), size_along(b, h.q, 2));
    return b.op("less_or_equal", {b.unsqueeze(columns, {0}), b.unsqueeze(b.add(rows, before), {1})});
}

// A mask of integers in one of its forms: lengths [B], ends and starts [2B], which keys [B, T], which for which queries
// [B, S, T] or [B, 1, S, T].
Value* mask_added(ForeignCall& c, size_t input, const Heads& h, double value, const Dim& batch) {
    Builder& b = c.b;
    const int64_t rank = c.rank(input);
    const DType type = h.q->type().tensor().dtype;
    Value* mask = c.in(input);
    if (rank == 1) {
        Value* columns = b.unsqueeze(positions_along(b, h.k, 2), {0});
        Value* counts = b.cast(mask, DType::i64);
        const Dim size = c.shape(input)[0];
        const bool both = size == batch * 2 && !(size == batch);
        Value* keep = nullptr;
        if (both) {
            auto halves = b.ops("split", {counts}, {{"axis", Attr(int64_t{0})}, {"num_outputs", Attr(int64_t{2})}}, 2);
            keep = b.op("and", {b.op("less", {columns, b.unsqueeze(halves[0], {1})}),
                                b.op("greater_or_equal", {columns, b.unsqueeze(halves[1], {1})})});
        } else {
            keep = b.op("less", {columns, b.unsqueeze(counts, {1})});
        }
        return filtered(b, b.unsqueeze(keep, {1, 2}), value, type);
    }
    Value* keep = b.op("greater", {mask, b.scalar_like(0, mask)});
    if (rank == 2) keep = b.unsqueeze(keep, {1, 2});
    if (rank == 3) keep = b.unsqueeze(keep, {1});
    c.require(rank >= 2 && rank <= 4, "a mask must have 1 to 4 dimensions");
    return filtered(b, keep, value, type);
}

Value* attend(ForeignCall& c, const Heads& h, const Scores& scores) {
    AttrMap attrs;
    if (scores.scale != 0) attrs["scale"] = scores.scale;
    if (scores.softcap != 0) attrs["softcap"] = scores.softcap;
    std::vector<Value*> in{h.q, h.k, h.v};
    if (scores.added) in.push_back(scores.added);
    return out_of_heads(c.b, c.b.op("attention", in, std::move(attrs)));
}

// Attention and QAttention from the products of q, k and v: their parts, the past before them, masks.
Status finish_attention(ForeignCall& c, Value* qkv, size_t mask, size_t past, size_t bias, const Dim& batch) {
    Builder& b = c.b;
    const int64_t heads = c.integer("num_heads");
    c.require(heads > 0, "num_heads must be above 0");
    c.require(c.integer("do_rotary", 0) == 0, "do_rotary is not supported");
    c.integer("rotary_embedding_dim", 0);
    c.require(c.integer("past_present_share_buffer", 0) == 0, "past_present_share_buffer is not supported");
    const std::vector<int64_t> sizes = c.ints("qkv_hidden_sizes");
    c.require(sizes.empty() || sizes.size() == 3, "qkv_hidden_sizes must have three entries");
    if (b.failed()) return c.finish({});
    std::vector<Value*> parts =
        sizes.empty() ? b.ops("split", {qkv}, {{"axis", Attr(int64_t{-1})}, {"num_outputs", Attr(int64_t{3})}}, 3)
                      : b.ops("split", {qkv, b.ints(sizes)}, {{"axis", Attr(int64_t{-1})}}, 3);
    Heads h{into_heads(b, parts[0], heads), into_heads(b, parts[1], heads), into_heads(b, parts[2], heads)};
    if (c.has(past)) {
        auto before = b.ops("split", {c.in(past)}, {{"axis", Attr(int64_t{0})}, {"num_outputs", Attr(int64_t{2})}}, 2);
        h.k = b.concat({b.squeeze(before[0], {0}), h.k}, 2);
        h.v = b.concat({b.squeeze(before[1], {0}), h.v}, 2);
    }
    Value* present = nullptr;
    if (c.wants(1)) present = b.concat({b.unsqueeze(h.k, {0}), b.unsqueeze(h.v, {0})}, 0);
    Scores scores;
    scores.scale = c.real("scale", 0);
    const double filter = c.real("mask_filter_value", -10000);
    if (b.failed()) return c.finish({});
    const DType type = h.q->type().tensor().dtype;
    if (c.has(mask)) scores.add(b, mask_added(c, mask, h, filter, batch));
    if (c.integer("unidirectional", 0)) scores.add(b, filtered(b, sees_the_past(b, h), lowest_of(type), type));
    if (c.has(bias)) scores.add(b, c.in(bias));
    return c.finish({attend(c, h, scores), present});
}

constexpr size_t kNone = 1000;  // an input that the operator lacks

Status build_attention(ForeignCall& c) {
    c.require(c.rank(0) == 3, "the input must be [batch, sequence, hidden]");
    if (c.b.failed()) return c.finish({});
    const Dim batch = c.shape(0)[0];
    Value* qkv = c.b.matmul(c.in(0), c.in(1));
    if (c.has(2)) qkv = c.b.add(qkv, c.in(2));
    return finish_attention(c, qkv, 3, 4, 5, batch);
}

Status build_qattention(ForeignCall& c) {
    Builder& b = c.b;
    enum { kX, kW, kBias, kXScale, kWScale, kMask, kXZero, kWZero, kPast };
    c.require(c.rank(kX) == 3, "the input must be [batch, sequence, hidden]");
    if (b.failed()) return c.finish({});
    const Dim batch = c.shape(kX)[0];
    std::vector<Value*> in{c.in(kX), c.in(kW), c.in(kXZero), c.in(kWZero)};
    while (!in.back()) in.pop_back();
    Value* product = b.cast(b.op("matmul_integer", in), DType::f32);
    Value* qkv = b.add(b.mul(product, b.mul(c.in(kXScale), c.in(kWScale))), c.in(kBias));
    return finish_attention(c, qkv, kMask, kPast, kNone, batch);
}

// q, k and v in heads, from the forms that MultiHeadAttention takes them in.
Heads multi_heads(ForeignCall& c, int64_t heads) {
    Builder& b = c.b;
    enum { kQ, kK, kV, kBias };
    auto part = [&](Value* packed, int64_t i) {  // of [B, S, N, parts, h], as [B, N, S, h]
        Value* one = b.squeeze(b.slice(packed, {i}, {i + 1}, {3}), {3});
        return b.transpose(one, {0, 2, 1, 3});
    };
    if (c.rank(kQ) == 5) return {part(c.in(kQ), 0), part(c.in(kQ), 1), part(c.in(kQ), 2)};
    c.require(c.rank(kQ) == 3, "the query must be [batch, sequence, hidden] or packed");
    c.require(c.has(kK), "the key is missing");
    if (b.failed()) return {};
    std::vector<Value*> bias(3);
    if (c.has(kBias)) {
        // [q, k, v]: the query's part and the key's are as long as the query.
        const auto hidden = c.shape(kQ)[2].as_int();
        c.require(hidden.has_value(), "the hidden size must be known where there is a bias");
        if (b.failed()) return {};
        bias[0] = b.slice(c.in(kBias), {0}, {*hidden}, {0});
        bias[1] = b.slice(c.in(kBias), {*hidden}, {2 * *hidden}, {0});
        bias[2] = b.slice(c.in(kBias), {2 * *hidden}, {std::numeric_limits<int64_t>::max()}, {0});
    }
    auto plain = [&](size_t i) {
        Value* x = c.in(i);
        if (c.rank(i) == 4) return x;
        return into_heads(b, bias[i] ? b.add(x, bias[i]) : x, heads);
    };
    if (c.rank(kK) == 5) return {plain(kQ), part(c.in(kK), 0), part(c.in(kK), 1)};
    c.require(c.has(kV), "the value is missing");
    if (b.failed()) return {};
    return {plain(kQ), plain(kK), plain(kV)};
}

Status build_multi_head_attention(ForeignCall& c) {
    Builder& b = c.b;
    enum { kQ, kMask = 4, kAdded, kPastK, kPastV };
    const int64_t heads = c.integer("num_heads");
    c.require(heads > 0, "num_heads must be above 0");
    if (b.failed()) return c.finish({});
    Heads h = multi_heads(c, heads);
    if (b.failed()) return c.finish({});
    const Dim batch = c.shape(kQ)[0];
    if (c.has(kPastK)) h.k = b.concat({c.in(kPastK), h.k}, 2);
    if (c.has(kPastV)) h.v = b.concat({c.in(kPastV), h.v}, 2);
    Scores scores;
    scores.scale = c.real("scale", 0);
    const double filter = c.real("mask_filter_value", -10000);
    const DType type = c.dtype(kQ);
    if (c.has(kMask)) scores.add(b, mask_added(c, kMask, h, filter, batch));
    if (c.integer("unidirectional", 0)) scores.add(b, filtered(b, sees_the_past(b, h), lowest_of(type), type));
    if (c.has(kAdded)) scores.add(b, c.in(kAdded));
    return c.finish({attend(c, h, scores), c.wants(1) ? h.k : nullptr, c.wants(2) ? h.v : nullptr});
}

Value* rotated(ForeignCall& c, Value* x, Value* positions, Value* cos, Value* sin, AttrMap attrs) {
    return c.b.op("rotary_embedding", {x, cos, sin, positions}, std::move(attrs));
}

// Positions [B, S] of a tensor with the batch first and the sequence along `axis`, from where each row begins: [B, 1].
Value* rows_from(Builder& b, Value* begin, Value* x, int64_t axis) {
    Value* along = b.unsqueeze(positions_along(b, x, axis), {0});
    Value* shape = b.concat({size_along(b, x, 0), size_along(b, x, axis)}, 0);
    return b.op("expand", {b.add(begin, along), shape});
}

Status build_rotary(ForeignCall& c) {
    Builder& b = c.b;
    const int64_t rank = c.rank(0), dims = c.integer("rotary_embedding_dim", 0);
    int64_t heads = c.integer("num_heads", 0);
    c.require(c.real("scale", 1) == 1, "a scale is not supported");
    c.require(c.integer("is_packed_batching", 0) == 0, "is_packed_batching is not supported");
    c.require(rank == 3 || rank == 4, "the input must have 3 or 4 dimensions");
    AttrMap attrs = c.pick({"interleaved"});
    if (dims) attrs["rotary_embedding_dim"] = dims;
    if (b.failed()) return c.finish({});
    c.require(c.rank(2) >= 1, "the cosines must have a dimension");
    if (b.failed()) return c.finish({});
    if (rank == 3) {
        const auto hidden = c.shape(0)[2].as_int(), half = c.shape(2)[-1].as_int();
        if (!heads && hidden && half) heads = *hidden / std::max<int64_t>(1, *half * 2);
        c.require(heads > 0, "num_heads is missing");
        attrs["num_heads"] = heads;
    }
    Value* positions = b.cast(c.in(1), DType::i64);
    if (c.rank(1) == 1) positions = rows_from(b, b.reshape(positions, {1, 1}), c.in(0), rank == 3 ? 1 : 2);
    return c.finish({rotated(c, c.in(0), positions, c.in(2), c.in(3), attrs)});
}

// Each row's keys or values: those of the past as far as they count, then the new ones, then zeros. `from` [B, T] says
// where each of the results lies in both, one after the other; `there` which are not zeros.
Value* after_past(Builder& b, Value* past, Value* now, Value* from, Value* there) {
    Value* all = b.concat({past, now}, 2);
    Value* at = b.unsqueeze(from, {1, 3});
    Value* shape =
        b.concat({size_along(b, all, 0), size_along(b, all, 1), size_along(b, from, 1), size_along(b, all, 3)}, 0);
    Value* taken = b.op("gather_elements", {all, b.op("expand", {at, shape})}, {{"axis", Attr(int64_t{2})}});
    return b.op("where", {b.unsqueeze(there, {1, 3}), taken, b.scalar_like(0, taken)});
}

Status build_group_query_attention(ForeignCall& c) {
    Builder& b = c.b;
    enum { kQ, kK, kV, kPastK, kPastV, kLast, kTotal, kCos, kSin, kPositions, kAdded };
    const int64_t heads = c.integer("num_heads"), pairs = c.integer("kv_num_heads");
    const int64_t window = c.integer("local_window_size", -1);
    c.require(heads > 0 && pairs > 0, "num_heads and kv_num_heads must be above 0");
    c.require(c.integer("smooth_softmax", 0) == 0 && !c.has(11), "smooth_softmax is not supported");
    c.require(c.integer("qk_output", 0) == 0, "qk_output is not supported");
    c.integer("k_quant_type", 0);
    Scores scores;
    scores.scale = c.real("scale", 0);
    scores.softcap = c.real("softcap", 0);
    const bool rotary = c.integer("do_rotary", 0) != 0;
    const int64_t interleaved = c.integer("rotary_interleaved", 0);
    if (b.failed()) return c.finish({});
    Value *q = c.in(kQ), *k = c.in(kK), *v = c.in(kV);
    c.require(c.rank(kQ) == 3, "the query must be [batch, sequence, hidden]");
    if (b.failed()) return c.finish({});
    if (!k) {  // packed: heads of q, then of k, then of v
        const auto all = c.shape(kQ)[2].as_int();
        c.require(all && *all % (heads + 2 * pairs) == 0, "a packed query must have a known size for all heads");
        if (b.failed()) return c.finish({});
        const int64_t size = *all / (heads + 2 * pairs);
        auto parts =
            b.ops("split", {q, b.ints({heads * size, pairs * size, pairs * size})}, {{"axis", Attr(int64_t{-1})}}, 3);
        q = parts[0], k = parts[1], v = parts[2];
    }
    Heads h{into_heads(b, q, heads), into_heads(b, k, pairs), into_heads(b, v, pairs)};
    // Each row has so many keys at last, and S fewer before; where all are new there are none before.
    Value* total = b.add(b.reshape(b.cast(c.in(kLast), DType::i64), {-1, 1}), b.ints({1}));
    Value* length = size_along(b, h.q, 2);
    Value* most = b.reshape(b.cast(c.in(kTotal), DType::i64), {1});
    Value* begin = b.op("where", {b.op("equal", {length, most}), b.scalar(0, DType::i64), b.sub(total, length)});
    Value* positions = rows_from(b, begin, h.q, 2);  // [B, S]
    if (rotary) {
        AttrMap attrs{{"interleaved", Attr(interleaved)}};
        Value* where = c.has(kPositions) ? b.cast(c.in(kPositions), DType::i64) : positions;
        h.q = rotated(c, h.q, where, c.in(kCos), c.in(kSin), attrs);
        h.k = rotated(c, h.k, where, c.in(kCos), c.in(kSin), attrs);
    }
    if (c.has(kPastK)) {
        Value* past = size_along(b, c.in(kPastK), 2);
        Value* columns = b.op(
            "range", {b.scalar(0, DType::i64), b.squeeze(b.op("max", {past, most}), {0}), b.scalar(1, DType::i64)});
        columns = b.unsqueeze(columns, {0});
        Value* fresh = b.op("min", {b.add(past, b.sub(columns, begin)), b.sub(b.add(past, length), b.ints({1}))});
        Value* old = b.op("less", {columns, begin});
        Value* from = b.op("where", {old, columns, fresh});
        Value* there = b.op("less", {columns, b.add(begin, length)});
        h.k = after_past(b, c.in(kPastK), h.k, from, there);
        h.v = after_past(b, c.in(kPastV), h.v, from, there);
    }
    if (b.failed()) return c.finish({});
    const DType type = h.q->type().tensor().dtype;
    Value* columns = b.unsqueeze(positions_along(b, h.k, 2), {0, 1});
    Value* rows = b.unsqueeze(positions, {2});
    Value* keep = b.op("less_or_equal", {columns, rows});  // [B, S, T]
    if (window > 0)
        keep = b.op("and", {keep, b.op("greater", {columns, b.sub(rows, b.scalar(double(window), DType::i64))})});
    scores.add(b, filtered(b, b.unsqueeze(keep, {1}), lowest_of(type), type));
    if (c.has(kAdded)) scores.add(b, c.in(kAdded));
    return c.finish({attend(c, h, scores), h.k, h.v});
}

}  // namespace

std::vector<ForeignOp> attention_foreign_ops() {
    return {
        {kMicrosoft, "Attention", build_attention, "products, attention"},
        {kMicrosoft, "QAttention", build_qattention, "integer products, attention"},
        {kMicrosoft, "MultiHeadAttention", build_multi_head_attention, "attention"},
        {kMicrosoft, "GroupQueryAttention", build_group_query_attention, "attention with a past"},
        {kMicrosoft, "RotaryEmbedding", build_rotary, "rotary_embedding"},
    };
}

}  // namespace tessera
