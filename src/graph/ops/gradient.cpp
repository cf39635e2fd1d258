// The gradient of one value with respect to others (ai.onnx.preview.training). It names values of the graph it stands
// in, so it is taken when the model is read.
#include <algorithm>
#include <map>

#include "graph/evaluate/evaluate.h"
#include "graph/gradient/gradient.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

Status take_gradient(OnnxCall& call) {
    auto names = [&](const char* attr) {
        auto it = call.attrs.find(attr);
        bool given = it != call.attrs.end() && std::holds_alternative<std::vector<std::string>>(it->second);
        return given ? std::get<std::vector<std::string>>(it->second) : std::vector<std::string>{};
    };
    Graph& graph = call.build.graph();
    auto find = [&](const std::string& name) -> Result<Value*> {
        Value* v = graph.find_value(name);
        if (!v) return Error(Code::E0203, "Gradient: \"{}\" is not defined before it", name);
        if (!v->type().is_tensor() || !is_float(v->type().tensor().dtype))
            return Error(Code::E0208, "Gradient: \"{}\" is {}, not a float tensor", name, v->type());
        return v;
    };
    std::vector<std::string> xs = names("xs"), all = xs;
    for (std::string& z : names("zs")) all.push_back(std::move(z));
    auto y = call.attrs.find("y");
    if (xs.empty() || y == call.attrs.end() || !std::holds_alternative<std::string>(y->second))
        return Error(Code::E0206, "Gradient: needs the attributes \"xs\" and \"y\"");
    if (call.inputs.size() != all.size() || std::count(call.inputs.begin(), call.inputs.end(), nullptr))
        return Error(Code::E0207, "Gradient: has {} inputs for {} names in xs and zs", call.inputs.size(), all.size());
    std::map<const Value*, Value*> fed;
    std::vector<Value*> wanted;
    for (size_t i = 0; i < all.size(); ++i) {
        Value* v = i < xs.size() ? TRY(find(all[i])) : graph.find_value(all[i]);
        if (!v) return Error(Code::E0203, "Gradient: \"{}\" is not defined before it", all[i]);
        const Type &named = v->type(), &given = call.inputs[i]->type();
        if (!named.is_tensor() || !given.is_tensor() || named.tensor().dtype != given.tensor().dtype)
            return Error(Code::E0208, "Gradient: input {} is {}, but \"{}\" is {}", i, given, all[i], named);
        fed[v] = call.inputs[i];
        if (i < xs.size()) wanted.push_back(v);
    }
    Value* target = TRY(find(std::get<std::string>(y->second)));
    call.result = TRY(differentiate(call.build, target, wanted, std::move(fed)));
    return {};
}

Error not_alone(const OpView& op) {
    return op.error(Code::E0409, "is expanded when a model is read, and cannot be used by itself");
}

OpDef gradient() {
    OpDef def{
        .name = "gradient",
        .inputs = {"inputs...: *"},
        .outputs = {"gradients...: *"},
        .attrs = {strings_attr("xs").required(), strings_attr("zs"), string_attr("y").required()},
        .traits = {Trait::Pure, Trait::InfersUnranked},
        .onnx = {"Gradient", {{2, take_gradient, {}}}},
        .infer = [](const OpView& op) -> Result<Types> { return not_alone(op); },
        .evaluate = [](const OpView& op, EvalContext&) -> Result<std::vector<Datum>> { return not_alone(op); },
        .no_kernel = "differentiates a graph that it names",
    };
    def.onnx.domain = "ai.onnx.preview.training";
    return def;
}

}  // namespace

std::vector<OpDef> gradient_ops() { return {without_gradient(gradient(), "it is replaced when a model is read")}; }

}  // namespace tessera
