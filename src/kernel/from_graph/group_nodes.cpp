#include "kernel/from_graph/group_nodes.h"

#include <algorithm>
#include <unordered_map>

#include "kernel/from_graph/fuse_groups.h"

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
        if (d.has_body())
            for (int from : loaded_slots(d.body)) work.push_back(from);
        work.insert(work.end(), d.parts.begin(), d.parts.end());
        for (int from : all.size_sources(n)) work.push_back(from);
        auto found = hosts.find(d.node);
        if (!d.node || found == hosts.end()) continue;
        for (const HostNode* h : found->second) {
            work.insert(work.end(), h->inputs.begin(), h->inputs.end());
            work.insert(work.end(), h->captured.begin(), h->captured.end());
            if (h->kernel) work.insert(work.end(), h->outputs.begin(), h->outputs.end());  // it writes them all
        }
    }
    return live;
}

void one_for_each_node(const Definitions& all, Grouping& g) {
    std::unordered_map<const Node*, int> groups;
    for (size_t i = 0; i < all.list.size(); ++i) {
        const Definition& d = all.list[i];
        if (!g.live[i] || !d.has_body()) continue;
        bool part = !d.node || (!d.value && d.kind == Definition::Kind::Map);  // each of its own
        int group = int(g.groups.size());
        if (!part) group = groups.try_emplace(d.node, group).first->second;
        if (group == int(g.groups.size())) g.groups.emplace_back();
        g.group_of[i] = group;
        g.groups[size_t(group)].push_back(int(i));
    }
}

// What is read from outside of its group, also by what is inlined there.
void find_whole(const Definitions& all, const std::vector<bool>& kept, Grouping& g) {
    for (size_t i = 0; i < all.list.size(); ++i) g.whole[i] = g.group_of[i] >= 0 && kept[i];
    for (size_t group = 0; group < g.groups.size(); ++group) {
        std::vector<int> work = g.groups[group];
        std::vector<bool> seen(all.list.size());
        while (!work.empty()) {
            int n = work.back();
            work.pop_back();
            if (seen[size_t(n)]) continue;
            seen[size_t(n)] = true;
            if (g.group_of[size_t(n)] >= 0 && g.group_of[size_t(n)] != int(group)) {
                g.whole[size_t(n)] = true;
                continue;
            }
            if (!all.list[size_t(n)].has_body()) continue;
            for (int from : loaded_slots(all.list[size_t(n)].body)) work.push_back(from);
        }
    }
}

// A definition that only its group knows lies as the one that reads it wants it: its axes in the order of the reader's.
void follow_readers(const Accesses& acc, const Grouping& g, Layouts& layouts) {
    for (const std::vector<int>& members : g.groups) {
        for (size_t i = members.size(); i-- > 0;) {
            const int n = members[i];
            if (g.whole[size_t(n)] || acc.readers(n).empty()) continue;
            int reader = acc.readers(n).back();
            if (acc.def(reader).kind == Definition::Kind::Joined) continue;
            for (const Reading& a : acc.reads(reader)) {
                if (a.source != n || !same_elements(acc.def(reader).shape, acc.def(n).shape, a.at)) continue;
                const std::vector<Expr> vars = index_vars(acc.def(reader).shape);
                auto place = [&](int axis) {
                    auto of = axis_of(vars, a.at[size_t(axis)]);
                    if (!of) return -1;
                    const std::vector<int>& order = layouts.order[size_t(reader)];
                    return int(std::find(order.begin(), order.end(), int(*of)) - order.begin());
                };
                std::vector<int>& order = layouts.order[size_t(n)];
                std::stable_sort(order.begin(), order.end(), [&](int x, int y) { return place(x) < place(y); });
                break;
            }
        }
    }
}

}  // namespace

std::vector<bool> kept_definitions(const Definitions& all) {
    std::vector<bool> kept(all.list.size());
    auto keep = [&](const std::vector<int>& list) {
        for (int n : list)
            if (n >= 0) kept[size_t(n)] = true;
    };
    keep(all.outputs);
    for (const HostNode& h : all.hosts) {
        keep(h.inputs);
        keep(h.captured);
    }
    for (const Definition& d : all.list) keep(d.parts);
    return kept;
}

Grouping group_nodes(const Definitions& all, Layouts& layouts, const LowerOptions& options) {
    Grouping g;
    g.live = live_definitions(all);
    g.group_of.assign(all.list.size(), -1);
    g.whole.assign(all.list.size(), false);
    std::vector<bool> kept = kept_definitions(all);
    if (!options.fuse) {
        one_for_each_node(all, g);
        find_whole(all, kept, g);
        return g;
    }
    Accesses acc(all, layouts, g.live, kept, options.machine.blocks);
    Fusion fusion(acc, options.machine.blocks);
    if (options.schedule) fuse_attention(fusion, options);
    fuse_reductions(fusion);
    for (int n : fusion.stored)
        if (!fusion.decided[size_t(n)]) fusion.add_group({n});
    fuse_maps(fusion);
    if (fusion.blocks) join_maps(fusion, all);
    g.groups = std::move(fusion.groups);
    g.group_of = std::move(fusion.group_of);
    g.choices = std::move(fusion.choices);
    find_whole(all, kept, g);
    follow_readers(acc, g, layouts);
    return g;
}

}  // namespace tessera
