#include "kernel/gpu/lower/gpu_scheduling.h"

#include "kernel/gpu/attention/attention_kernel.h"
#include "kernel/gpu/lower/gpu_schedule.h"

namespace tessera {
namespace {

class GpuScheduling : public Scheduling {
  public:
    Result<Schedule> schedule(const Compute& compute, const ScheduleOptions& options) const override {
        return gpu_schedule(compute, options);
    }
    Result<Lowered> lower(const Compute& compute, const ScheduleOptions& options, std::vector<Choice>& choices,
                          std::string* traces) const override {
        return lower_for_gpu(compute, options, choices, traces);
    }
    // Copies of tiles need to know where they begin.
    bool shares_forms() const override { return false; }
    bool runs_constants_ahead() const override { return true; }

    Rounding attention_rounding() const override { return Rounding::Dropped; }
    bool copies_attention_tiles() const override { return true; }
    Decision suits_attention(const AttentionForm& form, const ScheduleOptions& options) const override {
        return suits_attention_kernel(form, options.machine);
    }
};

}  // namespace

const Scheduling& gpu_scheduling() {
    static const GpuScheduling kScheduling;
    return kScheduling;
}

}  // namespace tessera
