#include <algorithm>
#include <set>

#include "kernel/ir/verified.h"
#include "kernel/lower/emit_stages.h"
#include "kernel/passes/clean_up.h"
#include "kernel/schedule/schedule.h"

namespace tessera {
namespace {

// The root of the nest that a stage belongs to.
size_t root_of(const std::vector<PlacedStage>& placed, size_t stage) {
    while (placed[stage].host) stage = *placed[stage].host;
    return stage;
}

bool uses_symbols(const Compute& compute, const Stage& stage) {
    auto symbolic = [&](const Expr& e) {
        for (const std::string& name : free_symbols(e))
            if (std::find(compute.symbols.begin(), compute.symbols.end(), name) != compute.symbols.end()) return true;
        return false;
    };
    auto any = [&](const std::vector<ReduceAxis>& axes) {
        return std::any_of(axes.begin(), axes.end(), [&](const ReduceAxis& a) { return symbolic(a.extent); });
    };
    return any(stage.axes) || any(stage.reduce) || symbolic(stage.value);
}

// Root stages whose nests read known parameters only, directly or through one another.
std::set<size_t> find_prepared(const Compute& compute, const std::vector<PlacedStage>& placed) {
    std::set<size_t> prepared;
    std::set<int> known;
    for (size_t i = 0; i < compute.known.size() && i < compute.params; ++i)
        if (compute.known[i]) known.insert(static_cast<int>(i));
    for (size_t root = 0; root < placed.size(); ++root) {
        if (placed[root].host) continue;
        std::set<int> made;
        bool fits = !placed[root].stored_host, reads = false;
        for (size_t i = 0; i < placed.size(); ++i) {
            if (root_of(placed, i) != root) continue;
            const Stage& stage = *placed[i].stage;
            made.insert(stage.buffer);
            fits &= static_cast<size_t>(stage.buffer) >= compute.params && !uses_symbols(compute, stage);
            for (size_t r = 0; r < placed.size() && i != root; ++r)  // only what the root fills is handed on
                fits &= root_of(placed, r) == root || !reads_buffer(*placed[r].stage, stage.buffer);
            for (const Expr& l : loads_in(stage.value)) {
                reads |= known.contains(l.node().slot);
                fits &= known.contains(l.node().slot) || made.contains(l.node().slot);
            }
        }
        if (!fits || !reads) continue;
        prepared.insert(root);
        known.insert(placed[root].stage->buffer);
    }
    return prepared;
}

// How loops are bound is the schedule's word, and whether threads race shows in the nests alone. All else is ours.
Status check_lowered(const Kernel& kernel) {
    bool bound = false;
    visit(kernel.body, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        bound |= loop && loop->kind == LoopKind::Bound;
    });
    if (bound) return verify(kernel);
    check_verified(kernel, "lower");
    return {};
}

Status clean_up(Kernel& kernel) {
    drop_unit_loops(kernel);
    partition_loops(kernel);
    simplify_kernel(kernel);
    drop_unit_loops(kernel);
    merge_dimensions(kernel);
    place_registers(kernel);
    drop_unused_buffers(kernel);
    return check_lowered(kernel);
}

}  // namespace

Result<Lowered> lower(const Schedule& schedule) {
    const Compute& compute = schedule.compute();
    std::vector<PlacedStage> placed = TRY(place_stages(schedule));
    std::set<size_t> prepared = find_prepared(compute, placed);

    Lowered lowered;
    Kernel &kernel = lowered.kernel, &prepare = lowered.prepare;
    kernel.name = compute.name;
    kernel.symbols = compute.symbols;
    kernel.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + static_cast<ptrdiff_t>(compute.params));
    std::map<int, int> slots;
    for (size_t i = 0; i < compute.params; ++i) slots.emplace(static_cast<int>(i), static_cast<int>(i));
    auto add_parameter = [&](const PlacedStage& p, std::vector<int>& list) {
        const Buffer& buffer = compute.buffers[static_cast<size_t>(p.stage->buffer)];
        int slot = static_cast<int>(kernel.buffers.size());
        kernel.buffers.push_back({buffer.name, buffer.dtype, p.shape, Scope::Global, p.strides});
        slots.emplace(p.stage->buffer, slot);
        list.push_back(slot);
    };
    for (size_t i : prepared) add_parameter(placed[i], lowered.prepared);
    if (!prepared.empty()) {
        prepare.name = compute.name + "_prepare";
        std::map<int, int> own;  // slots of `prepare`
        auto take = [&](int buffer) {
            if (!own.emplace(buffer, static_cast<int>(prepare.buffers.size())).second) return;
            prepare.buffers.push_back(kernel.buffers[static_cast<size_t>(slots.at(buffer))]);
            lowered.prepare_args.push_back(slots.at(buffer));
        };
        for (size_t i = 0; i < placed.size(); ++i)
            if (prepared.contains(root_of(placed, i)))
                for (const Expr& l : loads_in(placed[i].stage->value))
                    if (static_cast<size_t>(l.node().slot) < compute.params) take(l.node().slot);
        for (size_t i : prepared) take(placed[i].stage->buffer);
        prepare.params = prepare.buffers.size();
        prepare.body = TRY(StageEmitter(compute, placed, own, prepare).emit_root({prepared.begin(), prepared.end()}));
        TRY(clean_up(prepare));
    }
    std::vector<size_t> roots;
    for (size_t i = 0; i < placed.size(); ++i) {
        const PlacedStage& p = placed[i];
        if (!p.host && !prepared.contains(i)) roots.push_back(i);
        bool intermediate = static_cast<size_t>(p.stage->buffer) >= compute.params;
        if (intermediate && p.scope == Scope::Global && !prepared.contains(root_of(placed, i)))
            add_parameter(p, lowered.scratch);
    }
    kernel.params = kernel.buffers.size();
    kernel.body = TRY(StageEmitter(compute, placed, slots, kernel).emit_root(roots));
    TRY(clean_up(kernel));
    return lowered;
}

}  // namespace tessera
