#include "graph/ops/foreign.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

const Shape kNoShape;

template <typename T>
T typed(ForeignCall& call, const char* name, T fallback) {
    auto attr = call.given(name);
    if (!attr) return fallback;
    if (auto* value = std::get_if<T>(&*attr)) return *value;
    call.b.fail(Error(Code::E0206, "attribute {} has kind {}", name, attr_kind_name(attr_kind(*attr))));
    return fallback;
}

}  // namespace

const Shape& ForeignCall::shape(size_t i) {
    const bool tensor = has(i) && call_.inputs[i]->type().is_tensor();
    if (tensor && call_.inputs[i]->type().tensor().shape.ranked()) return call_.inputs[i]->type().tensor().shape;
    b.fail(Error(Code::E0209, "{}: the rank of input {} must be known", call_.op_type, i));
    return kNoShape;
}

DType ForeignCall::dtype(size_t i) {
    if (has(i) && call_.inputs[i]->type().is_tensor()) return call_.inputs[i]->type().tensor().dtype;
    b.fail(Error(Code::E0207, "{}: input {} is missing", call_.op_type, i));
    return DType::f32;
}

std::optional<Attr> ForeignCall::given(const char* name) {
    asked_.insert(name);
    auto it = call_.attrs.find(name);
    return it == call_.attrs.end() ? std::nullopt : std::optional(it->second);
}

int64_t ForeignCall::integer(const char* name, int64_t fallback) { return typed<int64_t>(*this, name, fallback); }
int64_t ForeignCall::integer(const char* name) {
    if (!given(name)) b.fail(Error(Code::E0206, "{}: attribute {} is missing", call_.op_type, name));
    return integer(name, 1);
}
float ForeignCall::real(const char* name, float fallback) { return typed<float>(*this, name, fallback); }
std::string ForeignCall::string(const char* name, std::string fallback) {
    return typed<std::string>(*this, name, std::move(fallback));
}
std::vector<int64_t> ForeignCall::ints(const char* name) { return typed<std::vector<int64_t>>(*this, name, {}); }
std::vector<float> ForeignCall::floats(const char* name) { return typed<std::vector<float>>(*this, name, {}); }

AttrMap ForeignCall::pick(std::initializer_list<const char*> names) {
    AttrMap picked;
    for (const char* name : names)
        if (auto attr = given(name)) picked.emplace(name, std::move(*attr));
    return picked;
}

void ForeignCall::require(bool condition, std::string_view what) {
    if (!condition) b.fail(Error(Code::E0212, "{}: {}", call_.op_type, what));
}

Status ForeignCall::finish(std::vector<Value*> results) {
    for (const auto& [name, attr] : call_.attrs)
        if (!asked_.contains(name))
            return Error(Code::E0206, "{} has no supported attribute \"{}\"", call_.op_type, name);
    call_.result = TRY(b.finish(std::move(results)));
    return {};
}

std::vector<ForeignOp> foreign_ops() {
    std::vector<ForeignOp> all;
    for (auto family : {fused_foreign_ops, quantized_foreign_ops, attention_foreign_ops, ml_foreign_ops})
        for (const ForeignOp& op : family()) all.push_back(op);
    return all;
}

const ForeignOp* find_foreign_op(std::string_view domain, std::string_view name) {
    static const std::vector<ForeignOp> all = foreign_ops();
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const ForeignOp& op) { return op.domain == domain && op.name == name; });
    return found == all.end() ? nullptr : &*found;
}

Value* with_activation(ForeignCall& call, Value* x, const std::string& name, const std::vector<float>& parameters) {
    Builder& b = call.b;
    auto parameter = [&](size_t i, float fallback) { return i < parameters.size() ? parameters[i] : fallback; };
    if (name.empty()) return x;
    if (name == "Relu" || name == "Tanh" || name == "Sigmoid" || name == "Softplus" || name == "Softsign") {
        std::string ours = name;
        ours[0] = static_cast<char>(ours[0] - 'A' + 'a');
        return b.op(ours, {x});
    }
    if (name == "LeakyRelu") return b.op("leaky_relu", {x}, {{"alpha", Attr(parameter(0, 0.01f))}});
    if (name == "Elu") return b.op("elu", {x}, {{"alpha", Attr(parameter(0, 1))}});
    if (name == "ThresholdedRelu") return b.op("thresholded_relu", {x}, {{"alpha", Attr(parameter(0, 1))}});
    if (name == "Clip") return b.op("clip", {x, b.scalar_like(parameter(0, 0), x), b.scalar_like(parameter(1, 6), x)});
    if (name == "HardSigmoid")
        return b.op("hard_sigmoid", {x}, {{"alpha", Attr(parameter(0, 0.2f))}, {"beta", Attr(parameter(1, 0.5f))}});
    if (name == "ScaledTanh")
        return b.mul(b.op("tanh", {b.mul(x, b.scalar_like(parameter(1, 1), x))}), b.scalar_like(parameter(0, 1), x));
    call.require(false, "activation \"" + name + "\" is not known");
    return x;
}

Value* size_along(Builder& b, Value* x, int64_t axis) {
    AttrMap attrs{{"start", Attr(axis)}};
    if (axis != -1) attrs.emplace("end", Attr(axis + 1));
    return b.op("shape", {x}, std::move(attrs));
}

Value* positions_along(Builder& b, Value* x, int64_t axis) {
    Value* size = b.squeeze(size_along(b, x, axis), {0});
    return b.op("range", {b.scalar(0, DType::i64), size, b.scalar(1, DType::i64)});
}

}  // namespace tessera
