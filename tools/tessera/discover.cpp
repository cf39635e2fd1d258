// tessera discover: finds rewrite rules over a set of ops, and proves them.
#include "search/discover.h"

#include "base/output_file.h"
#include "command.h"

namespace tessera::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  tessera discover --ops taso --max-ops 3 --out found.rules\n"
    "  tessera discover --ops add,mul,relu --max-ops 2\n"
    "  tessera discover --ops mine.ops --max-ops 4 --work-dir /tmp/work --json\n";

Json counts_json(const DiscoverCounts& c) {
    const EnumerateCounts& e = c.enumerated;
    return {{"graphs", e.graphs},
            {"terms", e.terms},
            {"classes", e.classes},
            {"raw_pairs", e.raw_pairs},
            {"renamed", e.renamed},
            {"common_subgraph", e.common},
            {"pruned", c.pruned},
            {"siblings", c.siblings},
            {"irredundant", c.irredundant},
            {"proved", c.proved},
            {"proved_irredundant", c.proved_irredundant},
            {"refuted", c.refuted},
            {"unknown", c.unknown},
            {"seconds", {{"enumerate", c.enumerate_seconds}, {"prune", c.prune_seconds}, {"prove", c.prove_seconds}}}};
}

struct Discover {
    DiscoverOptions options;
    std::string out;
    bool json = false, show = false, shrinking = false, no_proofs = false;
    Progress::Mode progress = Progress::Mode::Auto;

    Status operator()() {
        options.prove = !no_proofs;
        options.enumerate.cancel = &interrupted();
        Progress line(progress, "discover");
        Stopwatch watch;
        std::string phase;
        double phase_began = 0;
        options.enumerate.progress = [&](const EnumerateOptions::Progress& p) {
            const std::string here = fmt::format("{} {} {}", p.world, p.phase, p.level);
            if (here != phase) phase_began = watch.seconds();
            phase = here;
            const double spent = watch.seconds() - phase_began;
            const double left = p.done > 0 ? spent * double(p.total - p.done) / double(p.done) : 0;
            line.say(fmt::format("{}, {} {}, {} of {}, {} terms ({}/s), {} classes, {} pairs{}", p.world,
                                 p.level ? "level" : "", p.level ? fmt::format("{}", p.level) : std::string(p.phase),
                                 p.done, p.total, human_count(double(p.terms)),
                                 human_count(double(p.terms) / std::max(watch.seconds(), 1e-3)),
                                 human_count(double(p.classes)), human_count(double(p.pairs)),
                                 p.done > 0 ? ", " + human_seconds(left) + " left" : ""));
        };
        const Discovery found = TRY(discover(options));
        if (!out.empty()) TRY(write(found));
        if (json) {
            print_answer(found, watch.seconds());
        } else {
            print_text(found, watch.seconds());
        }
        return {};
    }

  private:
    // Proved rules with their certificates beside them, and what is only tested in a file of its own.
    Status write(const Discovery& found) const {
        const WriteOptions written{options.all, shrinking};
        const std::string stem = out.ends_with(".rules") ? out.substr(0, out.size() - 6) : out;
        const std::string head = fmt::format("// Found by: tessera discover --ops {} --max-ops {} --seed {}{}\n\n",
                                             found.ops, found.max_ops, found.seed, shrinking ? " --shrinking" : "");
        TRY(write_file(stem + ".rules", head + rules_text(found, Proof::Verdict::Proved, written)));
        TRY(write_file(stem + ".cert", certificates_text(found, written)));
        const std::string tested = rules_text(found, Proof::Verdict::Unknown, written);
        if (!tested.empty()) TRY(write_file(stem + ".tested", head + tested));
        return {};
    }

    void print_answer(const Discovery& found, double seconds) const {
        Json worlds = Json::object();
        for (const auto& [name, counts] : found.worlds) worlds[name] = counts_json(counts);
        Json rules = Json::array();
        for (const FoundRule& r : found.rules) {
            if (!show) continue;
            rules.push_back({{"name", r.rule.name},
                             {"rule", to_string(r.rule)},
                             {"shapes", shapes_text(r.claim)},
                             {"verdict", name_of(r.verdict)},
                             {"class", name_of(r.rule.exactness)},
                             {"reason", r.reason},
                             {"irredundant", r.irredundant},
                             {"ops", r.ops}});
            if (r.verdict != Proof::Verdict::Unknown) continue;
            rules.back()["tested_sizes"] = r.bound.sizes;
            rules.back()["error_log2"] = r.bound.per_size ? Json(*r.bound.per_size) : Json(nullptr);
        }
        Json answer{{"ops", found.ops},
                    {"max_ops", found.max_ops},
                    {"seed", found.seed},
                    {"seconds", seconds},
                    {"counts", counts_json(found.counts)},
                    {"worlds", worlds}};
        if (show) answer["rules"] = rules;
        print_json(answer);
    }

    void print_text(const Discovery& found, double seconds) const {
        if (show)
            for (const FoundRule& r : found.rules)
                if (r.irredundant || options.all) fmt::print("{:<8} {}\n", name_of(r.verdict), to_string(r.rule));
        auto row = [](const std::string& name, const DiscoverCounts& c) {
            const EnumerateCounts& e = c.enumerated;
            fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", name, human_count(e.graphs),
                       human_count(double(e.terms)), human_count(double(e.classes)), e.raw_pairs,
                       e.raw_pairs - e.renamed, c.pruned, c.irredundant, c.proved, c.proved_irredundant);
        };
        fmt::print("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "world", "graphs", "terms",
                   "classes", "pairs", "renamed", "pruned", "irredund.", "proved", "both");
        for (const auto& [name, counts] : found.worlds) row(name, counts);
        row("all", found.counts);
        const DiscoverCounts& c = found.counts;
        fmt::print("{} to {} ops, seed {}: {} ({} to enumerate, {} to prune, {} to prove)\n", found.ops, found.max_ops,
                   found.seed, human_seconds(seconds), human_seconds(c.enumerate_seconds),
                   human_seconds(c.prune_seconds), human_seconds(c.prove_seconds));
    }
};

}  // namespace

void add_discover(CLI::App& app, Chosen& chosen) {
    auto d = std::make_shared<Discover>();
    CLI::App* c = app.add_subcommand("discover", "Find rewrite rules over a set of ops, and prove them");
    c->add_option("--ops", d->options.ops, "taso, extended, a file (mine.ops), or names of ops: add,mul,relu")
        ->option_text("OPS");
    c->add_option("--max-ops", d->options.enumerate.max_ops, "Ops on either side of a rule, 1 to 4")
        ->check(CLI::Range(1, 4))
        ->option_text("N");
    c->add_option("--out", d->out, "Write the proved rules here, their certificates to .cert beside it")
        ->option_text("FILE");
    c->add_option("--seed", d->options.enumerate.seed, "Of the random values")->option_text("N");
    c->add_option("--threads", d->options.enumerate.threads, "Threads; 0: all cores")
        ->check(CLI::NonNegativeNumber)
        ->option_text("N");
    c->add_option("--work-dir", d->options.enumerate.work_dir,
                  "Where the last level is kept; an interrupted run goes on from there")
        ->option_text("FOLDER");
    c->add_flag("--all", d->options.all, "Also prove, and write, the pairs that other rules give");
    c->add_flag("--shrinking", d->shrinking, "Write only rules that leave fewer ops, or compute siblings together");
    c->add_flag("--no-proofs", d->no_proofs, "Only find");
    c->add_flag("--show", d->show, "Print the rules");
    c->add_flag("--json", d->json, "Print JSON");
    add_progress_option(*c, d->progress);
    c->footer(fmt::format("{}\n{}", kExamples, kExitStatus));
    c->callback([d, &chosen] { chosen = [d] { return report((*d)(), d->json); }; });
}

}  // namespace tessera::cli
