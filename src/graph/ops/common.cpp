#include "graph/ops/common.h"

#include <limits>
#include <numeric>

#include "onnx/dtypes.h"

namespace tessera {
namespace {

const Attr* find(const AttrMap& attrs, const std::string& name) {
    auto it = attrs.find(name);
    return it == attrs.end() ? nullptr : &it->second;
}

Result<Tensor> as_tensor(const Attr& a) {
    if (auto* ints = std::get_if<std::vector<int64_t>>(&a)) return Tensor::ints(*ints);
    if (auto* i = std::get_if<int64_t>(&a)) return Tensor::scalar(*i);
    if (auto* f = std::get_if<float>(&a)) return Tensor::scalar(*f);
    if (auto* fs = std::get_if<std::vector<float>>(&a)) return Tensor::of<float>({int64_t(fs->size())}, *fs);
    return Error(Code::E0206, "an attribute of kind {} where a number was expected", attr_kind_name(attr_kind(a)));
}

}  // namespace

OnnxChange attr_to_input(int opset, std::string attr, size_t input) {
    return {
        opset,
        [=](OnnxCall& call) -> Status {
            const Attr* a = find(call.attrs, attr);
            if (!a) return {};
            call.set_input(input, call.build.constant(TRY(as_tensor(*a))));
            call.attrs.erase(attr);
            return {};
        },
        [=](OnnxCall& call) -> Status {
            if (!call.has(input)) return {};
            const Value* v = call.inputs[input];
            if (!v->is_constant())
                return Error(Code::E0214, "{}: {} is computed, but was a constant attribute before opset {}",
                             call.op_type, attr, opset);
            const Tensor& t = *v->tensor();
            if (is_float(t.dtype()) && t.rank() == 0)
                call.attrs[attr] = float(t.real_at(0));
            else if (is_float(t.dtype())) {
                std::vector<float> values(t.elements());
                for (int64_t i = 0; i < t.elements(); ++i) values[i] = float(t.real_at(i));
                call.attrs[attr] = values;
            } else if (t.rank() == 0)
                call.attrs[attr] = t.int_at(0);
            else
                call.attrs[attr] = t.to_ints();
            call.inputs[input] = nullptr;
            while (!call.inputs.empty() && !call.inputs.back()) call.inputs.pop_back();
            return {};
        },
    };
}

OnnxChange attr_added(int opset, std::string attr, Attr neutral) {
    return {
        opset,
        [](OnnxCall&) -> Status { return {}; },
        [=](OnnxCall& call) -> Status {
            const Attr* a = find(call.attrs, attr);
            if (!a) return {};
            if (*a != neutral)
                return Error(Code::E0214, "{}: {} does not exist before opset {}", call.op_type, attr, opset);
            call.attrs.erase(attr);
            return {};
        },
    };
}

OnnxChange attr_dropped(int opset, std::string attr) {
    return {
        opset,
        [=](OnnxCall& call) -> Status {
            call.attrs.erase(attr);
            return {};
        },
        [](OnnxCall&) -> Status { return {}; },
    };
}

OnnxChange numpy_broadcast_from_7() {
    return {
        7,
        [](OnnxCall& call) -> Status {
            bool broadcasts = false;
            if (const Attr* a = find(call.attrs, "broadcast")) broadcasts = *a == Attr(int64_t{1});
            std::optional<int64_t> axis;
            if (const Attr* a = find(call.attrs, "axis"); a && std::holds_alternative<int64_t>(*a))
                axis = std::get<int64_t>(*a);
            for (const char* name : {"broadcast", "axis", "consumed_inputs"}) call.attrs.erase(name);
            if (!broadcasts || !axis || !call.has(0) || !call.has(1)) return {};
            const Type &a = call.inputs[0]->type(), &b = call.inputs[1]->type();
            if (!a.is_tensor() || !b.is_tensor() || !a.tensor().shape.ranked() || !b.tensor().shape.ranked()) return {};
            int64_t at = *axis < 0 ? *axis + a.tensor().rank() : *axis;
            int64_t trailing = a.tensor().rank() - at - b.tensor().rank();
            if (at < 0 || trailing < 0) return Error(Code::E0212, "{}: axis {} is out of range", call.op_type, *axis);
            if (trailing == 0) return {};
            std::vector<int64_t> axes(trailing);
            std::iota(axes.begin(), axes.end(), b.tensor().rank());
            call.inputs[1] = call.build.unsqueeze(call.inputs[1], axes);
            return call.build.status();
        },
        // Then, only the second operand could be broadcast.
        [](OnnxCall& call) -> Status {
            if (!call.has(0) || !call.has(1)) return {};
            const Type &a = call.inputs[0]->type(), &b = call.inputs[1]->type();
            if (a.is_tensor() && b.is_tensor() && a.tensor().shape.ranked() && b.tensor().shape.ranked()) {
                const Shape &x = a.tensor().shape, &y = b.tensor().shape;
                if (x == y) return {};
                if (broadcast(x, y) != x)
                    return Error(Code::E0214, "{}: {} and {} do not broadcast before opset 7", call.op_type, x, y);
            }
            call.attrs["broadcast"] = int64_t{1};
            return {};
        },
    };
}

Result<std::optional<std::vector<int64_t>>> axes_from_input(const OpView& op, size_t input, int64_t rank,
                                                            bool noop_when_empty) {
    std::optional<std::vector<int64_t>> given;
    if (op.has(input)) {
        given = op.constant_ints(input);
        if (!given) {
            auto length = op.shape(input).ranked() && op.rank(input) == 1 ? op.shape(input)[0].as_int() : std::nullopt;
            if (length != 0) return std::optional<std::vector<int64_t>>{};
            given.emplace();
        }
    } else if (op.def().attr("axes") && op.has_attr("axes")) {
        given = op.ints("axes");
    }
    if (!given || given->empty()) {
        std::vector<int64_t> all;
        if (!noop_when_empty) {
            all.resize(rank);
            std::iota(all.begin(), all.end(), 0);
        }
        return std::optional(all);
    }
    return std::optional(TRY(op.axes(*given, rank)));
}

void axis_from_front(const OpView& op, AttrMap& attrs) {
    auto given = attrs.find("axis");
    if (given == attrs.end() || !op.has(0) || !op.type(0).is_tensor() || !op.shape(0).ranked()) return;
    const int64_t rank = op.rank(0), value = std::get<int64_t>(given->second), axis = value < 0 ? value + rank : value;
    const AttrDef& def = *op.def().attr("axis");
    const int64_t usual = def.fallback ? std::get<int64_t>(*def.fallback) : -1;
    if (def.fallback && (usual < 0 ? usual + rank : usual) == axis)
        attrs.erase(given);
    else if (axis >= 0 && axis < rank)
        given->second = axis;
}

Result<DType> dtype_attr(const OpView& op, std::string_view name) {
    int64_t number = op.integer(name);
    auto t = number >= 0 && number <= std::numeric_limits<int32_t>::max() ? onnx::dtype_from_onnx(int32_t(number))
                                                                          : std::nullopt;
    if (!t) return op.error(Code::E0213, "{} is {}, which is not a known element type", name, number);
    return *t;
}

Attr dtype_attr_value(DType t) { return int64_t{onnx::dtype_to_onnx(t)}; }

bool broadcasts_to(const Shape& from, const Shape& to) {
    if (!from.ranked() || !to.ranked()) return true;
    if (from.rank() > to.rank()) return false;
    for (int64_t d = 1; d <= from.rank(); ++d)
        if (from[-d].as_int() && !from[-d].is_int(1) && to[-d].as_int() && from[-d] != to[-d]) return false;
    return true;
}

Shape fresh_shape(const OpView& op, size_t output, int64_t count) {
    Shape s;
    for (int64_t i = 0; i < count; ++i) s.push_back(op.fresh(output, i));
    return s;
}

}  // namespace tessera
