#include <algorithm>
#include <functional>
#include <set>

#include "kernel/from_graph/fuse_groups.h"

namespace tessera {
namespace {

constexpr int64_t kFewElements = 1 << 16;  // of a map that takes no longer than its launch
constexpr size_t kMostTogether = 16;       // of such groups

class MapJoining {
  public:
    MapJoining(Fusion& fusion, const Definitions& all) : fusion_(fusion), acc_(fusion.acc) {
        // What somebody other than a kernel waits for, others may wait for.
        for (const HostNode& h : all.hosts)
            for (const auto* list : {&h.inputs, &h.captured}) elsewhere_.insert(list->begin(), list->end());
        for (const Definition& d : all.list) elsewhere_.insert(d.parts.begin(), d.parts.end());
    }

    // Readers come first, so that what several of them read finds them joined.
    void run() {
        for (int n = acc_.count() - 1; n >= 0; --n)
            if (is_candidate(n)) join(n);
        join_small([&](int group) { return ends_there(group); });
        join_small([&](int group) { return begins_there(group); });
    }

  private:
    // Groups of small maps that wait for each other in no order, some in each launch.
    void join_small(const std::function<bool(int)>& chosen) {
        std::vector<int> open;
        std::set<int> tensors;  // that they read: what one writes in the place of its own, no other may read
        for (int group = 0; group < int(fusion_.groups.size()); ++group) {
            if (!is_small(group) || !chosen(group)) continue;
            CodeSize code = fusion_.code[size_t(group)];
            for (int g : open) code += fusion_.code[size_t(g)];
            std::set<int> own;
            for (int m : fusion_.groups[size_t(group)]) add_tensors(m, own);
            const bool shared = std::any_of(own.begin(), own.end(), [&](int n) { return tensors.contains(n); });
            if (open.size() == kMostTogether || !code.fits() || shared) {
                put_together(open);
                open.clear();
                tensors.clear();
            }
            open.push_back(group);
            tensors.merge(own);
        }
        put_together(open);
    }
    // What is read of several elements.
    void add_tensors(int n, std::set<int>& to) const {
        for (const Reading& a : acc_.reads(n)) {
            if (inlined(a.source))
                add_tensors(a.source, to);
            else if (!Shape(acc_.def(a.source).shape).elements().is_int(1))
                to.insert(a.source);
        }
    }

    bool is_small(int group) const {
        const std::vector<int>& members = fusion_.groups[size_t(group)];
        return !members.empty() && std::all_of(members.begin(), members.end(), [&](int m) {
            const auto elements = Shape(acc_.def(m).shape).elements().as_int();
            return elements && *elements > 1 && *elements <= kFewElements && is_candidate(m) && !elsewhere_.contains(m);
        });
    }
    // Whether nobody else reads it: it may come last.
    bool ends_there(int group) const {
        std::set<int> groups{group};
        for (int m : fusion_.groups[size_t(group)]) reading_groups(m, groups);
        return groups.size() == 1;
    }
    // Whether it reads nothing but what the caller gives: it may come first.
    bool begins_there(int group) const {
        const std::vector<int>& members = fusion_.groups[size_t(group)];
        const std::function<bool(int)> is_given = [&](int n) {
            const Definition& d = acc_.def(n);
            if (d.kind == Definition::Kind::Given) return d.node == nullptr;
            if (std::find(members.begin(), members.end(), n) == members.end() && !inlined(n)) return false;
            return std::all_of(acc_.reads(n).begin(), acc_.reads(n).end(),
                               [&](const Reading& a) { return is_given(a.source); });
        };
        return std::all_of(members.begin(), members.end(), is_given);
    }

    void put_together(const std::vector<int>& groups) {
        if (groups.size() < 2) return;
        const int to = groups[0];
        for (size_t i = 1; i < groups.size(); ++i) {
            std::vector<int>&members = fusion_.groups[size_t(to)], &own = fusion_.groups[size_t(groups[i])];
            fusion_.code[size_t(to)] += fusion_.code[size_t(groups[i])];
            for (int m : own) fusion_.group_of[size_t(m)] = to;
            members.insert(members.end(), own.begin(), own.end());
            own.clear();
        }
        std::vector<int>& members = fusion_.groups[size_t(to)];
        std::sort(members.begin(), members.end());
        fusion_.choose(fmt::format("compute {} along with other small maps", acc_.name(members[0])),
                       yes("{} launches become one", groups.size()));
    }

    // A map that is all of its group, or a part of a group of such maps.
    bool is_candidate(int n) const {
        const int group = fusion_.group_of[size_t(n)];
        if (group < 0 || !acc_.live(n) || acc_.def(n).kind != Definition::Kind::Map || acc_.is_view(n)) return false;
        const std::vector<int>& members = fusion_.groups[size_t(group)];
        return std::all_of(members.begin(), members.end(), [&](int m) {
            return acc_.def(m).kind == Definition::Kind::Map && acc_.def(m).shape == acc_.def(n).shape &&
                   acc_.order(m) == acc_.order(n) && of_own_elements(m);
        });
    }

    bool inlined(int n) const { return fusion_.group_of[size_t(n)] < 0 && acc_.def(n).has_body(); }

    // Whether an element is made of one element of each tensor, at its own place in memory, and of tensors of one
    // element.
    bool of_own_elements(int n) const {
        return std::all_of(acc_.reads(n).begin(), acc_.reads(n).end(), [&](const Reading& a) {
            const Definition& source = acc_.def(a.source);
            if (Shape(source.shape).elements().is_int(1)) return !inlined(a.source) || of_own_elements(a.source);
            const bool own = Shape(source.shape).elements() == Shape(acc_.def(n).shape).elements() &&
                             acc_.place(a.source, a.at) == acc_.place(n, index_vars(acc_.def(n).shape));
            return own && (!inlined(a.source) || of_own_elements(a.source));
        });
    }

    // The groups that read a definition, also through what is inlined there; -1 for a reader that is none.
    void reading_groups(int n, std::set<int>& groups) const {
        for (int r : acc_.readers(n)) {
            if (inlined(r))
                reading_groups(r, groups);
            else
                groups.insert(fusion_.group_of[size_t(r)]);
        }
    }

    // A map that one group alone reads is made along with it: what both read is read once, and nothing that waits for
    // the map is waited for by that group.
    void join(int n) {
        const int from = fusion_.group_of[size_t(n)];
        std::set<int> groups;
        for (int m : fusion_.groups[size_t(from)]) {
            if (elsewhere_.contains(m)) return;
            reading_groups(m, groups);
        }
        groups.erase(from);
        if (groups.size() != 1 || *groups.begin() < 0) return;
        const int to = *groups.begin();
        std::vector<int>&members = fusion_.groups[size_t(to)], &own = fusion_.groups[size_t(from)];
        if (!is_candidate(members.back()) || acc_.def(members.back()).shape != acc_.def(n).shape) return;
        if (acc_.order(members.back()) != acc_.order(n)) return;
        CodeSize code = fusion_.code[size_t(to)];
        code += fusion_.code[size_t(from)];
        if (!code.fits()) return;
        fusion_.choose(fmt::format("compute {} along with {}", acc_.name(n), acc_.name(members.back())),
                       yes("{:.0f} KB are not read again", bytes_of(acc_.def(n)) / 1000));
        fusion_.code[size_t(to)] = code;
        for (int m : own) fusion_.group_of[size_t(m)] = to;
        members.insert(members.end(), own.begin(), own.end());
        std::sort(members.begin(), members.end());
        own.clear();
    }

    Fusion& fusion_;
    const Accesses& acc_;
    std::set<int> elsewhere_;
};

}  // namespace

void join_maps(Fusion& fusion, const Definitions& all) { MapJoining(fusion, all).run(); }

}  // namespace tessera
