#include "kernel/from_graph/build_program.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/in_parallel.h"
#include "graph/count.h"
#include "graph/evaluate/evaluate_node.h"
#include "kernel/schedule/free_offsets.h"

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

// Not what is absorbed into a kernel beside something larger.
bool computes_most(const Node& node) {
    return !node.is(Trait::Movement) && !node.is(Trait::Elementwise) && !node.is(Trait::Light);
}

// "conv+relu conv1": what it computes, and where the model has it, by the name of its first product, sum or the like.
std::string label_of(const std::vector<const Node*>& nodes, const Expanded& expanded) {
    if (nodes.empty()) return "copy";
    const bool moves = std::all_of(nodes.begin(), nodes.end(), [](const Node* n) { return n->is(Trait::Movement); });
    std::string ops, last, name, main;
    for (const Node* node : nodes) {
        if (!moves && node->is(Trait::Movement)) continue;  // not worth a word beside others
        auto part = expanded.origins.find(node);
        const bool whole = part == expanded.origins.end();
        const std::string& own = whole ? node->name() : part->second.name;
        std::string op = whole ? node->op().name : part->second.op;
        if (whole || op + own != last) ops += (ops.empty() ? "" : "+") + op;
        last = whole ? "" : op + own;
        if (name.empty()) name = own;
        if (main.empty() && computes_most(*node)) main = own;
    }
    if (!main.empty()) name = main;
    if (name.empty()) name = nodes.back()->output()->name();
    return ops + " " + name;
}

// What a kernel does, whatever it calls things.
std::string text_without_names(Kernel kernel) {
    kernel.name = "k";
    for (size_t i = 0; i < kernel.buffers.size(); ++i) kernel.buffers[i].name = "b" + std::to_string(i);
    Bindings vars;
    visit(kernel.body, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        if (!loop) return;
        ExprNode node = loop->var.node();
        node.name = "i" + std::to_string(vars.size());
        vars.emplace(loop->var.node().name, make_expr(std::move(node)));
    });
    kernel.body = substitute(kernel.body, vars);
    return to_string(kernel);
}

// Has computes that differ only in where they read share one form, where they are many: each that differs takes LLVM
// milliseconds. `keys`: by compute, its text.
void share_forms(std::vector<GroupCompute>& computes, std::vector<std::string>& keys) {
    constexpr size_t kMany = 8, kMostOffsets = 8;
    struct Form {
        std::set<std::string> texts;  // of those that differ
        std::vector<std::pair<size_t, GroupCompute>> computes;
    };
    std::unordered_map<std::string, Form> forms;
    if (std::set<std::string_view>(keys.begin(), keys.end()).size() < kMany) return;
    for (size_t i = 0; i < computes.size(); ++i) {
        GroupCompute shared = computes[i];
        const std::vector<int64_t> offsets = free_offsets(shared.compute);
        if (offsets.empty() || offsets.size() > kMostOffsets) continue;
        shared.symbols.insert(shared.symbols.end(), offsets.begin(), offsets.end());
        Form& form = forms[to_string(shared.compute)];
        form.texts.insert(keys[i]);
        form.computes.emplace_back(i, std::move(shared));
    }
    for (auto& [text, form] : forms) {
        if (form.texts.size() < kMany) continue;
        for (auto& [i, shared] : form.computes) {
            computes[i] = std::move(shared);
            keys[i] = text;
        }
    }
}

// Copies from another device that no step and no output reads.
void drop_unread_copies(Program& program) {
    if (program.devices.empty()) return;
    auto root = [&](int buffer) {
        while (program.buffers[size_t(buffer)].alias >= 0) buffer = program.buffers[size_t(buffer)].alias;
        return buffer;
    };
    std::set<int> read;
    for (int b : program.outputs) read.insert(root(b));
    for (const Step& step : program.steps) {
        std::vector<int> buffers = inputs_of(step);
        if (auto* kernel = std::get_if<KernelStep>(&step)) buffers = kernel->args;
        for (const Value* v : node_of(step) ? captured_values(*node_of(step)) : std::vector<const Value*>())
            for (size_t b = 0; b < program.buffers.size(); ++b)
                if (program.buffers[b].value == v) buffers.push_back(int(b));
        for (int b : buffers)
            if (b >= 0) read.insert(root(b));
    }
    std::erase_if(program.steps, [&](const Step& step) {
        const auto* copy = std::get_if<CopyStep>(&step);
        return copy && program.buffers[size_t(copy->to)].device == 0 && !read.contains(root(copy->to));
    });
}

class Assembly {
  public:
    Assembly(const Expanded& expanded, const Definitions& all, const Layouts& layouts, Grouping grouping,
             const LowerOptions& options)
        : expanded_(expanded), all_(all), layouts_(layouts), grouping_(std::move(grouping)), options_(options) {
        program_.graph = expanded.graph;
        for (size_t i = 0; i < all_.list.size(); ++i)
            if (grouping_.live[i]) live_nodes_.insert(all_.list[i].node);
    }

    Result<Program> run() {
        storage_ = place_buffers(all_, layouts_, grouping_, program_);
        const std::vector<Unit> units = order_units();
        std::vector<GroupCompute> computes = lower_computes(units);
        for (size_t i = 0; i < units.size(); ++i) {
            if (units[i].host)
                add_host(*units[i].host);
            else
                add_kernel(computes[i], shared_.at(keys_[i]));
        }
        drop_unread_copies(program_);
        program_.choices.insert(program_.choices.begin(), grouping_.choices.begin(), grouping_.choices.end());
        return std::move(program_);
    }

  private:
    struct Unit {
        int group = -1;
        const HostNode* host = nullptr;
    };

    const Definition& def(int n) const { return all_.list[size_t(n)]; }

    // Kahn's order, the one that comes first in the graph before others.
    std::vector<Unit> order_units() {
        std::vector<Unit> units;
        std::vector<int> first;  // by unit: where in the graph it stands
        std::vector<int> unit_of(all_.list.size(), -1);
        std::map<const Node*, std::vector<int>> checks;
        for (size_t g = 0; g < grouping_.groups.size(); ++g) {
            if (grouping_.groups[g].empty()) continue;
            for (int n : grouping_.groups[g]) unit_of[size_t(n)] = int(units.size());
            first.push_back(grouping_.groups[g].back());
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
            if (h.guards()) checks[h.node].push_back(int(units.size()));
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
        std::function<void(int, int)> needs = [&](int unit, int n) {
            depend(unit, unit_of[size_t(n)]);
            for (int p : def(n).parts) needs(unit, made_part(p));
        };
        for (size_t u = 0; u < units.size(); ++u) {
            if (units[u].host) {
                if (auto c = checks.find(units[u].host->node); c != checks.end() && !units[u].host->guards())
                    for (int check : c->second) depend(int(u), check);
                for (const auto* list : {&units[u].host->inputs, &units[u].host->captured})
                    for (int n : *list)
                        if (n >= 0) needs(int(u), n);
                for (int n : units[u].host->outputs)
                    if (n >= 0)
                        for (int from : all_.size_sources(n)) needs(int(u), from);
                continue;
            }
            for (int n : all_reads(units[u].group, checks, [&](int check) { depend(int(u), check); })) needs(int(u), n);
            for (int n : grouping_.groups[size_t(units[u].group)])
                for (int from : storage_[size_t(n)].sizes) needs(int(u), from);
        }
        for (const auto& [unit, reader] : updates_after_readers(units, unit_of, users)) depend(unit, reader);
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

    // Pairs (unit, reader): a unit that makes an output of an input's name and type, and comes after all others that
    // read this input, so that the output can take the input's memory.
    std::vector<std::pair<int, int>> updates_after_readers(const std::vector<Unit>& units,
                                                           const std::vector<int>& unit_of,
                                                           std::vector<std::vector<int>> users) const {
        const Graph& graph = *expanded_.graph;
        std::set<std::string> updated(graph.output_names().begin(), graph.output_names().end());
        auto is_updated = [&](const Value* v) {
            return v && v->kind() == Value::Kind::Input && updated.contains(v->name());
        };
        std::map<int, std::vector<int>> readers;  // by definition of an input
        if (std::none_of(graph.inputs().begin(), graph.inputs().end(),
                         [&](const auto& v) { return is_updated(v.get()); }))
            return {};
        for (size_t u = 0; u < units.size(); ++u) {
            const std::vector<int> reads =
                units[u].host ? units[u].host->inputs : all_reads(units[u].group, {}, [](int) {});
            for (int n : reads)
                if (n >= 0 && is_updated(def(n).value)) readers[n].push_back(int(u));
        }
        auto reaches = [&](int from, int to) {
            std::vector<bool> seen(units.size());
            std::vector<int> work = {from};
            while (!work.empty()) {
                const int u = work.back();
                work.pop_back();
                if (u == to) return true;
                if (seen[size_t(u)]) continue;
                seen[size_t(u)] = true;
                work.insert(work.end(), users[size_t(u)].begin(), users[size_t(u)].end());
            }
            return false;
        };
        std::vector<std::pair<int, int>> pairs;
        for (const auto& [n, by] : readers) {
            for (size_t k = 0; k < all_.outputs.size(); ++k) {
                const int output = all_.outputs[k], unit = output < 0 ? -1 : unit_of[size_t(output)];
                if (graph.output_names()[k] != def(n).value->name()) continue;
                if (unit < 0 || def(output).dtype != def(n).dtype) continue;
                for (int reader : by) {
                    if (reader == unit || reaches(reader, unit) || reaches(unit, reader)) continue;
                    pairs.emplace_back(unit, reader);
                    users[size_t(reader)].push_back(unit);
                }
            }
        }
        return pairs;
    }

    // A part of a joined definition, or what is made in its place.
    int made_part(int p) const { return grouping_.group_of[size_t(p)] >= 0 ? p : def(p).body.node().slot; }

    bool needed(const HostNode& h) const {
        if (!h.guards())
            return std::any_of(h.outputs.begin(), h.outputs.end(),
                               [&](int n) { return n >= 0 && grouping_.live[size_t(n)]; });
        return live_nodes_.contains(h.node);
    }

    // The definitions that a group reads, through those that are inlined; calls `check` for nodes that are checked
    // first.
    template <typename Check>
    std::vector<int> all_reads(int group, const std::map<const Node*, std::vector<int>>& checks,
                               const Check& check) const {
        std::vector<int> reads, work = grouping_.groups[size_t(group)];
        std::vector<bool> seen(all_.list.size());
        while (!work.empty()) {
            int n = work.back();
            work.pop_back();
            if (seen[size_t(n)]) continue;
            seen[size_t(n)] = true;
            bool own = grouping_.group_of[size_t(n)] == group;
            if (!own && (!def(n).has_body() || grouping_.group_of[size_t(n)] >= 0)) {
                reads.push_back(n);
                continue;
            }
            if (auto c = checks.find(def(n).node); c != checks.end())
                for (int unit : c->second) check(unit);
            for (int from : all_.size_sources(n)) reads.push_back(from);
            for (int from : loaded_slots(def(n).body)) work.push_back(from);
        }
        return reads;
    }

    // A kernel that was written out; equal ones are one.
    void add_written(const HostNode& h) {
        const WrittenKernel& written = *h.kernel;
        auto [at, fresh] = written_.try_emplace(to_string(written.kernel), program_.kernels.size());
        if (fresh) {
            program_.kernels.push_back(written.kernel);
            const std::string why = fmt::format("// {}: its op writes its loops, ", written.kernel.name);
            if (options_.keep_stages) program_.stages.push_back({why + "no compute\n", why + "no schedule\n"});
        }
        KernelStep step{.kernel = at->second, .args = {}, .symbols = written.symbols};
        std::vector<Expr> bytes;
        Bindings symbols;
        for (size_t i = 0; i < written.symbols.size(); ++i)
            symbols.emplace(written.kernel.symbols[i], written.symbols[i]);
        for (size_t i = 0; i < written.params.size(); ++i) {
            const WrittenKernel::Param& p = written.params[i];
            const Buffer& b = written.kernel.buffers[i];
            std::vector<Expr> shape;
            for (const Expr& d : b.shape) shape.push_back(substitute(d, symbols));
            bytes.push_back(bytes_of(shape, b.dtype));
            if (p.role != WrittenKernel::Role::Scratch) {
                int n = (p.role == WrittenKernel::Role::Input ? h.inputs : h.outputs)[p.index];
                step.args.push_back(storage_[size_t(n)].buffer);
                continue;
            }
            step.args.push_back(int(program_.buffers.size()));
            ProgramBuffer own;
            own.name = b.name;
            own.dtype = b.dtype;
            own.shape = std::move(shape);
            program_.buffers.push_back(std::move(own));
        }
        step.label = label_of({h.node}, expanded_);
        step.nodes = {h.node};
        step.flops = flops_of(*h.node);
        step.bytes = sum_of(std::move(bytes));
        program_.steps.emplace_back(std::move(step));
    }

    void add_host(const HostNode& h) {
        if (h.kernel) return add_written(h);
        if (add_device(h)) return;
        auto buffers = [&](const std::vector<int>& definitions) {
            std::vector<int> out;
            for (int n : definitions) out.push_back(n < 0 ? -1 : storage_[size_t(n)].buffer);
            return out;
        };
        if (!h.found.empty())
            program_.steps.emplace_back(FoundStep{h.node, buffers(h.inputs)[0], h.found});
        else if (h.check_only)
            program_.steps.emplace_back(CheckStep{h.node, buffers(h.inputs)});
        else if (h.tells())
            program_.steps.emplace_back(InferStep{h.node, buffers(h.inputs), h.contents, h.sizes});
        else
            program_.steps.emplace_back(HostStep{h.node, buffers(h.inputs), buffers(h.outputs), h.reason});
    }

    // The same buffer in the memory of the other device.
    int on_device(int buffer) {
        auto [at, fresh] = on_device_.try_emplace(buffer, int(program_.buffers.size()));
        if (fresh) {
            const ProgramBuffer& b = program_.buffers[size_t(buffer)];
            program_.buffers.push_back(ProgramBuffer{.name = b.name, .dtype = b.dtype, .shape = b.shape, .device = 1});
        }
        return at->second;
    }

    // A node that another device computes: copies of what it does not have yet, its code, and copies of the results.
    // False: it is none.
    bool add_device(const HostNode& h) {
        if (!options_.offloading || !is_offloaded(*h.node)) return false;
        auto code = options_.offloading->compile(*h.node);
        if (!code.ok()) {
            program_.choices.push_back({"offload " + h.node->name(), no("{}", code.error().message())});
            return false;
        }
        if (program_.devices.empty()) program_.devices.push_back(options_.offloading->device());
        DeviceStep step{h.node, std::move(*code), 1, {}, {}};
        for (int n : h.inputs) {
            const int host = storage_[size_t(n)].buffer;
            const bool there = on_device_.contains(host);
            step.inputs.push_back(on_device(host));
            if (!there) program_.steps.emplace_back(CopyStep{h.node, host, step.inputs.back()});
        }
        std::vector<CopyStep> back;
        for (size_t i = 0; i < h.outputs.size(); ++i) {
            const int n = h.outputs[i];
            if (n < 0) {  // nobody reads it; the code writes it all the same
                const TensorType& type = h.node->output(i)->type().tensor();
                step.outputs.push_back(int(program_.buffers.size()));
                program_.buffers.push_back({.dtype = type.dtype, .shape = type.shape.dims(), .device = 1});
                continue;
            }
            const int host = storage_[size_t(n)].buffer;
            step.outputs.push_back(on_device(host));
            back.push_back({h.node, step.outputs.back(), host});
        }
        program_.steps.emplace_back(std::move(step));
        for (CopyStep& copy : back) program_.steps.emplace_back(copy);
        return true;
    }

    // A Compute, lowered once for all that are alike.
    struct Shared {
        Lowered lowered;
        std::vector<Choice> choices;
        std::string traces;
        bool used = false;
        size_t kernel = 0, prepare = 0;
        std::vector<size_t> packs;
    };

    // The computes of all groups, by unit; those that differ are lowered side by side.
    std::vector<GroupCompute> lower_computes(const std::vector<Unit>& units) {
        std::vector<GroupCompute> computes(units.size());
        keys_.resize(units.size());
        for (size_t i = 0; i < units.size(); ++i) {
            if (units[i].host) continue;
            computes[i] = build_compute(all_, layouts_, grouping_, units[i].group, storage_, program_.buffers);
            keys_[i] = to_string(computes[i].compute);
        }
        if (options_.fuse && scheduling_of(options_).shares_forms()) share_forms(computes, keys_);
        std::vector<std::pair<const Compute*, Shared*>> fresh;
        for (size_t i = 0; i < units.size(); ++i) {
            if (units[i].host) continue;
            auto [at, first] = shared_.try_emplace(keys_[i]);
            if (first) fresh.emplace_back(&computes[i].compute, &at->second);
        }
        in_parallel(fresh.size(), 0, [&](size_t i) { lower_compute(*fresh[i].first, *fresh[i].second); });
        return computes;
    }

    void lower_compute(const Compute& compute, Shared& shared) const {
        const Scheduling& by = scheduling_of(options_);
        const ScheduleOptions schedule = schedule_options(options_);
        std::string* kept = options_.keep_stages ? &shared.traces : nullptr;
        auto lowered = !options_.schedule  ? plainly(compute)
                       : options_.baseline ? by.lower_baseline(compute, schedule)
                                           : by.lower(compute, schedule, shared.choices, kept);
        if (!lowered.ok()) {
            shared.choices.push_back({"schedule " + compute.name, no("{}", lowered.error().message())});
            lowered = plainly(compute);
            shared.traces.clear();
        }
        shared.lowered = std::move(*lowered);
    }

    // Adds the kernel of a compute where none before asked for it.
    void use(const Compute& compute, Shared& shared) {
        if (std::exchange(shared.used, true)) return;
        program_.choices.insert(program_.choices.end(), shared.choices.begin(), shared.choices.end());
        if (options_.keep_stages) {
            std::string& traces = shared.traces;
            if (traces.empty()) traces = fmt::format("// {}: no schedule, plain loops\n", compute.name);
            program_.stages.push_back({to_string(compute), std::move(traces)});
        }
        shared.kernel = program_.kernels.size();
        program_.kernels.push_back(shared.lowered.kernel);
        const Lowered& lowered = shared.lowered;
        if (lowered.prepare.body) shared.prepare = shared_kernel(lowered.prepare);
        for (const LoweredPack& pack : lowered.packs) shared.packs.push_back(shared_kernel(pack.kernel));
    }

    // The number of a kernel that lays out what another reads; those that do the same are one.
    size_t shared_kernel(const Kernel& kernel) {
        auto [same, first] = layouts_kernels_.try_emplace(text_without_names(kernel), program_.kernels.size());
        if (first) program_.kernels.push_back(kernel);
        return same->second;
    }

    void add_kernel(const GroupCompute& made, Shared& shared) {
        use(made.compute, shared);
        const Lowered& low = shared.lowered;
        KernelStep step{.kernel = shared.kernel, .args = made.args, .symbols = made.symbols};
        step.args.resize(low.kernel.params, -1);
        Bindings symbols;
        for (size_t i = 0; i < made.symbols.size(); ++i) symbols.emplace(made.compute.symbols[i], made.symbols[i]);
        auto fill = [&](const std::vector<int>& slots, BufferRole role) {
            for (int slot : slots) {
                if (step.args[size_t(slot)] >= 0) continue;
                const Buffer& b = low.kernel.buffers[size_t(slot)];
                ProgramBuffer own;
                own.name = b.name;
                own.dtype = b.dtype;
                own.role = role;
                for (const Expr& d : b.shape) own.shape.push_back(substitute(d, symbols));
                if (!b.strides.empty()) own.shape = {own.shape[0] * substitute(b.strides[0], symbols)};
                step.args[size_t(slot)] = int(program_.buffers.size());
                program_.buffers.push_back(std::move(own));
            }
        };
        // The same weights prepared in the same way are prepared once, for whichever kernels read them.
        std::vector<int> sources = {int(shared.prepare)};
        for (int slot : low.prepare_args) sources.push_back(step.args[size_t(slot)]);
        auto [known, fresh] = prepared_.try_emplace(std::move(sources));
        if (fresh) {
            fill(low.prepared, BufferRole::Prepared);
            for (int slot : low.prepared) known->second.push_back(step.args[size_t(slot)]);
        } else {
            for (size_t i = 0; i < low.prepared.size(); ++i) step.args[size_t(low.prepared[i])] = known->second[i];
        }
        // So is what several products read packed in the same way.
        std::vector<std::string> packs;
        for (size_t i = 0; i < low.packs.size(); ++i) {
            packs.push_back(pack_key(low.packs[i], shared.packs[i], step));
            if (auto same = packed_.find(packs[i]); same != packed_.end())
                step.args[size_t(low.packs[i].args.back())] = same->second;
        }
        fill(low.scratch, BufferRole::Intermediate);
        step.label = label_of(made.nodes, expanded_);
        step.nodes = made.nodes;
        for (size_t i = 0; i < low.packs.size(); ++i) add_pack(low.packs[i], shared.packs[i], step, packs[i]);
        std::vector<Expr> flops, bytes;
        for (const Node* node : made.nodes) flops.push_back(flops_of(*node));
        for (size_t i = 0; i < made.reads.size(); ++i)
            bytes.push_back(made.read_elements[i] * int64_t(dtype_bytes(def(made.reads[i]).dtype)));
        for (int n : made.writes) bytes.push_back(bytes_of(def(n).shape, def(n).dtype));
        step.flops = sum_of(std::move(flops));
        step.bytes = sum_of(std::move(bytes));
        if (low.prepare.body && fresh) {
            KernelStep prepare{.kernel = shared.prepare, .args = {}, .symbols = {}, .label = "prepare " + step.label};
            for (int slot : low.prepare_args) prepare.args.push_back(step.args[size_t(slot)]);
            program_.prepare.push_back(std::move(prepare));
        }
        if (is_known_ahead(made, low)) {
            for (int n : made.writes) program_.buffers[size_t(storage_[size_t(n)].buffer)].role = BufferRole::Prepared;
            step.label = "prepare " + step.label;
            program_.prepare.push_back(std::move(step));
            return;
        }
        program_.steps.emplace_back(std::move(step));
    }

    // Counted once: parts of a node may be in many kernels, as those of a concat are.
    const Expr& flops_of(const Node& node) {
        auto [at, fresh] = flops_.try_emplace(&node);
        if (fresh) at->second = count(node).flops;
        return at->second;
    }

    // A kernel that packs an operand, and what of.
    static std::string pack_key(const LoweredPack& pack, size_t kernel, const KernelStep& product) {
        std::string key = std::to_string(kernel);
        for (size_t i = 0; i + 1 < pack.args.size(); ++i) key += fmt::format(" {}", product.args[size_t(pack.args[i])]);
        for (const Expr& size : product.symbols) key += ", " + to_string(size);
        return key;
    }

    // The step that packs an operand before the step of the product, where no other has; when the program is loaded
    // where it packs constants.
    void add_pack(const LoweredPack& pack, size_t kernel, const KernelStep& product, const std::string& key) {
        const int packed = product.args[size_t(pack.args.back())];
        if (!packed_.try_emplace(key, packed).second) return;
        KernelStep step{.kernel = kernel, .args = {}, .symbols = product.symbols, .label = "pack " + product.label};
        std::vector<Expr> bytes;
        bool constant = step.symbols.empty();
        for (int slot : pack.args) {
            step.args.push_back(product.args[size_t(slot)]);
            const ProgramBuffer& buffer = program_.buffers[size_t(step.args.back())];
            const bool known = buffer.role == BufferRole::Constant || buffer.role == BufferRole::Prepared;
            constant &= known || slot == pack.args.back();
            bytes.push_back(bytes_of(buffer.shape, buffer.dtype));
        }
        step.bytes = sum_of(std::move(bytes));
        if (!constant) return void(program_.steps.emplace_back(std::move(step)));
        program_.buffers[size_t(packed)].role = BufferRole::Prepared;
        program_.prepare.push_back(std::move(step));
    }

    // What a kernel computes of constants alone, and is no larger than they are: sums of weights, of products with zero
    // points. It is no value of the graph, so that no step of the processor asks for it.
    bool is_known_ahead(const GroupCompute& made, const Lowered& low) const {
        if (!scheduling_of(options_).runs_constants_ahead() || !made.symbols.empty() || !low.scratch.empty())
            return false;
        auto bytes = [&](const std::vector<int>& definitions) {
            Expr total = 0;
            for (int n : definitions) total = total + bytes_of(def(n).shape, def(n).dtype);
            return total.as_int();
        };
        // A definition that is read under another shape has no storage of its own: the argument has.
        for (size_t i = 0; i < made.reads.size(); ++i)
            if (program_.buffers[size_t(made.args[i])].role != BufferRole::Constant) return false;
        for (int n : made.writes) {
            const ProgramBuffer& to = program_.buffers[size_t(storage_[size_t(n)].buffer)];
            if (def(n).value || to.value || to.alias >= 0 || to.role != BufferRole::Intermediate) return false;
        }
        const auto read = bytes(made.reads), written = bytes(made.writes);
        return read && written && *written <= *read;
    }

    const Expanded& expanded_;
    const Definitions& all_;
    const Layouts& layouts_;
    Grouping grouping_;
    const LowerOptions& options_;
    std::unordered_set<const Node*> live_nodes_;
    std::vector<Storage> storage_;   // by definition
    std::vector<std::string> keys_;  // by unit: the text of its compute
    std::map<std::string, Shared> shared_;
    std::map<std::string, size_t> written_;
    std::map<std::string, size_t> layouts_kernels_;          // that prepare weights or pack operands, by what they do
    std::map<std::string, int> packed_;                      // by such a kernel, what it reads, and sizes
    std::map<std::vector<int>, std::vector<int>> prepared_;  // by such a kernel and constants
    std::unordered_map<const Node*, Expr> flops_;
    std::map<int, int> on_device_;  // by buffer: the same on the other device
    Program program_;
};

}  // namespace

Result<Program> build_program(const Expanded& expanded, const Definitions& all, const Layouts& layouts,
                              Grouping grouping, const LowerOptions& options) {
    return Assembly(expanded, all, layouts, std::move(grouping), options).run();
}

}  // namespace tessera
