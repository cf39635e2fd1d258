// How a back end makes kernels of Computes, and what lowering a graph asks of that before there are any.
#pragma once

#include "base/decision.h"
#include "kernel/analyse/attention.h"
#include "kernel/schedule/schedule.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

// An operand of attention in memory, by rows of 16-bit elements.
struct AttentionOperand {
    bool in_rows = false;     // rows begin at multiples of 16 bytes, a head's elements side by side
    bool ends = false;        // with the head, or the last key: nothing is read behind
    bool in_vectors = false;  // a head is whole vectors of 16 bytes
};

// Attention as lowering finds it in a graph: its sizes, and how its operands lie.
struct AttentionForm {
    bool wanted = false;  // also where it does not pay
    bool one_query = false;
    std::optional<int64_t> queries, keys;  // nullopt: dynamic
    int64_t depth = 0, columns = 0;        // elements of a head of Q and K, and of V
    double score_bytes = 0;                // of all scores
    int element_bytes = 4;                 // of a score
    int dynamic_sizes = 0;                 // dimensions of dynamic size of the result
    AttentionOperand q = {}, k = {}, v = {};
};

class Scheduling {
  public:
    virtual ~Scheduling() = default;

    // A schedule of a Compute for all sizes alike.
    virtual Result<Schedule> schedule(const Compute& compute, const ScheduleOptions& options) const = 0;
    // The kernel of a Compute by default schedules, several where sizes are dynamic. What was chosen and why is added
    // to `choices`; where `traces` is given, the primitives are added to it.
    virtual Result<Lowered> lower(const Compute& compute, const ScheduleOptions& options, std::vector<Choice>& choices,
                                  std::string* traces) const = 0;
    // The same for code that is soon there, by schedules that compile quickly.
    virtual Result<Lowered> lower_baseline(const Compute& compute, const ScheduleOptions& options) const {
        std::vector<Choice> ignored;
        return lower(compute, options, ignored, nullptr);
    }

    // Whether kernels find out where operands begin when they run. One kernel then serves Computes that differ by it.
    virtual bool shares_forms() const = 0;
    // Whether kernels that read nothing but constants run once, when the program is loaded.
    virtual bool runs_constants_ahead() const = 0;

    // What attention in one kernel rounds, and whether it copies tiles of 16-bit operands from memory. Such operands
    // are computed before it; others on the way.
    virtual Rounding attention_rounding() const = 0;
    virtual bool copies_attention_tiles() const = 0;
    // Whether attention of that form is better one kernel, and why.
    virtual Decision suits_attention(const AttentionForm& form, const ScheduleOptions& options) const = 0;
};

}  // namespace tessera
