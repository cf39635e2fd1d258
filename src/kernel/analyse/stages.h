// What stages read and write, and how that lies in memory: what default schedules of every back end ask.
#pragma once

#include <optional>

#include "kernel/schedule/schedule.h"

namespace tessera {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t constant_or(const Expr& e, int64_t otherwise) { return e.as_int().value_or(otherwise); }

const Stage& find_stage(const Schedule& s, std::string_view name);
const Stage* writer_of(const Schedule& s, int buffer);
std::vector<std::string> readers_of(const Schedule& s, int buffer);  // names of stages
std::vector<Expr> loads_of(const Stage& stage, int buffer = -1);     // of that buffer, or all
const ReduceAxis* last_larger_axis(const Stage& stage);  // that has more than one element; null if there is none
// How the address of an access moves, in elements, when var grows by one; nullopt where that is not constant.
std::optional<Expr> stride_of(const Schedule& s, const Expr& load, const Expr& var);
std::optional<Expr> stride_of(const Schedule& s, int buffer, const std::vector<Expr>& indices, const Expr& var);
bool is_known(const Schedule& s, const Expr& operand);       // before it runs
bool used_beside_loads(const Expr& value, const Expr& var);  // other than in the indices of loads
bool is_costly(const Expr& value);  // there are functions in it that take ten times as long as a product, or more
Expr elements_of(const std::vector<ReduceAxis>& axes);

// Axes along which the value is another expression for each of a few places, or for each remainder by a few; not more
// than `most` expressions together.
struct PhasedAxis {
    size_t axis;
    int64_t count;
    bool operator==(const PhasedAxis&) const = default;
};
std::vector<PhasedAxis> find_phases(const Stage& stage, int64_t most, bool innermost = false);

// The axes of `out` that make up each group of `producer`'s axes, in such an order that both merge to the same index;
// nullopt where they do not.
std::optional<std::vector<std::vector<int>>> matching_groups(const Stage& out, const Stage& producer,
                                                             const std::vector<std::vector<int>>& groups);

}  // namespace tessera
