// Sequences and optionals: made, taken apart, split and joined.
#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/nested.h"
#include "graph/ops/parameter.h"
#include "graph/ops/tensor_slices.h"

namespace tessera {
namespace {

const std::vector<Trait> kSequenceTraits = {Trait::Pure, Trait::InfersUnranked};
const TypeVar kPosition{"I", {DType::i32, DType::i64}};

constexpr const char* kNoTensors = "sequences and optionals";

Status check_sequence(const OpView& op) {
    if (op.type(0).is_sequence()) return {};
    return op.error(Code::E0208, "input 0 must be a sequence, is {}", op.type(0));
}

// The position in input `i`, from the end if negative; `count` is how many there are to choose from.
Result<int64_t> position_in(const OpView& op, EvalContext& ctx, size_t i, int64_t length, int64_t count) {
    const Tensor& t = ctx.tensor(i);
    if (t.elements() != 1) return op.error(Code::E0407, "the position must be one number, is {}", to_string(t.sizes()));
    int64_t at = t.int_at(0);
    if (at < -length || at >= count)
        return op.error(Code::E0406, "position {} is outside [{}, {})", at, -length, count);
    return at < 0 ? at + length : at;
}

const OpDef kSequenceConstruct{
    .name = "sequence_construct",
    .inputs = {"inputs...: T"},
    .outputs = {"sequence: *"},
    .types = {{"T", kAllTypes}},
    .traits = kSequenceTraits,
    .onnx = "SequenceConstruct",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.input_count() == 0) return op.error(Code::E0207, "has no inputs");
        for (size_t i = 0; i < op.input_count(); ++i)
            if (!op.has(i)) return op.error(Code::E0207, "input {} is missing", i);
        Type element = op.type(0);
        for (size_t i = 1; i < op.input_count(); ++i) {
            auto both = join(element, op.type(i), output_name(op, 0));
            if (!both) return op.error(Code::E0208, "inputs 0 and {} are {} and {}", i, op.type(0), op.type(i));
            element = *both;
        }
        return Type::sequence(element);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        std::vector<Datum> items;
        for (size_t i = 0; i < op.input_count(); ++i) items.push_back(ctx.in(i));
        return std::vector{Datum::sequence(std::move(items))};
    },
    .no_kernel = kNoTensors,
};

const OpDef kSequenceEmpty{
    .name = "sequence_empty",
    .inputs = {},
    .outputs = {"sequence: *"},
    .attrs = {int_attr("dtype")},
    .traits = kSequenceTraits,
    .onnx = "SequenceEmpty",
    .infer = [](const OpView& op) -> Result<Types> {
        DType dtype = op.has_attr("dtype") ? TRY(dtype_attr(op, "dtype")) : DType::f32;
        return Type::sequence(Type(dtype, Shape::unknown()));
    },
    .evaluate = [](const OpView&, EvalContext&) -> Result<std::vector<Datum>> {
        return std::vector{Datum::sequence({})};
    },
    .no_kernel = kNoTensors,
};

const OpDef kSequenceAt{
    .name = "sequence_at",
    .inputs = {"sequence: *", "position: I"},
    .outputs = {"item: *"},
    .types = {kPosition},
    .traits = kSequenceTraits,
    .onnx = "SequenceAt",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_sequence(op));
        return one_of_sequence(op, op.type(0).element(), 0);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const auto& items = ctx.in(0).items();
        int64_t length = items.size();
        return std::vector{items[TRY(position_in(op, ctx, 1, length, length))]};
    },
    .no_kernel = kNoTensors,
};

const OpDef kSequenceInsert{
    .name = "sequence_insert",
    .inputs = {"sequence: *", "item: *", "position?: I"},
    .outputs = {"sequence: *"},
    .types = {kPosition},
    .traits = kSequenceTraits,
    .onnx = "SequenceInsert",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_sequence(op));
        auto both = join(op.type(0).element(), op.type(1), output_name(op, 0));
        if (both) return Type::sequence(*both);
        // At run time an empty sequence does not say what it is of.
        if (op.concrete()) return Type::sequence(op.type(1));
        return op.error(Code::E0208, "a {} cannot be inserted into a {}", op.type(1), op.type(0));
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        std::vector<Datum> items = ctx.in(0).items();
        int64_t length = items.size(), at = op.has(2) ? TRY(position_in(op, ctx, 2, length, length + 1)) : length;
        if (length > 0 && type_of(items[0]).kind() == Type::Kind::Tensor &&
            (!ctx.in(1).is_tensor() || ctx.in(1).tensor().dtype() != items[0].tensor().dtype()))
            return op.error(Code::E0407, "a {} cannot be inserted into a {}", op.type(1), op.type(0));
        items.insert(items.begin() + at, ctx.in(1));
        return std::vector{Datum::sequence(std::move(items))};
    },
    .no_kernel = kNoTensors,
};

const OpDef kSequenceErase{
    .name = "sequence_erase",
    .inputs = {"sequence: *", "position?: I"},
    .outputs = {"sequence: *"},
    .types = {kPosition},
    .traits = kSequenceTraits,
    .onnx = "SequenceErase",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_sequence(op));
        return op.same(0);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        std::vector<Datum> items = ctx.in(0).items();
        int64_t length = items.size();
        if (length == 0) return op.error(Code::E0407, "the sequence is empty");
        int64_t at = op.has(1) ? TRY(position_in(op, ctx, 1, length, length)) : length - 1;
        items.erase(items.begin() + at);
        return std::vector{Datum::sequence(std::move(items))};
    },
    .no_kernel = kNoTensors,
};

const OpDef kSequenceLength{
    .name = "sequence_length",
    .inputs = {"sequence: *"},
    .outputs = {"length: i64"},
    .traits = kSequenceTraits,
    .onnx = "SequenceLength",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_sequence(op));
        return Type(DType::i64, Shape{});
    },
    .evaluate = [](const OpView&, EvalContext& ctx) -> Result<std::vector<Datum>> {
        return std::vector<Datum>{Tensor::scalar(int64_t(ctx.in(0).items().size()))};
    },
    .no_kernel = kNoTensors,
};

const OpDef kSplitToSequence{
    .name = "split_to_sequence",
    .inputs = {"x: T", "split?: I"},
    .outputs = {"sequence: *"},
    .attrs = {int_attr("axis", 0), int_attr("keepdims", 1)},
    .types = {{"T", kAllTypes}, kPosition},
    .traits = kSequenceTraits,
    .onnx = "SplitToSequence",
    .infer = [](const OpView& op) -> Result<Types> {
        if (!op.shape(0).ranked()) return Type::sequence(op.type(0));
        int64_t axis = TRY(op.axis(op.integer("axis"), op.rank(0)));
        std::vector<Dim> part = op.shape(0).dims();
        if (!op.has(1)) {
            if (op.integer("keepdims"))
                part[axis] = 1;
            else
                part.erase(part.begin() + axis);
            return Type::sequence(Type(op.dtype(0), part));
        }
        if (op.shape(1).ranked() && op.rank(1) > 1)
            return op.shape_error("split must be a scalar or vector, is {}", op.shape(1));
        Dim extent = part[axis];
        part[axis] = op.fresh(0, axis);
        if (auto sizes = op.constant_ints(1)) {
            bool even = !sizes->empty();
            for (int64_t n : *sizes) {
                if (n < 0 || (n == 0 && op.rank(1) == 0)) return op.error(Code::E0212, "split has {}", n);
                even = even && n == sizes->front();
            }
            if (op.rank(1) == 0) even = extent.as_int() && *extent.as_int() % sizes->front() == 0;
            if (even) part[axis] = sizes->front();
        }
        return Type::sequence(Type(op.dtype(0), part));
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        const Tensor& x = ctx.tensor(0);
        int64_t axis = TRY(op.axis(op.integer("axis"), x.rank())), extent = x.size(axis);
        std::vector<Datum> items;
        if (op.has(1) && ctx.tensor(1).rank() == 1) {
            int64_t at = 0;
            for (int64_t n : ctx.tensor(1).to_ints()) {
                if (n < 0 || n > extent - at)
                    return op.error(Code::E0407, "a part of {} at position {} exceeds {}", n, at, extent);
                items.push_back(TRY(slice_of(x, axis, at, at + n)));
                at += n;
            }
            if (at != extent)
                return op.error(Code::E0407, "the sizes of the sizes of the parts sum to {}, not {}", at, extent);
            return std::vector{Datum::sequence(std::move(items))};
        }
        int64_t size = op.has(1) ? ctx.tensor(1).int_at(0) : 1;
        if (size < 1) return op.error(Code::E0407, "a part of {}", size);
        for (int64_t at = 0; at < extent; at += std::min(size, extent - at)) {
            bool drop = !op.has(1) && !op.integer("keepdims");
            items.push_back(drop ? TRY(take(x, axis, at))
                                 : TRY(slice_of(x, axis, at, at + std::min(size, extent - at))));
        }
        return std::vector{Datum::sequence(std::move(items))};
    },
    .no_kernel = kNoTensors,
};

const OpDef kConcatFromSequence{
    .name = "concat_from_sequence",
    .inputs = {"sequence: *"},
    .outputs = {"y: *"},
    .attrs = {int_attr("axis").required(), int_attr("new_axis", 0)},
    .traits = kSequenceTraits,
    .onnx = "ConcatFromSequence",
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_sequence(op));
        const Type& element = op.type(0).element();
        if (!element.is_tensor()) return op.error(Code::E0208, "needs a sequence of tensors, has {}", op.type(0));
        const TensorType& t = element.tensor();
        if (!t.shape.ranked()) return element;
        bool fresh = op.integer("new_axis");
        std::vector<Dim> dims = t.shape.dims();
        int64_t axis = TRY(op.axis(op.integer("axis"), t.rank() + fresh));
        if (fresh)
            dims.insert(dims.begin() + axis, op.fresh(0, axis));
        else
            dims[axis] = op.fresh(0, axis);
        return Type(t.dtype, dims);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        std::vector<Tensor> parts;
        for (const Datum& d : ctx.in(0).items()) {
            if (!d.is_tensor()) return op.error(Code::E0407, "needs a sequence of tensors, has {}", op.type(0));
            parts.push_back(d.tensor());
        }
        if (parts.empty()) return op.error(Code::E0407, "the sequence is empty");
        bool fresh = op.integer("new_axis");
        int64_t axis = TRY(op.axis(op.integer("axis"), parts[0].rank() + fresh));
        return std::vector<Datum>{fresh ? TRY(stack_tensors(parts, axis)) : TRY(concat_tensors(parts, axis))};
    },
    .no_kernel = kNoTensors,
};

const OpDef kOptional{
    .name = "optional",
    .inputs = {"value?: *"},
    .outputs = {"optional: *"},
    .attrs = {type_attr("type")},
    .traits = kSequenceTraits,
    .onnx = "Optional",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.has(0)) return Type::optional(op.type(0));
        if (!op.has_attr("type")) return op.error(Code::E0206, "needs an input or its type");
        return Type::optional(op.type_attr("type"));
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        return std::vector{op.has(0) ? Datum::some(ctx.in(0)) : Datum::none()};
    },
    .no_kernel = kNoTensors,
};

const OpDef kOptionalGetElement{
    .name = "optional_get_element",
    .inputs = {"optional: *"},
    .outputs = {"value: *"},
    .traits = kSequenceTraits,
    .onnx = "OptionalGetElement",
    .infer = [](const OpView& op) -> Result<Types> {
        return op.type(0).is_optional() ? op.type(0).element() : op.type(0);
    },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        if (!ctx.in(0).is_optional()) return std::vector{ctx.in(0)};
        if (!ctx.in(0).has_value()) return op.error(Code::E0407, "the optional is empty");
        return std::vector{ctx.in(0).items()[0]};
    },
    .no_kernel = kNoTensors,
};

const OpDef kOptionalHasElement{
    .name = "optional_has_element",
    .inputs = {"optional?: *"},
    .outputs = {"y: bool"},
    .traits = kSequenceTraits,
    .onnx = "OptionalHasElement",
    .infer = [](const OpView&) -> Result<Types> { return Type(DType::boolean, Shape{}); },
    .evaluate = [](const OpView& op, EvalContext& ctx) -> Result<std::vector<Datum>> {
        bool has = op.has(0) && (!ctx.in(0).is_optional() || ctx.in(0).has_value());
        return std::vector<Datum>{Tensor::scalar(has)};
    },
    .no_kernel = kNoTensors,
};

}  // namespace

std::vector<OpDef> sequence_ops() {
    std::vector<OpDef> ops = {kSequenceConstruct, kSequenceEmpty,      kSequenceAt,        kSequenceInsert,
                              kSequenceErase,     kSequenceLength,     kSplitToSequence,   kConcatFromSequence,
                              kOptional,          kOptionalGetElement, kOptionalHasElement};
    for (OpDef& op : ops) op = without_gradient(std::move(op), "sequences and optionals have none");
    return ops;
}

}  // namespace tessera
