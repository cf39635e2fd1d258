// tessera ops: every ONNX operator, and how it is defined here.
#include "base/nearest.h"
#include "command.h"
#include "graph/attr.h"
#include "graph/ops/foreign.h"
#include "kernel/from_graph/op_lowering.h"
#include "onnx/operators.h"

namespace tessera::cli {
namespace {

constexpr const char* kOpsExamples =
    "Examples:\n"
    "  tessera ops\n"
    "  tessera ops Conv\n"
    "  tessera ops --json\n"
    "  tessera ops --markdown > ops.md\n";

struct OpRow {
    std::string domain, onnx, versions;  // empty: not an ONNX op
    bool retired = false;
    const OpDef* def = nullptr;  // null: not defined by itself

    std::string shown() const { return onnx.empty() ? def->name : domain.empty() ? onnx : domain + "." + onnx; }
    std::string how() const {
        if (!def) return imported() ? "import" : "missing";
        std::string text;
        auto add = [&](bool has, const char* what) {
            if (has) text += (text.empty() ? "" : " or ") + std::string(what);
        };
        add(bool(def->body), "body");
        add(bool(def->expand), "expansion");
        add(bool(def->evaluate), "evaluation");
        return text;
    }
    // Compiled, it becomes a kernel, or is left to the evaluator: as lowering decides it.
    std::string compiled() const {
        if (!def) return imported() ? "kernel" : "missing";
        switch (op_lowering(*def)) {
            case OpLowering::Host: return "reference";
            case OpLowering::Control: return "control";
            default: return "kernel";
        }
    }
    // Becomes a constant of the graph, or is written out in other ops, while the model is read.
    bool imported() const { return (domain.empty() && onnx == "Constant") || find_foreign_op(domain, onnx) != nullptr; }
};

std::vector<OpRow> all_rows() {
    std::vector<OpRow> rows;
    std::vector<const OpDef*> used;
    for (const onnx::Operator& op : onnx::operators()) {
        const OpDef* def = find_onnx_op(op.domain, op.name);
        rows.push_back({op.domain, op.name, op.versions, op.retired, def});
        used.push_back(def);
    }
    for (const ForeignOp& op : foreign_ops())
        if (std::none_of(rows.begin(), rows.end(),
                         [&](const OpRow& r) { return r.domain == op.domain && r.onnx == op.name; }))
            rows.push_back({.domain = op.domain, .onnx = op.name, .versions = "1"});
    for (const OpDef* def : all_ops())
        if (std::find(used.begin(), used.end(), def) == used.end())
            rows.push_back({.domain = {}, .onnx = {}, .versions = {}, .def = def});
    return rows;
}

std::string params_text(const std::vector<ParamDef>& params) {
    std::vector<std::string> parts;
    for (const ParamDef& p : params)
        parts.push_back(fmt::format("{}{}: {}", p.name, p.variadic ? "..." : p.optional ? "?" : "", p.type));
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> type_names(DTypes types) {
    std::vector<std::string> names;
    for (int i = 0; i < kDTypeCount; ++i)
        if (types.has(static_cast<DType>(i))) names.emplace_back(dtype_name(static_cast<DType>(i)));
    return names;
}

std::string types_text(const OpDef& def) {
    std::vector<std::string> parts;
    for (const TypeVar& t : def.types)
        parts.push_back(fmt::format("{}: {}", t.name, fmt::join(type_names(t.allowed), " ")));
    return fmt::format("{}", fmt::join(parts, "; "));
}

Json attr_value_json(const Attr& a) {
    switch (attr_kind(a)) {
        case AttrKind::Int: return std::get<int64_t>(a);
        case AttrKind::Float: return std::get<float>(a);
        case AttrKind::String: return std::get<std::string>(a);
        case AttrKind::Ints: return std::get<std::vector<int64_t>>(a);
        case AttrKind::Floats: return std::get<std::vector<float>>(a);
        case AttrKind::Strings: return std::get<std::vector<std::string>>(a);
        default: return nullptr;
    }
}

std::vector<std::string> trait_names(const OpDef& def) {
    static constexpr std::pair<Trait, const char*> kNames[] = {
        {Trait::Pure, "pure"},     {Trait::Elementwise, "elementwise"}, {Trait::Commutative, "commutative"},
        {Trait::Linear, "linear"}, {Trait::Bilinear, "bilinear"},       {Trait::Random, "random"}};
    std::vector<std::string> names;
    for (auto& [trait, name] : kNames)
        if (def.has(trait)) names.emplace_back(name);
    return names;
}

// The opsets at which the form changed in a way that models have to be adapted for.
std::vector<int> adapted(const OpDef& def) {
    std::vector<int> opsets;
    for (const OnnxChange& c : def.onnx.changes)
        if (c.opset <= onnx::newest_opset(def.onnx.domain) && (opsets.empty() || opsets.back() != c.opset))
            opsets.push_back(c.opset);
    return opsets;
}

Json params_json(const std::vector<ParamDef>& params) {
    Json list = Json::array();
    for (const ParamDef& p : params) {
        Json j{{"name", p.name}, {"type", p.type}};
        if (p.optional) j["optional"] = true;
        if (p.variadic) j["variadic"] = true;
        list.push_back(std::move(j));
    }
    return list;
}

Json row_json(const OpRow& row) {
    Json j{{"op", row.def ? Json(row.def->name) : Json(nullptr)}, {"defined_by", row.how()}};
    j["compiled"] = row.compiled();
    if (row.compiled() == "reference") j["why"] = host_reason(*row.def);
    if (!row.onnx.empty()) {
        std::vector<int> since;
        std::istringstream versions(row.versions);
        for (int v; versions >> v;) since.push_back(v);
        j["onnx"] = {{"domain", row.domain}, {"name", row.onnx}, {"since", since}, {"retired", row.retired}};
    }
    if (!row.def) return j;
    const OpDef& def = *row.def;
    j["inputs"] = params_json(def.inputs);
    j["outputs"] = params_json(def.outputs);
    j["types"] = Json::object();
    for (const TypeVar& t : def.types) j["types"][t.name] = type_names(t.allowed);
    j["attributes"] = Json::array();
    for (const AttrDef& a : def.attrs) {
        Json attr{{"name", a.name}, {"kind", attr_kind_name(a.kind)}};
        if (a.is_required) attr["required"] = true;
        if (a.fallback) attr["default"] = attr_value_json(*a.fallback);
        j["attributes"].push_back(std::move(attr));
    }
    j["traits"] = trait_names(def);
    j["adapted_at"] = adapted(def);
    return j;
}

void print_detail(const OpRow& row) {
    fmt::print("{}\n", bold(row.shown()));
    if (row.def) fmt::print("  here        {}\n", row.def->name);
    fmt::print("  defined by  {}\n", row.how());
    if (row.def)
        fmt::print("  compiled    {}\n",
                   row.compiled() == "kernel" ? "as a kernel" : "left to the reference: " + host_reason(*row.def));
    if (row.def && row.onnx.empty() && !row.def->onnx.name.empty())
        fmt::print("  in ONNX     {} of domain {}\n", row.def->onnx.name, row.def->onnx.domain);
    if (!row.versions.empty()) fmt::print("  opsets      {}{}\n", row.versions, row.retired ? "  (retired)" : "");
    if (!row.def) return;
    const OpDef& def = *row.def;
    if (!def.onnx.changes.empty()) fmt::print("  adapted at  {}\n", fmt::join(adapted(def), " "));
    fmt::print("  inputs      {}\n  outputs     {}\n", params_text(def.inputs), params_text(def.outputs));
    if (!def.types.empty()) fmt::print("  types       {}\n", types_text(def));
    for (const AttrDef& a : def.attrs) {
        std::string rest = a.is_required ? "  required"
                           : a.fallback  ? "  default " + attr_value_json(*a.fallback).dump()
                                         : "";
        fmt::print("  attribute   {}: {}{}\n", a.name, attr_kind_name(a.kind), rest);
    }
    fmt::print("  traits      {}\n", fmt::join(trait_names(def), ", "));
}

void print_totals(const std::vector<OpRow>& rows) {
    std::map<std::string, int> totals;
    int onnx_count = 0;
    for (const OpRow& row : rows) {
        if (row.onnx.empty()) continue;
        ++onnx_count;
        ++totals[row.how()];
    }
    fmt::print("{} ONNX operators up to opset {}", onnx_count, onnx::newest_opset(""));
    const char* separator = ": ";
    for (auto& [how, n] : totals) {
        fmt::print("{}{} {}{}", separator, n, how == "missing" ? "" : "by ", how);
        separator = ", ";
    }
    fmt::print("\n");
    std::map<std::string, std::vector<std::string>> left;  // by reason
    int count = 0;
    for (const OpRow& row : rows)
        if (!row.onnx.empty() && row.compiled() == "reference") {
            left[host_reason(*row.def)].push_back(row.shown());
            ++count;
        }
    if (count) fmt::print("Compiled models leave {} to the reference:\n", count);
    for (auto& [why, ops] : left) fmt::print("  {}: {}\n", why, fmt::join(ops, " "));
}

void print_table(const std::vector<OpRow>& rows) {
    fmt::print("{}\n",
               bold(fmt::format("{:<44} {:<26} {:<24} {:<10} {}", "ONNX", "here", "defined by", "compiled", "inputs")));
    for (const OpRow& row : rows)
        fmt::print("{:<44} {:<26} {:<24} {:<10} {}\n", row.onnx.empty() ? "-" : row.shown(),
                   row.def ? row.def->name : "-", row.how(), row.compiled(),
                   row.def ? params_text(row.def->inputs) : "");
    print_totals(rows);
}

void print_markdown(const std::vector<OpRow>& rows) {
    fmt::print("| ONNX | opsets | here | defined by | compiled | inputs | types | attributes |\n");
    fmt::print("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (const OpRow& row : rows) {
        std::vector<std::string> attrs;
        if (row.def)
            for (const AttrDef& a : row.def->attrs) attrs.push_back(a.name);
        fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} |\n", row.onnx.empty() ? "" : row.shown(), row.versions,
                   row.def ? row.def->name : "", row.how(), row.compiled(), row.def ? params_text(row.def->inputs) : "",
                   row.def ? types_text(*row.def) : "", fmt::join(attrs, ", "));
    }
}

struct Ops {
    std::string name;
    bool json = false, markdown = false;

    Error no_such_op() const {
        std::vector<std::string> names;
        for (const OpRow& row : all_rows()) {
            names.push_back(row.onnx);
            if (row.def) names.push_back(row.def->name);
        }
        Error error(Code::E0201, "there is no op \"{}\"", name);
        const std::string meant = nearest(name, {names.begin(), names.end()});
        if (!meant.empty()) return std::move(error).hint("did you mean {}?", meant);
        return std::move(error).hint("tessera ops lists them all");
    }

    Status operator()() const {
        std::vector<OpRow> rows = all_rows();
        if (!name.empty()) {
            std::erase_if(rows, [&](const OpRow& r) {
                return r.onnx != name && r.shown() != name && !(r.def && r.def->name == name);
            });
            if (rows.empty()) return no_such_op();
        }
        if (json) {
            Json j{{"opset", tessera::onnx::newest_opset("")}, {"ops", Json::array()}};
            for (const OpRow& row : rows) j["ops"].push_back(row_json(row));
            print_json(j);
        } else if (markdown) {
            print_markdown(rows);
        } else if (!name.empty()) {
            for (const OpRow& row : rows) print_detail(row);
        } else {
            print_table(rows);
        }
        return {};
    }
};

}  // namespace

void add_ops(CLI::App& app, Chosen& chosen) {
    auto ops = std::make_shared<Ops>();
    CLI::App* c = app.add_subcommand("ops", "List every ONNX operator and how it is defined here");
    c->add_option("name", ops->name, "Show only this op, in detail")->option_text("NAME");
    c->add_flag("--json", ops->json, "Print JSON");
    c->add_flag("--markdown", ops->markdown, "Print a Markdown table");
    c->footer(fmt::format("{}\n{}", kOpsExamples, kExitStatus));
    c->callback([ops, &chosen] { chosen = [ops] { return report((*ops)(), ops->json); }; });
}

}  // namespace tessera::cli
