#include "kernel/cpu/cpu_scheduling.h"

#include "kernel/cpu/attention.h"
#include "kernel/cpu/lower_baseline.h"
#include "kernel/cpu/lower_variants.h"

namespace tessera {
namespace {

constexpr int64_t kMaxHead = 512;  // elements of a head: blocks of keys must fit L1
// Cycles for each score: exp and its sum; writing, reading and packing it again; and from far.
constexpr double kExpCycles = 3, kScoreCycles = 1.2, kFarCycles = 0.5;

class CpuScheduling : public Scheduling {
  public:
    Result<Schedule> schedule(const Compute& compute, const ScheduleOptions& options) const override {
        return default_schedule(compute, CpuScheduleOptions{options});
    }
    Result<Lowered> lower(const Compute& compute, const ScheduleOptions& options, std::vector<Choice>& choices,
                          std::string* traces) const override {
        return lower_variants(compute, options, choices, traces);
    }
    Result<Lowered> lower_baseline(const Compute& compute, const ScheduleOptions& options) const override {
        return tessera::lower_baseline(compute, options);
    }
    bool shares_forms() const override { return true; }
    bool runs_constants_ahead() const override { return false; }

    Rounding attention_rounding() const override { return Rounding::Kept; }
    bool copies_attention_tiles() const override { return false; }

    // Scores that are written and read again, against tiles that queries do not fill.
    Decision suits_attention(const AttentionForm& form, const ScheduleOptions& options) const override {
        const Machine& m = options.machine;
        if (form.one_query) return no("there is one query");
        if (form.columns > kMaxHead || form.depth > kMaxHead)
            return no("heads of {} and {} elements", form.depth, form.columns);
        if (form.wanted) return yes("it was asked for");
        if (!form.queries) return yes("scores of any number of queries are never kept");
        const int64_t queries = *form.queries;
        const AttentionTiles t = choose_attention_tiles(queries, form.keys, form.depth, form.columns, 1,
                                                        form.element_bytes, m, options.threads);
        const double lanes = std::max(1, m.vector_bytes / form.element_bytes);
        const double work = double(form.depth + form.columns) / (lanes * m.fma_pipes) + kExpCycles;
        const double filled = double((queries + t.queries - 1) / t.queries * t.queries);
        const double wasted = (filled / double(queries) - 1) * work;
        const double moved = kScoreCycles + (form.score_bytes > double(m.l2_bytes) ? kFarCycles : 0);
        if (wasted > moved)
            return no("tiles of {} queries would be {:.0f} % empty, against {:.0f} KB of scores", t.queries,
                      100 * (filled - double(queries)) / filled, form.score_bytes / 1000);
        return yes("{:.0f} KB of scores are never kept", form.score_bytes / 1000);
    }
};

}  // namespace

const Scheduling& cpu_scheduling() {
    static const CpuScheduling kScheduling;
    return kScheduling;
}

}  // namespace tessera
