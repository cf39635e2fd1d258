#include "pages/report.h"

#include "base/output_file.h"
#include "pages/page.h"
#include "rewrite/pass.h"

namespace tessera::cli {
namespace {

using Kind = ItemFacts::Kind;

// Each text once; what is written is its place in the list.
class Strings {
  public:
    int operator()(const std::string& text) {
        auto [it, fresh] = places_.emplace(text, int(list_.size()));
        if (fresh) list_.push_back(text);
        return it->second;
    }
    const Json& list() const { return list_; }

  private:
    std::unordered_map<std::string, int> places_;
    Json list_ = Json::array();
};

template <typename T>
Json or_null(const std::optional<T>& n) {
    return n ? Json(*n) : Json(nullptr);
}

// A value is its item, or the item and which of its outputs.
Json ref_json(ItemRef r) { return r.output ? Json{r.item, r.output} : Json(r.item); }

Json version_json(const ItemVersion& v, Strings& strings) {
    const ItemFacts& f = *v.facts;
    Json inputs = Json::array(), outputs = Json::array(), types = Json::array();
    for (ItemRef r : v.inputs) inputs.push_back(ref_json(r));
    for (const std::string& name : f.outputs) outputs.push_back(strings(name));
    for (const std::string& type : f.types) types.push_back(strings(type));
    return {int(f.kind),      strings(f.op),     strings(f.name),          strings(f.attrs),
            strings(f.scope), std::move(inputs), std::move(outputs),       std::move(types),
            or_null(f.flops), or_null(f.bytes),  strings(f.flops_formula), strings(f.bytes_formula),
            int(f.complete),  f.nested};
}

Json changes_json(const std::vector<Replay::Change>& changes) {
    Json list = Json::array();
    for (Replay::Change c : changes) {
        list.push_back(c.item);
        list.push_back(c.version);
    }
    return list;
}

Json texts_json(const std::vector<NodeText>& nodes) {
    Json list = Json::array();
    for (const NodeText& n : nodes) list.push_back(n.text);
    return list;
}

Json step_json(const Replay::Step& step, const std::vector<Rewrite>& rewrites, Strings& strings) {
    Json j{{"pass", strings(step.pass)}};
    if (step.rewrite >= 0) {
        const Rewrite& r = rewrites[size_t(step.rewrite)];
        j["rule"] = strings(r.rule);
        j["class"] = strings(r.exactness);
        if (!r.where.empty()) j["where"] = strings(r.where);
        if (!r.why.empty()) j["why"] = strings(r.why);
        if (step.changes.empty() && !r.replaced.empty()) j["replaced"] = r.replaced;
        if (!step.placed) j["unplaced"] = {{"removed", texts_json(r.removed)}, {"added", texts_json(r.added)}};
    }
    j["changes"] = changes_json(step.changes);
    return j;
}

// The rules that were used, as they are written, and where.
Result<Json> rules_json(const std::vector<Rewrite>& rewrites, const OptimizeOptions& options) {
    std::set<std::string> used;
    for (const Rewrite& r : rewrites) used.insert(r.rule);
    Json j = Json::object();
    auto add = [&](const Rules& rules) {
        for (const Rule& rule : rules)
            if (used.contains(rule.name) && !j.contains(rule.name))
                j[rule.name] = {{"text", to_string(rule)}, {"source", rule.source}};
    };
    for (const std::string& path : options.rules) add(TRY(load_rules(path)));
    for (const RuleFile& file : built_in_rule_files()) add(built_in_rules(file.name));
    return j;
}

// Ops have two names: the one in rules, and ONNX's.
Json ops_json(const Replay& replayed) {
    std::set<std::string> names;
    for (const ItemVersion& v : replayed.versions) names.insert(v.facts->op);
    Json j = Json::object();
    for (const std::string& name : names)
        if (const OpDef* op = find_op(name); op && !op->onnx.name.empty()) j[name] = op->onnx.name;
    return j;
}

void add_texts(const Graph& graph, Json& list) {
    for (const auto& node : graph.nodes()) {
        for (const auto& [_, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) add_texts(**nested, list);
        list.push_back(describe(*node).to_string());
    }
}

Json row(const char* name, const char* unit, const Json& before, const Json& after) {
    return {{"name", name}, {"unit", unit}, {"before", before}, {"after", after}};
}

Json summary_json(const Model& before, const Optimized& done, const SymbolValues& sizes) {
    const Summary &b = done.report.before, &a = done.report.after;
    Json rows = Json::array();
    rows.push_back(row("nodes", "", b.nodes, a.nodes));
    rows.push_back(row("parameters", "count", b.parameters, a.parameters));
    rows.push_back(row("weights", "bytes", b.parameter_bytes, a.parameter_bytes));
    rows.push_back(row("FLOPs", "count", or_null(value_at(b.flops, sizes)), or_null(value_at(a.flops, sizes))));
    rows.push_back(row("bytes moved", "bytes", or_null(value_at(b.bytes, sizes)), or_null(value_at(a.bytes, sizes))));
    rows.push_back(
        row("peak memory", "bytes", or_null(before.peak_bytes(sizes)), or_null(done.model.peak_bytes(sizes))));
    return rows;
}

Json passes_json(const OptimizeReport& report) {
    Json list = Json::array();
    for (const PassRun& p : report.passes)
        list.push_back({{"name", p.pass}, {"purpose", p.purpose}, {"runs", p.runs}, {"rewrites", p.rewrites}});
    return list;
}

}  // namespace

Report::Report(const Model& before, const SymbolValues& sizes)
    : model_(before), sizes_(sizes), camera_(sizes), before_(camera_.take(before.graph())) {}

void Report::after_pass(const std::string& pass, const Model& now, bool changed) {
    if (changed) passes_.push_back({pass, camera_.take(now.graph())});
}

Status Report::write(const std::filesystem::path& path, const Optimized& done, const OptimizeOptions& options) const {
    const Summary& before = done.report.before;
    Replay replayed = replay(before_, done.report.rewrites, passes_);
    Strings strings;
    Json j{{"title", std::filesystem::path(before.source).filename().string()},
           {"graph", before.name},
           {"precision", options.precision},
           {"rounds", done.report.rounds},
           {"sizes", at_dims(before.symbols, sizes_)}};
    j["summary"] = summary_json(model_, done, sizes_);
    j["passes"] = passes_json(done.report);
    j["ops"] = ops_json(replayed);
    j["rules"] = TRY(rules_json(done.report.rewrites, options));
    j["items"] = replayed.items;
    j["versions"] = Json::array();
    for (const ItemVersion& v : replayed.versions) j["versions"].push_back(version_json(v, strings));
    j["before"] = changes_json(replayed.before);
    j["steps"] = Json::array();
    for (const Replay::Step& step : replayed.steps)
        j["steps"].push_back(step_json(step, done.report.rewrites, strings));
    j["after"] = Json::array();
    add_texts(done.model.graph(), j["after"]);
    j["strings"] = strings.list();
    return write_file(path, page("report.html", j));
}

}  // namespace tessera::cli
