// Losses of classification: negative log likelihood, and softmax cross entropy over it.
#include "graph/ops/elementwise.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// [N, C, d1, ...] scores against [N, d1, ...] labels; weights [C].
Status check_loss(const OpView& op) {
    const Shape &x = op.shape(0), &labels = op.shape(1);
    bool fits = x.rank() >= 2 && labels.rank() == x.rank() - 1;
    for (int64_t d = 0; fits && d < labels.rank(); ++d) {
        const Dim &a = labels[d], &b = x[d == 0 ? 0 : d + 1];
        fits = !a.as_int() || !b.as_int() || a == b;
    }
    if (!fits)
        return op.shape_error("scores {} need labels of the same shape without dimension 1, but have {}", x, labels);
    if (op.has(2)) {
        const Shape& w = op.shape(2);
        if (w.rank() != 1 || (w[0].as_int() && x[1].as_int() && w[0] != x[1]))
            return op.shape_error("weights must be one for each class of {}, are {}", x, w);
    }
    return {};
}

Shape loss_shape(const OpView& op) { return op.string("reduction") == "none" ? op.shape(1) : Shape(); }

const OpDef kNegativeLogLikelihoodLoss{
    .name = "negative_log_likelihood_loss",
    .inputs = {"x: T", "labels: I", "weights?: T"},
    .outputs = {"loss: T"},
    .attrs = {int_attr("ignore_index"), string_attr("reduction", "mean").one_of({"none", "sum", "mean"})},
    .types = {{"T", kWideFloats}, {"I", {DType::i32, DType::i64}}},
    .onnx = "NegativeLogLikelihoodLoss",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_loss(op));
        return op.like(0, loss_shape(op));
    },
    .body =
        [](const OpView& op, const Indices& o) {
            TensorRef x = op.in(0), labels = op.in(1);
            bool all = op.string("reduction") != "none";
            std::vector<ReduceAxis> axes;
            std::vector<Expr> at;
            for (int64_t d = 0; d < labels.rank(); ++d) {
                if (all) axes.push_back(op.reduce(labels.dim(d)));
                at.push_back(all ? axes.back().var : o[d]);
            }
            Expr label = cast(labels.at(at), DType::i64);
            auto unless_ignored = [&](const Expr& v) {
                if (!op.has_attr("ignore_index")) return v;
                return select(eq(label, op.integer("ignore_index")), like(op, 0), v);
            };
            Expr weight = op.has(2) ? op.in(2).at({label}) : like(op, 1);
            Expr loss = unless_ignored(-(weight * x.at(Indices(at).inserted(1, label))));
            if (!all) return loss;
            Expr total = sum(axes, loss);
            return op.string("reduction") == "sum" ? total : total / sum(axes, unless_ignored(weight));
        },
};

const OpDef kSoftmaxCrossEntropyLoss{
    .name = "softmax_cross_entropy_loss",
    .inputs = {"scores: T", "labels: I", "weights?: T"},
    .outputs = {"loss: T", "log_prob?: T"},
    .attrs = {int_attr("ignore_index"), string_attr("reduction", "mean").one_of({"none", "sum", "mean"})},
    .types = {{"T", kWideFloats}, {"I", {DType::i32, DType::i64}}},
    .onnx = "SoftmaxCrossEntropyLoss",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_loss(op));
        return Types{Type(op.dtype(0), loss_shape(op)), op.type(0)};
    },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        Value* log_prob = b.op("log_softmax", {in[0]}, {{"axis", Attr(int64_t{1})}});
        Value* weights = op.has(2) ? in[2] : nullptr;
        return b.finish({b.op("negative_log_likelihood_loss", {log_prob, in[1], weights}, op.attrs()), log_prob});
    },
};

}  // namespace

std::vector<OpDef> loss_ops() { return {kNegativeLogLikelihoodLoss, kSoftmaxCrossEntropyLoss}; }

}  // namespace tessera
