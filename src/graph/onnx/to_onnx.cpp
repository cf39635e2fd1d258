#include "graph/onnx/to_onnx.h"

#include <algorithm>

#include "graph/infer.h"
#include "graph/onnx/exporter.h"
#include "graph/onnx/values.h"
#include "onnx/operators.h"

namespace tessera {
namespace {

std::vector<onnx::StringPair> to_pairs(const std::map<std::string, std::string>& map) {
    std::vector<onnx::StringPair> pairs;
    for (const auto& [key, value] : map) pairs.push_back({key, value});
    return pairs;
}

// Constants that nobody used before either are kept; those that an older form took in as attributes are not.
std::unordered_set<const Value*> unused_constants(const Graph& graph) {
    std::unordered_set<const Value*> unused;
    std::vector<const Graph*> open = {&graph};
    while (!open.empty()) {
        const Graph* g = open.back();
        open.pop_back();
        for (const auto& v : g->constants())
            if (v->uses().empty()) unused.insert(v.get());
        for (const auto& n : g->nodes())
            for (const auto& [_, attr] : n->attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr)) open.push_back(nested->get());
    }
    return unused;
}

}  // namespace

int OnnxExporter::version(const std::string& domain) const {
    auto it = versions_.find(domain);
    return it == versions_.end() ? onnx::newest_opset(domain) : it->second;
}

std::string OnnxExporter::fresh_name(const Graph& graph, const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; graph.name_taken(name) || !made_names_.insert(name).second; ++i)
        name = fmt::format("{}_{}", wanted, i);
    return name;
}

const std::string& OnnxExporter::name(const Value& value) {
    used_.insert(&value);
    auto it = names_.find(&value);
    return it == names_.end() ? value.name() : it->second;
}

void OnnxExporter::write_constants(const Graph& graph, onnx::Graph& out) {
    std::unordered_set<std::string_view> outputs;
    for (const auto& v : out.outputs) outputs.insert(v.name);
    std::vector<onnx::Node> nodes;
    for (const auto& v : graph.constants()) {
        if (!used_.count(v.get())) continue;
        const std::string& as = name(*v);
        onnx::Tensor tensor = tensor_to_onnx(*v->tensor(), as);
        if (!outputs.count(as)) {
            out.initializers.push_back(std::move(tensor));
            continue;
        }
        // An output has to come from a node.
        onnx::Node node;
        node.op_type = "Constant";
        node.outputs = {as};
        onnx::Attribute value;
        value.name = "value";
        value.type = onnx::AttributeType::Tensor;
        tensor.name.clear();
        value.t = std::move(tensor);
        node.attributes.push_back(std::move(value));
        nodes.push_back(std::move(node));
    }
    out.nodes.insert(out.nodes.begin(), std::make_move_iterator(nodes.begin()), std::make_move_iterator(nodes.end()));
}

// In a nested graph, which may never run, sizes that ONNX's own inference would dispute say nothing: there, a shape is
// written only where inference alone would not give it back.
onnx::Type OnnxExporter::written_type(const Value& v) {
    onnx::Type type = type_to_onnx(v.type());
    if (!v.graph().outer() || !v.type().is_tensor() || v.kind() != Value::Kind::Result) return type;
    auto inferred = infer_types(v.node()->view());
    if (inferred.ok() && v.index() < inferred->size() && (*inferred)[v.index()] == v.type()) type.shape.reset();
    return type;
}

void OnnxExporter::write_types(const Graph& graph, onnx::Graph& out) {
    std::unordered_set<std::string_view> outputs;
    for (const auto& v : out.outputs) outputs.insert(v.name);
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) {
            const Value& v = *n->output(i);
            if (!n->output_given(i) || v.type().is_none() || outputs.count(name(v))) continue;
            out.value_info.push_back({name(v), written_type(v), {}, {}});
        }
}

Status OnnxExporter::write_outputs(Graph& graph, onnx::Graph& out) {
    std::unordered_set<const Value*> direct;
    bool nested = graph.outer() != nullptr;
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
        Value* v = graph.outputs()[i];
        std::string from = name(*v);
        std::string as = nested ? from : graph.output_names()[i];
        if (as != from || &v->graph() != &graph || !direct.insert(v).second) {
            if (nested) as = fresh_name(graph, from);
            out.nodes.push_back(identity(from, as));
        }
        out.outputs.push_back({as, written_type(*v), {}, {}});
    }
    return {};
}

Status OnnxExporter::write_graph(Graph& graph, onnx::Graph& out) {
    out.name = graph.name().empty() ? "graph" : graph.name();
    out.doc_string = graph.doc_string;
    out.metadata_props = to_pairs(graph.metadata);
    if (!graph.outer()) {
        // An output's name is the model's; what else has it gives way.
        for (size_t i = 0; i < graph.outputs().size(); ++i) {
            const std::string& as = graph.output_names()[i];
            if (Value* other = graph.find_value(as); other && other != graph.outputs()[i])
                graph.rename(*other, as + "_");
        }
    }
    for (const auto& v : graph.inputs()) {
        out.inputs.push_back({v->name(), type_to_onnx(v->type()), {}, {}});
        if (v->tensor()) out.initializers.push_back(tensor_to_onnx(*v->tensor(), v->name()));
    }
    size_t count = graph.nodes().size();
    for (size_t i = 0; i < count; ++i) TRY(write_node(*graph.nodes()[i], out));
    TRY(write_outputs(graph, out));
    write_constants(graph, out);
    if (options_.value_info) write_types(graph, out);
    return {};
}

Result<onnx::Model> OnnxExporter::run() {
    used_ = unused_constants(*graph_);
    onnx::Model model;
    const ModelInfo& info = graph_->info();
    model.producer_name = info.producer_name;
    model.producer_version = info.producer_version;
    model.domain = info.domain;
    model.doc_string = info.doc_string;
    model.model_version = info.model_version;
    model.metadata_props = to_pairs(info.metadata);
    TRY(write_graph(*graph_, model.graph));
    model.opset_import.push_back({"", version("")});
    for (const auto& [domain, _] : info.domains) domains_.insert(domain);
    domains_.erase("");
    for (const std::string& domain : domains_) model.opset_import.push_back({domain, version(domain)});
    int64_t newest = onnx::ir_version_of(onnx::newest_opset(""));
    model.ir_version = std::max<int64_t>(std::min(info.ir_version, newest), onnx::ir_version_of(version("")));
    return model;
}

Result<onnx::Model> to_onnx(const Graph& graph, const ToOnnxOptions& options) {
    OnnxExporter::Versions versions(graph.info().domains.begin(), graph.info().domains.end());
    versions[""] = options.opset ? options.opset : graph.info().opset ? graph.info().opset : onnx::newest_opset("");
    if (options.opset < 0 || options.opset > onnx::newest_opset(""))
        return Error(Code::E0202, "there is no opset {}; the newest supported one is {}", options.opset,
                     onnx::newest_opset(""));
    // What a text says of versions may be beyond what there is.
    versions[""] = std::clamp(versions[""], 1, onnx::newest_opset(""));
    for (auto& [domain, version] : versions) version = std::max(version, 1);
    for (;;) {
        OnnxExporter exporter(graph, options, versions);
        auto model = exporter.run();
        if (model.ok()) return model;
        int& version = versions[exporter.needed_domain()];
        bool fixed = options.opset && exporter.needed_domain().empty();
        if (exporter.needed_version() <= version ||
            exporter.needed_version() > onnx::newest_opset(exporter.needed_domain()) || fixed)
            return std::move(model).error();
        version = exporter.needed_version();
    }
}

Status save_onnx(const Graph& graph, const std::filesystem::path& path, const ToOnnxOptions& options,
                 const onnx::WriteOptions& write) {
    return onnx::write_model_file(TRY(to_onnx(graph, options)), path, write);
}

}  // namespace tessera
