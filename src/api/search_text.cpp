// What a search found, as text for people.
#include <algorithm>

#include "backends/backend.h"
#include "base/error.h"
#include "tessera/search.h"

namespace tessera {
namespace {

constexpr size_t kShownPlaces = 6;

std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", seconds * 1e3); }

std::string rule_text(const SearchedRule& rule) {
    std::string text =
        fmt::format("      {:>4} x  {}, {} by its cost\n", rule.where.size(), rule.rule, milliseconds(rule.gain));
    if (!rule.why.empty()) text += fmt::format("              {}\n", rule.why);
    std::string places;
    for (size_t i = 0; i < rule.where.size() && i < kShownPlaces; ++i) places += (i ? ", " : "") + rule.where[i];
    if (rule.where.size() > kShownPlaces) places += fmt::format(" and {} more", rule.where.size() - kShownPlaces);
    return text + fmt::format("              at {}\n", places);
}

std::string how_it_ended(const SearchReport& report) {
    if (report.complete) return "all that follows from the rules";
    if (report.stopped_by == "interrupted") return "interrupted: the best so far";
    return fmt::format("stopped by its limit of {}: the best so far", report.stopped_by);
}

std::string mutants_text(const SearchReport& report, bool rules) {
    if (report.mutate_whole_seconds == 0) return "";
    std::string text = fmt::format(
        "  {} rules made for {} products of this model{}, {:.2f} s{}\n", report.mutants.size(), report.mutate_targets,
        report.mutate_remembered ? fmt::format(" ({} remembered)", report.mutate_remembered) : "",
        report.mutate_seconds, report.mutate_complete ? "" : ", stopped by its limit of seconds");
    if (report.mutate_targets == 0)
        text += report.mutate_complete
                    ? "      it has no product of two tensors whose sizes are numbers\n"
                    : "      the time was over before the first was made: give --mutate more seconds\n";
    text += fmt::format("  {}, {:.2f} s beyond the search without mutants\n",
                        report.mutate_gain > 1 ? fmt::format("{:.3f} times as fast as without them", report.mutate_gain)
                                               : "nothing faster by the clock",
                        report.mutate_whole_seconds);
    if (!rules) return text;
    for (const SearchedMutant& m : report.mutants)
        text += fmt::format(
            "      {} where {}\n              {}{}; {}\n", m.rule, m.shapes, m.boxes,
            m.share > 0 ? fmt::format(" ({:.1f} % of the output)", 100 * m.share) : "",
            m.for_all_sizes ? "proved for all sizes" : "tested exactly at these sizes, and used at no others");
    for (const std::string& why : report.mutate_refused) text += fmt::format("      refused: {}\n", why);
    return text;
}

}  // namespace

std::string SearchReport::outcome() const {
    const SearchedCandidate* best = chosen ? &candidates[chosen] : nullptr;
    if (best && best->seconds > 0) return fmt::format("{:.3g} times as fast by the clock ({})", speedup, best->what);
    if (best) return fmt::format("{} costs less, which was not timed", best->what);
    const bool timed = std::any_of(candidates.begin(), candidates.end(), [](const SearchedCandidate& c) {
        return c.seconds > 0 || c.difference > 0 || !c.refused.empty();
    });
    if (timing_seconds > 0 && !timed) return "nothing faster found: the time was over before a candidate was timed";
    return "nothing faster found";
}

std::string SearchReport::to_text(bool rules) const {
    std::string text = fmt::format("  {}\n", outcome()) + mutants_text(*this, rules);
    text +=
        fmt::format("  {}: {} rewrites, {}, {}\n", strategy, steps,
                    classes ? fmt::format("{} nodes in {} classes", nodes, classes) : fmt::format("{} graphs", nodes),
                    how_it_ended(*this));
    text += fmt::format("  {:.2f} s searching, {:.2f} s measuring {} kernels, {:.2f} s timing{}\n", search_seconds,
                        measure_seconds, measured, timing_seconds,
                        device.empty() || device == backends().front()->name() ? "" : fmt::format(", on {}", device));
    for (size_t i = 0; i < candidates.size(); ++i) {
        const SearchedCandidate& c = candidates[i];
        std::string timed = "not timed";
        if (c.seconds > 0)
            timed = fmt::format("{}, {:.3f} times", milliseconds(c.seconds), c.speedup);
        else if (!c.refused.empty())
            timed = fmt::format("not timed: {}", c.refused);
        else if (c.difference > 0)
            timed = fmt::format("not taken: its results differ by {:.1e}", c.difference);
        text +=
            fmt::format("  {} {}: {} by its cost, {}\n", i == chosen ? "*" : " ", c.what, milliseconds(c.cost), timed);
        if (rules)
            for (const SearchedRule& rule : c.rules) text += rule_text(rule);
    }
    return text;
}

}  // namespace tessera
