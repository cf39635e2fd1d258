// What is computed row by row, as a softmax or a layer norm is.
#pragma once

#include <set>

#include "kernel/schedule/schedule.h"

namespace tessera {

// The first `axes` axes of all members and of `out` say which row.
struct RowGroup {
    size_t axes = 0;
    std::vector<std::string> members;  // producers first
};
// The producers that `out` alone reads, as far as they are computed row by row.
RowGroup row_group(const Schedule& s, const std::string& out, const std::set<std::string>& done);
// Is what the reduction reads contiguous along its innermost reduction axis (and not along its innermost axis)?
bool reduces_along_lanes(const Schedule& s, const Stage& stage);

}  // namespace tessera
