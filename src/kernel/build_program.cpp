#include "kernel/build_program.h"

#include <algorithm>
#include <map>
#include <queue>

#include "graph/count.h"
#include "kernel/schedule.h"

namespace tessera {
namespace {

Lowered plainly(const Compute& compute) {
    Lowered made;
    made.kernel = plain_nests(compute);
    for (size_t i = compute.params; i < compute.buffers.size(); ++i) made.scratch.push_back(int(i));
    return made;
}

Expr bytes_of(const std::vector<Expr>& shape, DType dtype) {
    Expr bytes = int64_t(dtype_bytes(dtype));
    for (const Expr& d : shape) bytes = bytes * d;
    return bytes;
}

// "conv+relu conv1": what it computes, and where the model has it.
std::string label_of(const std::vector<const Node*>& nodes) {
    std::string ops, name;
    for (const Node* node : nodes) {
        ops += (ops.empty() ? "" : "+") + node->op().name;
        if (name.empty()) name = node->name();
    }
    if (nodes.empty()) return "copy";
    if (name.empty()) name = nodes.back()->output()->name();
    return ops + " " + name;
}

class Assembly {
  public:
    Assembly(std::shared_ptr<const Graph> graph, const Definitions& all, Grouping grouping, const LowerOptions& options)
        : all_(all), grouping_(std::move(grouping)), options_(options) {
        program_.graph = std::move(graph);
    }

    Result<Program> run() {
        storage_.resize(all_.list.size());
        store_given();
        store_outputs();
        for (size_t i = 0; i < all_.list.size(); ++i)
            if (grouping_.whole[i] && storage_[i].buffer < 0) keep(int(i), BufferRole::Intermediate);
        for (const Unit& unit : order_units()) {
            if (unit.host)
                add_host(*unit.host);
            else
                TRY(add_kernel(unit.group));
        }
        program_.choices.insert(program_.choices.begin(), grouping_.choices.begin(), grouping_.choices.end());
        return std::move(program_);
    }

  private:
    struct Unit {
        int group = -1;
        const HostNode* host = nullptr;
    };

    const Definition& def(int n) const { return all_.list[size_t(n)]; }

    int keep(int n, BufferRole role) {
        const Definition& d = def(n);
        ProgramBuffer b;
        b.dtype = d.dtype;
        b.shape = d.shape;
        b.role = role;
        b.value = d.value;
        if (d.value) b.name = d.value->name();
        if (role == BufferRole::Constant) b.tensor = d.value->tensor();
        storage_[size_t(n)].buffer = int(program_.buffers.size());
        program_.buffers.push_back(std::move(b));
        return storage_[size_t(n)].buffer;
    }

    void store_given() {
        for (const auto& v : program_.graph->inputs())
            program_.inputs.push_back(keep(all_.number(v.get()), BufferRole::Input));
        for (size_t i = 0; i < all_.list.size(); ++i) {
            const Definition& d = all_.list[i];
            if (!grouping_.live[i] || !d.given() || storage_[i].buffer >= 0) continue;
            bool constant = d.value->is_constant();
            bool output = !constant && std::find(all_.outputs.begin(), all_.outputs.end(), int(i)) != all_.outputs.end();
            keep(int(i), constant ? BufferRole::Constant : output ? BufferRole::Output : BufferRole::Intermediate);
        }
    }

    // An output that is another one, an input or a constant is a buffer that already is.
    void store_outputs() {
        for (int n : all_.outputs) {
            if (storage_[size_t(n)].buffer < 0) keep(n, BufferRole::Output);
            program_.outputs.push_back(storage_[size_t(n)].buffer);
        }
    }

    // Kahn's order, the one that comes first in the graph before others.
    std::vector<Unit> order_units() {
        std::vector<Unit> units;
        std::vector<int> first;  // by unit: where in the graph it stands
        std::vector<int> unit_of(all_.list.size(), -1);
        std::map<const Node*, int> checks;
        for (size_t g = 0; g < grouping_.groups.size(); ++g) {
            for (int n : grouping_.groups[g]) unit_of[size_t(n)] = int(units.size());
            first.push_back(grouping_.groups[g].empty() ? 0 : grouping_.groups[g].back());
            units.push_back({int(g), nullptr});
        }
        for (const HostNode& h : all_.hosts) {
            if (!needed(h)) continue;
            int at = 0;
            for (int n : h.inputs) at = std::max(at, n);
            for (int n : h.outputs)
                if (n >= 0) {
                    unit_of[size_t(n)] = int(units.size());
                    at = std::max(at, n);
                }
            if (h.check_only) checks[h.node] = int(units.size());
            first.push_back(at);
            units.push_back({-1, &h});
        }
        std::vector<std::vector<int>> users(units.size());
        std::vector<int> waits(units.size());
        auto depend = [&](int unit, int on) {
            if (on < 0 || on == unit) return;
            users[size_t(on)].push_back(unit);
            ++waits[size_t(unit)];
        };
        for (size_t u = 0; u < units.size(); ++u) {
            if (units[u].host) {
                for (const auto* list : {&units[u].host->inputs, &units[u].host->captured})
                    for (int n : *list)
                        if (n >= 0) depend(int(u), unit_of[size_t(n)]);
                continue;
            }
            for (int n : all_reads(units[u].group, checks, [&](int check) { depend(int(u), check); }))
                depend(int(u), unit_of[size_t(n)]);
        }
        using Entry = std::pair<int, int>;
        std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
        for (size_t u = 0; u < units.size(); ++u)
            if (waits[u] == 0) ready.emplace(first[u], int(u));
        std::vector<Unit> order;
        while (!ready.empty()) {
            int u = ready.top().second;
            ready.pop();
            order.push_back(units[size_t(u)]);
            for (int next : users[size_t(u)])
                if (--waits[size_t(next)] == 0) ready.emplace(first[size_t(next)], next);
        }
        CHECK(order.size() == units.size(), "groups depend on each other in a circle");
        return order;
    }

    bool needed(const HostNode& h) const {
        if (!h.check_only)
            return std::any_of(h.outputs.begin(), h.outputs.end(), [&](int n) { return n >= 0 && grouping_.live[size_t(n)]; });
        for (size_t i = 0; i < all_.list.size(); ++i)
            if (grouping_.live[i] && all_.list[i].node == h.node) return true;
        return false;
    }

    // The definitions that a group reads, through those that are inlined; calls `check` for nodes that are checked first.
    template <typename Check>
    std::vector<int> all_reads(int group, const std::map<const Node*, int>& checks, const Check& check) {
        std::vector<int> reads, work = grouping_.groups[size_t(group)];
        std::vector<bool> seen(all_.list.size());
        while (!work.empty()) {
            int n = work.back();
            work.pop_back();
            if (seen[size_t(n)]) continue;
            seen[size_t(n)] = true;
            bool own = grouping_.group_of[size_t(n)] == group;
            if (!own && (def(n).given() || grouping_.group_of[size_t(n)] >= 0)) {
                reads.push_back(n);
                continue;
            }
            if (auto c = checks.find(def(n).node); c != checks.end()) check(c->second);
            for (int from : loaded_slots(def(n).body)) work.push_back(from);
        }
        return reads;
    }

    void add_host(const HostNode& h) {
        HostStep step{.node = h.node, .inputs = {}, .outputs = {}, .check_only = h.check_only, .reason = h.reason};
        for (int n : h.inputs) step.inputs.push_back(n < 0 ? -1 : storage_[size_t(n)].buffer);
        for (int n : h.outputs) step.outputs.push_back(n < 0 ? -1 : storage_[size_t(n)].buffer);
        program_.steps.emplace_back(std::move(step));
    }

    struct Shared {
        Lowered lowered;
        size_t kernel = 0, prepare = 0;
    };

    Result<const Shared*> kernel_for(const Compute& compute) {
        std::string key = to_string(compute);
        for (bool k : compute.known) key += k ? '1' : '0';
        auto [at, fresh] = shared_.try_emplace(std::move(key));
        if (!fresh) return &at->second;
        at->second.lowered = plainly(compute);
        at->second.kernel = program_.kernels.size();
        program_.kernels.push_back(at->second.lowered.kernel);
        if (at->second.lowered.prepare.body) {
            at->second.prepare = program_.kernels.size();
            program_.kernels.push_back(at->second.lowered.prepare);
        }
        return &at->second;
    }

    Status add_kernel(int group) {
        GroupCompute made = build_compute(all_, grouping_, group, storage_, program_.buffers);
        const Shared* shared = TRY(kernel_for(made.compute));
        const Lowered& low = shared->lowered;
        KernelStep step{.kernel = shared->kernel, .args = made.args, .symbols = made.symbols};
        step.args.resize(low.kernel.params, -1);
        Bindings symbols;
        for (size_t i = 0; i < made.symbols.size(); ++i) symbols.emplace(made.compute.symbols[i], made.symbols[i]);
        auto fill = [&](const std::vector<int>& slots, BufferRole role) {
            for (int slot : slots) {
                const Buffer& b = low.kernel.buffers[size_t(slot)];
                ProgramBuffer own;
                own.name = b.name;
                own.dtype = b.dtype;
                own.role = role;
                for (const Expr& d : b.shape) own.shape.push_back(substitute(d, symbols));
                step.args[size_t(slot)] = int(program_.buffers.size());
                program_.buffers.push_back(std::move(own));
            }
        };
        fill(low.prepared, BufferRole::Prepared);
        fill(low.scratch, BufferRole::Intermediate);
        step.label = label_of(made.nodes);
        step.nodes = made.nodes;
        std::vector<Expr> flops, bytes;
        for (const Node* node : made.nodes) flops.push_back(count(*node).flops);
        for (const auto* list : {&made.reads, &made.writes})
            for (int n : *list) bytes.push_back(bytes_of(def(n).shape, def(n).dtype));
        step.flops = sum_of(std::move(flops));
        step.bytes = sum_of(std::move(bytes));
        if (low.prepare.body) {
            KernelStep prepare{.kernel = shared->prepare, .args = {}, .symbols = {}, .label = "prepare " + step.label};
            for (int slot : low.prepare_args) prepare.args.push_back(step.args[size_t(slot)]);
            program_.prepare.push_back(std::move(prepare));
        }
        program_.steps.emplace_back(std::move(step));
        return {};
    }

    const Definitions& all_;
    Grouping grouping_;
    const LowerOptions& options_;
    std::vector<Storage> storage_;  // by definition
    std::map<std::string, Shared> shared_;
    Program program_;
};

}  // namespace

Result<Program> build_program(std::shared_ptr<const Graph> graph, const Definitions& all, Grouping grouping,
                              const LowerOptions& options) {
    return Assembly(std::move(graph), all, std::move(grouping), options).run();
}

}  // namespace tessera
