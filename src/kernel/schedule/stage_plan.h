// What a schedule keeps of each stage: its loops in order, how they came from its axes, where it is computed and
// stored. Extents are not kept but derived, since those of a stage computed inside another's loop follow from what is
// read there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernel/ir/compute.h"

namespace tessera {

// How a buffer is laid out: the element at logical `vars` stands at `indices`; sizes of the new dimensions in `shape`.
struct IndexMap {
    std::vector<Expr> vars, indices, shape;
};

// One step from loops to loops, by their names.
struct LoopRelation {
    enum class Kind : uint8_t {
        Split,       // parent = outer * amount + inner
        SplitParts,  // the same, with `amount` iterations of outer
        SplitWhole,  // parent = min(outer * amount, extent(parent) - amount) + inner
        Fuse,        // parent = outer * extent(inner) + inner; only the parent remains
        Skew,        // inner + amount * outer = parent; replaces inner
    };
    Kind kind;
    std::string parent, outer, inner;
    int64_t amount = 0;
};

struct LoopPlan {
    std::string name;
    bool reduces = false;
    LoopKind kind = LoopKind::Serial;
    std::string axis = {};  // Bound
    std::map<std::string, int64_t> notes = {};
    bool partition = false, fission = false;
    int pipeline = 0;            // iterations in flight
    std::string intrinsic = {};  // the nest from here on is one call
};

struct PrefetchPlan {
    int buffer;
    std::string loop;
    int64_t ahead;
    std::string outer = {}, part = {};  // loops around it: what the next iteration of one reads, in parts by the other
};

struct AlignPlan {
    int dim;
    int64_t factor, offset;
};

struct StagePlan {
    std::vector<LoopPlan> loops;          // outermost first
    std::vector<LoopRelation> relations;  // in the order they were made
    std::string at;                       // the loop of another stage that it is computed in; none: the root
    bool after = false;                   // `at` is a loop of its producer; after the producer
    std::optional<Scope> scope;
    std::string init_at;  // the init stands before this loop; none: before the first reduction loop
    std::optional<IndexMap> layout;
    std::vector<int64_t> multiples;  // by axis: what it was padded to; regions are rounded up to them too
    std::vector<AlignPlan> aligned;
    std::vector<PrefetchPlan> prefetches;
    bool double_buffer = false;
    // Of stages that `online` made or changed.
    std::string running;    // a loop of the stage that it is computed in: each iteration is one step of its reduction
    std::vector<int> rows;  // by axis of a running stage: the axis of that stage that it is, or -1
    std::string ahead;      // it is computed just before that stage, whose running value it reads
    bool bounded = false;   // reduction steps for which its value selects the identity are skipped

    const LoopPlan* find(std::string_view loop) const;
    LoopPlan* find(std::string_view loop);
    size_t position(std::string_view loop) const;  // loops.size() if there is none
};

std::string loop_name(const Stage& stage, const ReduceAxis& axis);
StagePlan plain_plan(const Stage& stage);

// A plan's loops for given extents of the stage's axes.
struct DerivedLoops {
    std::vector<Expr> vars, extents;  // of plan.loops
    Bindings values;                  // by axis variable: its value over the loops' variables, from 0
    std::vector<Expr> guards;         // conditions for an iteration to be valid, from splits that do not divide evenly
    std::map<std::string, Expr> all_extents;  // also of loops that were split or fused
};
DerivedLoops derive_loops(const Stage& stage, const StagePlan& plan, const std::vector<Expr>& extents,
                          const std::vector<Expr>& reduce_extents);

// Where a load has the variable of the stage's one reduction axis: as index number `dim`, base + variable.
struct ReducedIndex {
    size_t dim;
    Expr base;
};
std::optional<ReducedIndex> reduced_index(const Stage& stage, const Expr& load);

// The loads of one buffer, or all, in an expression.
std::vector<Expr> loads_in(const Expr& value, std::optional<int> slot = {});
bool reads_buffer(const Stage& stage, int slot);

}  // namespace tessera
