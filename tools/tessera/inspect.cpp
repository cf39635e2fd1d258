// tessera inspect: what is in a model.
#include "given.h"
#include "graph/count.h"
#include "inspect_unknown.h"

namespace tessera::cli {
namespace {

constexpr const char* kInspectExamples =
    "Examples:\n"
    "  tessera inspect model.onnx\n"
    "  tessera inspect model.onnx --dim N=8 --nodes\n"
    "  tessera inspect model.onnx --json\n";
constexpr size_t kLargest = 5;
constexpr size_t kLongest = 120;  // characters of an expression that are shown

struct Inspect {
    std::string path;
    std::vector<std::string> dims;
    bool nodes = false, compiled = false, json = false;

    Status operator()() const;
};

struct Nested {
    std::string node, attribute;
    const Graph* graph;
    int depth;
};

void find_nested(const Graph& graph, int depth, std::vector<Nested>& found) {
    for (const auto& node : graph.nodes())
        for (const auto& [name, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) {
                found.push_back(
                    {node->name().empty() ? node->output()->name() : node->name(), name, nested->get(), depth});
                find_nested(**nested, depth + 1, found);
            }
}

std::vector<const Value*> largest_weights(const Graph& graph, const std::vector<Nested>& nested) {
    std::vector<const Value*> weights;
    auto add = [&](const Graph& g) {
        for (const auto& v : g.constants()) weights.push_back(v.get());
    };
    add(graph);
    for (const Nested& n : nested) add(*n.graph);
    std::stable_sort(weights.begin(), weights.end(),
                     [](auto* a, auto* b) { return a->tensor()->bytes() > b->tensor()->bytes(); });
    if (weights.size() > kLargest) weights.resize(kLargest);
    return weights;
}

struct NodeRow {
    std::string name, op, type;
    Cost cost;
};

std::vector<NodeRow> list_nodes(const Graph& graph) {
    std::vector<NodeRow> rows;
    count_nodes(graph, [&](const Node& node, const Cost& cost) {
        const OpDef& op = node.op();
        rows.push_back({node.name().empty() ? node.output()->name() : node.name(),
                        op.onnx.name.empty() ? op.name : op.onnx.name, to_string(node.output()->type()), cost});
    });
    return rows;
}

// An expression with its value for people: 8.2 G at N=1 (8241889000*N).
std::string counted(const std::string& expression, const Summary& s, const SymbolValues& sizes, bool bytes) {
    auto n = about_at(expression, sizes);
    std::string shown = expression.size() > kLongest ? expression.substr(0, kLongest) + " ..." : expression;
    std::string value = !n ? shown : bytes ? human_bytes(*n) : human_count(*n);
    std::string text = (s.complete || bytes ? "" : "at least ") + value;
    if (n && !s.symbols.empty()) text += at_dims(s.symbols, sizes) + dim(fmt::format("  ({})", shown));
    return text;
}

Json inspect_json(const Model& model, const Summary& s, const SymbolValues& sizes, const std::vector<Nested>& nested,
                  const std::optional<std::vector<NodeRow>>& nodes, const std::optional<Executable>& compiled) {
    const ModelInfo& info = model.graph().info();
    Json j{{"source", s.source}, {"name", s.name}, {"producer", s.producer}, {"opset", s.opset}};
    j["domains"] = info.domains;
    j["ir_version"] = info.ir_version;
    j["inputs"] = Json::array();
    for (const Port& p : model.inputs()) j["inputs"].push_back(port_json(p));
    j["outputs"] = Json::array();
    for (const Port& p : model.outputs()) j["outputs"].push_back(port_json(p));
    j["symbols"] = s.symbols;
    j["nodes"] = s.nodes;
    j["parameters"] = s.parameters;
    j["parameter_bytes"] = s.parameter_bytes;
    j["flops"] = s.flops;
    j["bytes"] = s.bytes;
    j["counts_complete"] = s.complete;
    j["dims"] = Json::object();
    for (const std::string& symbol : s.symbols) j["dims"][symbol] = sizes.contains(symbol) ? sizes.at(symbol) : 1;
    if (Json n = number_at(s.flops, sizes); !n.is_null()) j["flops_at_dims"] = n;
    if (Json n = number_at(s.bytes, sizes); !n.is_null()) j["bytes_at_dims"] = n;
    if (auto n = model.peak_bytes(sizes)) j["peak_bytes_at_dims"] = *n;
    if (compiled) {
        const CompileReport& r = compiled->report();
        Json c{{"kernels", r.kernels}, {"steps", r.steps}, {"host_steps", r.host_steps}};
        c["weight_bytes"] = compiled->weight_bytes();
        if (auto n = compiled->arena_bytes(sizes)) c["arena_bytes"] = *n;
        j["compiled"] = std::move(c);
    }
    j["ops"] = Json::array();
    for (const OpCount& op : s.ops)
        j["ops"].push_back({{"op", op.op}, {"nodes", op.nodes}, {"flops", op.flops}, {"bytes", op.bytes}});
    j["nested_graphs"] = Json::array();
    for (const Nested& n : nested)
        j["nested_graphs"].push_back(
            {{"node", n.node}, {"attribute", n.attribute}, {"depth", n.depth}, {"nodes", n.graph->nodes().size()}});
    j["largest_weights"] = Json::array();
    for (const Value* v : largest_weights(model.graph(), nested))
        j["largest_weights"].push_back(
            {{"name", v->name()}, {"type", to_string(v->type())}, {"bytes", v->tensor()->bytes()}});
    if (!nodes) return j;
    j["node_list"] = Json::array();
    for (const NodeRow& row : *nodes)
        j["node_list"].push_back({{"name", row.name},
                                  {"op", row.op},
                                  {"type", row.type},
                                  {"flops", to_string(row.cost.flops)},
                                  {"bytes", to_string(row.cost.bytes)},
                                  {"counts_complete", row.cost.complete}});
    return j;
}

void print_text(const Model& model, const Summary& s, const SymbolValues& sizes, const std::vector<Nested>& nested,
                const std::optional<std::vector<NodeRow>>& nodes, const std::optional<Executable>& compiled) {
    const ModelInfo& info = model.graph().info();
    fmt::print("{}  {}\n", bold(s.source.empty() ? "standard input" : escaped(s.source)), escaped(s.name));
    if (!s.producer.empty()) fmt::print("  producer    {}\n", escaped(s.producer));
    if (s.opset) fmt::print("  opset       {}\n", s.opset);
    for (const auto& [domain, version] : info.domains) fmt::print("  domain      {} {}\n", escaped(domain), version);
    fmt::print("  nodes       {}\n", s.nodes);
    fmt::print("  parameters  {} ({})\n", human_count(double(s.parameters)), human_bytes(double(s.parameter_bytes)));
    fmt::print("  FLOPs       {}\n", escaped(counted(s.flops, s, sizes, false)));
    fmt::print("  bytes       {}\n", escaped(counted(s.bytes, s, sizes, true)));
    if (auto n = model.peak_bytes(sizes))
        fmt::print("  peak        {} at the same time{}\n", human_bytes(double(*n)),
                   escaped(at_dims(s.symbols, sizes)));
    if (compiled) {
        const CompileReport& r = compiled->report();
        fmt::print("  compiled    {} in {}, {} of them left to the reference\n", plural(double(r.kernels), "kernel"),
                   plural(double(r.steps), "step"), r.host_steps);
        fmt::print("  memory      weights {}", human_bytes(double(compiled->weight_bytes())));
        if (auto n = compiled->arena_bytes(sizes)) fmt::print(", arena {}", human_bytes(double(*n)));
        fmt::print("\n");
    }
    fmt::print("{}\n", bold("inputs"));
    for (const Port& p : model.inputs())
        fmt::print("  {}  {}{}\n", escaped(p.name), escaped(p.type), p.has_default ? "  (has a default)" : "");
    fmt::print("{}\n", bold("outputs"));
    for (const Port& p : model.outputs()) fmt::print("  {}  {}\n", escaped(p.name), escaped(p.type));
    if (!s.symbols.empty())
        fmt::print("{}  {}\n", bold("symbolic dimensions"), escaped(fmt::format("{}", fmt::join(s.symbols, ", "))));
    fmt::print("{}\n  {:<24} {:>6} {:>10} {:>10}\n", bold("ops"), "op", "nodes", "FLOPs", "bytes");
    for (const OpCount& op : s.ops) {
        auto flops = about_at(op.flops, sizes), bytes = about_at(op.bytes, sizes);
        fmt::print("  {:<24} {:>6} {:>10} {:>10}\n", op.op, op.nodes, flops ? human_count(*flops) : "?",
                   bytes ? human_bytes(*bytes) : "?");
    }
    if (!nested.empty()) fmt::print("{}\n", bold("nested graphs"));
    for (const Nested& n : nested)
        fmt::print("  {:{}}{} of {}: {}\n", "", 2 * n.depth, n.attribute, escaped(n.node),
                   plural(double(n.graph->nodes().size()), "node"));
    auto weights = largest_weights(model.graph(), nested);
    if (!weights.empty()) fmt::print("{}\n", bold("largest weights"));
    for (const Value* v : weights)
        fmt::print("  {}  {}  {}\n", escaped(v->name()), to_string(v->type()),
                   human_bytes(double(v->tensor()->bytes())));
    if (!nodes) return;
    fmt::print("{}\n", bold("nodes"));
    for (const NodeRow& row : *nodes) {
        auto flops = about_at(to_string(row.cost.flops), sizes);
        fmt::print("  {}  {}  {}  {}\n", escaped(row.name), row.op, escaped(row.type),
                   flops ? human_count(*flops) + (*flops < 1000 ? " FLOP" : "FLOP") : "?");
    }
}

Status Inspect::operator()() const {
    SymbolValues sizes = TRY(parse_dims(dims));
    auto loaded = load_or_demo(path);
    if (!loaded.ok() && may_inspect_unknown(loaded.error(), path)) return inspect_unknown(path, loaded.error(), json);
    Model model = TRY(std::move(loaded));
    TRY(check_dims(sizes, model));
    Summary s = model.summary();
    std::vector<Nested> nested;
    find_nested(model.graph(), 0, nested);
    std::optional<std::vector<NodeRow>> rows;
    if (nodes) rows = list_nodes(model.graph());
    std::optional<Executable> executable;
    if (compiled) executable = TRY(compile(model));
    if (json)
        print_json(inspect_json(model, s, sizes, nested, rows, executable));
    else
        print_text(model, s, sizes, nested, rows, executable);
    return {};
}

}  // namespace

void add_inspect(CLI::App& app, Chosen& chosen) {
    auto inspect = std::make_shared<Inspect>();
    CLI::App* c = app.add_subcommand("inspect", "Show inputs, outputs, ops, parameters, FLOPs and bytes");
    c->add_option("model", inspect->path,
                  "ONNX file, Tessera's text form, or - for standard input; without it, the built-in ResNet-50")
        ->option_text("FILE");
    c->add_option("--dim", inspect->dims, "Size of a symbolic dimension, for the counts (1)")
        ->option_text("NAME=SIZE ...")
        ->allow_extra_args(false);
    c->add_flag("--compiled", inspect->compiled, "Compile the model too: count kernels and the memory of a run");
    c->add_flag("--nodes", inspect->nodes, "List each node");
    add_strict_option(*c);
    c->add_flag("--json", inspect->json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kInspectExamples, kExitStatus));
    c->callback([inspect, &chosen] { chosen = [inspect] { return report((*inspect)(), inspect->json); }; });
}

}  // namespace tessera::cli
