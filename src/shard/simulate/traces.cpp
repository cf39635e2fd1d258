#include "shard/simulate/traces.h"

#include <map>
#include <nlohmann/json.hpp>

namespace tessera::shard {

std::string chrome_trace_of(const std::vector<TimelineEvent>& events) {
    using TraceJson = nlohmann::ordered_json;
    TraceJson list = TraceJson::array();
    std::map<std::string, size_t> lanes;
    for (const TimelineEvent& e : events) {
        const auto [lane, is_new] = lanes.emplace(e.lane, lanes.size());
        if (is_new)
            list.push_back({{"name", "thread_name"},
                            {"ph", "M"},
                            {"pid", 0},
                            {"tid", lane->second},
                            {"args", {{"name", e.lane}}}});
        list.push_back({{"name", e.name},
                        {"cat", e.kind},
                        {"ph", "X"},
                        {"pid", 0},
                        {"tid", lane->second},
                        {"ts", e.begin * 1e6},
                        {"dur", e.seconds * 1e6}});
    }
    return TraceJson{{"traceEvents", std::move(list)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace tessera::shard
