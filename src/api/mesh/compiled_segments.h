// The segments of a rank's program, compiled.
#pragma once

#include "runtime/collectives/run_local.h"
#include "tessera/compile.h"

namespace tessera::shard {

// Compiling takes the segments' graphs, so that weights are there once. The evaluator needs them, for as long as the
// program exists.
using SegmentCache = std::map<std::string, Executable>;  // of ranks in one process: most of their segments are equal
Result<RunSegment> segments_of(LocalProgram& program, const CompileOptions& options, bool evaluate,
                               SegmentCache* cache = nullptr);

// The ranks of a machine share its threads unless the user says how many each has.
CompileOptions with_threads_of_rank(CompileOptions options, int64_t ranks);

}  // namespace tessera::shard
