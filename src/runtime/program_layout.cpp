#include "runtime/program_layout.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/check.h"
#include "graph/evaluate/evaluate_node.h"

namespace tessera {
namespace {

int root_of(const Program& program, int buffer) {
    int at = buffer;
    for (size_t steps = 0; program.buffers[static_cast<size_t>(at)].alias >= 0; ++steps) {
        CHECK(steps < program.buffers.size(), "buffers alias each other in a circle");
        at = program.buffers[static_cast<size_t>(at)].alias;
    }
    return at;
}

// Homes stand in the order in which they win: that of a root is the first among those of its aliases.
Home home_by_role(BufferRole role) {
    switch (role) {
        case BufferRole::Input: return Home::Input;
        case BufferRole::Output: return Home::Output;
        case BufferRole::Constant: return Home::Constant;
        case BufferRole::Prepared: return Home::Prepared;
        case BufferRole::Intermediate: return Home::Arena;
    }
    return Home::Arena;
}

}  // namespace

ProgramLayout::ProgramLayout(const Program& program) {
    const size_t count = program.buffers.size();
    const int end = std::max(0, static_cast<int>(program.steps.size()) - 1);
    std::unordered_map<const Value*, int> buffer_of;
    for (size_t b = 0; b < count; ++b) {
        root.push_back(root_of(program, static_cast<int>(b)));
        if (const Value* v = program.buffers[b].value; v && program.buffers[b].order.empty())
            buffer_of.emplace(v, static_cast<int>(b));
    }
    for (const Kernel& kernel : program.kernels) access.push_back(kernel_access(kernel));

    // Homes, of roots first. What the outside gives comes before what a host step made, then outputs, then the arena.
    std::vector<Home> of_root(count, Home::Arena);
    auto claim = [&](int buffer, Home home) {
        Home& h = of_root[static_cast<size_t>(root[static_cast<size_t>(buffer)])];
        h = std::min(h, home);
    };
    for (size_t b = 0; b < count; ++b) claim(static_cast<int>(b), home_by_role(program.buffers[b].role));
    for (const Step& step : program.steps)
        for (int b : values_made(step))
            if (b >= 0) claim(b, Home::Host);
    for (int b : program.outputs) claim(b, Home::Output);
    for (size_t b = 0; b < count; ++b) {
        const bool other = program.buffers[static_cast<size_t>(root[b])].device > 0;
        home.push_back(other ? Home::Device : of_root[static_cast<size_t>(root[b])]);
    }

    // Lifetimes.
    first.assign(count, -1);
    last.assign(count, -1);
    in_kernel.assign(count, false);
    in_run.assign(count, false);
    auto use = [&](int buffer, int step, bool kernel) {
        const auto r = static_cast<size_t>(root[static_cast<size_t>(buffer)]);
        if (first[r] < 0) first[r] = step;
        last[r] = std::max(last[r], step);
        in_run[r] = true;
        if (kernel) in_kernel[r] = true;
    };
    captures.resize(program.steps.size());
    for (int s = 0; s < static_cast<int>(program.steps.size()); ++s) {
        if (auto* kernel = std::get_if<KernelStep>(&program.steps[static_cast<size_t>(s)])) {
            for (size_t k = 0; k < kernel->args.size(); ++k)
                if (access[kernel->kernel].uses(k)) use(kernel->args[k], s, true);
            most_args = std::max(most_args, kernel->args.size());
            continue;
        }
        const Step& step = program.steps[static_cast<size_t>(s)];
        if (const std::vector<int> moved = moved_by(step); !moved.empty()) {
            for (int b : moved) use(b, s, true);
            most_args = std::max(most_args, moved.size());
            continue;
        }
        for (int b : inputs_of(step))
            if (b >= 0) use(b, s, false);
        for (int b : values_made(step))
            if (b >= 0) use(b, s, false);
        const Node& node = *node_of(step);
        for (const Value* v : captured_values(node)) {
            auto at = buffer_of.find(v);
            if (at == buffer_of.end() && v->tensor()) continue;  // the evaluator takes it from the graph
            CHECK(at != buffer_of.end(), "no buffer holds \"{}\", which {} uses", v->name(), node.where());
            captures[static_cast<size_t>(s)].emplace_back(v, at->second);
            use(at->second, s, false);
        }
    }
    for (const KernelStep& step : program.prepare) most_args = std::max(most_args, step.args.size());
    for (int b : program.outputs) use(b, end, false);
    for (size_t b = 0; b < count; ++b) {
        if (first[b] < 0 || of_root[b] < Home::Host) first[b] = 0;
        if (last[b] < 0) last[b] = end;
    }
    sizes = size_sources(*program.graph);
    find_ahead(program);
}

void ProgramLayout::find_ahead(const Program& program) {
    std::set<size_t> all;
    auto was_given = [&](size_t r) { return home[r] == Home::Input || program.buffers[r].tensor; };
    // The same, or made of what was, by which steps.
    std::function<bool(int, std::set<size_t>&)> is_given = [&](int buffer, std::set<size_t>& steps) {
        const auto r = static_cast<size_t>(root[static_cast<size_t>(buffer)]);
        if (was_given(r)) return true;
        const auto by = static_cast<size_t>(first[r]);
        const auto* kernel = home[r] == Home::Arena ? std::get_if<KernelStep>(&program.steps[by]) : nullptr;
        if (!kernel) return false;
        if (!steps.insert(by).second) return true;
        for (size_t k = 0; k < kernel->args.size(); ++k)
            if (access[kernel->kernel].reads[k] && !access[kernel->kernel].writes[k] &&
                !is_given(kernel->args[k], steps))
                return false;
        return true;
    };
    checks_ahead.assign(program.steps.size(), false);
    for (size_t s = 0; s < program.steps.size(); ++s) {
        const auto* check = std::get_if<CheckStep>(&program.steps[s]);
        if (!check || !captures[s].empty()) continue;
        std::set<size_t> steps{s};
        const size_t given = check->node->inputs().size();
        checks_ahead[s] = true;
        for (size_t k = 0; k < check->inputs.size(); ++k) {
            if (check->inputs[k] < 0) continue;
            const auto r = static_cast<size_t>(root[static_cast<size_t>(check->inputs[k])]);
            checks_ahead[s] = checks_ahead[s] && (k < given ? was_given(r) : is_given(check->inputs[k], steps));
        }
        if (checks_ahead[s]) all.insert(steps.begin(), steps.end());
    }
    ahead.assign(all.begin(), all.end());
}

}  // namespace tessera
