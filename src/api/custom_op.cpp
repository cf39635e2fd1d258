#include "tessera/custom_op.h"

#include <cctype>

#include "base/protect.h"
#include "expr/text.h"
#include "graph/evaluate/evaluate.h"
#include "graph/op_def.h"
#include "graph/ops/registry.h"

namespace tessera {
namespace {

CustomType custom_type(const Type& type) {
    CustomType out{type.tensor().dtype, std::nullopt};
    if (!type.tensor().shape.ranked()) return out;
    out.dims.emplace();
    for (const Dim& d : type.tensor().shape) out.dims->push_back(to_string(d));
    return out;
}

Result<Type> type_from(const CustomType& type, const OpView& op) {
    if (!type.dims) return Type(type.dtype, Shape::unknown());
    Shape shape;
    for (const std::string& text : *type.dims) {
        auto dim = parse_dim(text);
        if (!dim) return op.error(Code::E0209, "\"{}\" is no dimension", text);
        shape.push_back(std::move(*dim));
    }
    return Type(type.dtype, std::move(shape));
}

CustomAttrs attrs_of(const OpView& op, const CustomAttrs& defaults) {
    CustomAttrs attrs = defaults;
    for (auto& [name, value] : attrs) {
        const auto given = op.attrs().find(name);
        if (given == op.attrs().end()) continue;
        std::visit([&, &name = name](auto& v) { v = std::get<std::decay_t<decltype(v)>>(given->second); }, value);
    }
    return attrs;
}

AttrDef attr_def(const std::string& name, const CustomAttr& value) {
    Attr fallback = std::visit([](const auto& v) { return Attr(v); }, value);
    const AttrKind kind = attr_kind(fallback);
    return {name, kind, std::move(fallback)};
}

Result<Types> infer_custom(const CustomOp& custom, const OpView& op) {
    std::vector<CustomType> inputs;
    for (size_t i = 0; i < op.input_count(); ++i) {
        if (!op.has(i) || !op.type(i).is_tensor()) return op.error(Code::E0208, "input {} is no tensor", i);
        inputs.push_back(custom_type(op.type(i)));
    }
    if (inputs.size() != custom.inputs)
        return op.error(Code::E0207, "{} inputs are given, it takes {}", inputs.size(), custom.inputs);
    const std::vector<CustomType> said = TRY(custom.types(inputs, attrs_of(op, custom.attrs)));
    if (said.size() != custom.outputs)
        return op.error(Code::E0207, "its types are {}, and it has {} outputs", said.size(), custom.outputs);
    Types types;
    for (const CustomType& t : said) types.push_back(TRY(type_from(t, op)));
    return types;
}

Result<std::vector<Datum>> run_custom(const CustomOp& custom, const OpView& op, EvalContext& context) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < op.input_count(); ++i) inputs.push_back(context.tensor(i));
    auto call = [&]() -> Result<std::vector<Tensor>> {
        try {
            return custom.run(inputs, attrs_of(op, custom.attrs));
        } catch (const std::exception& e) {
            return op.error(Code::E0407, "it threw: {}", e.what());
        }
    };
    const std::vector<Tensor> results = TRY(call());
    if (results.size() != custom.outputs)
        return op.error(Code::E0207, "it gave {} tensors, and has {} outputs", results.size(), custom.outputs);
    std::vector<Datum> out;
    for (size_t i = 0; i < results.size(); ++i) {
        if (results[i].dtype() != op.out(i).dtype)
            return op.error(Code::E0407, "output {} is {}, its type says {}", i, dtype_name(results[i].dtype()),
                            dtype_name(op.out(i).dtype));
        out.emplace_back(results[i]);
    }
    return out;
}

// "com.example", "Scale" -> com_example_scale
std::string text_name(const CustomOp& op) {
    std::string text;
    for (char c : op.domain + "." + op.name)
        text += std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(c)) : '_';
    return text;
}

Status registered(CustomOp op) {
    if (op.domain.empty() || op.domain == "ai.onnx" || op.name.empty())
        return Error(Code::E0501, "an operator needs a domain of its own and a name")
            .hint("such as com.example, Scale");
    if (!op.types || !op.run) return Error(Code::E0501, "{} needs both functions, types and run", op.name);
    auto custom = std::make_shared<const CustomOp>(std::move(op));
    OpDef def{.name = text_name(*custom), .inputs = {"inputs...: *"}, .outputs = {"outputs...: *"}};
    for (const auto& [name, value] : custom->attrs) def.attrs.push_back(attr_def(name, value));
    def.traits = {};  // nothing is known of what the function does
    def.onnx = custom->name.c_str();
    def.onnx.domain = custom->domain;
    def.infer = [custom](const OpView& view) { return infer_custom(*custom, view); };
    def.evaluate = [custom](const OpView& view, EvalContext& context) { return run_custom(*custom, view, context); };
    def.count_outputs = [custom](const OpView&) { return std::optional(custom->outputs); };
    def.no_kernel = "a function of the caller's";
    return add_op(std::move(def));
}

}  // namespace

Status register_op(CustomOp op) {
    return protect("register_op", {}, [&] { return registered(std::move(op)); });
}

}  // namespace tessera
