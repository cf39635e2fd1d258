#include "shard/wires.h"

#include <algorithm>
#include <set>

namespace tessera::shard {
namespace {

bool varies_along(const Placement& boxes, const Mesh& mesh, size_t axis) {
    for (size_t r = 0; r < boxes.size(); ++r)
        if (boxes[r] != boxes[size_t(mesh.group(int64_t(r), {axis})[0])]) return true;
    return false;
}

// Calls f(group) for each group of ranks that differ along the axes only, until it is false.
template <typename F>
bool all_groups(const Mesh& mesh, const std::vector<size_t>& axes, const F& f) {
    for (int64_t r = 0; r < mesh.ranks(); ++r) {
        const std::vector<int64_t> group = mesh.group(r, axes);
        if (group[0] == r && !f(group)) return false;
    }
    return true;
}

std::string_view kind_name(Wire::Kind kind) {
    static constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "send_receive"};
    return kNames[size_t(kind)];
}

}  // namespace

std::optional<std::vector<size_t>> gathered_axes(const Plan& plan, const MoveStep& move) {
    const Placement &from = plan.held[size_t(move.from)].boxes, &to = plan.held[size_t(move.to)].boxes;
    std::vector<size_t> axes;
    for (size_t a = 0; a < plan.mesh.axes().size(); ++a)
        if (varies_along(from, plan.mesh, a) && !varies_along(to, plan.mesh, a)) axes.push_back(a);
    if (axes.empty()) return {};
    const bool gathers = all_groups(plan.mesh, axes, [&](const std::vector<int64_t>& group) {
        const Box& whole = to[size_t(group[0])];
        const int64_t count = volume(from[size_t(group[0])]);
        if (count == 0 || count * int64_t(group.size()) != volume(whole)) return false;
        for (size_t i = 0; i < group.size(); ++i) {
            const Box& part = from[size_t(group[i])];
            if (volume(part) != count || !contains(whole, part) || to[size_t(group[i])] != whole) return false;
            for (size_t j = 0; j < i; ++j)
                if (volume(intersect(part, from[size_t(group[j])])) > 0) return false;
        }
        return true;
    });
    if (!gathers) return {};
    return axes;
}

bool scatters_evenly(const Plan& plan, const CombineStep& step) {
    const Placement &from = plan.held[size_t(step.from)].boxes, &to = plan.held[size_t(step.to)].boxes;
    if (from == to) return false;
    const int64_t count = volume(to[0]);
    for (size_t r = 0; r < to.size(); ++r)
        if (count == 0 || volume(to[r]) != count || !contains(from[r], to[r])) return false;
    return true;
}

Status reducible(ReduceOp op, DType dtype) {
    static const std::set<DType> kTypes = {DType::i8,  DType::u8,  DType::i32, DType::u32, DType::i64,
                                           DType::u64, DType::f16, DType::f32, DType::f64, DType::bf16};
    if (kTypes.contains(dtype)) return {};
    return Error(Code::E0409, "a {} of {} is not combined between GPUs", combine_name(op), dtype_name(dtype))
        .hint("--collectives host combines in the memory of the hosts");
}

Value* box_of(Builder& b, const BoxValue& whole, const Box& part) {
    std::vector<int64_t> starts, ends, axes;
    for (size_t d = 0; d < part.size(); ++d) {
        if (part[d] == whole.box[d]) continue;
        starts.push_back(part[d].low - whole.box[d].low);
        ends.push_back(part[d].high - whole.box[d].low);
        axes.push_back(int64_t(d));
    }
    return axes.empty() ? whole.value : b.slice(whole.value, starts, ends, axes);
}

Value* assemble(Builder& b, const Box& box, const std::vector<BoxValue>& parts) {
    for (const BoxValue& p : parts)
        if (contains(p.box, box)) return box_of(b, p, box);
    for (size_t d = 0; d < box.size(); ++d) {
        std::set<int64_t> cuts;
        for (const BoxValue& p : parts) {
            if (volume(intersect(p.box, box)) == 0) continue;
            for (int64_t at : {p.box[d].low, p.box[d].high})
                if (at > box[d].low && at < box[d].high) cuts.insert(at);
        }
        if (cuts.empty()) continue;
        cuts.insert(box[d].high);
        std::vector<Value*> cells;
        int64_t low = box[d].low;
        for (int64_t high : cuts) {
            Box cell = box;
            cell[d] = {std::exchange(low, high), high};
            cells.push_back(assemble(b, cell, parts));
        }
        return b.concat(cells, int64_t(d));
    }
    CHECK(false, "no part covers the box");
    return nullptr;
}

std::string wires_text(const Plan& plan, const LocalProgram& program) {
    const auto type = [&](int id) {
        const WireBuffer& b = program.buffers[size_t(id) - plan.held.size()];
        return fmt::format("b{}: {}[{}]", size_t(id) - plan.held.size(), dtype_name(b.dtype), b.elements);
    };
    std::string text;
    for (const auto& stage : program.stages) {
        const auto* w = std::get_if<Wire>(&stage);
        if (!w) continue;
        text += fmt::format("{} ({})\n", kind_name(w->kind), w->name);
        const std::vector<int64_t> group = plan.mesh.group(program.rank, w->axes);
        const auto place = std::find(group.begin(), group.end(), program.rank) - group.begin();
        const std::string over = axis_names(plan.mesh, w->axes);
        if (w->kind == Wire::Kind::AllReduce)
            text += fmt::format("  {} over {}: {} in place\n", combine_name(w->op), over, type(w->to));
        if (w->kind == Wire::Kind::AllGather)
            text += fmt::format("  over {}: {} at {} of {}\n", over, type(w->from),
                                place * program.buffers[size_t(w->from) - plan.held.size()].elements, type(w->to));
        if (w->kind == Wire::Kind::ReduceScatter)
            text += fmt::format("  {} over {}: {} at {} of {}\n", combine_name(w->op), over, type(w->to),
                                place * program.buffers[size_t(w->to) - plan.held.size()].elements, type(w->from));
        for (const auto& [rank, id] : w->sends) text += fmt::format("  send {} to {}\n", type(id), rank);
        for (const auto& [rank, id] : w->receives) text += fmt::format("  receive {} from {}\n", type(id), rank);
    }
    return text;
}

}  // namespace tessera::shard
