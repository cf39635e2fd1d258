// Calls in kernels of tile programs, besides atomics:
//   call leave(; ; c)              breaks out of the enclosing Serial loop if c holds; must be directly inside it
//   call bits(y[i]; x[j]; )        y[i] = bit cast of x[j] to the type of y, which has the same width
//   call report(; ; number, v...)  prints a message (base/reports.h)
// A parameter whose size is the symbol `anywhere` is all of memory: its elements may alias those of other parameters.
#pragma once

#include "base/reports.h"
#include "kernel/ir/kernel.h"

namespace tessera {

// A note on the loop over the instances of a tile program in a model: races between instances are not checked.
constexpr const char* kInstances = "instances";
constexpr std::string_view kLeave = "leave", kBits = "bits", kAnywhere = "anywhere";

inline bool is_tile_language_call(const Call& call) {
    return call.name == kLeave || call.name == kBits || call.name == kReport;
}

// Whether the statement contains a print or an assertion.
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
