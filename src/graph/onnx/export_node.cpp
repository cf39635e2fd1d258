// One node as ONNX has it in the version asked for.
#include <algorithm>

#include "graph/builder.h"
#include "graph/onnx/exporter.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/values.h"
#include "onnx/operators.h"

namespace tessera {

onnx::Node OnnxExporter::identity(const std::string& from, std::string to) const {
    onnx::Node node;
    node.op_type = "Identity";
    node.inputs = {from};
    node.outputs = {std::move(to)};
    node.metadata_props.push_back({kAliasMark, "output"});
    return node;
}

Error OnnxExporter::needs(const std::string& domain, int version, Error error) {
    needed_domain_ = domain;
    needed_version_ = version;
    return error;
}

Result<onnx::Attribute> OnnxExporter::attribute(const std::string& name, const Attr& attr) {
    using T = onnx::AttributeType;
    onnx::Attribute out;
    out.name = name;
    switch (attr_kind(attr)) {
        case AttrKind::Int:
            out.type = T::Int;
            out.i = std::get<int64_t>(attr);
            break;
        case AttrKind::Float:
            out.type = T::Float;
            out.f = std::get<float>(attr);
            break;
        case AttrKind::String:
            out.type = T::String;
            out.s = std::get<std::string>(attr);
            break;
        case AttrKind::Ints:
            out.type = T::Ints;
            out.ints = std::get<std::vector<int64_t>>(attr);
            break;
        case AttrKind::Floats:
            out.type = T::Floats;
            out.floats = std::get<std::vector<float>>(attr);
            break;
        case AttrKind::Strings:
            out.type = T::Strings;
            out.strings = std::get<std::vector<std::string>>(attr);
            break;
        case AttrKind::Tensor:
            out.type = T::Tensor;
            out.t = tensor_to_onnx(std::get<Tensor>(attr), "");
            break;
        case AttrKind::Type:
            out.type = T::TypeProto;
            out.tp = type_to_onnx(std::get<Type>(attr));
            break;
        case AttrKind::Graph:
            out.type = T::Graph;
            TRY(write_graph(*std::get<GraphPtr>(attr), out.g.ensure()));
            break;
    }
    return out;
}

Status OnnxExporter::write_made_since(Graph& graph, size_t first, onnx::Graph& out) {
    for (size_t i = first, last = graph.nodes().size(); i < last; ++i) TRY(write_node(*graph.nodes()[i], out));
    return {};
}

// An op that ONNX has not is written as the smaller graph it stands for.
Status OnnxExporter::write_expansion(Node& node, onnx::Graph& out) {
    if (!node.op().expand)
        return Error(Code::E0214, "{} is not an ONNX operator, and has no expansion into ONNX operators",
                     node.op().name)
            .at(node.where());
    Graph& graph = node.graph();
    size_t before = graph.nodes().size();
    Builder build(graph, node.where());
    auto results = TRY(node.op().expand(node.view(), node.inputs(), build));
    TRY(build.status());
    std::unordered_set<const Value*> named;
    std::vector<onnx::Node> aliases;
    for (size_t i = 0; i < node.output_count() && i < results.size(); ++i) {
        if (!results[i]) continue;
        const auto& nodes = graph.nodes();
        bool made = std::any_of(nodes.begin() + static_cast<ptrdiff_t>(before), nodes.end(),
                                [&](const auto& n) { return n.get() == results[i]->node(); });
        if (made && named.insert(results[i]).second)
            names_[results[i]] = name(*node.output(i));
        else
            aliases.push_back(identity(name(*results[i]), name(*node.output(i))));
    }
    TRY(write_made_since(graph, before, out));
    for (onnx::Node& alias : aliases) out.nodes.push_back(std::move(alias));
    return {};
}

Status OnnxExporter::write_node(Node& node, onnx::Graph& out) {
    const OnnxForm& form = node.op().onnx;
    if (form.name.empty()) return write_expansion(node, out);
    Graph& graph = node.graph();
    const std::string place = node.where();
    int target = version(form.domain);
    Builder build(graph, place);
    OnnxCall call{form.name, target, node.inputs(), node.attrs(), node.output_count(), build, {}};
    size_t before = graph.nodes().size();
    for (auto change = form.changes.rbegin(); change != form.changes.rend() && change->opset > target; ++change) {
        Status changed = change->down
                             ? change->down(call)
                             : Error(Code::E0214, "{} cannot be expressed before opset {}", form.name, change->opset);
        if (changed.ok()) changed = build.status();
        if (!changed.ok()) return needs(form.domain, change->opset, std::move(changed).error().at(place));
    }
    if (int since = onnx::first_opset(form.domain, call.op_type); since > target)
        return needs(form.domain, since,
                     Error(Code::E0214, "{} does not exist before opset {}", call.op_type, since).at(place));
    TRY(write_made_since(graph, before, out));

    domains_.insert(form.domain);
    onnx::Node written;
    written.op_type = call.op_type;
    written.domain = form.domain;
    written.name = node.name();
    while (!call.inputs.empty() && !call.inputs.back()) call.inputs.pop_back();
    for (const Value* v : call.inputs) written.inputs.push_back(v ? name(*v) : "");
    for (size_t i = 0; i < node.output_count(); ++i) {
        bool given = node.output_given(i) || !node.output(i)->uses().empty();
        written.outputs.push_back(given ? name(*node.output(i)) : "");
    }
    if (call.outputs > written.outputs.size()) written.outputs.resize(call.outputs);  // the older form has more
    for (const auto& [key, attr] : call.attrs) {
        const AttrDef* def = node.op().attr(key);
        if (def && def->is_hint)
            written.metadata_props.push_back({kHintPrefix + key, hint_to_onnx(attr)});
        else
            written.attributes.push_back(TRY(attribute(key, attr)));
    }
    for (const auto& [key, value] : node.metadata()) {
        if (key == "doc_string")
            written.doc_string = value;
        else
            written.metadata_props.push_back({key, value});
    }
    out.nodes.push_back(std::move(written));
    return {};
}

}  // namespace tessera
