// A program as bytes and back, without its weights and its code: all that runs, profiles and reports need of it.
#pragma once

#include "base/decision.h"
#include "kernel/from_graph/program.h"
#include "tessera/compile.h"

namespace tessera {

// No: it has values that are not numbers, or that its graph has not.
Decision can_store(const Program& program);

struct StoredProgram {
    Program program;  // whose constants have no elements, but for the small ones of its graph
    CompileReport report;
};
std::string pack_program(const Program& program, const CompileReport& report);
// `source`: the model's file, for messages. E0605: these are not the bytes of a program of this version.
Result<StoredProgram> unpack_program(std::string_view bytes, const std::string& source);

}  // namespace tessera
