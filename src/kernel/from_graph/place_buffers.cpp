#include "kernel/from_graph/place_buffers.h"

#include <algorithm>

namespace tessera {
namespace {

class Placing {
  public:
    Placing(const Definitions& all, const Layouts& layouts, Grouping& grouping, Program& program)
        : all_(all),
          layouts_(layouts),
          g_(grouping),
          program_(program),
          in_(all.list.size()),
          storage_(all.list.size()) {}

    std::vector<Storage> run() {
        find_parts();
        for (const auto& v : program_.graph->inputs())
            program_.inputs.push_back(keep(all_.number(v.get()), BufferRole::Input));
        for (size_t i = 0; i < all_.list.size(); ++i) {
            const Definition& d = all_.list[i];
            if (d.kind != Definition::Kind::Given || !g_.live[i] || storage_[i].buffer >= 0) continue;
            keep(int(i), d.value && d.value->is_constant() ? BufferRole::Constant
                         : is_output(int(i))               ? BufferRole::Output
                                                           : BufferRole::Intermediate);
        }
        for (int n : all_.outputs) {
            if (storage_[size_t(n)].buffer < 0) keep(n, BufferRole::Output);
            program_.outputs.push_back(storage_[size_t(n)].buffer);
        }
        // What others are a part of stands after them.
        for (size_t i = all_.list.size(); i-- > 0;) {
            bool joined = all_.list[i].kind == Definition::Kind::Joined && g_.live[i];
            if ((!joined && !g_.whole[i]) || storage_[i].buffer >= 0) continue;
            if (in_[i].joined < 0)
                keep(int(i), BufferRole::Intermediate);
            else
                place_part(int(i));
        }
        return std::move(storage_);
    }

  private:
    struct Part {
        int joined = -1;
        Expr from = 0;                // along its axis
        std::vector<int> sizes = {};  // that define sizes of the whole
    };

    const Definition& def(int n) const { return all_.list[size_t(n)]; }
    bool is_output(int n) const { return std::find(all_.outputs.begin(), all_.outputs.end(), n) != all_.outputs.end(); }

    void find_parts() {
        std::vector<bool> needed(all_.list.size());  // as it is, by others than kernels
        for (int n : all_.outputs) needed[size_t(n)] = true;
        for (const HostNode& h : all_.hosts)
            for (const auto* list : {&h.inputs, &h.captured})
                for (int n : *list)
                    if (n >= 0) needed[size_t(n)] = true;
        for (size_t i = all_.list.size(); i-- > 0;) {
            const Definition& d = all_.list[i];
            if (d.kind != Definition::Kind::Joined || !g_.live[i]) continue;
            Expr from = 0;
            std::vector<int> sizes = all_.size_sources(int(i));
            sizes.insert(sizes.end(), in_[i].sizes.begin(), in_[i].sizes.end());
            for (int p : d.parts) {
                int made = made_in_place(int(i), p, needed);
                if (made != p && leads_to(made, sizes)) made = p;
                in_[size_t(made)] = {int(i), from, sizes};
                if (made != p) drop(p);
                from = from + def(p).shape[size_t(d.axis)];
            }
        }
    }

    // The part, or what it is a mere copy of, where that can be the part itself.
    int made_in_place(int joined, int part, const std::vector<bool>& needed) const {
        const Definition& p = def(part);
        if (!p.body.is(ExprKind::Load) || p.body.args() != index_vars(p.shape)) return part;
        int n = p.body.node().slot;
        bool computed = g_.whole[size_t(n)] || def(n).kind == Definition::Kind::Joined;
        bool alone = g_.groups[size_t(g_.group_of[size_t(part)])].size() == 1;
        if (!computed || !alone || needed[size_t(n)] || in_[size_t(n)].joined >= 0) return part;
        if (layouts_.order[size_t(n)] != layouts_.order[size_t(joined)] || !(def(n).shape == p.shape)) return part;
        return n;
    }

    // Whether one of `ends` is computed from the definition, or along with it.
    bool leads_to(int n, const std::vector<int>& ends) {
        if (ends.empty()) return false;
        if (hosts_.empty())
            for (const HostNode& h : all_.hosts) hosts_[h.node].push_back(&h);
        std::vector<int> work = ends;
        std::vector<bool> seen(all_.list.size());
        while (!work.empty()) {
            const int m = work.back();
            work.pop_back();
            if (m < 0 || seen[size_t(m)]) continue;
            if (m == n) return true;
            seen[size_t(m)] = true;
            const Definition& d = def(m);
            auto add = [&](const std::vector<int>& more) { work.insert(work.end(), more.begin(), more.end()); };
            if (d.has_body()) add(loaded_slots(d.body));
            add(d.parts);
            add(all_.size_sources(m));
            add(in_[size_t(m)].sizes);
            if (const int group = g_.group_of[size_t(m)]; group >= 0) add(g_.groups[size_t(group)]);
            auto hosts = hosts_.find(d.node);
            if (!d.node || hosts == hosts_.end()) continue;
            for (const HostNode* h : hosts->second) {
                add(h->inputs);
                add(h->captured);
            }
        }
        return false;
    }

    void drop(int part) {
        int& group = g_.group_of[size_t(part)];
        g_.groups[size_t(group)].clear();
        group = -1;
        g_.whole[size_t(part)] = false;
    }

    int keep(int n, BufferRole role) {
        const Definition& d = def(n);
        const std::vector<int>& order = layouts_.order[size_t(n)];
        ProgramBuffer b;
        b.dtype = d.value && d.value->type().is_tensor() ? d.value->type().tensor().dtype : d.dtype;
        for (size_t k = 0; k < d.shape.size(); ++k) b.shape.push_back(d.shape[size_t(order[k])]);
        b.role = role;
        b.value = d.value;
        if (!std::is_sorted(order.begin(), order.end())) b.order = order;
        if (d.value) b.name = d.value->name();
        if (role == BufferRole::Constant) b.tensor = d.value->tensor();
        storage_[size_t(n)] = {int(program_.buffers.size()), order, {}};
        program_.buffers.push_back(std::move(b));
        return storage_[size_t(n)].buffer;
    }

    void place_part(int n) {
        const Part& part = in_[size_t(n)];
        Storage s = storage_[size_t(part.joined)];
        CHECK(s.buffer >= 0, "a part of {} is placed before it", def(part.joined).value->name());
        if (s.offset.empty()) s.offset.assign(s.order.size(), Expr(0));
        for (size_t k = 0; k < s.order.size(); ++k)
            if (s.order[k] == def(part.joined).axis) s.offset[k] = s.offset[k] + part.from;
        s.sizes = part.sizes;
        storage_[size_t(n)] = std::move(s);
    }

    const Definitions& all_;
    const Layouts& layouts_;
    Grouping& g_;
    Program& program_;
    std::vector<Part> in_;  // by definition: what it is a part of
    std::unordered_map<const Node*, std::vector<const HostNode*>> hosts_;
    std::vector<Storage> storage_;
};

}  // namespace

std::vector<Storage> place_buffers(const Definitions& all, const Layouts& layouts, Grouping& grouping,
                                   Program& program) {
    return Placing(all, layouts, grouping, program).run();
}

}  // namespace tessera
