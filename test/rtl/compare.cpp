#include "rtl/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "kernel/accelerator/check_program.h"
#include "kernel/accelerator/simulate.h"

namespace tessera::accelerator {

bool compare(const std::string& name, const Machine& machine, RtlMachine& rtl, const RandomProgram& program,
             Comparison& comparison, std::vector<uint8_t>* memory) {
    const auto fail = [&](const std::string& what) {
        fmt::print("{}: {}\n", name, what);
        return false;
    };
    auto checked = check_program(machine, program.program, program.memory);
    if (!checked) return fail(checked.error().to_string());
    if (!checked->ok()) return fail(checked->to_string());
    std::vector<uint8_t> of_model = program.memory, of_rtl = program.memory;
    auto simulated = simulate(machine, program.program, of_model);
    if (!simulated) return fail(simulated.error().to_string());
    const RtlRun run = rtl.run(of_rtl, program.program_address, 2 * simulated->cycles + 10000);
    comparison = {simulated->cycles, run.cycles, run.gemm_rows};
    if (!run.finished)
        return fail(
            fmt::format("the RTL has not finished after {} cycles, the model after {}", run.cycles, simulated->cycles));
    const auto [a, b] = std::mismatch(of_model.begin(), of_model.end(), of_rtl.begin());
    if (a != of_model.end())
        return fail(
            fmt::format("byte {} of memory is {} after the model, {} after the RTL", a - of_model.begin(), *a, *b));
    if (run.gemm_rows != simulated->matrix_cycles || run.alu_rows != simulated->alu_cycles)
        return fail(fmt::format("{} gemm and {} alu rows in the model, {} and {} in the RTL", simulated->matrix_cycles,
                                simulated->alu_cycles, run.gemm_rows, run.alu_rows));
    if (std::abs(comparison.difference()) > kMostDifference)
        return fail(fmt::format("{} cycles in the model, {} in the RTL", simulated->cycles, run.cycles));
    if (memory) *memory = std::move(of_rtl);
    return true;
}

}  // namespace tessera::accelerator
