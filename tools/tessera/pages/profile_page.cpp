#include "pages/profile_page.h"

#include <cmath>

#include "pages/page.h"

namespace tessera::cli {
namespace {

Json step_json(const Measured& m, const StepProfile& s) {
    Json j{{"label", s.label}, {"kind", s.kind},         {"seconds", s.seconds}, {"flops", s.flops},
           {"bytes", s.bytes}, {"launches", s.launches}, {"nodes", s.nodes},     {"ops", s.ops},
           {"reads", s.reads}, {"writes", s.writes},     {"begin", s.begin},     {"end", s.end}};
    j["of_peak"] = m.of_peak(s);
    j["threads"] = Json::array();
    for (const ThreadSpan& t : s.threads) j["threads"].push_back({t.thread, t.begin, t.end});
    return j;
}

Json names_json(const std::vector<Port>& ports) {
    Json list = Json::array();
    for (const Port& p : ports) list.push_back({{"name", p.name}, {"type", p.type}});
    return list;
}

Json pairs_json(const std::vector<std::pair<std::string, std::string>>& pairs) {
    Json list = Json::array();
    for (const auto& [what, why] : pairs) list.push_back({what, why});
    return list;
}

}  // namespace

std::string profile_page(const Measured& m, const Executable& executable, const std::string& title,
                         const SymbolValues& sizes) {
    const CompileReport& report = executable.report();
    Json j{{"title", title}, {"seconds", m.seconds}, {"flops", m.flops}, {"bytes", m.bytes}};
    j["sizes"] = sizes;
    if (m.at_once) j["at_once"] = *m.at_once;
    if (std::isfinite(m.peak.flops))
        j["peak"] = {{"flops", m.peak.flops}, {"bytes", m.peak.bytes}, {"threads", m.peak.threads}};
    j["kernels"] = report.kernels;
    j["weight_bytes"] = executable.weight_bytes();
    if (auto n = executable.arena_bytes(sizes)) j["arena_bytes"] = *n;
    j["inputs"] = names_json(executable.inputs());
    j["outputs"] = names_json(executable.outputs());
    j["steps"] = Json::array();
    for (const StepProfile& s : m.steps) j["steps"].push_back(step_json(m, s));
    j["decisions"] = pairs_json(report.decisions);
    j["host_reasons"] = pairs_json(report.host_reasons);
    return page("profile.html", j);
}

}  // namespace tessera::cli
