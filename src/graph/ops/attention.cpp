// Attention in its forms.
#include <cmath>

#include "graph/gradient/gradient.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/flex_attention.h"
#include "graph/ops/heads.h"

namespace tessera {

constexpr int64_t kMaxHeads = 1 << 20;

Result<int64_t> head_group(const OpView& op, const Dim& query_heads, const Dim& key_heads) {
    if (query_heads == key_heads) return 1;
    auto q = query_heads.as_int(), k = key_heads.as_int();
    if (!q || !k)
        return op.shape_error("the numbers of heads, {} and {}, must be constant", to_string(query_heads),
                              to_string(key_heads));
    if (*q > kMaxHeads) return op.shape_error("{} heads are more than the maximum of {}", *q, kMaxHeads);
    if (*k < 1 || *q % *k != 0) return op.shape_error("{} query heads cannot share {} key heads", *q, *k);
    return *q / *k;
}

Value* repeat_heads(Builder& b, Value* x, const Dim& heads, int64_t times, int64_t axis) {
    if (times == 1) return x;
    std::vector<int64_t> which;
    for (int64_t h = 0; h < *heads.as_int() * times; ++h) which.push_back(h / times);
    return b.op("gather", {x, b.ints(which)}, {{"axis", Attr(axis)}});
}

namespace {

// The last two are those of its gradient.
enum AttentionInput : size_t { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kNonpad, kResult, kArrived };

// Sizes with the heads unpacked: [batch, heads, sequence, head size].
Result<Shape> unpacked(const OpView& op, size_t input, const char* heads_attr) {
    const Shape& x = op.shape(input);
    if (x.rank() == 4) return x;
    if (x.rank() != 3) return op.shape_error("{} must have 3 or 4 dimensions, is {}", op.def().inputs[input].name, x);
    if (!op.has_attr(heads_attr)) return op.error(Code::E0206, "{} is required for an input {}", heads_attr, x);
    int64_t heads = op.integer(heads_attr);
    if (heads < 1) return op.error(Code::E0212, "{} is {}", heads_attr, heads);
    if (auto n = x[2].as_int(); n && *n % heads != 0)
        return op.shape_error("{} elements of {} do not divide into {} heads", *n, x, heads);
    return Shape{x[0], heads, x[1], floor_div(x[2], heads)};
}

// [batch, sequence, heads * size] as [batch, heads, sequence, size].
Value* unpack(Builder& b, Value* x, int64_t heads) {
    return b.transpose(b.reshape(x, {0, 0, heads, -1}), {0, 2, 1, 3});
}
Value* pack(Builder& b, Value* x) { return b.reshape(b.transpose(x, {0, 2, 1, 3}), {0, 0, -1}); }

Value* size_of(Builder& b, Value* x, int64_t axis) {  // a scalar
    return b.squeeze(b.op("shape", {x}, {{"start", Attr(axis)}, {"end", Attr(axis + 1)}}), {0});
}

Value* count_to(Builder& b, Value* n) { return b.op("range", {b.scalar(0, DType::i64), n, b.scalar(1, DType::i64)}); }

struct AttentionSizes {
    Shape q, k, v;  // unpacked, without the past
    Dim total;      // of keys, with the past
    int64_t group;
};

Result<AttentionSizes> attention_sizes(const OpView& op) {
    Shape q = TRY(unpacked(op, kQuery, "q_num_heads"));
    Shape k = TRY(unpacked(op, kKey, "kv_num_heads"));
    Shape v = TRY(unpacked(op, kValue, "kv_num_heads"));
    AttentionSizes s{q, k, v, 0, 1};
    if (op.rank(kQuery) != op.rank(kKey) || op.rank(kQuery) != op.rank(kValue))
        return op.shape_error("q, k and v have the shapes {}, {} and {}", op.shape(0), op.shape(1), op.shape(2));
    if (differ(s.q[0], s.k[0]) || differ(s.k[0], s.v[0]) || differ(s.q[3], s.k[3]) || differ(s.k[1], s.v[1]) ||
        differ(s.k[2], s.v[2]))
        return op.shape_error("q {}, k {} and v {} are incompatible", s.q, s.k, s.v);
    s.group = TRY(head_group(op, s.q[1], s.k[1]));
    s.total = s.k[2];
    if (op.has(kPastKey) != op.has(kPastValue))
        return op.error(Code::E0207, "past_key and past_value must be given together");
    if (!op.has(kPastKey)) return s;
    if (op.has(kNonpad)) return op.error(Code::E0207, "nonpad_kv_seqlen and past_key exclude each other");
    const Shape &pk = op.shape(kPastKey), &pv = op.shape(kPastValue);
    if (pk.rank() != 4 || pv.rank() != 4 || differ(pk[1], s.k[1]) || differ(pv[1], s.v[1]) || differ(pk[3], s.k[3]) ||
        differ(pv[3], s.v[3]) || differ(pk[2], pv[2]) || differ(pk[0], s.k[0]) || differ(pv[0], s.v[0]))
        return op.shape_error("the past {} and {} are incompatible with k {} and v {}", pk, pv, s.k, s.v);
    s.total = s.total + pk[2];
    return s;
}

Result<Types> infer_attention(const OpView& op) {
    AttentionSizes s = TRY(attention_sizes(op));
    for (const char* name : {"left_window_size", "right_window_size"})
        if (op.integer(name) < -1) return op.error(Code::E0212, "{} is {}", name, op.integer(name));
    if (int64_t mode = op.integer("qk_matmul_output_mode"); mode < 0 || mode > 3)
        return op.error(Code::E0212, "qk_matmul_output_mode is {}", mode);
    if (op.has_attr("softmax_precision") && !kWideFloats.has(TRY(dtype_attr(op, "softmax_precision"))))
        return op.error(Code::E0213, "softmax_precision must be a float type");
    Shape scores{s.q[0], s.q[1], s.q[2], s.total};
    if (op.has(kMask)) {
        Shape mask = op.shape(kMask);
        if (mask.rank() < 1 || mask.rank() > 4) return op.shape_error("attn_mask has the shape {}", mask);
        if (mask[-1].as_int() && s.total.as_int()) {
            if (*mask[-1].as_int() > *s.total.as_int())
                return op.shape_error("attn_mask {} is longer than the {} keys", mask, *s.total.as_int());
            mask[-1] = s.total;
        }
        auto both = broadcast(mask, scores);
        if (!both) return op.shape_error("attn_mask {} does not broadcast to {}", op.shape(kMask), scores);
    }
    if (op.has(kNonpad) && (op.rank(kNonpad) != 1 || differ(op.shape(kNonpad)[0], s.q[0])))
        return op.shape_error("nonpad_kv_seqlen {} for a batch of {}", op.shape(kNonpad), to_string(s.q[0]));
    Shape y{s.q[0], s.q[1], s.q[2], s.v[3]};
    if (op.rank(kQuery) == 3) y = {s.q[0], s.q[2], s.q[1] * s.v[3]};
    DType t = op.dtype(kQuery), u = op.dtype(kValue);
    return Types{Type(t, y), Type(t, {s.k[0], s.k[1], s.total, s.k[3]}), Type(u, {s.v[0], s.v[1], s.total, s.v[3]}),
                 Type(t, scores)};
}

// Which keys each query may look at, by position: bool, broadcastable to the scores; null where all.
Value* visible_keys(const OpView& op, const std::vector<Value*>& in, Builder& b, Value* q, Value* k) {
    bool causal = op.integer("is_causal") != 0;
    int64_t left = op.integer("left_window_size"), right = op.integer("right_window_size");
    if (!causal && left < 0 && right < 0 && !op.has(kNonpad)) return nullptr;
    Value* key = count_to(b, size_of(b, k, 2));
    Value* visible = nullptr;
    auto restrict = [&](Value* v) { visible = visible ? b.op("and", {visible, v}) : v; };
    Value* nonpad = op.has(kNonpad) ? b.unsqueeze(in[kNonpad], {1, 2, 3}) : nullptr;
    if (causal || left >= 0 || right >= 0) {
        Value* query_count = size_of(b, q, 2);
        Value* position = b.unsqueeze(count_to(b, query_count), {1});  // among the keys
        if (op.has(kPastKey))
            position = b.add(position, size_of(b, in[kPastKey], 2));
        else if (nonpad)
            position = b.add(position, b.sub(nonpad, query_count));
        auto shifted = [&](int64_t by) { return b.add(position, b.scalar(double(by), DType::i64)); };
        if (causal) restrict(b.op("less_or_equal", {key, position}));
        if (left >= 0) restrict(b.op("greater_or_equal", {key, shifted(-left)}));
        if (right >= 0) restrict(b.op("less_or_equal", {key, shifted(right)}));
    }
    if (nonpad) restrict(b.op("less", {key, nonpad}));
    return visible;
}

// What is added to the scores: the mask, and -inf where a key is not visible. Null where nothing is.
Value* attention_bias(const OpView& op, const std::vector<Value*>& in, Builder& b, Value* q, Value* k,
                      const Dim& total) {
    DType t = op.dtype(kQuery);
    Value *zero = b.scalar(0, t), *never = b.scalar(-INFINITY, t), *bias = nullptr;
    if (op.has(kMask)) {
        Value* mask = in[kMask];
        bool chooses = op.dtype(kMask) == DType::boolean;
        if (!chooses) mask = b.cast(mask, t);
        if (op.shape(kMask)[-1] != total) {  // what it does not cover is not visible
            Value* missing = b.sub(size_of(b, k, 2), size_of(b, mask, op.rank(kMask) - 1));
            Value* pads = b.concat({b.ints({0}), b.unsqueeze(missing, {0})}, 0);
            Value* outside = chooses ? b.scalar(0, DType::boolean) : never;
            mask = b.op("pad", {mask, pads, outside, b.ints({-1})});
        }
        bias = chooses ? b.op("where", {mask, zero, never}) : mask;
    }
    Value* visible = visible_keys(op, in, b, q, k);
    if (!visible) return bias;
    return bias ? b.op("where", {visible, bias, never}) : b.op("where", {visible, zero, never});
}

// The weights of the keys, and what they are made of: heads are unpacked, and keys and values repeated for the queries
// that share them.
struct Weighing {
    AttentionSizes sizes;
    Value *q = nullptr, *k = nullptr, *v = nullptr;  // q and k by `root`, unless the scale is 1
    Value *present_key = nullptr, *present_value = nullptr;
    Value* root = nullptr;  // of the scale, on both sides of the product
    Value *bias = nullptr, *weights = nullptr, *shown = nullptr;
    bool widens = false;  // the weights of half precision are wide
};

Result<Weighing> weigh(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    Weighing w;
    w.sizes = TRY(attention_sizes(op));
    const AttentionSizes& s = w.sizes;
    w.q = in[kQuery], w.k = in[kKey], w.v = in[kValue];
    if (op.rank(kQuery) == 3) {
        w.q = unpack(b, w.q, op.integer("q_num_heads"));
        w.k = unpack(b, w.k, op.integer("kv_num_heads"));
        w.v = unpack(b, w.v, op.integer("kv_num_heads"));
    }
    if (op.has(kPastKey)) {
        w.k = b.concat({in[kPastKey], w.k}, 2);
        w.v = b.concat({in[kPastValue], w.v}, 2);
    }
    w.present_key = w.k, w.present_value = w.v;
    DType t = op.dtype(kQuery);
    w.bias = attention_bias(op, in, b, w.q, w.k, s.total);
    if (op.has_attr("scale"))
        w.root = b.scalar(std::sqrt(op.real("scale")), t);
    else if (auto n = s.q[3].as_int())
        w.root = b.scalar(std::pow(double(*n), -0.25), t);
    else
        w.root = b.cast(b.op("pow", {b.cast(size_of(b, w.q, 3), DType::f64), b.scalar(-0.25, DType::f64)}), t);
    w.k = repeat_heads(b, w.k, s.k[1], s.group, 1);
    w.v = repeat_heads(b, w.v, s.v[1], s.group, 1);
    if (!op.has_attr("scale") || op.real("scale") != 1) {
        w.q = b.mul(w.q, w.root);
        w.k = b.mul(w.k, w.root);
    }
    Value* scores = b.matmul(w.q, b.transpose(w.k, {0, 1, 3, 2}));
    int64_t mode = op.integer("qk_matmul_output_mode");
    w.shown = scores;  // mode 0
    if (double cap = op.real("softcap"); cap > 0) {
        scores = b.mul(b.op("tanh", {b.div(scores, b.scalar(cap, t))}), b.scalar(cap, t));
        if (mode == 1) w.shown = scores;
    }
    if (w.bias) scores = b.add(scores, w.bias);
    if (mode == 2) w.shown = scores;
    // Weights of half precision stay wide up to the product with the values, unless the model asks otherwise.
    w.widens = !op.has_attr("softmax_precision") && (t == DType::f16 || t == DType::bf16);
    DType precision = w.widens                           ? DType::f32
                      : op.has_attr("softmax_precision") ? TRY(dtype_attr(op, "softmax_precision"))
                                                         : t;
    w.weights = b.op("softmax", {b.cast(scores, precision)}, {{"axis", Attr(int64_t{-1})}});
    if (w.bias) {  // a query that sees no key has weights of zero
        Value* blind = b.op("equal", {b.reduce("reduce_max", w.bias, {-1}), b.scalar(-INFINITY, t)});
        w.weights = b.op("where", {blind, b.scalar(0, precision), w.weights});
    }
    if (mode == 3) w.shown = b.cast(w.weights, t);
    return w;
}

Result<std::vector<Value*>> expand_attention(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    Weighing w = TRY(weigh(op, in, b));
    DType t = op.dtype(kQuery);
    Value* weights = w.widens ? w.weights : b.cast(w.weights, t);
    Value* y = b.cast(b.matmul(weights, b.cast(w.v, weights ? weights->type().tensor().dtype : t)), t);
    if (op.rank(kQuery) == 3) y = pack(b, y);
    std::vector<Value*> out{y, w.present_key, w.present_value, w.shown};
    out.resize(op.output_count());
    return b.finish(out);
}

bool is_plain_attention(const OpView& op) {
    const bool past = op.has(kPastKey) || op.has(kNonpad);
    if (past || op.wants(1) || op.wants(2) || op.wants(3) || op.real("softcap") > 0) return false;
    auto sizes = attention_sizes(op);
    if (!sizes || (op.has(kMask) && op.shape(kMask)[-1] != sizes->total)) return false;
    return op.shape(kQuery)[-1].as_int() && op.shape(kValue)[-1].as_int();
}

// The gradients of all inputs from the result and what arrives there. The weights are computed again from queries and
// keys, in the type of the queries: no tensor of the scores' size outlives the forward pass. The sum over keys that
// softmax subtracts is one over the result instead, since the result is the weights times the values
// (FlashAttention-2).
Result<Gradients> written_out_gradients(const OpView& op, const std::vector<Value*>& in, Value* out, Value* arrived,
                                        Builder& b) {
    const Weighing w = TRY(weigh(op, in, b));
    const DType t = op.dtype(kQuery), wide = t == DType::f64 ? DType::f64 : DType::f32;
    const bool packed = op.rank(kQuery) == 3;
    auto heads = [&](Value* v) { return packed ? unpack(b, v, op.integer("q_num_heads")) : v; };
    auto flipped = [&](Value* v) { return b.transpose(v, {0, 1, 3, 2}); };
    Value *g = heads(arrived), *weights = b.cast(w.weights, t);
    Value* along = b.reduce("reduce_sum", b.mul(b.cast(g, wide), b.cast(heads(out), wide)), {-1});
    Value* to_weights = b.cast(b.matmul(g, b.cast(flipped(w.v), t)), wide);
    Value* to_scores = b.mul(b.cast(weights, wide), b.sub(to_weights, along));
    Value* narrow = b.cast(to_scores, t);
    const bool scaled = !op.has_attr("scale") || op.real("scale") != 1;
    // To an operand that heads share, summed over them, and in the form that it came in.
    auto back_to = [&](Value* v, size_t input, int64_t group) {
        if (scaled && input != kValue) v = b.mul(v, w.root);
        if (group > 1) {
            const auto own = *op.shape(input)[-1].as_int(), kv_heads = *w.sizes.k[1].as_int();
            const int64_t size = packed ? own / kv_heads : own;
            v = b.reduce("reduce_sum", b.cast(b.reshape(v, {0, kv_heads, group, -1, size}), wide), {2}, false);
        }
        return b.cast(packed ? pack(b, v) : v, op.dtype(input));
    };
    Gradients back(in.size());
    back[kQuery] = back_to(b.matmul(narrow, w.k), kQuery, 1);
    back[kKey] = back_to(b.matmul(flipped(narrow), w.q), kKey, w.sizes.group);
    back[kValue] = back_to(b.matmul(flipped(weights), g), kValue, w.sizes.group);
    if (op.has(kMask)) back[kMask] = b.cast(to_scores, op.dtype(kMask));
    return back;
}

Gradients back_through_attention(const Backward& r) {
    const OpView op = r.node.view();
    if (op.has(kMask) && r.wants(kMask)) {
        auto made = written_out_gradients(op, r.in, r.out, r.g, r.b);
        if (!made.ok()) return r.b.fail(made.error()), Gradients(r.in.size());
        return *made;
    }
    std::vector<Value*> in = r.in;
    in.resize(kResult);
    in.push_back(r.out);
    in.push_back(r.b.cast(r.g, op.dtype(kQuery)));
    Gradients back = r.b.ops("attention_gradient", in, r.node.attrs(), 3);
    back.resize(r.in.size());
    return back;
}

// Before `opset` the input did not exist.
OnnxChange input_added(int opset, size_t input, std::string name) {
    return {opset, [](OnnxCall&) -> Status { return {}; },
            [=](OnnxCall& call) -> Status {
                if (call.has(input))
                    return Error(Code::E0214, "{}: {} does not exist before opset {}", call.op_type, name, opset);
                return {};
            }};
}

const std::vector<AttrDef> kAttentionAttrs = {int_attr("is_causal", 0),
                                              int_attr("kv_num_heads"),
                                              int_attr("left_window_size", -1),
                                              int_attr("q_num_heads"),
                                              int_attr("qk_matmul_output_mode", 0),
                                              int_attr("right_window_size", -1),
                                              float_attr("scale"),
                                              float_attr("softcap", 0),
                                              int_attr("softmax_precision")};

const OpDef kAttention{
    .name = "attention",
    .inputs = {"q: T", "k: T", "v: U", "attn_mask?: M", "past_key?: T", "past_value?: U", "nonpad_kv_seqlen?: i64"},
    .outputs = {"y: T", "present_key?: T", "present_value?: U", "qk_matmul_output?: T"},
    .attrs = kAttentionAttrs,
    .types = {{"T", kWideFloats}, {"U", kWideFloats}, {"M", kBodyTypes}},
    .onnx = {"Attention",
             {input_added(24, kNonpad, "nonpad_kv_seqlen"), attr_added(25, "left_window_size", Attr(int64_t{-1})),
              attr_added(25, "right_window_size", Attr(int64_t{-1}))}},
    .infer = infer_attention,
    .expand = expand_attention,
    .gradient = back_through_attention,
    .gradient_applies = is_plain_attention,
};

// Of attention without a past, with the attributes that it has: a GPU runs it as tile programs (attention_tiles.h).
const OpDef kAttentionGradient{
    .name = "attention_gradient",
    .inputs = {"q: T", "k: T", "v: U", "attn_mask?: M", "past_key?: T", "past_value?: U", "nonpad_kv_seqlen?: i64",
               "y: T", "g: T"},
    .outputs = {"dq: T", "dk: T", "dv: U"},
    .attrs = kAttentionAttrs,
    .types = {{"T", kWideFloats}, {"U", kWideFloats}, {"M", kBodyTypes}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Types made = TRY(infer_attention(op));
        for (size_t i : {kPastKey, kPastValue, kNonpad})
            if (op.has(i)) return op.error(Code::E0207, "{} cannot be given", op.def().inputs[i].name);
        for (size_t i : {kResult, kArrived})
            if (op.shape(i).rank() != op.rank(kQuery))
                return op.shape_error("{} is {}, and must be as attention gives it: {}", op.def().inputs[i].name,
                                      op.shape(i), made[0].tensor().shape);
        return Types{op.type(kQuery), op.type(kKey), op.type(kValue)};
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        const std::vector<Value*> given(in.begin(), in.begin() + kResult);
        Gradients back = TRY(written_out_gradients(op, given, in[kResult], in[kArrived], b));
        back.resize(op.output_count());
        return b.finish(back);
    },
};

const OpDef kRotaryEmbedding{
    .name = "rotary_embedding",
    .inputs = {"x: T", "cos_cache: T", "sin_cache: T", "position_ids?: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("interleaved", 0), int_attr("num_heads"), int_attr("rotary_embedding_dim", 0)},
    .types = {{"T", kWideFloats}},
    .onnx = "RotaryEmbedding",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape x = TRY(unpacked(op, 0, "num_heads"));
        int64_t rotary = op.integer("rotary_embedding_dim");
        if (rotary < 0 || rotary % 2 || (x[3].as_int() && (rotary > *x[3].as_int() || (!rotary && *x[3].as_int() % 2))))
            return op.error(Code::E0212, "cannot rotate {} of {} elements", rotary, to_string(x[3]));
        Dim half = floor_div(rotary ? Dim(rotary) : x[3], 2);
        Shape cache = op.has(3) ? Shape{op.shape(1).rank() ? op.shape(1)[0] : Dim(0), half} : Shape{x[0], x[2], half};
        for (size_t i : {1, 2}) {
            const Shape& have = op.shape(i);
            bool bad = have.rank() != cache.rank();
            for (int64_t d = 0; !bad && d < have.rank(); ++d) bad = differ(have[d], cache[d]);
            if (bad)
                return op.shape_error("{} must have another shape: has {}, needs {}", op.def().inputs[i].name, have,
                                      cache);
        }
        if (op.has(3) && (op.rank(3) != 2 || differ(op.shape(3)[0], x[0]) || differ(op.shape(3)[1], x[2])))
            return op.shape_error("position_ids {} for [{}, {}]", op.shape(3), to_string(x[0]), to_string(x[2]));
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto x = op.in(0);
            Shape sizes = *unpacked(op, 0, "num_heads");
            bool packed = x.rank() == 3, interleaved = op.integer("interleaved") != 0;
            Expr at = packed ? mod(o[2], sizes[3]) : o[3], step = packed ? o[1] : o[2];
            Expr rotary = op.integer("rotary_embedding_dim") ? Expr(op.integer("rotary_embedding_dim")) : sizes[3];
            Expr half = floor_div(rotary, 2), pair = interleaved ? floor_div(at, 2) : mod(at, half);
            Expr second = interleaved ? eq(mod(at, 2), 1) : ge(at, half), apart = interleaved ? Expr(1) : half;
            auto angle = [&](size_t cache) {
                if (!op.has(3)) return op.in(cache).at({o[0], step, pair});
                return op.in(cache).at({op.in(3).at({o[0], step}), pair});
            };
            auto moved = [&](const Expr& by) { return x.at(o.with(-1, o[-1] + by)); };
            Expr here = x.at(o), cos = angle(1), sin = angle(2);
            Expr turned = select(second, sin * moved(-apart) + cos * here, cos * here - sin * moved(apart));
            return rotary == sizes[3] ? turned : select(lt(at, rotary), turned, here);
        },
};

enum LinearInput : size_t { kPastState = 3, kDecay, kBeta };

struct LinearSizes {
    Shape q, k, v;  // unpacked
    int64_t group;
    bool gated, delta;
};

Result<LinearSizes> linear_sizes(const OpView& op) {
    const std::string& rule = op.string("update_rule");
    bool gated = rule == "gated" || rule == "gated_delta", delta = rule == "delta" || rule == "gated_delta";
    if (gated != op.has(kDecay)) return op.error(Code::E0207, "decay cannot be used with update_rule \"{}\"", rule);
    if (delta != op.has(kBeta)) return op.error(Code::E0207, "beta cannot be used with update_rule \"{}\"", rule);
    for (size_t i : {0, 1, 2})
        if (op.rank(i) != 3)
            return op.shape_error("{} must have 3 dimensions, is {}", op.def().inputs[i].name, op.shape(i));
    Shape q = TRY(unpacked(op, 0, "q_num_heads"));
    Shape k = TRY(unpacked(op, 1, "kv_num_heads"));
    Shape v = TRY(unpacked(op, 2, "kv_num_heads"));
    LinearSizes s{q, k, v, 1, gated, delta};
    s.group = TRY(head_group(op, s.q[1], s.k[1]));
    if (differ(s.q[3], s.k[3]) || differ(s.q[2], s.k[2]) || differ(s.k[2], s.v[2]) || differ(s.q[0], s.k[0]) ||
        differ(s.k[0], s.v[0]))
        return op.shape_error("query {}, key {} and value {} are incompatible", s.q, s.k, s.v);
    Shape state{s.q[0], s.k[1], s.k[3], s.v[3]};
    if (op.has(kPastState)) {
        const Shape& past = op.shape(kPastState);
        bool bad = past.rank() != 4;
        for (int64_t i = 0; !bad && i < 4; ++i) bad = differ(past[i], state[i]);
        if (bad) return op.shape_error("past_state has the shape {}, but must have {}", past, state);
    }
    int64_t heads = op.integer("kv_num_heads");
    if (gated) {
        const Shape& d = op.shape(kDecay);
        if (d.rank() != 3 || (differ(d[2], heads) && differ(d[2], s.k[3] * heads)))
            return op.shape_error("decay has the shape {}", d);
    }
    if (delta) {
        const Shape& d = op.shape(kBeta);
        if (d.rank() != 3 || (differ(d[2], heads) && differ(d[2], 1)))
            return op.shape_error("beta has the shape {}", d);
    }
    return s;
}

// A scan over the sequence with the state [batch, heads, key size, value size], in f32.
Result<std::vector<Value*>> expand_linear_attention(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    LinearSizes s = TRY(linear_sizes(op));
    int64_t heads = op.integer("kv_num_heads");
    auto by_step = [&](size_t i, int64_t n) {  // [sequence, batch, heads, size]
        return b.transpose(b.reshape(b.cast(in[i], DType::f32), {0, 0, n, -1}), {1, 0, 2, 3});
    };
    std::vector<Value*> inputs(1), slices;
    inputs.push_back(by_step(0, op.integer("q_num_heads")));
    inputs.push_back(by_step(1, heads));
    inputs.push_back(by_step(2, heads));
    if (s.gated) inputs.push_back(by_step(kDecay, heads));
    if (s.delta) inputs.push_back(by_step(kBeta, op.shape(kBeta)[2].is_int(1) ? 1 : heads));
    if (op.has(kPastState)) {
        inputs[0] = b.cast(in[kPastState], DType::f32);
    } else {
        auto part = [&](Value* v, int64_t from, int64_t to) {
            return b.op("shape", {v}, {{"start", Attr(from)}, {"end", Attr(to)}});
        };
        Value* sizes = b.concat({part(inputs[2], 1, 4), part(inputs[3], 3, 4)}, 0);
        inputs[0] = b.op("expand", {b.scalar(0, DType::f32), sizes});
    }
    Value* scale = b.scalar(op.real("scale"), DType::f32);
    if (op.real("scale") == 0) {
        if (auto n = s.q[3].as_int())
            scale = b.scalar(1 / std::sqrt(double(*n)), DType::f32);
        else
            scale = b.op("reciprocal", {b.op("sqrt", {b.cast(size_of(b, inputs[1], 3), DType::f32)})});
    }
    if (b.failed()) return b.status().error();

    GraphPtr nested = b.graph().nested("step");
    Builder step(*nested);
    Value* state = nested->add_input("state", inputs[0]->type());
    for (size_t i = 1; i < inputs.size(); ++i) {
        const TensorType& t = inputs[i]->type().tensor();
        slices.push_back(nested->add_input("slice", Type(t.dtype, t.shape.slice(1, 4))));
    }
    auto row = [&](Value* v) { return step.unsqueeze(v, {2}); };
    auto column = [&](Value* v) { return step.unsqueeze(v, {3}); };
    if (s.gated) state = step.mul(state, column(step.op("exp", {slices[3]})));
    Value* value = row(slices[2]);
    if (s.delta) value = step.mul(column(slices.back()), step.sub(value, step.matmul(row(slices[1]), state)));
    state = step.add(state, step.mul(column(slices[1]), value));
    Value* read = step.matmul(row(slices[0]), repeat_heads(step, state, s.k[1], s.group, 1));
    Value* y = step.mul(step.squeeze(read, {2}), scale);
    TRY(step.status());
    nested->add_output(state);
    nested->add_output(y);

    auto out = b.ops("scan", inputs, {{"body", Attr(nested)}, {"num_scan_inputs", Attr(int64_t(slices.size()))}}, 2);
    y = b.reshape(b.transpose(out[1], {1, 0, 2, 3}), {0, 0, -1});
    DType kept = op.has(kPastState) ? op.dtype(kPastState) : op.dtype(0);
    return b.finish({b.cast(y, op.dtype(0)), b.cast(out[0], kept)});
}

const OpDef kLinearAttention{
    .name = "linear_attention",
    .inputs = {"query: T", "key: T", "value: T", "past_state?: S", "decay?: T", "beta?: T"},
    .outputs = {"y: T", "present_state: *"},
    .attrs = {int_attr("chunk_size", 64), int_attr("kv_num_heads").required(), int_attr("q_num_heads").required(),
              float_attr("scale", 0),
              string_attr("update_rule", "gated_delta").one_of({"linear", "gated", "delta", "gated_delta"})},
    .types = {{"T", kWideFloats}, {"S", kWideFloats}},
    .traits = {Trait::Pure, Trait::InfersUnranked},
    .onnx = "LinearAttention",
    .infer = [](const OpView& op) -> Result<Types> {
        DType kept = op.has(kPastState) ? op.dtype(kPastState) : op.dtype(0);
        for (size_t i = 0; i < op.input_count(); ++i)
            if (op.has(i) && !op.shape(i).ranked())
                return Types{Type(op.dtype(0), Shape::unknown()), Type(kept, Shape::unknown())};
        LinearSizes s = TRY(linear_sizes(op));
        return Types{Type(op.dtype(0), {s.q[0], s.q[2], s.q[1] * s.v[3]}),
                     Type(kept, {s.q[0], s.k[1], s.k[3], s.v[3]})};
    },
    .expand = expand_linear_attention,
};

}  // namespace

std::vector<OpDef> attention_ops() {
    return {kAttention, kAttentionGradient, kRotaryEmbedding, kLinearAttention,
            without_gradient(flex_attention_op(), "the graphs in it change scores, and are not followed")};
}

}  // namespace tessera
