// The kinds of stages that gpu_schedule knows, and what they have in common.
#pragma once

#include "base/machine.h"
#include "kernel/analyse/stages.h"

#include <optional>
#include <set>

namespace tessera {

// How many neighbours along the innermost axis one thread takes: as many as fill the widest access, 16 bytes, of all
// that is read and written there. 1 where the extent is no multiple of it, or where some would be guarded and others
// not. `own`: buffers that are not asked, such as what its thread keeps in registers.
int64_t access_width(const Schedule& s, const Stage& stage, const ReduceAxis& along, const std::set<int>& own = {});

// A map's value with comparisons of its innermost index with a multiple of a few lanes, as those of concatenations are,
// by vectors: all lanes of one are on the same side.
Expr bounds_in_vectors(const Expr& value, const Expr& innermost);

// Of a map with many elements that are looked up at loaded places: an axis along which a thread takes several with the
// same places. Nothing where there is none.
std::optional<size_t> axis_of_lookups(const Stage& stage);

// A stage without reduction, one thread for each element or each vector of them; in squares where it reads across.
Status map_to_threads(Schedule& s, const std::string& stage, bool share_squares);
// A map that reads across, in squares that a block turns in shared memory. False, and nothing done: it is none.
Result<bool> transpose_to_blocks(Schedule& s, const std::string& stage);
// A map and the reduction of few elements, such as a window's, that it reads at its own place: each thread carries out
// the reduction for a vector of neighbours, and the map on what it has. The name of the reduction; none, and nothing
// done, where it is something else.
Result<std::vector<std::string>> window_to_threads(Schedule& s, const std::string& map);
// Choices between sums of the same elements, by the place along an axis, as stages of their own, which others read at
// their own place. Nothing where there are none.
std::optional<Compute> sums_apart(const Compute& compute);
bool is_choice_of_sums(const Stage& stage);  // all of it
// A map and the choices between sums that it reads: each thread has all sums of a tile in registers. The names of what
// it took along; none, and nothing done, where it reads none.
Result<std::vector<std::string>> phases_to_threads(Schedule& s, const std::string& map);
// A reduction that one thread carries out for each element; long ones of few elements in parts, so that there are
// threads enough, which are then combined in one step or two.
Status reduce_by_threads(Schedule& s, const std::string& stage, const Machine& machine);

// `stage`, and what it needs row by row, one block for each row: the names of what it took along. None, and nothing
// done, where rows are not contiguous or too short to be shared.
Result<std::vector<std::string>> rows_to_blocks(Schedule& s, const std::string& stage,
                                                const std::set<std::string>& done);

}  // namespace tessera
