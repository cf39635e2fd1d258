// tessera optimize: the same model with less, and what was done to it.
#include <algorithm>
#include <numeric>

#include "check_optimized.h"
#include "given.h"
#include "help.h"
#include "pages/report.h"
#include "pass_flags.h"
#include "search_text.h"

namespace tessera::cli {
namespace {

constexpr const char* kOptimizeExamples =
    "Examples:\n"
    "  tessera optimize model.onnx                        a table of before and after\n"
    "  tessera optimize model.onnx -o smaller.onnx\n"
    "  tessera optimize model.onnx --explain | less\n"
    "  tessera optimize model.onnx --report model.html    each rewrite, in the browser\n"
    "  tessera optimize model.onnx -o smaller.onnx --check --dim batch=2\n"
    "  tessera optimize model.onnx --rules my.rules --print-after user_rules\n"
    "  tessera optimize model.onnx --search=30 -o faster.onnx --explain\n";

struct Optimize {
    std::string path, out, weights, report, without_mutants;
    std::vector<std::string> dims, rules, with;
    std::string precision = "default", fold_limit;
    PassFlags passes;
    int opset = 0;
    bool external = false, explain = false, time_passes = false, check = false, json = false, trust = false;
    uint64_t seed = 0;
    ModelSearchOptions search_options;
    bool searched = false;
    std::vector<std::string> search_only;  // options that were given and are of --search
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()() const;

  private:
    Status check_usage() const;
    Result<OptimizeOptions> options() const;
    Result<Searched> searched_model(const Model& model, const SymbolValues& sizes) const;
};

// ---- what is printed

std::string share(double before, double after) {
    if (before == 0) return after == 0 ? "" : "new";
    double percent = 100 * (after - before) / before;
    if (before == after) return "";
    return std::abs(percent) < 0.05 ? "~0 %" : fmt::format("{:+.{}f} %", percent, std::abs(percent) < 10 ? 1 : 0);
}

struct BeforeAfter {
    std::string name, before, after, change;
};

void print_before_after(const std::vector<BeforeAfter>& rows, size_t indent) {
    size_t name = 12, number = 9;
    for (const BeforeAfter& r : rows) {
        name = std::max(name, r.name.size());
        number = std::max({number, r.before.size(), r.after.size()});
    }
    for (const BeforeAfter& r : rows)
        fmt::print("{:{}}{:<{}}  {:>{}}  {:>{}}  {:>7}\n", "", indent, r.name, name, r.before, number, r.after, number,
                   r.change);
}

BeforeAfter measured(std::string name, std::optional<double> before, std::optional<double> after,
                     std::string (*shown)(double)) {
    BeforeAfter row{std::move(name), before ? shown(*before) : "?", after ? shown(*after) : "?", ""};
    if (before && after) row.change = share(*before, *after);
    return row;
}

std::optional<double> at(const std::string& expression, const SymbolValues& sizes) {
    return about_at(expression, sizes);
}

std::optional<double> peak(const Model& model, const SymbolValues& sizes) {
    auto n = model.peak_bytes(sizes);
    return n ? std::optional(double(*n)) : std::nullopt;
}

using OpCounts = std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>>;

// Nodes by op before and after, most before first.
OpCounts op_counts(const OptimizeReport& report) {
    OpCounts counts;
    auto find = [&](const std::string& op) -> std::pair<int64_t, int64_t>& {
        for (auto& [name, both] : counts)
            if (name == op) return both;
        counts.emplace_back(op, std::pair<int64_t, int64_t>());
        return counts.back().second;
    };
    for (const OpCount& op : report.before.ops) find(op.op).first = op.nodes;
    for (const OpCount& op : report.after.ops) find(op.op).second = op.nodes;
    return counts;
}

std::string plain_count(double n) { return fmt::format("{}", int64_t(n)); }

void print_table(const Model& before, const Optimized& done, const SymbolValues& sizes) {
    const Summary &b = done.report.before, &a = done.report.after;
    fmt::print("{}\n", bold(escaped(b.source.empty() ? b.name : b.source)));
    std::vector<BeforeAfter> rows = {{"", "before", "after", ""}};
    rows.push_back(measured("nodes", double(b.nodes), double(a.nodes), plain_count));
    rows.push_back(measured("parameters", double(b.parameters), double(a.parameters), human_count));
    rows.push_back(measured("weights", double(b.parameter_bytes), double(a.parameter_bytes), human_bytes));
    rows.push_back(measured("FLOPs", at(b.flops, sizes), at(a.flops, sizes), human_count));
    rows.push_back(measured("bytes moved", at(b.bytes, sizes), at(a.bytes, sizes), human_bytes));
    rows.push_back(measured("peak memory", peak(before, sizes), peak(done.model, sizes), human_bytes));
    for (const auto& [op, both] : op_counts(done.report))
        rows.push_back(measured("  " + op, double(both.first), double(both.second), plain_count));
    rows.insert(rows.begin() + 7, {"nodes by op", "", "", ""});
    print_before_after(rows, 2);
    if (!b.symbols.empty()) fmt::print("{}\n", dim("  costs" + escaped(at_dims(b.symbols, sizes))));
    fmt::print("  {} in {}, {}\n", plural(double(done.report.rewrite_count), "rewrite"),
               plural(done.report.rounds, "iteration"), human_seconds(done.report.seconds));
    if (!done.report.settled) fmt::print("  note: the passes were stopped before they reached a fixed point\n");
}

std::string joined(const std::vector<NodeText>& nodes, size_t most) {
    std::string text;
    for (size_t i = 0; i < nodes.size() && i < most; ++i) text += fmt::format("\n      {}", escaped(nodes[i].text));
    if (nodes.size() > most) text += fmt::format("\n      and {} more", nodes.size() - most);
    return text;
}

// That writes or orders things in another way, and saves nothing by itself.
bool is_housekeeping(const Rewrite& r) {
    static constexpr const char* kPasses[] = {"canonicalise", "refine_types", "tidy"};
    return std::find(std::begin(kPasses), std::end(kPasses), r.pass) != std::end(kPasses);
}

// First how often each rule was used and what it says, then each use of it; what saves work before housekeeping.
void print_explanation(const OptimizeReport& report) {
    struct Group {
        const Rewrite* first;
        int64_t times = 0;
    };
    std::vector<Group> groups;
    std::map<std::pair<std::string, std::string>, size_t> place;
    for (const Rewrite& r : report.rewrites) {
        auto [it, fresh] = place.emplace(std::pair(r.pass, r.rule), groups.size());
        if (fresh) groups.push_back({&r});
        ++groups[it->second].times;
    }
    std::stable_partition(groups.begin(), groups.end(), [](const Group& g) { return !is_housekeeping(*g.first); });
    fmt::print("{}\n", bold("rules"));
    for (const Group& g : groups) {
        fmt::print("  {:>5} x  {} / {}  [{}]\n", g.times, g.first->pass, g.first->rule, g.first->exactness);
        if (!g.first->why.empty()) fmt::print("           {}\n", dim(escaped(g.first->why)));
    }
    fmt::print("{}\n", bold("rewrites"));
    constexpr size_t kShownNodes = 12;
    std::vector<size_t> order(report.rewrites.size());  // numbered as they were applied
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !is_housekeeping(report.rewrites[i]); });
    for (size_t i : order) {
        const Rewrite& r = report.rewrites[i];
        fmt::print("  {}. {} / {}{}\n", i + 1, r.pass, r.rule, r.where.empty() ? "" : "  at " + escaped(r.where));
        if (!r.removed.empty()) fmt::print("    before{}\n", joined(r.removed, kShownNodes));
        if (!r.added.empty()) fmt::print("    after{}\n", joined(r.added, kShownNodes));
        for (const auto& [from, to] : r.replaced)
            if (from != to)
                fmt::print("    {}\n", to.empty() ? escaped(from) + " goes" : escaped(from) + " is now " + escaped(to));
    }
}

void print_times(const OptimizeReport& report) {
    fmt::print("{}\n  {:<16} {:>5} {:>9} {:>10}\n", bold("passes"), "pass", "runs", "rewrites", "time");
    for (const PassRun& p : report.passes)
        fmt::print("  {:<16} {:>5} {:>9} {:>10}\n", p.pass, p.runs, p.rewrites, human_seconds(p.seconds));
}

// ---- the same as JSON

Json summary_json(const Summary& s, const Model& model, const SymbolValues& sizes) {
    Json j{{"nodes", s.nodes}, {"parameters", s.parameters}, {"parameter_bytes", s.parameter_bytes}};
    j["flops"] = s.flops;
    j["bytes"] = s.bytes;
    if (Json n = number_at(s.flops, sizes); !n.is_null()) j["flops_at_dims"] = n;
    if (Json n = number_at(s.bytes, sizes); !n.is_null()) j["bytes_at_dims"] = n;
    if (auto n = model.peak_bytes(sizes)) j["peak_bytes_at_dims"] = *n;
    j["ops"] = Json::object();
    for (const OpCount& op : s.ops) j["ops"][op.op] = op.nodes;
    return j;
}

Json nodes_json(const std::vector<NodeText>& nodes) {
    Json j = Json::array();
    for (const NodeText& n : nodes) j.push_back(n.text);
    return j;
}

Json optimize_json(const Model& before, const Optimized& done, const SymbolValues& sizes, bool explain) {
    const OptimizeReport& report = done.report;
    Json j{{"before", summary_json(report.before, before, sizes)},
           {"after", summary_json(report.after, done.model, sizes)},
           {"rewrites", report.rewrite_count},
           {"rounds", report.rounds},
           {"settled", report.settled},
           {"optimize_s", report.seconds}};
    j["passes"] = Json::array();
    for (const PassRun& p : report.passes)
        j["passes"].push_back({{"pass", p.pass}, {"runs", p.runs}, {"rewrites", p.rewrites}, {"seconds", p.seconds}});
    if (!explain) return j;
    j["rewrite_list"] = Json::array();
    for (const Rewrite& r : report.rewrites) {
        Json entry{{"pass", r.pass},
                   {"rule", r.rule},
                   {"exactness", r.exactness},
                   {"why", r.why},
                   {"where", r.where},
                   {"removed", nodes_json(r.removed)},
                   {"added", nodes_json(r.added)}};
        entry["replaced"] = Json::array();
        for (const auto& [from, to] : r.replaced) entry["replaced"].push_back({from, to});
        j["rewrite_list"].push_back(std::move(entry));
    }
    return j;
}

// ---- the command

Status Optimize::check_usage() const {
    if (path.empty()) return Error(Code::E0501, "no model is given").hint("tessera optimize model.onnx");
    if (!searched && !search_only.empty())
        return Error(Code::E0501, "{} is an option of --search", search_only[0]).hint("add --search, or leave it out");
    if (!out.empty()) TRY(check_model_suffix(out));
    const bool to_onnx = out.ends_with(".onnx");
    if (!without_mutants.empty() && (search_options.mutate <= 0 || !without_mutants.ends_with(".onnx")))
        return Error(Code::E0501, "--without-mutants is for --mutate, and writes ONNX")
            .hint("--search --mutate -o faster.onnx --without-mutants other.onnx");
    if (!to_onnx && (opset || external)) return Error(Code::E0501, "--opset and --external-data are for -o FILE.onnx");
    if (!out.ends_with(".tsr") && !weights.empty()) return Error(Code::E0501, "--weights is for -o FILE.tsr");
    if (!report.empty() && !report.ends_with(".html"))
        return Error(Code::E0501, "--report {} writes a page: end it in .html", report);
    std::vector<PassRun> there = optimizer_passes();
    if (!rules.empty()) there.push_back({"user_rules", ""});
    return passes.check(there);
}

Result<OptimizeOptions> Optimize::options() const {
    OptimizeOptions o;
    o.precision = precision;
    if (!searched) o.rules = rules;
    o.refute_rules = !trust;
    o.with = with;
    o.opset = opset;
    o.stop_after = passes.stop_after;
    o.record = explain || !report.empty();
    o.verify = passes.verify;
    o.cancel = &interrupted();
    if (!fold_limit.empty()) o.fold_limit = TRY(parse_size(fold_limit, "--fold-limit"));
    o.after = passes.printer();
    return o;
}

Result<Searched> Optimize::searched_model(const Model& model, const SymbolValues& sizes) const {
    ModelSearchOptions o = search_options;
    o.sizes = sizes;
    o.precision = precision;
    o.rules = rules;
    o.refute_rules = !trust;
    o.cancel = &interrupted();
    o.keep_without_mutants = !without_mutants.empty();
    Progress line(progress, "search");
    o.progress = [&](std::string_view what, size_t done, size_t total) { line.update(what, done, total); };
    return search(model, o);
}

Status Optimize::operator()() const {
    if (passes.list) {
        print_passes(optimizer_passes(), json);
        return {};
    }
    TRY(check_usage());
    OptimizeOptions chosen = TRY(options());
    SymbolValues sizes = TRY(parse_dims(dims));
    Model model = TRY(load_model(path));
    TRY(check_dims(sizes, model));
    if (searched) sizes = with_suggested_sizes(model, std::move(sizes));
    std::optional<Report> page;
    if (!report.empty()) {
        page.emplace(model, sizes);
        chosen.after = [&, print = chosen.after](const std::string& pass, const Model& now, bool changed) {
            page->after_pass(pass, now, changed);
            if (print) print(pass, now, changed);
        };
    }
    std::optional<Searched> found;
    if (searched) found = TRY(searched_model(model, sizes));
    Optimized done = TRY(optimize(found ? found->model : model, chosen));
    if (found) done.report.before = model.summary();
    if (page) TRY(page->write(report, done, chosen));
    std::optional<CheckedRun> checked;
    if (check) checked = TRY(check_optimized(model, done.model, precision, sizes, seed, rules));
    if (!out.empty())
        TRY(done.model.save(out, {.opset = opset, .external_from = external ? kExternalFrom : -1, .weights = weights}));
    if (found && found->without_mutants) {
        chosen.after = {};
        const Optimized other = TRY(optimize(*found->without_mutants, chosen));
        TRY(other.model.save(without_mutants, {.opset = opset, .external_from = external ? kExternalFrom : -1}));
    }
    if (json) {
        Json j = optimize_json(model, done, sizes, explain);
        j["from"] = path;
        if (!out.empty()) j["to"] = out;
        if (page) j["report"] = report;
        if (checked) j["check"] = checked_json(*checked);
        if (found) j["search"] = search_json(found->report, explain);
        print_json(j);
        return {};
    }
    print_table(model, done, sizes);
    if (found) fmt::print("{}", search_text(found->report, explain));
    if (checked) fmt::print("{}", checked_text(*checked));
    if (time_passes) print_times(done.report);
    if (explain) print_explanation(done.report);
    if (!out.empty()) fmt::print("  written to {}\n", escaped(out));
    if (page) fmt::print("  the report is in {}\n", escaped(report));
    return {};
}

}  // namespace

void add_optimize(CLI::App& app, Chosen& chosen) {
    auto o = std::make_shared<Optimize>();
    CLI::App* c = app.add_subcommand("optimize", "Write an equivalent model that does less work");
    c->add_option("model", o->path, "ONNX file, Tessera's text form, or - for standard input")->option_text("FILE");
    c->add_option("-o,--output", o->out, "Output file, ending in .onnx or .tsr")->option_text("FILE");
    c->add_option("--precision", o->precision,
                  "strict: bitwise equal; default: equal up to rounding; fast: also approximations")
        ->option_text("strict|default|fast")
        ->check(CLI::IsMember({"strict", "default", "fast"}));
    c->add_option("--rules", o->rules, "File of additional rewrite rules (docs/rules.md)")
        ->option_text("FILE ...")
        ->allow_extra_args(false);
    c->add_flag("--trust-rules", o->trust, "Use --rules without searching for counterexamples");
    c->add_option("--opset", o->opset, "Opset of the ONNX file (the model's own)")
        ->option_text("N")
        ->check(between(1, 1000));
    c->add_flag("--external-data", o->external, "Put weights of 1 kB and more into a file beside the ONNX file");
    c->add_option("--weights", o->weights, "Put large weights into this file beside the text")->option_text("NAME");
    c->add_option("--fold-limit", o->fold_limit, "Maximum growth in bytes by a folded constant (16M)")
        ->option_text("SIZE");
    c->add_option("--dim", o->dims,
                  "Size of a symbolic dimension: for the costs (default 1), --search and --check (default: chosen)")
        ->option_text("NAME=SIZE ...")
        ->allow_extra_args(false);
    c->add_flag("--explain", o->explain, "Print each rewrite with its rule, location and justification");
    c->add_option("--report", o->report, "Write a page with the graph before and after, and each rewrite as a step")
        ->option_text("FILE.html");
    c->add_flag("--check", o->check, "Run both models on random inputs and compare");
    c->add_option("--seed", o->seed, "Seed for the random inputs of --check (0)")->option_text("N")->check(at_least(0));
    c->add_flag("--time-passes", o->time_passes, "Print the time of each pass");
    o->passes.add_options(*c);
    c->add_option("--with", o->with, "Run this optional pass too (--list-passes names them)")->option_text("PASS");
    c->add_flag("--search{60}", o->search_options.seconds,
                "Search for a faster equivalent model, for this many seconds (60)")
        ->option_text("[=SECONDS]")
        ->check(above_zero());
    c->add_flag("--mutate{60}", o->search_options.mutate,
                "For --search: also derive rules for this model's own products, and search again, for this many more "
                "seconds (60)")
        ->option_text("[=SECONDS]")
        ->check(above_zero());
    c->add_option("--without-mutants", o->without_mutants, "For --mutate: also write the result without mutants")
        ->option_text("FILE.onnx");
    c->add_option("--strategy", o->search_options.strategy, "For --search: an e-graph, or backtracking as in TASO")
        ->option_text("egraph|backtrack")
        ->check(CLI::IsMember({"egraph", "backtrack"}));
    c->add_option("--cost", o->search_options.cost,
                  "For --search: measured times of fused groups (measured), of single ops (sum), or an estimate")
        ->option_text("measured|estimate|sum")
        ->check(CLI::IsMember({"measured", "estimate", "sum"}));
    c->add_option("--target", o->search_options.target,
                  "For --search: device to optimize for: host, cuda, or cuda:1 for the second GPU (host)")
        ->option_text("NAME");
    c->add_option("--max-rule-ops", o->search_options.max_rule_ops,
                  "For --search: only rules with at most this many ops (all)")
        ->option_text("N")
        ->check(at_least(0));
    c->add_option("--threads", o->search_options.threads,
                  "For --search: threads to time candidates with, 0 for all (1)")
        ->option_text("N")
        ->check(between(0, 4096));
    c->add_option("--max-nodes", o->search_options.max_nodes, "For --search: maximum number of e-graph nodes (20000)")
        ->option_text("N")
        ->check(at_least(1));
    add_progress_option(*c, o->progress);
    add_strict_option(*c);
    c->add_flag("--json", o->json, "Print JSON");
    c->footer(fmt::format("{}\n{}", kOptimizeExamples, kExitStatus));
    c->callback([o, c, &chosen] {
        o->searched = c->count("--search") > 0;
        for (const char* name : {"--mutate", "--without-mutants", "--strategy", "--cost", "--target", "--max-rule-ops",
                                 "--threads", "--max-nodes"})
            if (c->count(name) > 0) o->search_only.push_back(name);
        chosen = [o] { return report((*o)(), o->json); };
    });
}

}  // namespace tessera::cli
