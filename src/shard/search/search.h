// Shardings that nobody annotated: the homes of all values that cost least, within a memory, by variable elimination
// over tables of costs (homes.h); then the few annotations from which propagation and planning make the same plan.
#pragma once

#include "shard/cost.h"
#include "shard/liveness.h"

namespace tessera::shard {

struct SearchOptions {
    PlanOptions plan = {};
    std::optional<int64_t> memory = {};  // bytes that a rank may use: weights that it keeps and live activations
    bool second = true;                  // search for the second best, too
    int trials = 60;                     // plans that refinement compares, at most
    std::function<void(std::string_view, size_t, size_t)> progress = {};  // step, done, of
};

// A sharding that was judged by its plan.
struct Judged {
    Shardings given;  // annotations, those of the user among them
    PlanCost cost;
    PeakMemory peak;
    std::shared_ptr<const Plan> plan;
};

struct Found {
    Judged best;
    std::optional<Judged> second;  // divides a good part of the arithmetic otherwise
    double different = 0;          // that part
    double bound =
        0;  // seconds that no choice of homes is below, where readers fetch from homes and copies are not shared
    bool exact = true;                    // the choice of homes was, for its prices
    int plans = 0;                        // that were compared
    size_t eliminated = 0, computed = 0;  // variables; eliminations that did not repeat one before
};

// E0408 where no sharding was found that fits into the memory.
Result<Found> search_shardings(const std::shared_ptr<const Graph>& graph, const Mesh& mesh, const Shardings& given,
                               const SearchOptions& options);

// The part of a plan's arithmetic that the other divides otherwise.
double different_part(const Plan& a, const Plan& b);

}  // namespace tessera::shard
