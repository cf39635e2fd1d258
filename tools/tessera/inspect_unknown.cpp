#include "inspect_unknown.h"

#include "base/numeric.h"
#include "graph/op_def.h"
#include "onnx/dtypes.h"
#include "onnx/operators.h"
#include "onnx/read.h"

namespace tessera::cli {
namespace {

struct OpUse {
    std::string domain, op;
    int64_t nodes = 0;
    bool known = true;
};

bool is_known(const onnx::Model& model, const std::string& domain, const std::string& op) {
    for (const onnx::Function& f : model.functions)
        if (f.domain == domain && f.name == op) return true;
    const std::string asked = domain == "ai.onnx" ? "" : domain;
    for (const onnx::Operator& o : onnx::operators())
        if (asked == o.domain && op == o.name) return true;
    return false;
}

void count_ops(const onnx::Model& model, const std::vector<onnx::Node>& nodes, std::vector<OpUse>& uses) {
    for (const onnx::Node& node : nodes) {
        auto it = std::find_if(uses.begin(), uses.end(),
                               [&](const OpUse& u) { return u.domain == node.domain && u.op == node.op_type; });
        if (it == uses.end()) {
            uses.push_back({node.domain, node.op_type, 0, is_known(model, node.domain, node.op_type)});
            it = uses.end() - 1;
        }
        ++it->nodes;
        for (const onnx::Attribute& a : node.attributes) {
            if (a.type == onnx::AttributeType::Graph && a.g) count_ops(model, a.g->nodes, uses);
            for (const onnx::Graph& g : a.graphs) count_ops(model, g.nodes, uses);
        }
    }
}

std::string type_text(const onnx::Type& type) {
    if (type.kind == onnx::Type::Kind::Sequence && type.elem) return "seq(" + type_text(*type.elem) + ")";
    if (type.kind == onnx::Type::Kind::Optional && type.elem) return "optional(" + type_text(*type.elem) + ")";
    if (type.kind != onnx::Type::Kind::Tensor) return "?";
    const auto dtype = onnx::dtype_from_onnx(type.elem_type);
    std::string text = dtype ? std::string(dtype_name(*dtype)) : onnx::data_type_name(type.elem_type);
    if (!type.shape) return text;
    std::vector<std::string> dims;
    for (const onnx::Dim& d : *type.shape)
        dims.push_back(d.kind == onnx::Dim::Kind::Value   ? fmt::format("{}", d.value)
                       : d.kind == onnx::Dim::Kind::Param ? d.param
                                                          : "?");
    return fmt::format("{}[{}]", text, fmt::join(dims, ","));
}

Json values_json(const std::vector<onnx::ValueInfo>& values) {
    Json list = Json::array();
    for (const onnx::ValueInfo& v : values) list.push_back({{"name", v.name}, {"type", type_text(v.type)}});
    return list;
}

int64_t parameters_of(const onnx::Graph& graph) {
    double total = 0;
    for (const onnx::Tensor& t : graph.initializers) {
        double n = 1;
        for (int64_t d : t.dims) n *= double(std::max<int64_t>(d, 0));
        total += n;
    }
    return total < 9e18 ? int64_t(total) : INT64_MAX;
}

void print_unknown(const onnx::Model& model, const std::string& path, const std::vector<OpUse>& uses, int64_t nodes) {
    fmt::print("{}  {}\n", bold(shown_path(path)), escaped(model.graph.name));
    if (!model.producer_name.empty()) fmt::print("  producer    {}\n", escaped(model.producer_name));
    for (const onnx::OpsetImport& i : model.opset_import)
        fmt::print("  opset       {}{}\n", i.domain.empty() ? "" : escaped(i.domain) + " ", i.version);
    fmt::print("  nodes       {}\n", nodes);
    fmt::print("  parameters  {}\n", human_count(double(parameters_of(model.graph))));
    for (const auto& [title, values] : {std::pair("inputs", &model.graph.inputs), {"outputs", &model.graph.outputs}}) {
        fmt::print("{}\n", bold(title));
        for (const onnx::ValueInfo& v : *values) fmt::print("  {}  {}\n", escaped(v.name), escaped(type_text(v.type)));
    }
    fmt::print("{}\n  {:<40} {:>6}\n", bold("ops"), "op", "nodes");
    for (const OpUse& u : uses)
        fmt::print("  {:<40} {:>6}{}\n", escaped((u.domain.empty() ? "" : u.domain + ".") + u.op), u.nodes,
                   u.known ? "" : "  not known here");
}

}  // namespace

bool may_inspect_unknown(const Error& error, const std::string& path) {
    return (error.code() == Code::E0201 || error.code() == Code::E0202) && !path.empty() && !reading_strictly();
}

Status inspect_unknown(const std::string& path, const Error& why, bool json) {
    onnx::Model model = TRY(path == "-" ? onnx::read_model(TRY(read_standard_input())) : onnx::read_model_file(path));
    std::vector<OpUse> uses;
    count_ops(model, model.graph.nodes, uses);
    std::stable_sort(uses.begin(), uses.end(), [](const OpUse& a, const OpUse& b) { return a.nodes > b.nodes; });
    int64_t nodes = 0;
    for (const OpUse& u : uses) nodes += u.nodes;
    warn({.code = why.code(),
          .message = why.message() + "; shapes, FLOPs and bytes are not known",
          .where = why.where(),
          .hint = why.hint()});
    if (!json) {
        print_unknown(model, path, uses, nodes);
        return {};
    }
    Json j{{"source", path}, {"name", model.graph.name}, {"producer", model.producer_name}};
    j["domains"] = Json::object();
    for (const onnx::OpsetImport& i : model.opset_import) {
        if (i.domain.empty()) j["opset"] = i.version;
        j["domains"][i.domain] = i.version;
    }
    j["nodes"] = nodes;
    j["parameters"] = parameters_of(model.graph);
    j["inputs"] = values_json(model.graph.inputs);
    j["outputs"] = values_json(model.graph.outputs);
    j["ops"] = Json::array();
    for (const OpUse& u : uses)
        j["ops"].push_back({{"op", u.op}, {"domain", u.domain}, {"nodes", u.nodes}, {"known", u.known}});
    print_json(j);
    return {};
}

}  // namespace tessera::cli
