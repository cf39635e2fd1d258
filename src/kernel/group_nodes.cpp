#include "kernel/group_nodes.h"

#include <algorithm>
#include <unordered_map>

namespace tessera {
namespace {

std::vector<bool> live_definitions(const Definitions& all) {
    std::vector<bool> live(all.list.size());
    std::vector<int> work(all.outputs.begin(), all.outputs.end());
    std::unordered_map<const Node*, std::vector<const HostNode*>> hosts;
    for (const HostNode& h : all.hosts) hosts[h.node].push_back(&h);
    while (!work.empty()) {
        int n = work.back();
        work.pop_back();
        if (n < 0 || live[size_t(n)]) continue;
        live[size_t(n)] = true;
        const Definition& d = all.list[size_t(n)];
        if (!d.given())
            for (int from : loaded_slots(d.body)) work.push_back(from);
        auto found = hosts.find(d.node);
        if (!d.node || found == hosts.end()) continue;
        for (const HostNode* h : found->second) {
            work.insert(work.end(), h->inputs.begin(), h->inputs.end());
            work.insert(work.end(), h->captured.begin(), h->captured.end());
        }
    }
    return live;
}

void one_for_each_node(const Definitions& all, Grouping& g) {
    std::unordered_map<const Node*, int> groups;
    for (size_t i = 0; i < all.list.size(); ++i) {
        if (!g.live[i] || all.list[i].given()) continue;
        auto [at, fresh] = groups.try_emplace(all.list[i].node, int(g.groups.size()));
        if (fresh) g.groups.emplace_back();
        g.group_of[i] = at->second;
        g.groups[size_t(at->second)].push_back(int(i));
    }
}

void find_whole(const Definitions& all, Grouping& g) {
    auto keep = [&](int n) {
        if (n >= 0 && g.group_of[size_t(n)] >= 0) g.whole[size_t(n)] = true;
    };
    for (int n : all.outputs) keep(n);
    for (const HostNode& h : all.hosts) {
        for (int n : h.inputs) keep(n);
        for (int n : h.captured) keep(n);
    }
    for (size_t i = 0; i < all.list.size(); ++i) {
        if (!g.live[i] || all.list[i].given()) continue;
        for (int from : loaded_slots(all.list[i].body))
            if (g.group_of[size_t(from)] != g.group_of[i]) keep(from);
    }
}

}  // namespace

Grouping group_nodes(const Definitions& all, bool) {
    Grouping g;
    g.live = live_definitions(all);
    g.group_of.assign(all.list.size(), -1);
    g.whole.assign(all.list.size(), false);
    one_for_each_node(all, g);
    find_whole(all, g);
    return g;
}

}  // namespace tessera
