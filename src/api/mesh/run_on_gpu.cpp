#include "api/mesh/run_on_gpu.h"

#include "base/clock.h"
#include "runtime/devices/gpu_memory.h"

namespace tessera {

using namespace shard;

Result<std::vector<Datum>> run_on_gpu(const Plan& plan, int64_t rank, int gpu, const NcclId& id,
                                      const std::vector<Datum>& inputs, CompileOptions options, ShardTimes& times) {
    const DeviceScope inside = TRY(enter_gpu(gpu));
    options.target = gpu_target(gpu);
    const double began = wall_seconds();
    const LocalProgram program = TRY(local_program(plan, rank, Transfer::Buffers));
    std::map<size_t, Executable> segments;
    for (size_t i = 0; i < program.stages.size(); ++i)
        if (auto* segment = std::get_if<Segment>(&program.stages[i]))
            segments.emplace(i, TRY(compile(Model(std::shared_ptr<Graph>(segment->graph)), options)));
    const auto memory = TRY(gpu_memory(gpu));
    const auto nccl = TRY(NcclRank::join(plan.mesh, rank, id, groups_of(program)));
    const double started = wall_seconds();
    auto outputs = run_wires(
        plan, program, inputs, *nccl, *memory, [&](size_t stage, const std::vector<Datum>& in, const Place& place) {
            return segments.at(stage).run_in_order(in, {.place = place, .stream = memory->stream()});
        });
    times = {started - began, wall_seconds() - started, "nccl"};
    return outputs;
}

}  // namespace tessera
