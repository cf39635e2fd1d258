#include "shard/search/few_annotations.h"

#include <algorithm>
#include <map>

#include "shard/search/colours.h"

namespace tessera::shard {
namespace {

using Group = std::vector<const Value*>;

// Plans with fewer annotations that are compared: fewer for large graphs.
constexpr size_t kTriedUnits = 30000, kFewestTries = 8, kMostTries = 32;

// Values in equal places that have equal homes: weights and inputs by their bytes, then results in their order.
std::vector<Group> groups_of(const Graph& graph, const Mesh& mesh, const Shardings& homes) {
    const Colours colours(graph);
    std::map<std::pair<uint64_t, std::string>, size_t> numbers;
    std::vector<Group> groups;
    std::vector<double> bytes;
    auto add = [&](const Value* v, bool source) {
        const auto home = homes.find(v);
        if (home == homes.end() || v->uses().empty()) return;
        const auto [found, is_new] =
            numbers.emplace(std::pair(colours.of(v), to_string(home->second, mesh)), groups.size());
        if (is_new) {
            groups.emplace_back();
            bytes.push_back(0);
        }
        groups[found->second].push_back(v);
        if (source) bytes[found->second] += double(bytes_of(*v));
    };
    for (const auto& v : graph.inputs()) add(v.get(), true);
    for (const auto& v : graph.constants()) add(v.get(), true);
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) add(n->output(i), false);
    std::vector<size_t> order(groups.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
    std::vector<Group> sorted;
    for (size_t i : order) sorted.push_back(std::move(groups[i]));
    return sorted;
}

}  // namespace

Result<std::optional<Judged>> few_annotations(const Graph& graph, const std::vector<Unit>& units, const Mesh& mesh,
                                              const Shardings& given, const Shardings& homes, const Judge& judge,
                                              const IsAsGood& is_as_good) {
    const std::vector<Group> groups = groups_of(graph, mesh, homes);
    std::vector<Group> added;
    Judged now = TRY(judge(given));
    for (size_t more = 1; !is_as_good(now); more *= 2) {
        const Shardings values = propagate(graph, units, mesh, now.given).values;
        Shardings list = now.given;
        size_t left = more;
        for (const Group& g : groups) {
            Group group;
            for (const Value* v : g)
                if (!list.contains(v) && values.at(v).dims != homes.at(v).dims) group.push_back(v);
            if (group.empty()) continue;
            for (const Value* v : group) list[v] = homes.at(v);
            added.push_back(std::move(group));
            if (--left == 0) break;
        }
        if (left == more) return std::optional<Judged>();
        now = TRY(judge(list));
    }
    // Half of them at once, then fewer; the last ones first, which are the smallest.
    size_t tries = std::clamp<size_t>(kTriedUnits / (units.size() + 1), kFewestTries, kMostTries);
    for (size_t length = std::max<size_t>(added.size() / 2, 1); length > 0; length /= 2)
        for (size_t end = added.size(); end > 0 && tries > 0; --tries) {
            const size_t begin = end > length ? end - length : 0;
            Shardings fewer = now.given;
            for (size_t i = begin; i < end; ++i)
                for (const Value* v : added[i]) fewer.erase(v);
            Judged without = TRY(judge(fewer));
            if (is_as_good(without)) {
                now = std::move(without);
                added.erase(added.begin() + int64_t(begin), added.begin() + int64_t(end));
            }
            end = begin;
        }
    return std::optional<Judged>(std::move(now));
}

}  // namespace tessera::shard
