#include "graph/onnx/from_onnx.h"

#include "graph/names.h"
#include "graph/onnx/importer.h"
#include "graph/onnx/order.h"
#include "graph/verify.h"
#include "onnx/operators.h"
#include "onnx/read.h"

namespace tessera {
namespace {

std::map<std::string, std::string> to_map(const std::vector<onnx::StringPair>& pairs) {
    std::map<std::string, std::string> map;
    for (const auto& p : pairs) map[p.key] = p.value;
    return map;
}

}  // namespace

OnnxImporter::OnnxImporter(const onnx::Model& model, const FromOnnxOptions& options)
    : model_(model),
      options_(options),
      data_(onnx::DataSource::beside(model)),
      source_(model.path.empty() ? "model" : model.path.filename().string()) {}

Status OnnxImporter::read_opsets(const std::vector<onnx::OpsetImport>& imports, Opsets& opsets,
                                 const std::string& of) const {
    for (const auto& import : imports) {
        std::string domain = plain_domain(import.domain);
        if (import.version < 1 || import.version > 1'000'000)
            return Error(Code::E0202, "{} imports version {} of domain \"{}\"", of, import.version, import.domain);
        if (domain.empty() && import.version > onnx::newest_opset(""))
            return Error(Code::E0202, "{} needs opset {}; the newest supported one is {}", of, import.version,
                         onnx::newest_opset(""))
                .hint("export the model with opset {} or older", onnx::newest_opset(""));
        auto [it, added] = opsets.emplace(domain, static_cast<int>(import.version));
        if (!added && it->second != import.version)
            return Error(Code::E0204, "{} imports domain \"{}\" twice, as versions {} and {}", of, import.domain,
                         it->second, import.version);
    }
    return {};
}

Status OnnxImporter::index_functions() {
    for (const onnx::Function& f : model_.functions) {
        if (!functions_.emplace(FunctionKey{plain_domain(f.domain), f.name, f.overload}, &f).second)
            return Error(Code::E0204, "function {} of domain \"{}\" is defined twice", f.name, f.domain);
    }
    return {};
}

void OnnxImporter::read_info(ModelInfo& info) const {
    info.source = source_;
    info.producer_name = model_.producer_name;
    info.producer_version = model_.producer_version;
    info.domain = model_.domain;
    info.doc_string = model_.doc_string;
    info.model_version = model_.model_version;
    info.ir_version = model_.ir_version;
    info.metadata = to_map(model_.metadata_props);
    for (const auto& [domain, version] : opsets_) {
        if (domain.empty())
            info.opset = version;
        else
            info.domains[domain] = version;
    }
}

// The names that stand alone as a dimension of an input: an expression over them is one, any other text is a name.
void OnnxImporter::collect_symbols() {
    for (const auto& v : model_.graph.inputs) {
        if (!v.type.shape) continue;
        for (const onnx::Dim& d : *v.type.shape)
            if (d.kind == onnx::Dim::Kind::Param) symbols_.insert(d.param);
    }
}

Dim OnnxImporter::dim_param(const std::string& param) const {
    if (symbols_.count(param) && param.find_first_of(" +*/(,") == std::string::npos) return symbol(param);
    if (param.size() > 200) return symbol(param);
    auto parsed = parse_formula(param);
    if (!parsed) parsed = parse_dim(param);
    if (!parsed || parsed->is(ExprKind::Const)) return symbol(param);
    SymbolValues some;
    for (const std::string& name : free_symbols(*parsed)) {
        if (name == param || !symbols_.count(name)) return symbol(param);
        some.emplace(name, 100);
    }
    return evaluate_int(*parsed, some) ? *parsed : symbol(param);  // a size that has no value is just a name
}

Result<std::unique_ptr<Graph>> OnnxImporter::run() {
    TRY(read_opsets(model_.opset_import, opsets_, "the model"));
    if (!opsets_.count("")) {
        if (model_.ir_version < 3)
            opsets_[""] = 1;
        else if (model_.opset_import.empty())
            return Error(Code::E0202, "the model does not declare its opset").at(source_);
        else
            opsets_[""] = onnx::newest_opset("");
    }
    TRY(index_functions());
    collect_symbols();
    auto graph = std::make_unique<Graph>(model_.graph.name);
    read_info(graph->info());
    Scope scope{.graph = graph.get(), .outer = nullptr, .values = {}, .opsets = &opsets_};
    TRY(import_graph(model_.graph, scope, {}));
    separate_names(*graph);
    return graph;
}

Status OnnxImporter::import_initializers(const onnx::Graph& graph, Scope& scope) {
    std::unordered_set<std::string> inputs;
    // Before IR version 4 every initialiser had to be listed as an input too; it was no default then.
    if (model_.ir_version >= 4)
        for (const auto& v : graph.inputs) inputs.insert(v.name);
    auto add = [&](const auto& tensor, const std::string& name) -> Status {
        std::string place = fmt::format("{}: initialiser \"{}\"", source_, name);
        if (name.empty()) return Error(Code::E0203, "an initializer has no name").at(source_);
        if (inputs.count(name)) return {};
        auto value = tensor_from_onnx(tensor, data_);
        if (!value.ok()) return std::move(value).error().at(place);
        std::string ours = free_name(name, scope);
        return define(name, scope.graph->constant(std::move(*value), ours), scope, place);
    };
    for (const auto& t : graph.initializers) TRY(add(t, t.name));
    for (const auto& t : graph.sparse_initializers) TRY(add(t, t.values.name));
    return {};
}

Status OnnxImporter::import_inputs(const onnx::Graph& graph, Scope& scope, const std::vector<Type>& hints) {
    std::unordered_map<std::string_view, const onnx::Tensor*> defaults;
    std::unordered_map<std::string_view, const onnx::SparseTensor*> sparse_defaults;
    for (const auto& t : graph.initializers) defaults.emplace(t.name, &t);
    for (const auto& t : graph.sparse_initializers) sparse_defaults.emplace(t.values.name, &t);
    std::unordered_set<std::string_view> seen;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
        const onnx::ValueInfo& v = graph.inputs[i];
        std::string place = fmt::format("{}: input \"{}\"", source_, v.name);
        if (v.name.empty())
            return Error(Code::E0203, "input {} of graph \"{}\" has no name", i, graph.name).at(source_);
        if (!seen.insert(v.name).second) return Error(Code::E0204, "input \"{}\" is listed twice", v.name).at(place);
        bool given = defaults.count(v.name) || sparse_defaults.count(v.name);
        if (given && model_.ir_version < 4) continue;  // a constant, defined already
        std::optional<Tensor> fallback;
        if (given) {
            auto value = defaults.count(v.name) ? tensor_from_onnx(*defaults[v.name], data_)
                                                : tensor_from_onnx(*sparse_defaults[v.name], data_);
            if (!value.ok()) return std::move(value).error().at(place);
            fallback = std::move(*value);
        }
        std::string ours = free_name(v.name, scope);
        std::optional<Type> type;
        if (v.type.kind != onnx::Type::Kind::None &&
            !(v.type.kind == onnx::Type::Kind::Tensor && v.type.elem_type == 0)) {
            auto declared = type_from_onnx(v.type, ours, [this](const std::string& p) { return dim_param(p); });
            if (!declared.ok()) return std::move(declared).error().at(place);
            type = std::move(*declared);
        } else if (i < hints.size() && !hints[i].is_none()) {
            type = hints[i];
        } else {
            return Error(Code::E0209, "input \"{}\" of graph \"{}\" has no type", v.name, graph.name).at(place);
        }
        if (fallback) {
            SymbolValues symbols;
            if (!binds(*type, type_of(*fallback), symbols)) {
                TRY(contradiction(Error(Code::E0210, "\"{}\" is declared {}, but its initializer is {}", v.name, *type,
                                        type_of(*fallback))
                                      .at(place),
                                  Code::W0201));
                type = type_of(*fallback);
            }
        }
        TRY(define(v.name, scope.graph->add_input(ours, std::move(*type), std::move(fallback)), scope, place));
    }
    return {};
}

Status OnnxImporter::import_nodes(const std::vector<onnx::Node>& nodes, Scope& scope) {
    std::unordered_set<std::string_view> made;
    for (const onnx::Node& node : nodes)
        for (const std::string& name : node.outputs)
            if (!name.empty() && (scope.values.count(name) || !made.insert(name).second))
                return Error(Code::E0204, "\"{}\" is defined twice", name).at(where(node, scope));
    auto order = definition_order(nodes);
    if (!order.ok()) return std::move(order).error().at(fmt::format("{}: graph \"{}\"", source_, scope.graph->name()));
    for (size_t i : *order) TRY(import_node(nodes[i], scope));
    return {};
}

Status OnnxImporter::import_graph(const onnx::Graph& graph, Scope& scope, const std::vector<Type>& input_hints) {
    scope.graph->doc_string = graph.doc_string;
    scope.graph->metadata = to_map(graph.metadata_props);
    for (const auto& v : graph.value_info) scope.declared.emplace(v.name, &v);
    for (const auto& v : graph.outputs) {
        scope.declared.insert_or_assign(v.name, &v);
        scope.outputs.insert(v.name);
    }
    TRY(import_initializers(graph, scope));
    TRY(import_inputs(graph, scope, input_hints));
    TRY(import_nodes(graph.nodes, scope));
    std::unordered_set<std::string_view> seen;
    for (const auto& v : graph.outputs) {
        std::string place = fmt::format("{}: output \"{}\"", source_, v.name);
        Value** value = find(v.name, scope);
        if (!value || !*value)
            return Error(Code::E0203, "output \"{}\" of graph \"{}\" is never defined", v.name, graph.name).at(place);
        bool nested = scope.graph->outer() != nullptr;
        if (!nested && !seen.insert(v.name).second)
            return Error(Code::E0204, "output \"{}\" is listed twice", v.name).at(place);
        scope.graph->add_output(*value, nested ? (*value)->name() : v.name);
    }
    return {};
}

Result<GraphPtr> OnnxImporter::import_nested(const onnx::Graph& graph, Scope& lookup, const Scope& at,
                                             std::vector<Type> hints) {
    if (at.depth + 1 > options_.max_depth)
        return Error(Code::E0109, "graph \"{}\" is nested deeper than {} levels", graph.name, options_.max_depth)
            .at(source_);
    GraphPtr nested = at.graph->nested(graph.name);
    Scope scope{.graph = nested.get(), .outer = &lookup, .values = {}, .opsets = at.opsets};
    scope.prefix = at.prefix;
    scope.bound = lookup.bound;
    scope.depth = at.depth + 1;
    TRY(import_graph(graph, scope, hints));
    return nested;
}

Result<std::unique_ptr<Graph>> from_onnx(const onnx::Model& model, const FromOnnxOptions& options) {
    auto graph = OnnxImporter(model, options).run();
    if (!graph.ok()) return std::move(graph).error().at(model.path.empty() ? "model" : model.path.filename().string());
#ifndef NDEBUG
    verify(**graph);
#endif
    return graph;
}

Result<std::unique_ptr<Graph>> load_onnx(const std::filesystem::path& path, const FromOnnxOptions& options) {
    return from_onnx(TRY(onnx::read_model_file(path)), options);
}

}  // namespace tessera
