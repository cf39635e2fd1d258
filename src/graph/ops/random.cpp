// Ops that draw random numbers: random_normal, random_uniform and their like forms, bernoulli, multinomial, dropout.
#include <algorithm>
#include <cmath>
#include <random>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// The Mersenne twister, read as NumPy's RandomState reads it, so that a model's seed means what it means there.
class Draws {
  public:
    // From the attribute `seed` where it is given, else from the run's stream.
    static Draws of(const OpView& op, EvalContext& ctx) {
        Draws d;
        if (!op.has_attr("seed")) {
            uint64_t s = ctx.next_random();
            std::seed_seq words{uint32_t(s), uint32_t(s >> 32)};
            d.bits_.seed(words);
        } else if (op.def().attr("seed")->kind == AttrKind::Int) {
            d.bits_.seed(uint32_t(op.integer("seed")));
        } else {
            double s = op.real("seed");
            d.bits_.seed(std::abs(s) < 4294967296.0 ? uint32_t(int64_t(s)) : 0);
        }
        return d;
    }

    // In [0, 1), with 53 bits.
    double uniform() {
        uint32_t a = bits_() >> 5, b = bits_() >> 6;
        return (a * 67108864.0 + b) / 9007199254740992.0;
    }

    // Two at a time, by the polar method.
    double normal() {
        if (spare_) return *std::exchange(spare_, std::nullopt);
        double x, y, square;
        do {
            x = 2 * uniform() - 1;
            y = 2 * uniform() - 1;
            square = x * x + y * y;
        } while (square >= 1 || square == 0);
        double scale = std::sqrt(-2 * std::log(square) / square);
        spare_ = scale * x;
        return scale * y;
    }

  private:
    std::mt19937 bits_;
    std::optional<double> spare_;
};

const std::vector<Trait> kRandomTraits = {Trait::Random, Trait::InfersUnranked};

using Draw = double (*)(const OpView&, Draws&);
double draw_normal(const OpView& op, Draws& d) { return op.real("mean") + op.real("scale") * d.normal(); }
double draw_uniform(const OpView& op, Draws& d) {
    return op.real("low") + (op.real("high") - op.real("low")) * d.uniform();
}

Result<std::vector<Datum>> fill(const OpView& op, EvalContext& ctx, const TensorType& type, Draw draw) {
    auto sizes = type.shape.sizes();
    CHECK(sizes, "{} of unknown size", type.shape);
    Tensor y = TRY(Tensor::zeros(type.dtype, *sizes));
    TRY(ctx.spend(y.elements() * 16));
    Draws draws = Draws::of(op, ctx);
    for (int64_t i = 0; i < y.elements(); ++i) y.set_real(i, draw(op, draws));
    return std::vector<Datum>{y};
}

Result<DType> float_dtype(const OpView& op, DType fallback) {
    DType dtype = op.has_attr("dtype") ? TRY(dtype_attr(op, "dtype")) : fallback;
    if (!kWideFloats.has(dtype)) return op.error(Code::E0213, "generates floats, not {}", dtype_name(dtype));
    return dtype;
}

// From a shape in an attribute.
OpDef random_op(const char* name, const char* onnx, std::vector<AttrDef> parameters, Draw draw) {
    parameters.push_back(ints_attr("shape").required());
    parameters.push_back(int_attr("dtype", 1));
    parameters.push_back(float_attr("seed"));
    return {
        .name = name,
        .inputs = {},
        .outputs = {"y: *"},
        .attrs = std::move(parameters),
        .traits = kRandomTraits,
        .onnx = onnx,
        .infer = [](const OpView& op) -> Result<Types> {
            for (int64_t n : op.ints("shape"))
                if (n < 0) return op.error(Code::E0212, "shape has {}", n);
            return Type(TRY(float_dtype(op, DType::f32)), Shape(op.ints("shape")));
        },
        .evaluate = [draw](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
            return fill(op, ctx, op.out(), draw);
        },
    };
}

// With the shape of an input, and its element type unless another is named.
OpDef random_like_op(const char* name, const char* onnx, std::vector<AttrDef> parameters, Draw draw) {
    parameters.push_back(int_attr("dtype"));
    parameters.push_back(float_attr("seed"));
    return {
        .name = name,
        .inputs = {"x: T"},
        .outputs = {"y: *"},
        .attrs = std::move(parameters),
        .types = {{"T", kAllTypes}},
        .traits = kRandomTraits,
        .onnx = onnx,
        .infer = [](const OpView& op) -> Result<Types> { return Type(TRY(float_dtype(op, op.dtype(0))), op.shape(0)); },
        .evaluate = [draw](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
            return fill(op, ctx, op.out(), draw);
        },
    };
}

const OpDef kBernoulli{
    .name = "bernoulli",
    .inputs = {"p: T"},
    .outputs = {"y: *"},
    .attrs = {int_attr("dtype"), float_attr("seed")},
    .types = {{"T", kWideFloats}},
    .traits = kRandomTraits,
    .onnx = "Bernoulli",
    .infer = [](const OpView& op) -> Result<Types> {
        DType dtype = op.has_attr("dtype") ? TRY(dtype_attr(op, "dtype")) : op.dtype(0);
        if (!kBodyTypes.has(dtype)) return op.error(Code::E0213, "generates numbers, not {}", dtype_name(dtype));
        return Type(dtype, op.shape(0));
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& p = ctx.tensor(0);
        Tensor y = TRY(Tensor::zeros(op.out().dtype, p.sizes()));
        TRY(ctx.spend(y.elements() * 16));
        Draws draws = Draws::of(op, ctx);
        for (int64_t i = 0; i < y.elements(); ++i) y.set_real(i, draws.uniform() < p.real_at(i) ? 1 : 0);
        return std::vector<Datum>{y};
    },
};

const OpDef kMultinomial{
    .name = "multinomial",
    .inputs = {"logits: T"},
    .outputs = {"y: *"},
    .attrs = {int_attr("dtype", 6), float_attr("seed"), int_attr("sample_size", 1)},
    .types = {{"T", kWideFloats}},
    .traits = kRandomTraits,
    .onnx = "Multinomial",
    .infer = [](const OpView& op) -> Result<Types> {
        DType dtype = TRY(dtype_attr(op, "dtype"));
        if (dtype != DType::i32 && dtype != DType::i64)
            return op.error(Code::E0213, "generates i32 or i64, not {}", dtype_name(dtype));
        int64_t samples = op.integer("sample_size");
        if (samples < 0) return op.error(Code::E0212, "sample_size is {}", samples);
        if (!op.shape(0).ranked()) return Type(dtype, {op.fresh(0, 0), samples});
        if (op.rank(0) != 2) return op.shape_error("needs [batch, classes], has {}", op.shape(0));
        return Type(dtype, {op.shape(0)[0], samples});
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& logits = ctx.tensor(0);
        int64_t batch = logits.size(0), classes = logits.size(1), samples = op.integer("sample_size");
        if (classes == 0 && batch * samples > 0) return op.error(Code::E0407, "there are no classes to sample from");
        Tensor y = TRY(Tensor::zeros(op.out().dtype, {batch, samples}));
        TRY(ctx.spend((y.elements() + logits.elements()) * 32));
        Draws draws = Draws::of(op, ctx);
        std::vector<double> sums(classes);
        for (int64_t b = 0; b < batch; ++b) {
            double top = -INFINITY, sum = 0;
            for (int64_t c = 0; c < classes; ++c) top = std::max(top, logits.real_at(b * classes + c));
            for (int64_t c = 0; c < classes; ++c) sums[c] = sum += std::exp(logits.real_at(b * classes + c) - top);
            for (int64_t s = 0; s < samples; ++s) {
                int64_t c = std::upper_bound(sums.begin(), sums.end(), draws.uniform() * sum) - sums.begin();
                y.set_int(b * samples + s, std::min(c, classes - 1));
            }
        }
        return std::vector<Datum>{y};
    },
};

// Before opset 7, an attribute said whether the model was being trained, which was the default.
Status training_before_7(OnnxCall& call) {
    auto it = call.attrs.find("is_test");
    bool test = it != call.attrs.end() && it->second != Attr(int64_t{0});
    if (it != call.attrs.end()) call.attrs.erase(it);
    if (!test) call.set_input(2, call.build.constant(Tensor::scalar(true)));
    return {};
}

Status training_to_6(OnnxCall& call) {
    bool training = false;
    if (call.has(2)) {
        if (!call.inputs[2]->is_constant())
            return Error(Code::E0214, "Dropout: the training mode is computed, but was an attribute before opset 7");
        training = call.inputs[2]->tensor()->elements() > 0 && call.inputs[2]->tensor()->int_at(0);
        call.inputs.resize(2);
    }
    if (!training) call.attrs["is_test"] = int64_t{1};
    return {};
}

// Before opset 10, the mask had the data's element type.
Status float_mask_before_10(OnnxCall& call) {
    if (call.outputs < 2 || !call.has(0)) return {};
    std::vector<Value*> inputs = call.inputs;
    if (auto it = call.attrs.find("ratio"); it != call.attrs.end() && std::holds_alternative<float>(it->second)) {
        inputs.resize(std::max<size_t>(inputs.size(), 2));
        inputs[1] = call.build.constant(Tensor::scalar(std::get<float>(it->second)));
    }
    auto out = call.build.ops("dropout", inputs, {}, 2);
    if (call.build.failed()) return call.build.status();
    call.result = {out[0], call.build.cast(out[1], call.inputs[0]->type().tensor().dtype)};
    return call.build.status();
}

Status no_training_before_12(OnnxCall& call) {
    if (call.attrs.erase("seed") || (call.has(2) && call.opset >= 7))
        return Error(Code::E0214, "Dropout: has no seed or training mode before opset 12");
    return {};
}

bool trains(const OpView& op) {
    if (!op.has(2)) return false;
    auto mode = op.contents(2);
    return !mode || mode->size() != 1 || !(*mode)[0].is_int(0);
}

// Through the elements that were kept. A node without its mask is drawn again with it, in the place of the first.
Gradients back_through_dropout(const Backward& r) {
    Builder& b = r.b;
    if (!trains(r.node.view())) return {};
    Value* mask = r.outs.size() > 1 ? r.outs[1] : nullptr;
    if (!mask) {
        std::vector<Value*> both = b.ops("dropout", r.in, r.node.attrs(), 2);
        if (b.failed()) return {};
        b.graph().replace_uses(r.out, both[0]);
        b.graph().sort();
        mask = both[1];
    }
    const DType t = r.g->type().tensor().dtype;
    Value* ratio = r.in.size() > 1 && r.in[1] ? b.cast(r.in[1], t) : b.scalar(0.5, t);
    Value* scaled = b.div(r.g, b.sub(r.number(1), ratio));
    Value* kept = b.op("where", {mask, scaled, r.number(0)});
    if (!r.in[2]->is_constant()) kept = b.op("where", {r.in[2], kept, r.g});
    return {kept};
}

const OpDef kDropout{
    .name = "dropout",
    .inputs = {"x: T", "ratio?: R", "training?: bool"},
    .outputs = {"y: T", "mask: bool"},
    .attrs = {int_attr("seed")},
    .types = {{"T", kFloats}, {"R", kFloats}},
    .traits = kRandomTraits,
    .onnx = {"Dropout",
             {{7, training_before_7, training_to_6},
              {10, float_mask_before_10,
               [](OnnxCall& call) -> Status {
                   if (call.outputs > 1) return Error(Code::E0214, "Dropout: before opset 10, the mask is not a bool");
                   return {};
               }},
              attr_to_input(12, "ratio", 1),
              {12, [](OnnxCall&) -> Status { return {}; }, no_training_before_12}}},
    .infer = [](const OpView& op) -> Result<Types> {
        for (size_t i : {1, 2})
            if (op.has(i) && op.shape(i).ranked() && op.shape(i).elements().as_int().value_or(1) != 1)
                return op.shape_error("input {} must be one element, is {}", i, op.shape(i));
        return Types{op.type(0), Type(DType::boolean, op.shape(0))};
    },
    .body = [](const OpView& op,
               const Indices& o) { return op.output() == 0 ? op.in(0).at(o) : int_const(1, DType::boolean); },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        double ratio = op.has(1) ? ctx.tensor(1).real_at(0) : 0.5;
        if (!(ratio >= 0 && ratio < 1)) return op.error(Code::E0407, "ratio {} is outside [0, 1)", ratio);
        Tensor y = TRY(Tensor::zeros(x.dtype(), x.sizes())), mask = TRY(Tensor::zeros(DType::boolean, x.sizes()));
        TRY(ctx.spend(x.elements() * 16));
        Draws draws = Draws::of(op, ctx);
        double scale = 1 / (1 - ratio);
        for (int64_t i = 0; i < x.elements(); ++i) {
            bool kept = ratio == 0 || draws.uniform() >= ratio;
            mask.set_int(i, kept);
            y.set_real(i, kept ? x.real_at(i) * scale : 0);
        }
        return std::vector<Datum>{y, mask};
    },
    .body_applies = [](const OpView& op) { return !trains(op); },
    .gives_input = [](const OpView& op) { return !trains(op); },
    .gradient = back_through_dropout,
};

}  // namespace

std::vector<OpDef> random_ops() {
    std::vector<AttrDef> normal{float_attr("mean", 0), float_attr("scale", 1)};
    std::vector<AttrDef> uniform{float_attr("low", 0), float_attr("high", 1)};
    return {
        random_op("random_normal", "RandomNormal", normal, draw_normal),
        random_op("random_uniform", "RandomUniform", uniform, draw_uniform),
        random_like_op("random_normal_like", "RandomNormalLike", normal, draw_normal),
        random_like_op("random_uniform_like", "RandomUniformLike", uniform, draw_uniform),
        kBernoulli,
        kMultinomial,
        kDropout,
    };
}

}  // namespace tessera
