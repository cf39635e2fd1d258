// Calls that kernels of tile programs make, beside atomics:
//   call leave(; ; c)              ends the loop around it where c holds; it stands in a Serial loop, in nothing else
//   call bits(y[i]; x[j]; )        y[i] = the number of y's type, which has as many bits, with the bits of x[j]
//   call report(; ; number, v...)  says something (base/reports.h)
// A parameter whose size is the symbol `anywhere` is all memory there is: its elements may be those of others.
#pragma once

#include "base/reports.h"
#include "kernel/ir/kernel.h"

namespace tessera {

// A note of the loop over instances of a model's tile program: whether two write one element is that program's word.
constexpr const char* kInstances = "instances";
constexpr std::string_view kLeave = "leave", kBits = "bits", kAnywhere = "anywhere";

inline bool is_tile_language_call(const Call& call) {
    return call.name == kLeave || call.name == kBits || call.name == kReport;
}

// Whether something in it prints or asserts.
inline bool has_reports(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const Call* call = x->as<Call>();
        found |= call && call->name == kReport;
    });
    return found;
}

inline bool is_anywhere(const Buffer& b) {
    return b.shape.size() == 1 && b.shape[0].is(ExprKind::Var) && b.shape[0].node().name == kAnywhere;
}

}  // namespace tessera
