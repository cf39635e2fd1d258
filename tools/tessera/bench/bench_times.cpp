#include <algorithm>
#include <cmath>

#include "bench/bench.h"

namespace tessera::cli {

Quartiles quartiles(std::vector<double> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    auto at = [&](double share) {
        double place = share * double(values.size() - 1);
        auto i = static_cast<size_t>(place);
        double rest = place - double(i);
        return i + 1 < values.size() ? values[i] * (1 - rest) + values[i + 1] * rest : values[i];
    };
    return {at(0.25), at(0.5), at(0.75)};
}

Quartiles ratio_to(const RunnerTimes& ours, const RunnerTimes& theirs) {
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(ours.turns.size(), theirs.turns.size()); ++i)
        ratios.push_back(theirs.turns[i] / ours.turns[i]);
    return quartiles(ratios);
}

Json times_json(const std::vector<ThreadTimes>& all) {
    Json list = Json::array();
    for (const ThreadTimes& t : all) {
        Json runners = Json::array();
        for (const RunnerTimes& r : t.runners) {
            Json j{{"name", r.name}};
            if (!r.failed.empty()) {
                j["failed"] = r.failed;
                runners.push_back(std::move(j));
                continue;
            }
            Quartiles q = quartiles(r.seconds);
            j["version"] = r.version;
            j["median_s"] = q.median;
            j["quartiles_s"] = {q.low, q.high};
            j["fastest_s"] = *std::min_element(r.seconds.begin(), r.seconds.end());
            j["runs"] = r.seconds.size();
            j["turns"] = r.turns.size();
            j["load_s"] = r.load;
            j["peak_rss"] = r.peak_rss;
            if (&r != &t.runners[0]) {
                Quartiles ratio = ratio_to(t.runners[0], r);
                j["ratio"] = ratio.median;
                j["ratio_quartiles"] = {ratio.low, ratio.high};
            }
            if (r.difference) j["difference"] = std::isfinite(*r.difference) ? Json(*r.difference) : Json("inf");
            if (r.error) j["error"] = std::isfinite(*r.error) ? Json(*r.error) : Json("inf");
            runners.push_back(std::move(j));
        }
        list.push_back({{"threads", t.threads}, {"runners", std::move(runners)}});
    }
    return list;
}

namespace {

std::string precise_seconds(double s) {
    if (s < 1e-4) return fmt::format("{:.2f} µs", s * 1e6);
    return s < 1 ? fmt::format("{:.3f} ms", s * 1e3) : fmt::format("{:.3f} s", s);
}
std::string scientific(const std::optional<double>& n) { return n ? fmt::format("{:.1e}", *n) : "-"; }

}  // namespace

void print_times(const std::vector<ThreadTimes>& all) {
    bool errors = false;
    for (const ThreadTimes& t : all)
        for (const RunnerTimes& r : t.runners) errors |= r.error.has_value();
    fmt::print("{}\n", bold(fmt::format("{:>7}  {:<20} {:>11} {:>25} {:>5}  {:<18} {:>10} {:>9} {:>10}{}", "threads",
                                        "", "median", "quartiles", "runs", "ratio", "peak RSS", "load", "difference",
                                        errors ? "    error" : "")));
    for (const ThreadTimes& t : all)
        for (const RunnerTimes& r : t.runners) {
            std::string name = r.name + (r.version.empty() ? "" : " " + r.version);
            if (!r.failed.empty()) {
                fmt::print("{:>7}  {:<20} failed: {}\n", t.threads, name, escaped(r.failed));
                continue;
            }
            Quartiles q = quartiles(r.seconds);
            std::string ratio;
            if (&r != &t.runners[0]) {
                Quartiles by = ratio_to(t.runners[0], r);
                ratio = fmt::format("{:.2f} ({:.2f}-{:.2f})", by.median, by.low, by.high);
            }
            fmt::print("{:>7}  {:<20} {:>11} {:>25} {:>5}  {:<18} {:>10} {:>9} {:>10}{}\n", t.threads, name,
                       precise_seconds(q.median), precise_seconds(q.low) + " - " + precise_seconds(q.high),
                       r.seconds.size(), ratio, human_bytes(double(r.peak_rss)), human_seconds(r.load),
                       scientific(r.difference), errors ? "  " + scientific(r.error) : "");
        }
}

}  // namespace tessera::cli
