#include "search_text.h"

namespace tessera::cli {
namespace {

constexpr size_t kShownPlaces = 6;

std::string rules_text(const SearchedCandidate& candidate) {
    std::string text;
    for (const SearchedRule& rule : candidate.rules) {
        text +=
            fmt::format("      {:>4} x  {}, {} by its cost\n", rule.where.size(), rule.rule, human_seconds(rule.gain));
        if (!rule.why.empty()) text += fmt::format("              {}\n", dim(escaped(rule.why)));
        std::string places;
        for (size_t i = 0; i < rule.where.size() && i < kShownPlaces; ++i)
            places += (i ? ", " : "") + escaped(rule.where[i]);
        if (rule.where.size() > kShownPlaces) places += fmt::format(" and {} more", rule.where.size() - kShownPlaces);
        text += fmt::format("              at {}\n", places);
    }
    return text;
}

}  // namespace

std::string search_text(const SearchReport& report, bool explain) {
    std::string text = fmt::format("{}\n", bold("search"));
    text += fmt::format(
        "  {}: {} rewrites, {} nodes in {} classes, {}\n", report.strategy, report.steps, report.nodes, report.classes,
        report.complete ? "all that follows from the rules" : "stopped by its limit of " + report.stopped_by);
    text += fmt::format("  {} searching, {} measuring {} kernels, {} timing\n", human_seconds(report.search_seconds),
                        human_seconds(report.measure_seconds), report.measured, human_seconds(report.timing_seconds));
    for (size_t i = 0; i < report.candidates.size(); ++i) {
        const SearchedCandidate& c = report.candidates[i];
        std::string timed =
            c.seconds > 0       ? fmt::format("{}, {:.3f} times", human_seconds(c.seconds), c.speedup)
            : c.difference > 0 ? fmt::format("not taken: its results differ by {:.1e}", c.difference)
                               : "not timed";
        text += fmt::format("  {} {}: {} by its cost, {}\n", i == report.chosen ? "*" : " ", escaped(c.what),
                            human_seconds(c.cost), timed);
        if (explain) text += rules_text(c);
    }
    return text;
}

Json search_json(const SearchReport& report, bool explain) {
    Json j{{"strategy", report.strategy},
           {"cost", report.cost},
           {"nodes", report.nodes},
           {"classes", report.classes},
           {"steps", report.steps},
           {"complete", report.complete},
           {"stopped_by", report.stopped_by},
           {"search_seconds", report.search_seconds},
           {"search_processor_seconds", report.search_processor_seconds},
           {"measure_seconds", report.measure_seconds},
           {"measured", report.measured},
           {"timing_seconds", report.timing_seconds},
           {"chosen", report.chosen},
           {"speedup", report.speedup}};
    j["candidates"] = Json::array();
    for (const SearchedCandidate& c : report.candidates) {
        Json entry{{"what", c.what}, {"cost_s", c.cost}};
        if (c.seconds > 0) {
            entry["seconds"] = c.seconds;
            entry["speedup"] = c.speedup;
        }
        if (c.difference > 0) entry["difference"] = c.difference;
        entry["rules"] = Json::array();
        for (const SearchedRule& r : c.rules) {
            Json rule{{"rule", r.rule}, {"times", r.where.size()}, {"gain_s", r.gain}};
            if (explain) rule["where"] = r.where;
            entry["rules"].push_back(std::move(rule));
        }
        j["candidates"].push_back(std::move(entry));
    }
    return j;
}

}  // namespace tessera::cli
