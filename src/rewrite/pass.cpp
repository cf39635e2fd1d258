#include "rewrite/pass.h"

#include "graph/text/literal.h"

namespace tessera {
namespace {

constexpr int64_t kShownElements = 8;

std::string operand(const Value* v) {
    if (!v) return "_";
    if (!v->is_constant() || v->tensor()->elements() > kShownElements) return v->name();
    const Tensor& t = *v->tensor();
    if (t.rank() == 0) return element_text(t, 0);
    std::string out = "[";
    for (int64_t i = 0; i < t.elements(); ++i) out += (i ? "," : "") + element_text(t, i);
    return out + "]";
}

std::string attr_text(const Attr& a) {
    switch (attr_kind(a)) {
        case AttrKind::Int: return std::to_string(std::get<int64_t>(a));
        case AttrKind::Float: return float_text(std::get<float>(a));
        case AttrKind::String: return quote(std::get<std::string>(a));
        case AttrKind::Ints: return fmt::format("[{}]", fmt::join(std::get<std::vector<int64_t>>(a), ","));
        case AttrKind::Floats: return fmt::format("[{}]", fmt::join(std::get<std::vector<float>>(a), ","));
        case AttrKind::Strings: return fmt::format("[{}]", fmt::join(std::get<std::vector<std::string>>(a), ","));
        case AttrKind::Tensor: return "tensor";
        case AttrKind::Type: return to_string(std::get<Type>(a));
        case AttrKind::Graph: return "graph";
    }
    return {};
}

}  // namespace

Application::NodeText describe(const Node& node) {
    Application::NodeText id{node.op().name, {}, {}, {}};
    for (const Value* v : node.inputs()) id.inputs.push_back(operand(v));
    for (const auto& [name, attr] : node.attrs())
        id.attrs += fmt::format("{}{}={}", id.attrs.empty() ? "" : ", ", name, attr_text(attr));
    for (size_t i = 0; i < node.output_count(); ++i) id.outputs.push_back(node.output(i)->name());
    return id;
}

std::string Application::NodeText::to_string() const {
    std::string args = fmt::format("{}", fmt::join(inputs, ", "));
    if (!attrs.empty()) args += (args.empty() ? "" : ", ") + attrs;
    return fmt::format("{} = {}({})", fmt::join(outputs, ", "), op, args);
}

}  // namespace tessera
