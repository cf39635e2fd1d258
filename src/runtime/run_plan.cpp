#include "runtime/run_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/dtype.h"
#include "runtime/memory_plan.h"

namespace tessera {
namespace {

// Below this, in seconds of one thread, waking others costs more than they save. The rates are those of a slow core.
constexpr double kParallelFrom = 3e-6, kFlopRate = 2e10, kByteRate = 2e10;

double seconds_of(const KernelStep& step, const SymbolValues& symbols) {
    auto flops = evaluate_int(step.flops, symbols), bytes = evaluate_int(step.bytes, symbols);
    if (!flops || !bytes || (*flops == 0 && *bytes == 0)) return 1;  // not known
    return std::max(double(*flops) / kFlopRate, double(*bytes) / kByteRate);
}

bool known(const Expr& e, const SymbolValues& symbols) {
    for (const std::string& name : free_symbols(e))
        if (!symbols.count(name)) return false;
    return true;
}

SymbolValues named(const Kernel& kernel, const std::vector<int64_t>& values) {
    SymbolValues out;
    for (size_t i = 0; i < values.size(); ++i) out[kernel.symbols[i]] = values[i];
    return out;
}

// Blocks of the arena, joined where a step writes over what it reads for the last time.
class ArenaBlocks {
  public:
    ArenaBlocks(const Program& program, const ProgramLayout& layout, const RunPlan& plan)
        : program_(program), layout_(layout), plan_(plan), block_(program.buffers.size(), -1) {
        for (size_t b = 0; b < program.buffers.size(); ++b) {
            const bool planned = layout.home[b] == Home::Arena || layout.home[b] == Home::Device;
            if (layout.root[b] != static_cast<int>(b) || !planned || plan.bytes[b] < 0) continue;
            if (!layout.in_run[b]) continue;
            block_[b] = static_cast<int>(blocks_.size());
            blocks_.push_back({plan.bytes[b], layout.first[b], layout.last[b]});
        }
    }

    void keep_all(int steps) {
        for (Block& b : blocks_) b = {b.bytes, 0, steps};
    }

    void join(int s) {
        const auto* step = std::get_if<KernelStep>(&program_.steps[static_cast<size_t>(s)]);
        if (!step || !plan_.steps[static_cast<size_t>(s)].bound) return;
        const Kernel& kernel = program_.kernels[step->kernel];
        const SymbolValues symbols = named(kernel, plan_.steps[static_cast<size_t>(s)].symbols);
        for (size_t out = 0; out < step->args.size(); ++out) {
            const int to = root(*step, out);
            if (!alone(*step, out) || block_[size_t(to)] < 0 || layout_.first[size_t(to)] != s) continue;
            for (size_t in = 0; in < step->args.size(); ++in) {
                const int from = root(*step, in);
                if (in == out || !alone(*step, in) || block_[size_t(from)] < 0) continue;
                Block& block = blocks_[size_t(block_[size_t(from)])];
                if (block.last != s || block.first == s || plan_.bytes[size_t(from)] != plan_.bytes[size_t(to)])
                    continue;
                if (!may_share_memory(kernel, in, out) || !may_overwrite(kernel, in, out, symbols)) continue;
                block.last = std::max(block.last, blocks_[size_t(block_[size_t(to)])].last);
                block_[size_t(to)] = block_[size_t(from)];
                break;
            }
        }
    }

    // The outputs that step `s` may write over inputs of the run that it reads for the last time, or over inputs of
    // their names that only steps before it read.
    void overwrite_inputs(int s, std::vector<std::pair<int, int>>& pairs) const {
        const auto* step = std::get_if<KernelStep>(&program_.steps[static_cast<size_t>(s)]);
        if (!step || !plan_.steps[static_cast<size_t>(s)].bound) return;
        const Kernel& kernel = program_.kernels[step->kernel];
        const SymbolValues symbols = named(kernel, plan_.steps[static_cast<size_t>(s)].symbols);
        auto is = [&](int r, Home home) { return layout_.home[size_t(r)] == home && plan_.bytes[size_t(r)] > 0; };
        for (size_t out = 0; out < step->args.size(); ++out) {
            const int to = root(*step, out);
            if (!is(to, Home::Output) || layout_.first[size_t(to)] != s || !alone(*step, out)) continue;
            for (size_t in = 0; in < step->args.size(); ++in) {
                const int from = root(*step, in);
                if (!is(from, Home::Input) || layout_.last[size_t(from)] != s || !alone(*step, in)) continue;
                if (plan_.bytes[size_t(from)] != plan_.bytes[size_t(to)]) continue;
                if (may_share_memory(kernel, in, out) && may_overwrite(kernel, in, out, symbols))
                    pairs.emplace_back(to, from);
            }
            const int named = input_named_as(to);
            if (named >= 0 && is(named, Home::Input) && layout_.last[size_t(named)] < s &&
                plan_.bytes[size_t(named)] == plan_.bytes[size_t(to)])
                pairs.emplace_back(to, named);
        }
    }

    void place(RunPlan& plan) const {
        plan.offsets.assign(block_.size(), -1);
        plan.block_bytes = place_on(0, plan);
        for (size_t d = 1; d <= program_.devices.size(); ++d)
            plan.device_bytes.push_back(place_on(static_cast<int>(d), plan));
    }

  private:
    // The blocks in the memory of one device; their bytes together.
    int64_t place_on(int device, RunPlan& plan) const {
        std::vector<Block> used;
        std::vector<int> position(blocks_.size(), -1);
        auto block_of = [&](size_t b) { return program_.buffers[b].device == device ? block_[b] : -1; };
        for (size_t b = 0; b < block_.size(); ++b)
            if (const int block = block_of(b); block >= 0 && position[size_t(block)] < 0) {
                position[size_t(block)] = static_cast<int>(used.size());
                used.push_back(blocks_[size_t(block)]);
            }
        const MemoryPlan memory = plan_memory(used);
        for (size_t b = 0; b < block_.size(); ++b)
            if (const int block = block_of(b); block >= 0)
                plan.offsets[b] = memory.offsets[size_t(position[size_t(block)])];
        return memory.bytes;
    }
    // The root of the input with the name of the output whose root this is; -1 where there is none.
    int input_named_as(int output) const {
        const Graph& graph = *program_.graph;
        for (size_t k = 0; k < program_.outputs.size(); ++k) {
            if (program_.outputs[k] < 0 || layout_.root[size_t(program_.outputs[k])] != output) continue;
            for (size_t i = 0; i < program_.inputs.size(); ++i)
                if (program_.inputs[i] >= 0 && graph.inputs()[i]->name() == graph.output_names()[k])
                    return layout_.root[size_t(program_.inputs[i])];
        }
        return -1;
    }
    int root(const KernelStep& step, size_t arg) const { return layout_.root[static_cast<size_t>(step.args[arg])]; }
    // No other argument of the step lies in the same memory.
    bool alone(const KernelStep& step, size_t arg) const {
        for (size_t i = 0; i < step.args.size(); ++i)
            if (i != arg && root(step, i) == root(step, arg)) return false;
        return true;
    }

    const Program& program_;
    const ProgramLayout& layout_;
    const RunPlan& plan_;
    std::vector<int> block_;  // by root; -1: none
    std::vector<Block> blocks_;
};

}  // namespace

Result<std::optional<Sizes>> buffer_sizes(const ProgramBuffer& buffer, const SymbolValues& symbols) {
    Sizes sizes;
    for (const Expr& d : buffer.shape) {
        if (!known(d, symbols)) return std::optional<Sizes>();
        auto n = evaluate_int(d, symbols);
        if (!n || *n < 0)
            return Error(Code::E0108, "the size of \"{}\" has no valid value for these inputs: {}", buffer.name,
                         to_string(d));
        sizes.push_back(*n);
    }
    TRY(element_count(sizes));
    return std::optional(std::move(sizes));
}

Result<int64_t> buffer_bytes(const ProgramBuffer& buffer, const Sizes& sizes) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(TRY(element_count(sizes)), int64_t(dtype_bytes(buffer.dtype)), &bytes))
        return Error(Code::E0108, "\"{}\" is too large: {}", buffer.name, to_string(sizes));
    return bytes;
}

bool step_symbols(const Program& program, const KernelStep& step, const SymbolValues& symbols,
                  std::vector<int64_t>& into) {
    const Kernel& kernel = program.kernels[step.kernel];
    into.clear();
    for (size_t i = 0; i < kernel.symbols.size(); ++i) {
        auto v = evaluate_int(i < step.symbols.size() ? step.symbols[i] : symbol(kernel.symbols[i]), symbols);
        if (!v) return false;
        into.push_back(*v);
    }
    return true;
}

Result<BoundStep> bind_step(const Program& program, const KernelStep& step, const CompiledModule& module,
                            const SymbolValues& symbols) {
    BoundStep bound;
    if (!step_symbols(program, step, symbols, bound.symbols)) return BoundStep();
    bound.bound = true;
    const bool worth = seconds_of(step, symbols) >= kParallelFrom;
    auto launches = bind_launches(module.kernels()[step.kernel], named(program.kernels[step.kernel], bound.symbols));
    if (!launches.ok()) return std::move(launches.error().at(step.label));
    bound.launches = std::move(*launches);
    for (Launch& launch : bound.launches) launch.spread &= worth;
    return bound;
}

Result<RunPlan> plan_run(const Program& program, const ProgramLayout& layout, const CompiledModule& module,
                         const SymbolValues& symbols, const PlanOptions& options) {
    RunPlan plan;
    plan.symbols = symbols;
    for (size_t b = 0; b < program.buffers.size(); ++b) {
        auto sizes = TRY(buffer_sizes(program.buffers[b], symbols));
        plan.bytes.push_back(sizes ? TRY(buffer_bytes(program.buffers[b], *sizes)) : -1);
        plan.sizes.push_back(sizes ? *sizes : Sizes{});
    }
    for (const Step& step : program.steps) {
        BoundStep bound;
        if (auto* kernel = std::get_if<KernelStep>(&step)) bound = TRY(bind_step(program, *kernel, module, symbols));
        plan.scratch_bytes = std::max(plan.scratch_bytes, most_local_bytes(bound.launches));
        plan.steps.push_back(std::move(bound));
    }
    ArenaBlocks blocks(program, layout, plan);
    const int steps = static_cast<int>(program.steps.size());
    if (options.reuse)
        for (int s = 0; s < steps; ++s) blocks.join(s);
    else
        blocks.keep_all(steps);
    for (int s = 0; s < steps; ++s) blocks.overwrite_inputs(s, plan.overwrites);
    blocks.place(plan);
    return plan;
}

}  // namespace tessera
