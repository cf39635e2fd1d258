// Runs one rank's program: segments by whoever computes them, collectives over a transport.
#pragma once

#include "runtime/collectives/transport.h"
#include "shard/local_program.h"

namespace tessera::shard {

// The outputs of segment number `stage` of the program for these inputs.
using RunSegment = std::function<Result<std::vector<Datum>>(size_t stage, const std::vector<Datum>& inputs)>;
RunSegment by_evaluator(const LocalProgram& program);

// By stage, what no later one reads, nor the caller.
std::vector<std::vector<int>> last_reads(const Plan& plan, const LocalProgram& program);
// The rank's part of an input of the graph, which may be what is given (Plan::in_parts). E0405 if it has other sizes
// than the plan.
Result<Datum> input_part(const Plan& plan, size_t input, const Datum& whole, int64_t rank);

// The graph's outputs, for all of its inputs in order, of which the rank takes its parts, unless it is given those
// (Plan::in_parts). Inputs are freed after their last use. A rank that
// fails stops the others.
Result<std::vector<Datum>> run_local(const Plan& plan, const LocalProgram& program, std::vector<Datum> inputs,
                                     Transport& transport, const RunSegment& segment);

}  // namespace tessera::shard
