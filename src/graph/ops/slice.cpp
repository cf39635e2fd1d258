// Ops that keep a part of a tensor or put it into a larger one: slice, pad, center_crop_pad, trilu.
#include <algorithm>
#include <limits>

#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/parameter.h"

namespace tessera {
namespace {

// ---- slice

// A start or end that may count from the end of `extent`; nothing where its sign is not known.
std::optional<Dim> from_front(const Expr& e, const Dim& extent) {
    Bounds b = bounds(e);
    if (b.low && *b.low >= 0) return e;
    if (b.high && *b.high < 0) return e + extent;
    return std::nullopt;
}

constexpr int64_t kBeyondAnySize = int64_t{1} << 48;

// The number of elements from start to end by step, as NumPy counts them; nothing where it depends on unknown signs.
std::optional<Dim> slice_extent(const Dim& extent, Expr start, Expr end, int64_t step) {
    // Sizes stay below this, and sums of three of them do not overflow.
    auto tamed = [](const Expr& e) {
        auto n = e.as_int();
        return n ? Expr(std::clamp(*n, -kBeyondAnySize, kBeyondAnySize)) : e;
    };
    start = tamed(start), end = tamed(end), step = std::clamp(step, -kBeyondAnySize, kBeyondAnySize);
    auto s = from_front(start, extent), e = from_front(end, extent);
    if (!s || !e) return std::nullopt;
    bool to_end = end.as_int() && *end.as_int() >= kBeyondAnySize;
    bool to_front = end.as_int() && *end.as_int() <= -kBeyondAnySize;
    Dim count;
    if (step > 0) {
        Dim last = to_end ? extent : max(min(*e, extent), 0);
        bool start_counts_back = start.as_int() && *start.as_int() < 0;
        if (start_counts_back && to_end)
            count = min(-start, extent);
        else if (start_counts_back)
            count = max(last - max(*s, 0), 0);
        else if (start.is_int(0))
            count = last;
        else if (end.as_int() && *end.as_int() < 0)
            count = max(*e - *s, 0);
        else
            count = max(last - *s, 0);
        return step == 1 ? count : floor_div(count + (step - 1), step);
    }
    Dim first = min(max(*s, 0), extent - 1);
    Dim last = to_front ? Dim(-1) : min(max(*e, -1), extent - 1);
    if (start.as_int() && (*start.as_int() == -1 || *start.as_int() >= kBeyondAnySize)) first = extent - 1;
    count = max(first - last, 0);
    return step == -1 ? count : floor_div(count + (-step - 1), -step);
}

// The steps attribute did not exist before opset 10.
Status drop_unit_steps(OnnxCall& call) {
    if (!call.has(4)) return {};
    const Value* v = call.inputs[4];
    bool units = v->is_constant();
    for (int64_t i = 0; units && i < v->tensor()->elements(); ++i) units = v->tensor()->int_at(i) == 1;
    if (!units) return Error(Code::E0214, "{}: has no steps before opset 10", call.op_type);
    call.inputs.resize(4);
    return {};
}

// A bound that counts from the end: N - 1 is -1, and N or more is to the end.
std::optional<int64_t> constant_bound(const Expr& bound, const Dim& extent, bool is_end) {
    if (auto n = bound.as_int()) return n;
    Expr beyond = bound - extent;
    if (auto k = beyond.as_int(); k && *k < 0 && (*k == -1 || bounds(extent).low.value_or(0) >= -*k)) return *k;
    if (is_end && bounds(beyond).low.value_or(-1) >= 0) return std::numeric_limits<int64_t>::max();
    return std::nullopt;
}

// Of starts and ends.
std::optional<std::vector<int64_t>> slice_constants(const OpView& op, size_t input, AttrMap&) {
    const Shape& x = op.shape(0);
    if (input < 1 || input > 2 || !x.ranked()) return std::nullopt;
    if ((op.has(3) && !op.constant_ints(3)) || (op.has(4) && !op.constant_ints(4))) return std::nullopt;
    const std::vector<Expr> wanted = *op.contents(input);
    std::vector<int64_t> axes, steps(wanted.size(), 1), constants;
    if (op.has(3)) axes = *op.constant_ints(3);
    for (int64_t d = 0; !op.has(3) && d < int64_t(wanted.size()); ++d) axes.push_back(d);
    if (op.has(4)) steps = *op.constant_ints(4);
    if (axes.size() != wanted.size() || steps.size() != wanted.size()) return std::nullopt;
    for (size_t k = 0; k < wanted.size(); ++k) {
        if (steps[k] < 1 || axes[k] < -x.rank() || axes[k] >= x.rank()) return std::nullopt;
        auto bound = constant_bound(wanted[k], x[axes[k]], input == 2);
        if (!bound) return std::nullopt;
        constants.push_back(*bound);
    }
    return constants;
}

const OpDef kSlice{
    .name = "slice",
    .inputs = {"x: T", "starts: I", "ends: I", "axes?: I", "steps?: I"},
    .outputs = {"y: T"},
    .types = {{"T", kAllTypes}, {"I", {DType::i32, DType::i64}}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .onnx = {"Slice",
             {attr_to_input(10, "starts", 1),
              attr_to_input(10, "ends", 2),
              attr_to_input(10, "axes", 3),
              {10, [](OnnxCall&) -> Status { return {}; }, drop_unit_steps}}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        std::optional<int64_t> count;
        for (size_t i = 1; i < 5; ++i) {
            if (!op.has(i)) continue;
            if (op.rank(i) != 1) return op.shape_error("input {} must be a vector, is {}", i, op.shape(i));
            auto n = op.shape(i)[0].as_int();
            if (n && count && *n != *count)
                return op.shape_error("starts, ends, axes and steps have {} and {} entries", *count, *n);
            if (n) count = n;
        }
        if (count && *count > x.rank()) return op.shape_error("{} axes are sliced, but {} has {}", *count, x, x.rank());
        auto axes = op.has(3) ? op.constant_ints(3) : std::nullopt;
        if (!op.has(3) && count) {
            axes.emplace();
            for (int64_t i = 0; i < *count; ++i) axes->push_back(i);
        }
        if (!axes) return op.like(0, fresh_shape(op, 0, x.rank()));
        auto at = TRY(op.axes(*axes, x.rank()));
        auto starts = op.contents(1), ends = op.contents(2);
        auto steps = op.has(4) ? op.contents(4) : std::vector<Expr>(at.size(), Expr(1));
        Shape y = x;
        for (size_t k = 0; k < at.size(); ++k) {
            auto step = steps && k < steps->size() ? (*steps)[k].as_int() : std::nullopt;
            if (step == 0) return op.error(Code::E0212, "the step of axis {} is 0", at[k]);
            std::optional<Dim> extent;
            if (step && starts && ends && k < starts->size() && k < ends->size())
                extent = slice_extent(x[at[k]], (*starts)[k], (*ends)[k], *step);
            y[at[k]] = extent ? *extent : op.fresh(0, at[k]);
        }
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto starts = *parameter(op, 1);
            auto axes = op.has(3) ? parameter(op, 3) : std::nullopt;
            auto steps = op.has(4) ? *parameter(op, 4) : std::vector<Expr>(starts.size(), Expr(1));
            std::vector<Expr> at;
            for (int64_t d = 0; d < o.rank(); ++d) {
                const Dim& extent = op.shape(0)[d];
                Expr step = listed_for(steps, axes, d, o.rank(), 1), start = listed_for(starts, axes, d, o.rank(), 0);
                start = wrap_index(start, extent);
                start = select(lt(step, 0), min(max(start, 0), extent - 1), clamp(start, 0, extent));
                at.push_back(start + o[d] * step);
            }
            return op.in(0).at(at);
        },
    .body_applies =
        [](const OpView& op) {
            return has_parameters(op, {1, 3, 4});
        },
    .constant_operand = slice_constants,
    .layout = Layout::AsInputs,
};

// ---- pad

Status pad_value_to_input(OnnxCall& call) {
    auto it = call.attrs.find("value");
    if (it == call.attrs.end()) return {};
    auto* value = std::get_if<float>(&it->second);
    if (!value || !call.has(0)) return Error(Code::E0206, "{}: value must be a float", call.op_type);
    if (*value != 0) call.set_input(2, call.build.scalar_like(*value, call.inputs[0]));
    call.attrs.erase("value");
    return call.build.status();
}

Status pad_value_to_attr(OnnxCall& call) {
    if (!call.has(2)) return {};
    const Value* v = call.inputs[2];
    if (!v->is_constant() || v->tensor()->elements() != 1 || !is_float(v->tensor()->dtype()))
        return Error(Code::E0214, "{}: the value is not a constant float, which it was before opset 11", call.op_type);
    call.attrs["value"] = float(v->tensor()->real_at(0));
    call.inputs.resize(2);
    return {};
}

Status rename_paddings(OnnxCall& call, const char* from, const char* to) {
    if (auto node = call.attrs.extract(from)) {
        node.key() = to;
        call.attrs.insert(std::move(node));
    }
    return {};
}

Status no_pad_axes(OnnxCall& call) {
    if (call.has(3)) return Error(Code::E0214, "{}: before opset 18, all axes are padded", call.op_type);
    return {};
}

Status no_wrap_mode(OnnxCall& call) {
    auto it = call.attrs.find("mode");
    if (it != call.attrs.end() && it->second == Attr(std::string("wrap")))
        return Error(Code::E0214, "{}: has no mode \"wrap\" before opset 19", call.op_type);
    return {};
}

Status unchanged(OnnxCall&) { return {}; }

const OpDef kPad{
    .name = "pad",
    .inputs = {"x: T", "pads: i64", "value?: T", "axes?: I"},
    .outputs = {"y: T"},
    .attrs = {string_attr("mode", "constant").one_of({"constant", "reflect", "edge", "wrap"})},
    .types = {{"T", kAllTypes}, {"I", {DType::i32, DType::i64}}},
    .traits = {Trait::Pure, Trait::Movement},
    .onnx = {"Pad",
             {{2, [](OnnxCall& c) { return rename_paddings(c, "paddings", "pads"); },
               [](OnnxCall& c) { return rename_paddings(c, "pads", "paddings"); }},
              attr_to_input(11, "pads", 1),
              {11, pad_value_to_input, pad_value_to_attr},
              {18, unchanged, no_pad_axes},
              {19, unchanged, no_wrap_mode}}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        const std::string& mode = op.string("mode");
        if (op.rank(1) != 1) return op.shape_error("pads must be a vector, is {}", op.shape(1));
        if (op.has(2) && op.shape(2).elements().as_int().value_or(1) != 1)
            return op.shape_error("the value must be one element, is {}", op.shape(2));
        if (op.has(3) && op.rank(3) != 1) return op.shape_error("axes must be a vector, is {}", op.shape(3));
        auto axes = TRY(axes_from_input(op, 3, x.rank(), op.has(3)));
        if (!axes) return op.like(0, fresh_shape(op, 0, x.rank()));
        int64_t count = axes->size();
        auto pads = op.contents(1);
        auto length = pads ? int64_t(pads->size()) : op.shape(1)[0].as_int();
        if (length && *length != 2 * count)
            return op.shape_error("pads has {} entries for {} axes of {}", *length, count, x);
        Shape y = x;
        for (int64_t k = 0; k < count; ++k) {
            int64_t d = (*axes)[k];
            if (!pads) {
                y[d] = op.fresh(0, d);
                continue;
            }
            for (int64_t i : {k, count + k})
                if (auto n = (*pads)[i].as_int(); n && (*n < -(int64_t{1} << 48) || *n > int64_t{1} << 48))
                    return op.error(Code::E0212, "pads has {}", *n);
            y[d] = x[d] + (*pads)[k] + (*pads)[count + k];
            if (auto n = y[d].as_int(); n && *n < 0)
                return op.shape_error("dimension {} of {} would have size {}", d, x, *n);
        }
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto pads = *parameter(op, 1);
            auto axes = op.has(3) ? parameter(op, 3) : std::nullopt;
            int64_t rank = o.rank(), count = pads.size() / 2;
            std::vector<Expr> begins(pads.begin(), pads.begin() + count), ends(pads.begin() + count, pads.end());
            const std::string& mode = op.string("mode");
            std::vector<Expr> at;
            Expr inside = int_const(1, DType::boolean);
            for (int64_t d = 0; d < rank; ++d) {
                Expr begin = listed_for(begins, axes, d, rank, 0), end = listed_for(ends, axes, d, rank, 0);
                if (begin.is_int(0) && end.is_int(0)) {
                    at.push_back(o[d]);
                    continue;
                }
                const Dim& extent = op.shape(0)[d];
                if (mode == "constant") {
                    Expr i = o[d] - begin;
                    inside = logical_and(inside, logical_and(ge(i, 0), lt(i, extent)));
                    at.push_back(i);
                    continue;
                }
                // A negative pad removes elements first; what is left is continued.
                Expr base = max(-begin, 0), left = extent - base - max(-end, 0);
                Expr i = o[d] - max(begin, 0), folded = mod(i, left);
                if (mode == "edge") folded = clamp(i, 0, left - 1);
                if (mode == "reflect")  // the last bound always holds, and says so
                    folded = min(min(mod(i, 2 * (left - 1)), mod(-i, 2 * (left - 1))), left - 1);
                // What lies inside is copied, whatever other dimensions need.
                at.push_back(select(logical_and(ge(i, 0), lt(i, left)), base + i, base + folded));
            }
            if (mode != "constant") return op.in(0).at(at);
            Expr value = op.has(2) ? op.in(2).at(std::vector<Expr>(op.rank(2), Expr(0))) : like(op, 0);
            return select(inside, op.in(0).at(at), value);
        },
    .body_applies =
        [](const OpView& op) {
            return has_parameters(op, {1, 3});
        },
    .layout = Layout::AsInputs,
};

// ---- center_crop_pad

const OpDef kCenterCropPad{
    .name = "center_crop_pad",
    .inputs = {"x: T", "shape: I"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("axes")},
    .types = {{"T", kAllTypes}, {"I", {DType::i32, DType::i64}}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = "CenterCropPad",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        if (op.rank(1) != 1) return op.shape_error("shape must be a vector, is {}", op.shape(1));
        auto axes = *TRY(axes_from_input(op, op.input_count(), x.rank()));
        auto wanted = op.contents(1);
        auto length = wanted ? int64_t(wanted->size()) : op.shape(1)[0].as_int();
        if (length && *length != int64_t(axes.size()))
            return op.shape_error("shape has {} entries for {} axes of {}", *length, axes.size(), x);
        Shape y = x;
        for (size_t k = 0; k < axes.size(); ++k) {
            y[axes[k]] = wanted ? (*wanted)[k] : op.fresh(0, axes[k]);
            if (auto n = y[axes[k]].as_int(); n && *n < 0) return op.error(Code::E0212, "shape has {}", *n);
        }
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            std::vector<Expr> at;
            for (int64_t d = 0; d < o.rank(); ++d) {
                Expr surplus = op.shape(0)[d] - op.out().shape[d];
                at.push_back(o[d] + floor_div(max(surplus, 0), 2) - floor_div(max(-surplus, 0), 2));
            }
            return op.in(0).at_or(at, like(op, 0));
        },
};

// ---- trilu

const OpDef kTrilu{
    .name = "trilu",
    .inputs = {"x: T", "k?: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("upper", 1)},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = "Trilu",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(0) < 2) return op.shape_error("needs a matrix, has {}", op.shape(0));
        if (op.has(1) && op.shape(1).elements().as_int().value_or(1) != 1)
            return op.shape_error("k must be one element, is {}", op.shape(1));
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            Expr k = op.has(1) ? op.in(1).at(std::vector<Expr>(op.rank(1), Expr(0))) : Expr(0);
            Expr diagonal = o[-1] - o[-2];
            Expr kept = op.integer("upper") ? ge(diagonal, k) : le(diagonal, k);
            return select(kept, op.in(0).at(o), like(op, 0));
        },
};

}  // namespace

std::vector<OpDef> slice_ops() { return {kSlice, kPad, kCenterCropPad, kTrilu}; }

}  // namespace tessera
