#include "train/losses.h"

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

DType loss_dtype(const Value& output) { return output.type().tensor().dtype == DType::f64 ? DType::f64 : DType::f32; }

// How many elements there are, as a scalar of the loss's type.
Value* count_of(Builder& b, Value* x, DType t) { return b.cast(b.op("size", {x}), t); }

Value* sum_all(Builder& b, Value* x) { return b.op("reduce_sum", {x}, {{"keepdims", Attr(int64_t{0})}}); }

Result<int64_t> class_axis(const Loss& loss, const Value& output) {
    const int64_t rank = output.type().tensor().rank();
    const int64_t axis = loss.class_axis < 0 ? loss.class_axis + rank : loss.class_axis;
    if (axis >= 0 && axis < rank) return axis;
    return Error(Code::E0210, "cross_entropy: the logits are {}, which have no class axis {}", output.type(),
                 loss.class_axis);
}

class CrossEntropy {
  public:
    CrossEntropy(Builder& b, const Loss& loss, Value* x, int64_t axis, int64_t classes)
        : b_(b), loss_(loss), x_(x), axis_(axis), classes_(classes), t_(x->type().tensor().dtype) {}

    LossNodes build(Value* target) {
        Value* labels = b_.unsqueeze(target, {axis_});
        Value* hit = b_.cast(b_.op("equal", {labels, class_numbers()}), t_);
        Value* counts =
            b_.cast(b_.op("not", {b_.op("equal", {labels, b_.scalar_like(double(loss_.ignore_index), labels)})}), t_);
        Value* weights = loss_.class_weights.empty() ? nullptr : class_weights();
        // The distribution that the softmax is to have, times the row's weight.
        Value* wanted = b_.mul(hit, counts);
        if (weights) wanted = b_.mul(wanted, weights);
        Value* of_row = weights ? b_.reduce("reduce_sum", wanted, {axis_}) : counts;
        Value* total = sum_all(b_, of_row);
        total = b_.op("max", {total, b_.scalar(1e-30, t_)});  // all rows are ignored
        Value* mass = of_row;
        if (const double s = loss_.label_smoothing; s > 0) {
            const double each = s / double(classes_);
            Value* spread = weights ? b_.mul(weights, b_.scalar(each, t_)) : b_.scalar(each, t_);
            wanted = b_.add(b_.mul(wanted, b_.scalar(1 - s, t_)), b_.mul(counts, spread));
            mass = b_.reduce("reduce_sum", wanted, {axis_});
        }
        Value* shifted = b_.sub(x_, b_.reduce("reduce_max", x_, {axis_}));
        Value* exps = b_.op("exp", {shifted});
        Value* sums = b_.reduce("reduce_sum", exps, {axis_});
        Value* logs = b_.sub(shifted, b_.op("log", {sums}));
        // A probability of zero that nobody asks for is no loss, and 0 * -inf would be nan.
        Value* terms =
            b_.op("where", {b_.op("equal", {wanted, b_.scalar(0, t_)}), b_.scalar(0, t_), b_.mul(wanted, logs)});
        LossNodes made;
        // Row by row first: what is summed is never stored.
        made.loss = b_.op("neg", {b_.div(sum_all(b_, b_.reduce("reduce_sum", terms, {axis_})), total)});
        made.gradient = b_.div(b_.sub(b_.mul(b_.div(exps, sums), mass), wanted), total);
        return made;
    }

  private:
    std::vector<int64_t> by_class() const {
        std::vector<int64_t> shape(size_t(x_->type().tensor().rank()), 1);
        shape[size_t(axis_)] = classes_;
        return shape;
    }
    Value* class_numbers() {
        std::vector<int64_t> numbers(static_cast<size_t>(classes_));
        std::iota(numbers.begin(), numbers.end(), 0);
        return b_.constant(Tensor::of<int64_t>(by_class(), numbers));
    }
    Value* class_weights() {
        auto weights = Tensor::zeros(t_, by_class());
        if (!weights.ok()) {
            b_.fail(std::move(weights).error());
            return nullptr;
        }
        for (int64_t c = 0; c < classes_; ++c) weights->set_real(c, loss_.class_weights[size_t(c)]);
        return b_.constant(std::move(*weights));
    }

    Builder& b_;
    const Loss& loss_;
    Value* x_;
    int64_t axis_, classes_;
    DType t_;
};

// The mean over all elements.
LossNodes mean_of(Builder& b, Value* each, Value* gradient) {
    const DType t = each->type().tensor().dtype;
    Value* count = count_of(b, each, t);
    return {b.div(sum_all(b, each), count), b.div(gradient, count)};
}

LossNodes squares(Builder& b, Value* x, Value* target) {
    Value* d = b.sub(x, target);
    return mean_of(b, b.mul(d, d), b.mul(d, b.scalar_like(2, d)));
}

LossNodes distances(Builder& b, Value* x, Value* target) {
    Value* d = b.sub(x, target);
    return mean_of(b, b.op("abs", {d}), b.op("sign", {d}));
}

LossNodes binary_cross_entropy(Builder& b, Value* x, Value* target) {
    Value* zero = b.scalar_like(0, x);
    Value* small = b.op("exp", {b.op("neg", {b.op("abs", {x})})});
    Value* each =
        b.add(b.sub(b.op("max", {x, zero}), b.mul(x, target)), b.op("log", {b.add(small, b.scalar_like(1, x))}));
    return mean_of(b, each, b.sub(b.op("sigmoid", {x}), target));
}

struct ElementLoss {
    const char* name;
    LossNodes (*build)(Builder&, Value* x, Value* target);
};
constexpr ElementLoss kElementLosses[] = {
    {"mse", squares}, {"l1", distances}, {"bce_with_logits", binary_cross_entropy}};

}  // namespace

Result<Type> target_type(const Loss& loss, const Value& output) {
    const Type& type = output.type();
    if (!type.is_tensor() || !is_float(type.tensor().dtype) || !type.tensor().shape.ranked())
        return Error(Code::E0208,
                     "the loss is computed from output \"{}\", which is {}, not a float tensor of known rank",
                     output.name(), type);
    for (const ElementLoss& l : kElementLosses)
        if (loss.kind == l.name) return Type(loss_dtype(output), type.tensor().shape);
    if (loss.kind != "cross_entropy")
        return Error(Code::E0501, "there is no loss \"{}\"", loss.kind)
            .hint("there are: cross_entropy, mse, l1, bce_with_logits, and output, the model's own");
    const int64_t axis = TRY(class_axis(loss, output));
    Shape shape;
    for (int64_t d = 0; d < type.tensor().rank(); ++d)
        if (d != axis) shape.push_back(type.tensor().shape[d]);
    const auto classes = type.tensor().shape[axis].as_int();
    if (!classes)
        return Error(Code::E0210, "cross_entropy: the number of classes of {} is not constant", type)
            .hint("name the class dimension: class_axis is {}", loss.class_axis);
    if (!loss.class_weights.empty() && int64_t(loss.class_weights.size()) != *classes)
        return Error(Code::E0501, "cross_entropy: {} class weights for {} classes", loss.class_weights.size(),
                     *classes);
    if (!(loss.label_smoothing >= 0 && loss.label_smoothing < 1))
        return Error(Code::E0501, "cross_entropy: expected label_smoothing from 0 to below 1, got {}",
                     loss.label_smoothing);
    return Type(DType::i64, std::move(shape));
}

int64_t class_count(const Loss& loss, const Value& output) {
    return *output.type().tensor().shape[*class_axis(loss, output)].as_int();
}

Result<LossNodes> build_loss(Builder& build, const Loss& loss, Value* output, Value* target) {
    Value* x = build.cast(output, loss_dtype(*output));
    LossNodes made;
    if (loss.kind == "cross_entropy") {
        const int64_t axis = TRY(class_axis(loss, *output));
        made = CrossEntropy(build, loss, x, axis, *output->type().tensor().shape[axis].as_int()).build(target);
    }
    for (const ElementLoss& l : kElementLosses)
        if (loss.kind == l.name) made = l.build(build, x, target);
    TRY(build.status());
    return made;
}

}  // namespace tessera
