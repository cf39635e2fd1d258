// Neighbouring axes along which all that a stage reads and writes is contiguous become one.
#pragma once

#include "kernel/schedule/schedule.h"

namespace tessera {

// Can two axes, with none but single elements between them, be one loop, all addresses staying linear in it?
bool lie_densely(const Schedule& s, const Stage& stage, const ReduceAxis& outer, const ReduceAxis& inner);
// Is something read or written at quotients or remainders by a dynamic size? Each element would be divided for.
bool divides_by_open(const Stage& stage);
// Of a map, its axes from number `first` on.
Status merge_dense_axes(Schedule& s, const std::string& stage, size_t first = 0);

}  // namespace tessera
