// Stages in their places: the loops around each, the region of its axes that it computes there, its own loops for that
// region, what must be guarded, and where in its buffer an element lies. Made from a schedule, consumers before
// producers.
#pragma once

#include <memory>

#include "kernel/ir/regions.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

struct Guard {
    Expr condition;
    size_t level;  // how many of the stage's loops are around it
    bool reduces;  // over a reduction loop: it does not hold back the init
};

struct PlacedStage {
    const Stage* stage = nullptr;
    const StagePlan* plan = nullptr;
    std::optional<size_t> host;  // the stage in whose loop it stands
    size_t host_loop = 0;
    Extents around;        // the loops around its nest, with the extents that they have
    Extents around_whole;  // the same, before the last iterations were cut short: for regions

    std::vector<Interval> region;  // of its axes, that it computes
    DerivedLoops loops;
    std::vector<Expr> extents;  // of its loops; the last iterations may be cut short
    Bindings values;            // of its axes' and reduction axes' variables, over loops
    Expr value;                 // of one element or step, over those variables
    std::vector<Guard> guards;
    size_t init_level = 0;  // the init stands inside so many loops
    // A reduction that goes along with its host's loops, from this one on: its elements live outside of that nest.
    std::optional<size_t> along;
    std::shared_ptr<PlacedStage> start;  // the nest of its init, then
    Bindings steps;                      // by reduction variable: the first step of one iteration
    std::optional<Expr> step_count;      // how many, where they are not all or one
    std::vector<std::optional<Interval>> kept_rows;   // by axis: of the host's region
    std::vector<std::optional<Interval>> start_rows;  // of those, what one init is for

    std::vector<Interval> stored;     // the region of its axes that its buffer holds
    std::optional<size_t> stored_at;  // allocated inside this loop of `stored_host`; none: around everything
    std::optional<size_t> stored_host;
    Scope scope = Scope::Global;
    std::vector<Expr> shape, strides;  // of its buffer
    std::vector<bool> kept;            // by layout dimension; single-element ones are dropped
    std::vector<Expr> copy;            // which of several copies of it, as its first dimensions: for iterations in flight

    Extents running() const;                                             // every loop around its stores
    std::vector<Expr> location(const std::vector<Expr>& indices) const;  // in its buffer
};

// The stages that read what stage i fills.
std::vector<size_t> readers_of(const Compute& compute, size_t i);
// Whether stage r follows stage i, its producer, in a loop of that.
bool is_follower(const std::vector<PlacedStage>& placed, size_t r, size_t i);
// Whether stage r is computed in loop number `loop` of stage h, at any depth.
bool is_inside(const std::vector<PlacedStage>& placed, size_t r, size_t h, size_t loop);
// The box of a stage's axes that one iteration of its loop fills, where it is a box.
Result<std::vector<Interval>> region_inside(const PlacedStage& p, size_t loop);

// What all readers of a stage together, but for its followers, read of it inside the loops around.
std::vector<Interval> all_read(const Compute& compute, const std::vector<PlacedStage>& placed, size_t i,
                               const Extents& around);

// A reduction that goes along with loops of its host: its region, and what it does in one iteration.
bool goes_along(const Compute& compute, const std::vector<PlacedStage>& placed, size_t i);
Status place_along(const Compute& compute, std::vector<PlacedStage>& placed, size_t i);

// The last step of placing, for stages whose loops are there.
Status store_stages(const Compute& compute, std::vector<PlacedStage>& placed);

Result<std::vector<PlacedStage>> place_stages(const Schedule& schedule);

}  // namespace tessera
