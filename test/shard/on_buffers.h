// Runs of partitioned graphs with collectives on buffers, by the library that stands in for NCCL (test/gpu/nccl.cpp).
#pragma once

#include <thread>

#include "runtime/collectives/run_wires.h"
#include "shard/drawn.h"

namespace tessera::test {

inline bool nccl_stands_in() { return nccl_version() == "2.99.0"; }

// What a rank makes of the inputs, by the evaluator.
inline Result<std::vector<Datum>> run_on_buffers(const Plan& plan, const LocalProgram& program,
                                                 const std::vector<Datum>& inputs, const NcclId& id) {
    const auto nccl = TRY(NcclRank::join(plan.mesh, program.rank, id, groups_of(program)));
    const auto memory = host_memory();
    const RunSegment evaluate = by_evaluator(program);
    const RunPlaced placed = [&](size_t stage, const std::vector<Datum>& in,
                                 const Place& place) -> Result<std::vector<Datum>> {
        std::vector<Datum> out = TRY(evaluate(stage, in));
        for (size_t i = 0; i < out.size(); ++i) {
            if (!out[i].is_tensor()) continue;
            auto into = TRY(place(i, out[i].tensor().dtype(), out[i].tensor().sizes()));
            if (!into) continue;
            if (into->bytes() > 0) std::memcpy(into->mutable_data(), out[i].tensor().data(), size_t(into->bytes()));
            out[i] = *into;
        }
        return out;
    };
    return run_wires(plan, program, inputs, *nccl, *memory, placed);
}

// As wrong_on_threads. Empty, too, where an element type is not combined by the library.
inline std::string wrong_on_buffers(const Plan& plan, const std::vector<Datum>& inputs,
                                    const std::vector<Datum>& want) {
    std::vector<LocalProgram> programs;
    for (int64_t r = 0; r < plan.mesh.ranks(); ++r) {
        auto program = local_program(plan, r, Transfer::Buffers);
        if (!program.ok() && program.error().code() == Code::E0409) return {};
        if (!program.ok()) return program.error().to_string();
        programs.push_back(std::move(*program));
        if (groups_of(programs.back()) != groups_of(programs.front()))
            return fmt::format("rank {} has other groups", r);
    }
    const auto id = make_nccl_id();
    if (!id.ok()) return id.error().to_string();
    std::vector<std::optional<Result<std::vector<Datum>>>> got(programs.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < programs.size(); ++r)
        threads.emplace_back([&, r] { got[r] = run_on_buffers(plan, programs[r], inputs, *id); });
    for (std::thread& t : threads) t.join();
    for (size_t r = 0; r < got.size(); ++r) {
        if (!got[r]->ok()) return fmt::format("rank {} on buffers: {}", r, got[r]->error().to_string());
        for (size_t i = 0; i < want.size(); ++i)
            if (want[i].is_tensor() && !(**got[r])[i].tensor().same_bits(want[i].tensor()))
                return fmt::format("rank {} on buffers: {}", r,
                                   difference(i, (**got[r])[i].tensor(), want[i].tensor()));
    }
    return {};
}

}  // namespace tessera::test
