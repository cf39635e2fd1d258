#include <algorithm>
#include <set>

#include "kernel/from_graph/fuse_groups.h"

namespace tessera {
namespace {

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
    }

  private:
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
