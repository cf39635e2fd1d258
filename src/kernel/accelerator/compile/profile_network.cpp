// One simulated run of a compiled network, as people look at it: cycles by unit and layer, and a timeline with tokens.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "kernel/accelerator/compile/network_code.h"
#include "kernel/accelerator/simulate.h"

namespace tessera::accelerator {
namespace {

// Bytes between memory and scratchpads.
int64_t bytes_of(const Instruction& instruction, const Machine& machine) {
    if (const auto* load = std::get_if<Load>(&instruction.op))
        return int64_t(load->x) * load->y * load->z * machine.row_bytes(load->to, load->element);
    if (const auto* store = std::get_if<Store>(&instruction.op))
        return int64_t(store->x) * store->y * store->z * machine.row_bytes(Scratchpad::Acc, store->element);
    return 0;
}

// The n-th token that is added to a queue is the n-th that is taken. Pairs of instructions.
std::vector<std::pair<size_t, size_t>> tokens_of(std::span<const Instruction> program) {
    struct Queue {
        std::vector<size_t> added, taken;
    };
    std::array<std::array<Queue, 3>, 3> queues;  // by unit that adds and unit that takes
    for (size_t i = 0; i < program.size(); ++i) {
        const auto unit = size_t(program[i].unit());
        const Tokens& k = program[i].tokens;
        if (k.push_previous) queues[unit][unit - 1].added.push_back(i);
        if (k.push_next) queues[unit][unit + 1].added.push_back(i);
        if (k.pop_previous) queues[unit - 1][unit].taken.push_back(i);
        if (k.pop_next) queues[unit + 1][unit].taken.push_back(i);
    }
    std::vector<std::pair<size_t, size_t>> pairs;
    for (const auto& from : queues)
        for (const Queue& q : from)
            for (size_t n = 0; n < std::min(q.added.size(), q.taken.size()); ++n)
                pairs.emplace_back(q.added[n], q.taken[n]);
    return pairs;
}

DeviceProfile::Unit described(Unit unit, const UnitStatistics& s) {
    return {
        std::string(to_string(unit)), s.instructions, s.busy, s.wait_fetch, s.wait_previous, s.wait_next, s.wait_room};
}

}  // namespace

std::optional<DeviceProfile> NetworkCode::profile() const {
    const CompiledNetwork& c = compiled_;
    std::vector<uint8_t> memory = c.image;
    const auto done = simulate(c.machine, c.instructions, memory, {.timeline = true, .compute = false});
    CHECK(done.ok(), "a compiled network does not run: {}", done.error().message());
    DeviceProfile made;
    made.machine = c.machine.name;
    made.megahertz = c.machine.megahertz;
    made.cycles = done->cycles;
    made.macs_per_cycle = int64_t(c.machine.inputs) * c.machine.outputs;
    made.bytes_per_cycle = c.machine.bytes_per_cycle;
    made.matrix_cycles = done->matrix_cycles;
    made.alu_cycles = done->alu_cycles;
    made.alu_stalls = done->alu_stalls;
    made.fetch_bytes = done->fetch_bytes;
    made.load_bytes = done->load_bytes;
    made.store_bytes = done->store_bytes;
    for (Unit unit : {Unit::Load, Unit::Compute, Unit::Store}) made.units.push_back(described(unit, done->of(unit)));
    std::vector<int> layer_of(c.instructions.size(), int(c.layers.size()) - 1);
    for (size_t l = 0; l < c.layers.size(); ++l) {
        const CompiledLayer& layer = c.layers[l];
        DeviceProfile::Layer about{.name = layer.name, .op = layer.op, .plan = layer.plan};
        about.macs = layer.macs;
        about.matrix_cycles = layer.matrix_rows;
        about.least_bytes = layer.least_bytes;
        about.scalar_cycles = layer.scalar_cycles;
        for (size_t i = layer.first; i < layer.end; ++i) {
            layer_of[i] = int(l);
            about.bytes += bytes_of(c.instructions[i], c.machine);
        }
        made.layers.push_back(std::move(about));
    }
    std::vector<size_t> span_of(c.instructions.size(), SIZE_MAX);
    for (const TimelineRecord& r : done->timeline) {
        const int layer = layer_of[r.instruction];
        span_of[r.instruction] = made.spans.size();
        made.spans.push_back({int(r.unit), layer, r.start, r.end, to_string(c.instructions[r.instruction])});
        if (layer >= 0) made.layers[size_t(layer)].end = std::max(made.layers[size_t(layer)].end, r.end);
    }
    int64_t before = 0;
    for (DeviceProfile::Layer& layer : made.layers) {
        layer.begin = before;
        before = std::max(before, layer.end);
    }
    for (const auto& [from, to] : tokens_of(c.instructions))
        if (span_of[from] != SIZE_MAX && span_of[to] != SIZE_MAX) made.tokens.emplace_back(span_of[from], span_of[to]);
    return made;
}

}  // namespace tessera::accelerator
