#include "search_text.h"

namespace tessera::cli {

std::string search_text(const SearchReport& report, bool explain) {
    return fmt::format("{}\n{}", bold("search"), escaped(report.to_text(explain)));
}

Json search_json(const SearchReport& report, bool explain) {
    Json j{{"strategy", report.strategy},
           {"cost", report.cost},
           {"device", report.device},
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
    if (report.mutate_whole_seconds > 0) {
        Json made{{"targets", report.mutate_targets},
                  {"remembered", report.mutate_remembered},
                  {"candidates", report.mutate_candidates},
                  {"seconds", report.mutate_seconds},
                  {"whole_seconds", report.mutate_whole_seconds},
                  {"gain", report.mutate_gain},
                  {"complete", report.mutate_complete},
                  {"refused", report.mutate_refused}};
        made["rules"] = Json::array();
        for (const SearchedMutant& m : report.mutants) {
            Json rule{{"rule", m.rule},   {"boxes", m.boxes}, {"shapes", m.shapes},
                      {"share", m.share}, {"where", m.where}, {"for_all_sizes", m.for_all_sizes}};
            if (explain) {
                rule["text"] = m.text;
                rule["certificate"] = m.certificate;
                rule["picture"] = m.picture;
            }
            made["rules"].push_back(std::move(rule));
        }
        j["mutate"] = std::move(made);
    }
    j["candidates"] = Json::array();
    for (const SearchedCandidate& c : report.candidates) {
        Json entry{{"what", c.what}, {"cost_s", c.cost}};
        if (c.seconds > 0) {
            entry["seconds"] = c.seconds;
            entry["speedup"] = c.speedup;
        }
        if (c.difference > 0) entry["difference"] = c.difference;
        if (!c.refused.empty()) entry["refused"] = c.refused;
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
