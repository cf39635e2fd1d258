// Operators of com.microsoft that are a few of ONNX's in one: products with what follows them, GELUs, normalizations.
#include "graph/ops/common.h"
#include "graph/ops/foreign.h"

namespace tessera {
namespace {

Value* gelu_of(Builder& b, Value* x, const char* approximate) {
    return b.op("gelu", {x}, {{"approximate", Attr(std::string(approximate))}});
}

Status build_gelu(ForeignCall& c) { return c.finish({gelu_of(c.b, c.in(0), "none")}); }
Status build_bias_gelu(ForeignCall& c) { return c.finish({gelu_of(c.b, c.b.add(c.in(0), c.in(1)), "none")}); }
Status build_fast_gelu(ForeignCall& c) {
    return c.finish({gelu_of(c.b, c.has(1) ? c.b.add(c.in(0), c.in(1)) : c.in(0), "tanh")});
}
Status build_quick_gelu(ForeignCall& c) {
    Value* x = c.in(0);
    Value* scaled = c.b.mul(x, c.b.scalar_like(c.real("alpha", 1.702f), x));
    return c.finish({c.b.mul(x, c.b.op("sigmoid", {scaled}))});
}
Status build_bias_add(ForeignCall& c) { return c.finish({c.b.add(c.b.add(c.in(0), c.in(1)), c.in(2))}); }

Status build_bias_split_gelu(ForeignCall& c) {
    auto halves = c.b.ops("split", {c.b.add(c.in(0), c.in(1))},
                          {{"axis", Attr(int64_t{-1})}, {"num_outputs", Attr(int64_t{2})}}, 2);
    return c.finish({c.b.mul(halves[0], gelu_of(c.b, halves[1], "none"))});
}

// An operand of FusedMatMul: its first dimension goes before the last one, then the last two are swapped.
Value* matmul_operand(ForeignCall& c, size_t i, bool swap, bool batch) {
    Value* x = c.in(i);
    if (!swap && !batch) return x;
    const int64_t rank = c.rank(i);
    if (rank < 2) return x;
    std::vector<int64_t> perm;
    for (int64_t d = 0; d < rank; ++d) perm.push_back(d);
    if (batch) {
        perm.erase(perm.begin());
        perm.insert(perm.end() - 1, 0);
    }
    if (swap) std::swap(perm[size_t(rank - 1)], perm[size_t(rank - 2)]);
    return c.b.transpose(x, perm);
}

Status build_fused_matmul(ForeignCall& c) {
    Value* x = matmul_operand(c, 0, c.integer("transA", 0) != 0, c.integer("transBatchA", 0) != 0);
    Value* y = matmul_operand(c, 1, c.integer("transB", 0) != 0, c.integer("transBatchB", 0) != 0);
    const float alpha = c.real("alpha", 1);
    Value* z = c.b.matmul(x, y);
    return c.finish({alpha == 1 ? z : c.b.mul(z, c.b.scalar_like(alpha, z))});
}

// The matrix product with an activation, as FusedMatMulActivation and GemmFastGelu have it.
Status build_gemm_fast_gelu(ForeignCall& c) {
    Value* z = c.b.matmul(c.in(0), c.in(1));
    return c.finish({gelu_of(c.b, c.has(2) ? c.b.add(z, c.in(2)) : z, "tanh")});
}

Status build_fused_gemm(ForeignCall& c) {
    std::vector<Value*> in{c.in(0), c.in(1)};
    if (c.has(2)) in.push_back(c.in(2));
    Value* z = c.b.op("gemm", in, c.pick({"alpha", "beta", "transA", "transB"}));
    std::vector<float> parameters;
    for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
        if (c.given(name)) parameters.push_back(c.real(name, 0));
    return c.finish({with_activation(c, z, c.string("activation", ""), parameters)});
}

AttrMap window_attrs(ForeignCall& c) {
    return c.pick({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"});
}

Status build_fused_conv(ForeignCall& c) {
    std::vector<Value*> in{c.in(0), c.in(1)};
    if (c.has(2)) in.push_back(c.in(2));
    Value* y = c.b.op("conv", in, window_attrs(c));
    if (c.has(3)) y = c.b.add(y, c.in(3));
    return c.finish({with_activation(c, y, c.string("activation", ""), c.floats("activation_params"))});
}

std::vector<int64_t> channels_first(int64_t rank) {
    std::vector<int64_t> perm{0, rank - 1};
    for (int64_t d = 1; d + 1 < rank; ++d) perm.push_back(d);
    return perm;
}
std::vector<int64_t> channels_last(int64_t rank) {
    std::vector<int64_t> perm{0};
    for (int64_t d = 2; d < rank; ++d) perm.push_back(d);
    perm.push_back(1);
    return perm;
}

Status build_nhwc_max_pool(ForeignCall& c) {
    const int64_t rank = c.rank(0);
    c.require(rank >= 3, "needs [N, D1, ..., C]");
    if (c.b.failed()) return c.finish({});
    Value* x = c.b.transpose(c.in(0), channels_first(rank));
    Value* y =
        c.b.op("max_pool", {x}, c.pick({"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"}));
    return c.finish({c.b.transpose(y, channels_last(rank))});
}

Status build_nhwc_conv(ForeignCall& c) {
    const int64_t rank = c.rank(0);
    c.require(rank >= 3, "needs [N, D1, ..., C]");
    if (c.b.failed()) return c.finish({});
    std::vector<Value*> in{c.b.transpose(c.in(0), channels_first(rank)), c.b.transpose(c.in(1), channels_first(rank))};
    if (c.has(2)) in.push_back(c.in(2));
    Value* y = c.b.op("conv", in, window_attrs(c));
    return c.finish({c.b.transpose(y, channels_last(rank))});
}

Value* layer_norm(ForeignCall& c, Value* x, Value* scale, Value* bias, float epsilon) {
    std::vector<Value*> in{x, scale};
    if (bias) in.push_back(bias);
    return c.b.op("layer_normalization", in, {{"axis", Attr(int64_t{-1})}, {"epsilon", Attr(epsilon)}});
}

// [output, mean, inverse deviation, sum]; ONNX Runtime computes the second and third for training only.
Status finish_skip(ForeignCall& c, Value* y, Value* sum) {
    c.require(!c.wants(1) || c.wants(3), "mean and deviation are not computed");
    return c.finish({y, nullptr, nullptr, sum});
}

Status build_skip_layer_norm(ForeignCall& c) {
    Value* sum = c.b.add(c.in(0), c.in(1));
    if (c.has(4)) sum = c.b.add(sum, c.in(4));
    return finish_skip(c, layer_norm(c, sum, c.in(2), c.in(3), c.real("epsilon", 1e-12f)), sum);
}

Status build_skip_rms_norm(ForeignCall& c) {
    Value* sum = c.b.add(c.in(0), c.in(1));
    if (c.has(3)) sum = c.b.add(sum, c.in(3));
    Value* y = c.b.op("rms_normalization", {sum, c.in(2)},
                      {{"axis", Attr(int64_t{-1})}, {"epsilon", Attr(c.real("epsilon", 1e-12f))}});
    return finish_skip(c, y, sum);
}

Status build_rms_norm(ForeignCall& c) {
    c.integer("stash_type", 1);
    Value* y = c.b.op("rms_normalization", {c.in(0), c.in(1)},
                      {{"axis", Attr(c.integer("axis", -1))}, {"epsilon", Attr(c.real("epsilon", 1e-5f))}});
    return c.finish({y});
}

Status build_layer_norm(ForeignCall& c) {
    c.integer("stash_type", 1);
    std::vector<Value*> in{c.in(0), c.in(1)};
    if (c.has(2)) in.push_back(c.in(2));
    AttrMap attrs{{"axis", Attr(c.integer("axis", -1))}, {"epsilon", Attr(c.real("epsilon", 1e-5f))}};
    return c.finish(c.b.ops("layer_normalization", in, std::move(attrs), c.wants(2) ? 3 : c.wants(1) ? 2 : 1));
}

Status build_embed_layer_norm(ForeignCall& c) {
    Builder& b = c.b;
    enum { kIds, kSegments, kWords, kPositions, kSegmentWords, kGamma, kBeta, kMask, kPositionIds };
    c.integer("mask_index_type", 0);
    auto look_up = [&](Value* table, Value* at) { return b.op("gather", {table, at}, {{"axis", Attr(int64_t{0})}}); };
    Value* at = c.has(kPositionIds) ? c.in(kPositionIds) : positions_along(b, c.in(kIds), 1);
    Value* sum = b.add(look_up(c.in(kWords), c.in(kIds)), look_up(c.in(kPositions), at));
    if (c.has(kSegments)) sum = b.add(sum, look_up(c.in(kSegmentWords), c.in(kSegments)));
    Value* y = layer_norm(c, sum, c.in(kGamma), c.in(kBeta), c.real("epsilon", 1e-12f));
    Value* mask_index = nullptr;
    if (c.wants(1)) {
        Value* counted = c.has(kMask) ? b.cast(b.op("equal", {c.in(kMask), b.scalar_like(1, c.in(kMask))}), DType::i32)
                                      : b.mul(b.cast(c.in(kIds), DType::i32), b.scalar(0, DType::i32));
        mask_index = b.reduce("reduce_sum", counted, {1}, false);
    }
    return c.finish({y, mask_index, c.wants(2) ? sum : nullptr});
}

Status build_expand_dims(ForeignCall& c) {
    return c.finish({c.b.op("unsqueeze", {c.in(0), c.b.reshape(c.b.cast(c.in(1), DType::i64), {1})})});
}

// Distances of the rows of two matrices.
Status build_cdist(ForeignCall& c) {
    Builder& b = c.b;
    const std::string metric = c.string("metric", "sqeuclidean");
    c.require(metric == "euclidean" || metric == "sqeuclidean", "metric must be euclidean or sqeuclidean");
    Value* apart = b.sub(b.unsqueeze(c.in(0), {1}), b.unsqueeze(c.in(1), {0}));
    Value* squared = b.reduce("reduce_sum_square", apart, {2}, false);
    return c.finish({metric == "euclidean" ? b.op("sqrt", {squared}) : squared});
}

// Operators that are the same as ONNX's of that name, or of another.
template <const char* const& Op>
Status build_same(ForeignCall& c) {
    const OpDef* op = find_op(Op);
    std::vector<Value*> in;
    for (size_t i = 0; i < c.input_count(); ++i) in.push_back(c.in(i));
    AttrMap attrs;
    for (const AttrDef& a : op->attrs)
        if (auto attr = c.given(a.name.c_str())) attrs.emplace(a.name, std::move(*attr));
    return c.finish({c.b.op(Op, std::move(in), std::move(attrs))});
}
constexpr const char* kTriluName = "trilu";
constexpr const char* kGatherNdName = "gather_nd";
constexpr const char* kQuantizeName = "quantize_linear";
constexpr const char* kDequantizeName = "dequantize_linear";

Status build_range(ForeignCall& c) {
    Value* step = c.has(2) ? c.in(2) : c.b.scalar_like(1, c.in(0));
    return c.finish({c.b.op("range", {c.in(0), c.in(1), step})});
}

Status build_grid_sample(ForeignCall& c) {
    const std::string mode = c.string("mode", "bilinear");
    AttrMap attrs = c.pick({"align_corners", "padding_mode"});
    attrs["mode"] = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
    return c.finish({c.b.op("grid_sample", {c.in(0), c.in(1)}, std::move(attrs))});
}

}  // namespace

std::vector<ForeignOp> fused_foreign_ops() {
    return {
        {kMicrosoft, "Gelu", build_gelu, "gelu"},
        {kMicrosoft, "BiasGelu", build_bias_gelu, "gelu of a sum"},
        {kMicrosoft, "FastGelu", build_fast_gelu, "gelu by tanh"},
        {kMicrosoft, "QuickGelu", build_quick_gelu, "gelu by sigmoid"},
        {kMicrosoft, "BiasAdd", build_bias_add, "sums"},
        {kMicrosoft, "BiasSplitGelu", build_bias_split_gelu, "gated gelu"},
        {kMicrosoft, "FusedMatMul", build_fused_matmul, "matmul of transposes"},
        {kMicrosoft, "TransposeMatMul", build_fused_matmul, "matmul of transposes"},
        {kMicrosoft, "GemmFastGelu", build_gemm_fast_gelu, "matmul and gelu"},
        {kMicrosoft, "FusedGemm", build_fused_gemm, "gemm and an activation"},
        {kMicrosoft, "FusedConv", build_fused_conv, "conv, a sum and an activation"},
        {kMicrosoft, "NhwcConv", build_nhwc_conv, "conv, channels last"},
        {kMicrosoft, "NhwcMaxPool", build_nhwc_max_pool, "max_pool, channels last"},
        {kMicrosoft, "SkipLayerNormalization", build_skip_layer_norm, "layer_normalization of a sum"},
        {kMicrosoft, "SkipSimplifiedLayerNormalization", build_skip_rms_norm, "rms_normalization of a sum"},
        {kMicrosoft, "SimplifiedLayerNormalization", build_rms_norm, "rms_normalization"},
        {"", "SimplifiedLayerNormalization", build_rms_norm, "rms_normalization"},
        {kMicrosoft, "LayerNormalization", build_layer_norm, "layer_normalization"},
        {kMicrosoft, "EmbedLayerNormalization", build_embed_layer_norm, "gathers and layer_normalization"},
        {kMicrosoft, "ExpandDims", build_expand_dims, "unsqueeze"},
        {kMicrosoft, "CDist", build_cdist, "distances of rows"},
        {kMicrosoft, "Trilu", build_same<kTriluName>, "trilu"},
        {kMicrosoft, "Range", build_range, "range"},
        {kMicrosoft, "GatherND", build_same<kGatherNdName>, "gather_nd"},
        {kMicrosoft, "GridSample", build_grid_sample, "grid_sample"},
        {kMicrosoft, "QuantizeLinear", build_same<kQuantizeName>, "quantize_linear"},
        {kMicrosoft, "DequantizeLinear", build_same<kDequantizeName>, "dequantize_linear"},
    };
}

}  // namespace tessera
