// tessera discover: finds rewrite rules over a set of ops, and proves them.
#include "tessera/discover.h"

#include "help.h"

namespace tessera::cli {
namespace {

constexpr const char* kDiscoverExamples =
    "Examples:\n"
    "  tessera discover --ops taso --max-ops 3 --out found.rules\n"
    "  tessera discover --ops add,mul,relu --max-ops 2\n"
    "  tessera discover --corrected --show\n"
    "  tessera discover --ops mine.ops --max-ops 4 --work-dir /tmp/work --json\n";

Json counts_json(const DiscoveredCounts& c) {
    return {{"graphs", c.graphs},
            {"terms", c.terms},
            {"classes", c.classes},
            {"raw_pairs", c.raw_pairs},
            {"renamed", c.renamed},
            {"common_subgraph", c.common_subgraph},
            {"pruned", c.pruned},
            {"siblings", c.siblings},
            {"irredundant", c.irredundant},
            {"proved", c.proved},
            {"proved_irredundant", c.proved_irredundant},
            {"refuted", c.refuted},
            {"unknown", c.unknown},
            {"seconds", {{"enumerate", c.enumerate_seconds}, {"prune", c.prune_seconds}, {"prove", c.prove_seconds}}}};
}

Json rule_json(const DiscoveredRule& r) {
    Json j{{"name", r.name},       {"rule", r.text},     {"shapes", r.shapes},           {"verdict", r.verdict},
           {"class", r.exactness}, {"reason", r.reason}, {"irredundant", r.irredundant}, {"ops", r.ops}};
    if (!r.boxes.empty()) j["boxes"] = r.boxes;
    if (!r.picture.empty()) j["picture"] = r.picture;
    if (r.verdict != "unknown") return j;
    j["tested_sizes"] = r.tested_sizes;
    j["error_log2"] = r.error_log2 ? Json(*r.error_log2) : Json(nullptr);
    return j;
}

struct Discover {
    DiscoverRulesOptions options;
    bool json = false, show = false, no_proofs = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()() {
        if (!options.out.empty() && !options.out.ends_with(".rules"))
            return Error(Code::E0501, "--out {} is a file of rules: end it in .rules", options.out);
        if (no_proofs && !options.out.empty())
            return Error(Code::E0501, "--out takes rules that are proved, and --no-proofs proves none")
                .hint("use --show");
        options.prove = !no_proofs;
        options.cancel = &interrupted();
        Progress line(progress, "discover");
        Stopwatch watch;
        std::string phase;
        double phase_began = 0;
        options.progress = [&](const DiscoverProgress& p) {
            const std::string here = fmt::format("{} {} {}", p.world, p.phase, p.level);
            if (here != phase) phase_began = watch.seconds();
            phase = here;
            const double spent = watch.seconds() - phase_began;
            const double left = p.done > 0 ? spent * double(p.total - p.done) / double(p.done) : 0;
            line.say(fmt::format("{}, {}, {} of {}, {} terms ({}/s), {} classes, {} pairs{}", p.world,
                                 p.level ? fmt::format("level {}", p.level) : std::string(p.phase), p.done, p.total,
                                 human_count(double(p.terms)),
                                 human_count(double(p.terms) / std::max(watch.seconds(), 1e-3)),
                                 human_count(double(p.classes)), human_count(double(p.pairs)),
                                 p.done > 0 ? ", " + human_seconds(left) + " left" : ""));
        };
        const DiscoveredRules found = TRY(discover_rules(options));
        for (const std::string& warning : found.warnings) say_error(fmt::format("warning: {}\n", escaped(warning)));
        if (json) {
            print_answer(found);
        } else {
            print_text(found);
        }
        return {};
    }

  private:
    void print_answer(const DiscoveredRules& found) const {
        Json worlds = Json::object();
        for (const auto& [name, counts] : found.worlds) worlds[name] = counts_json(counts);
        Json answer{{"ops", found.ops},
                    {"max_ops", found.max_ops},
                    {"seed", found.seed},
                    {"seconds", found.seconds},
                    {"counts", counts_json(found.counts)},
                    {"worlds", worlds},
                    {"files", found.files},
                    {"warnings", found.warnings}};
        if (show) {
            answer["rules"] = Json::array();
            for (const DiscoveredRule& r : found.rules) answer["rules"].push_back(rule_json(r));
        }
        print_json(answer);
    }

    void print_text(const DiscoveredRules& found) const {
        if (show)
            for (const DiscoveredRule& r : found.rules)
                if (r.irredundant || options.all)
                    fmt::print("{:<8} {}{}\n", r.verdict, r.boxes.empty() ? "" : fmt::format("({}) ", r.boxes), r.text);
        if (options.corrected) {
            fmt::print("{} rules of {} mutants of {}: {}\n", found.rules.size(), found.counts.raw_pairs, found.ops,
                       human_seconds(found.seconds));
            for (const std::string& file : found.files) fmt::print("  written: {}\n", escaped(file));
            return;
        }
        auto row = [](const std::string& name, const DiscoveredCounts& c) {
            fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", name, human_count(c.graphs),
                       human_count(double(c.terms)), human_count(double(c.classes)), c.raw_pairs,
                       c.raw_pairs - c.renamed, c.pruned, c.irredundant, c.proved, c.proved_irredundant);
        };
        fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "world", "graphs", "terms",
                   "classes", "pairs", "renamed", "pruned", "irredund.", "proved", "both");
        for (const auto& [name, counts] : found.worlds) row(name, counts);
        row("all", found.counts);
        const DiscoveredCounts& c = found.counts;
        fmt::print("{} to {} ops, seed {}: {} ({} to enumerate, {} to prune, {} to prove)\n", found.ops, found.max_ops,
                   found.seed, human_seconds(found.seconds), human_seconds(c.enumerate_seconds),
                   human_seconds(c.prune_seconds), human_seconds(c.prove_seconds));
        for (const std::string& file : found.files) fmt::print("  written: {}\n", escaped(file));
    }
};

}  // namespace

void add_discover(CLI::App& app, Chosen& chosen) {
    auto d = std::make_shared<Discover>();
    CLI::App* c = app.add_subcommand("discover", "Find rewrite rules over a set of ops, and prove them");
    c->add_option("--ops", d->options.ops,
                  "taso, extended, a file that ends in .ops, or names such as add,mul,relu (taso)")
        ->option_text("OPS");
    c->add_option("--max-ops", d->options.max_ops, "Maximum number of ops on each side of a rule, 1 to 4 (3)")
        ->check(between(1, 4))
        ->option_text("N");
    c->add_option("--out", d->options.out,
                  "Write the proved rules here, and their certificates to a .cert file beside it")
        ->option_text("FILE.rules");
    c->add_option("--seed", d->options.seed, "Seed for random values (0)")->option_text("N")->check(at_least(0));
    c->add_option("--threads", d->options.threads,
                  "Maximum number of threads, 0 for one per core (0); the result does not depend on it")
        ->check(between(0, 4096))
        ->option_text("N");
    c->add_option("--work-dir", d->options.work_dir,
                  "Keep progress in this folder: the same command resumes from there")
        ->option_text("FOLDER");
    c->add_flag(
        "--corrected", d->options.corrected,
        "Find programs that equal an original almost everywhere, correct and prove them; --ops is then a file of "
        "originals (the built-in ones)");
    c->add_flag("--all", d->options.all, "Also prove and write the rules that follow from others");
    c->add_flag("--shrinking", d->options.shrinking,
                "Write only rules that reduce the number of ops or merge siblings");
    c->add_flag("--no-proofs", d->no_proofs, "Find rules, but neither prove nor refute them");
    c->add_flag("--show", d->show, "Print the rules too");
    c->add_flag("--json", d->json, "Print JSON");
    add_progress_option(*c, d->progress);
    c->footer(fmt::format("{}\n{}", kDiscoverExamples, kExitStatus));
    c->callback([d, &chosen] { chosen = [d] { return report((*d)(), d->json); }; });
}

}  // namespace tessera::cli
