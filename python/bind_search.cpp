#include "bind_search.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "tessera/discover.h"
#include "tessera/search.h"
#include "watched.h"

namespace nb = nanobind;
using namespace tessera;

namespace {

Searched search_model(const Model& model, double seconds, const std::string& strategy, const std::string& cost,
                      const std::string& precision, const std::string& target, const std::vector<std::string>& rules,
                      bool built_in_rules, bool refute_rules, bool tested_rules, int max_rule_ops, bool time_candidates,
                      size_t max_nodes, int threads, double alpha, size_t budget,
                      const std::optional<std::string>& cache, double mutate,
                      const std::map<std::string, int64_t>& sizes, nb::object progress) {
    struct Step {
        std::string what;
        size_t done, total;
    };
    Watched<Step> watched;
    std::function<void(const Step&)> deliver;
    if (!progress.is_none()) deliver = [&](const Step& s) { progress(s.what, s.done, s.total); };
    ModelSearchOptions options{.seconds = seconds,
                               .strategy = strategy,
                               .cost = cost,
                               .precision = precision,
                               .target = target,
                               .rules = rules,
                               .built_in_rules = built_in_rules,
                               .refute_rules = refute_rules,
                               .tested_rules = tested_rules,
                               .max_rule_ops = max_rule_ops,
                               .time_candidates = time_candidates,
                               .max_nodes = max_nodes,
                               .threads = threads,
                               .sizes = sizes,
                               .alpha = alpha,
                               .budget = budget,
                               .cache = cache,
                               .mutate = mutate,
                               .cancel = watched.cancel(),
                               .progress = [&](std::string_view what, size_t done, size_t total) {
                                   watched.tell({std::string(what), done, total});
                               }};
    return watched.run<Searched>([&] { return search(model, options); }, deliver);
}

// As the library tells it, with strings of its own.
struct ToldProgress {
    std::string world, phase;
    int level;
    int64_t done, total, terms, classes, pairs;
};

DiscoveredRules discover(const std::string& ops, int max_ops, const std::string& out, uint64_t seed, int threads,
                         const std::string& work_dir, bool prove, bool all, bool shrinking, bool corrected,
                         nb::object progress) {
    Watched<ToldProgress> watched;
    std::function<void(const ToldProgress&)> deliver;
    if (!progress.is_none()) deliver = [&](const ToldProgress& p) { progress(p); };
    DiscoverRulesOptions options{.ops = ops,
                                 .max_ops = max_ops,
                                 .out = out,
                                 .seed = seed,
                                 .threads = threads,
                                 .work_dir = work_dir,
                                 .prove = prove,
                                 .all = all,
                                 .corrected = corrected,
                                 .shrinking = shrinking,
                                 .cancel = watched.cancel(),
                                 .progress = [&](const DiscoverProgress& p) {
                                     watched.tell({std::string(p.world), std::string(p.phase), p.level, p.done, p.total,
                                                   p.terms, p.classes, p.pairs});
                                 }};
    return watched.run<DiscoveredRules>([&] { return discover_rules(options); }, deliver);
}

void bind_reports(nb::module_& m) {
    nb::class_<SearchedRule>(m, "SearchedRule", "A rule that a candidate uses: where, and its estimated gain.")
        .def_ro("rule", &SearchedRule::rule)
        .def_ro("why", &SearchedRule::why)
        .def_ro("where", &SearchedRule::where)
        .def_ro("gain", &SearchedRule::gain)
        .def("__repr__", [](const SearchedRule& r) {
            return fmt::format("<{} x {}: gains {:.3g} ms>", r.where.size(), r.rule, r.gain * 1e3);
        });

    nb::class_<SearchedCandidate>(m, "SearchedCandidate", "A candidate graph with its cost and its measured time.")
        .def_ro("what", &SearchedCandidate::what)
        .def_ro("cost", &SearchedCandidate::cost)
        .def_ro("seconds", &SearchedCandidate::seconds)
        .def_ro("speedup", &SearchedCandidate::speedup)
        .def_ro("difference", &SearchedCandidate::difference)
        .def_ro("refused", &SearchedCandidate::refused)
        .def_ro("rules", &SearchedCandidate::rules)
        .def("__repr__", [](const SearchedCandidate& c) {
            return fmt::format("<{}: cost {:.3g} ms, {:.3g} ms by the clock>", c.what, c.cost * 1e3, c.seconds * 1e3);
        });

    nb::class_<SearchedMutant>(m, "SearchedMutant", "A rule that was made for the model: a mutant and its correction.")
        .def_ro("rule", &SearchedMutant::rule)
        .def_ro("text", &SearchedMutant::text)
        .def_ro("boxes", &SearchedMutant::boxes)
        .def_ro("shapes", &SearchedMutant::shapes)
        .def_ro("share", &SearchedMutant::share)
        .def_ro("for_all_sizes", &SearchedMutant::for_all_sizes)
        .def_ro("certificate", &SearchedMutant::certificate)
        .def_ro("picture", &SearchedMutant::picture)
        .def_ro("where", &SearchedMutant::where)
        .def("__repr__", [](const SearchedMutant& m) { return fmt::format("<{}: {}>", m.rule, m.boxes); });

    nb::class_<SearchReport>(m, "SearchReport", "The report of a search.")
        .def_ro("strategy", &SearchReport::strategy)
        .def_ro("cost", &SearchReport::cost)
        .def_ro("device", &SearchReport::device)
        .def_ro("nodes", &SearchReport::nodes)
        .def_ro("classes", &SearchReport::classes)
        .def_ro("steps", &SearchReport::steps)
        .def_ro("complete", &SearchReport::complete)
        .def_ro("stopped_by", &SearchReport::stopped_by)
        .def_ro("search_seconds", &SearchReport::search_seconds)
        .def_ro("measure_seconds", &SearchReport::measure_seconds)
        .def_ro("timing_seconds", &SearchReport::timing_seconds)
        .def_ro("search_processor_seconds", &SearchReport::search_processor_seconds)
        .def_ro("measured", &SearchReport::measured)
        .def_ro("candidates", &SearchReport::candidates)
        .def_ro("mutants", &SearchReport::mutants)
        .def_ro("mutate_targets", &SearchReport::mutate_targets)
        .def_ro("mutate_remembered", &SearchReport::mutate_remembered)
        .def_ro("mutate_seconds", &SearchReport::mutate_seconds)
        .def_ro("mutate_whole_seconds", &SearchReport::mutate_whole_seconds)
        .def_ro("mutate_complete", &SearchReport::mutate_complete)
        .def_ro("mutate_gain", &SearchReport::mutate_gain)
        .def_ro("chosen", &SearchReport::chosen)
        .def_ro("speedup", &SearchReport::speedup)
        .def(
            "explain", [](const SearchReport& r) { return r.to_text(); },
            "The rules of each candidate and where they apply.")
        .def("__str__", [](const SearchReport& r) { return r.to_text(false); })
        .def("__repr__", [](const SearchReport& r) {
            const std::string found = r.speedup > 1
                                          ? fmt::format("the chosen one {:.3g} times as fast as the input", r.speedup)
                                          : "nothing faster found";
            return fmt::format("<tessera.SearchReport: {}, {}>", plural(int64_t(r.candidates.size()), "candidate"),
                               found);
        });

    nb::class_<Searched>(m, "Searched").def_ro("model", &Searched::model).def_ro("report", &Searched::report);
}

void bind_discovery(nb::module_& m) {
    nb::class_<ToldProgress>(m, "DiscoverProgress", "The progress of a discovery.")
        .def_ro("world", &ToldProgress::world)
        .def_ro("phase", &ToldProgress::phase)
        .def_ro("level", &ToldProgress::level)
        .def_ro("done", &ToldProgress::done)
        .def_ro("total", &ToldProgress::total)
        .def_ro("terms", &ToldProgress::terms)
        .def_ro("classes", &ToldProgress::classes)
        .def_ro("pairs", &ToldProgress::pairs)
        .def("__repr__",
             [](const ToldProgress& p) { return fmt::format("<{} {}: {} of {}>", p.world, p.phase, p.done, p.total); });

    nb::class_<DiscoveredCounts>(m, "DiscoveredCounts", "Counts of each kind; see docs/superoptimizer.md.")
        .def_ro("graphs", &DiscoveredCounts::graphs)
        .def_ro("terms", &DiscoveredCounts::terms)
        .def_ro("classes", &DiscoveredCounts::classes)
        .def_ro("raw_pairs", &DiscoveredCounts::raw_pairs)
        .def_ro("renamed", &DiscoveredCounts::renamed)
        .def_ro("common_subgraph", &DiscoveredCounts::common_subgraph)
        .def_ro("pruned", &DiscoveredCounts::pruned)
        .def_ro("siblings", &DiscoveredCounts::siblings)
        .def_ro("irredundant", &DiscoveredCounts::irredundant)
        .def_ro("proved", &DiscoveredCounts::proved)
        .def_ro("proved_irredundant", &DiscoveredCounts::proved_irredundant)
        .def_ro("refuted", &DiscoveredCounts::refuted)
        .def_ro("unknown", &DiscoveredCounts::unknown)
        .def_ro("enumerate_seconds", &DiscoveredCounts::enumerate_seconds)
        .def_ro("prune_seconds", &DiscoveredCounts::prune_seconds)
        .def_ro("prove_seconds", &DiscoveredCounts::prove_seconds)
        .def("__repr__", [](const DiscoveredCounts& c) {
            return fmt::format("<tessera.DiscoveredCounts: {}, {} irredundant, {} proved>", plural(c.terms, "term"),
                               c.irredundant, c.proved);
        });

    nb::class_<DiscoveredRule>(m, "DiscoveredRule", "A discovered rule and its verdict.")
        .def_ro("name", &DiscoveredRule::name)
        .def_ro("text", &DiscoveredRule::text)
        .def_ro("shapes", &DiscoveredRule::shapes)
        .def_ro("verdict", &DiscoveredRule::verdict)
        .def_ro("exactness", &DiscoveredRule::exactness)
        .def_ro("reason", &DiscoveredRule::reason)
        .def_ro("tested_sizes", &DiscoveredRule::tested_sizes)
        .def_ro("error_log2", &DiscoveredRule::error_log2)
        .def_ro("certificate", &DiscoveredRule::certificate)
        .def_ro("irredundant", &DiscoveredRule::irredundant)
        .def_ro("shrinks", &DiscoveredRule::shrinks)
        .def_ro("ops", &DiscoveredRule::ops)
        .def_ro("boxes", &DiscoveredRule::boxes)
        .def_ro("picture", &DiscoveredRule::picture)
        .def("__repr__", [](const DiscoveredRule& r) { return fmt::format("<{} {}>", r.verdict, r.text); });

    nb::class_<DiscoveredRules>(m, "DiscoveredRules", "The result of a discovery.")
        .def_ro("ops", &DiscoveredRules::ops)
        .def_ro("max_ops", &DiscoveredRules::max_ops)
        .def_ro("seed", &DiscoveredRules::seed)
        .def_ro("seconds", &DiscoveredRules::seconds)
        .def_ro("counts", &DiscoveredRules::counts)
        .def_ro("worlds", &DiscoveredRules::worlds)
        .def_ro("rules", &DiscoveredRules::rules)
        .def_ro("files", &DiscoveredRules::files)
        .def_ro("warnings", &DiscoveredRules::warnings)
        .def("__repr__", [](const DiscoveredRules& r) {
            return fmt::format("<tessera.DiscoveredRules over {}: {}, {} proved, in {:.3g} s>", r.ops,
                               plural(int64_t(r.rules.size()), "rule"), r.counts.proved, r.seconds);
        });
}

}  // namespace

void bind_search(nb::module_& m) {
    bind_reports(m);
    bind_discovery(m);
    m.def("search", &search_model, nb::arg("model"), nb::arg("seconds"), nb::arg("strategy"), nb::arg("cost"),
          nb::arg("precision"), nb::arg("target"), nb::arg("rules"), nb::arg("built_in_rules"), nb::arg("refute_rules"),
          nb::arg("tested_rules"), nb::arg("max_rule_ops"), nb::arg("time_candidates"), nb::arg("max_nodes"),
          nb::arg("threads"), nb::arg("alpha"), nb::arg("budget"), nb::arg("cache").none(), nb::arg("mutate"),
          nb::arg("sizes"), nb::arg("progress").none());
    m.def("discover", &discover, nb::arg("ops"), nb::arg("max_ops"), nb::arg("out"), nb::arg("seed"),
          nb::arg("threads"), nb::arg("work_dir"), nb::arg("prove"), nb::arg("all"), nb::arg("shrinking"),
          nb::arg("corrected"), nb::arg("progress").none());
}
