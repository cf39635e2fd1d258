#include "shard/simulate/pipeline.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::shard {
namespace {

constexpr std::pair<PipelineSchedule, std::string_view> kSchedules[] = {{PipelineSchedule::GPipe, "gpipe"},
                                                                        {PipelineSchedule::OneFOneB, "1f1b"},
                                                                        {PipelineSchedule::Interleaved, "interleaved"}};

constexpr double kNotYet = -1;

class PipelineRun {
  public:
    PipelineRun(const PipelineShape& options, const std::vector<ChunkTime>& times) : options_(options), times_(times) {}

    PipelineTime run() {
        const int64_t stages = options_.stages;
        forward_.assign(times_.size(), std::vector<double>(size_t(options_.microbatches), kNotYet));
        backward_ = forward_;
        for (int64_t s = 0; s < stages; ++s) order_.push_back(order_of(s));
        time_.stages.resize(size_t(stages));
        time_.busy.assign(size_t(stages), 0);
        time_.in_flight.assign(size_t(stages), 0);
        std::vector<double> free(static_cast<size_t>(stages), 0);
        std::vector<size_t> next(static_cast<size_t>(stages), 0);
        for (bool more = true; more;) {
            more = false;
            for (size_t s = 0; s < size_t(stages); ++s)
                while (next[s] < order_[s].size()) {
                    PipelineEvent e = order_[s][next[s]];
                    const double ready = ready_at(e);
                    if (ready == kNotYet) break;
                    const ChunkTime& t = times_[place_of(e)];
                    e.begin = std::max(free[s], ready);
                    e.end = free[s] = e.begin + (e.forward ? t.forward : t.backward);
                    (e.forward ? forward_ : backward_)[place_of(e)][size_t(e.microbatch)] = e.end;
                    time_.busy[s] += e.end - e.begin;
                    time_.seconds = std::max(time_.seconds, e.end);
                    time_.stages[s].push_back(e);
                    ++next[s];
                    more = true;
                }
        }
        for (size_t s = 0; s < size_t(stages); ++s) {
            CHECK(next[s] == order_[s].size(), "stage {} of the pipeline waits for ever", s);
            int64_t now = 0;
            for (const PipelineEvent& e : time_.stages[s])
                time_.in_flight[s] = std::max(time_.in_flight[s], now += e.forward ? 1 : -1);
            if (!options_.training) time_.in_flight[s] = 1;
        }
        return std::move(time_);
    }

  private:
    size_t place_of(const PipelineEvent& e) const { return size_t(e.chunk * options_.stages + e.stage); }

    // When what it needs has arrived.
    double ready_at(const PipelineEvent& e) const {
        const size_t at = place_of(e), m = size_t(e.microbatch);
        if (e.forward) {
            if (at == 0) return 0;
            const double before = forward_[at - 1][m];
            return before == kNotYet ? kNotYet : before + times_[at - 1].sends_forward;
        }
        const double own = forward_[at][m];
        if (own == kNotYet || at + 1 == times_.size()) return own;
        const double after = backward_[at + 1][m];
        return after == kNotYet ? kNotYet : std::max(own, after + times_[at + 1].sends_backward);
    }

    std::vector<PipelineEvent> order_of(int64_t stage) const {
        const int64_t p = options_.stages, v = chunks(), all = options_.microbatches * v;
        auto event = [&](int64_t k, bool forward) {
            const int64_t chunk = (k / p) % v;
            if (v == 1) return PipelineEvent{stage, 0, k, forward};
            return PipelineEvent{stage, forward ? chunk : v - 1 - chunk, k / (p * v) * p + k % p, forward};
        };
        int64_t ahead = all;  // forward passes before the first backward pass follows one
        if (options_.training && options_.schedule == PipelineSchedule::OneFOneB) ahead = p - stage - 1;
        if (options_.training && options_.schedule == PipelineSchedule::Interleaved)
            ahead = v == 1 ? p - stage - 1 : 2 * (p - stage - 1) + (v - 1) * p;
        ahead = std::min(ahead, all);
        std::vector<PipelineEvent> order;
        for (int64_t k = 0; k < ahead; ++k) order.push_back(event(k, true));
        for (int64_t k = ahead; k < all; ++k) {
            order.push_back(event(k, true));
            order.push_back(event(k - ahead, false));
        }
        for (int64_t k = all - ahead; options_.training && k < all; ++k) order.push_back(event(k, false));
        return order;
    }
    int64_t chunks() const { return options_.schedule == PipelineSchedule::Interleaved ? options_.chunks : 1; }

    const PipelineShape& options_;
    const std::vector<ChunkTime>& times_;
    std::vector<std::vector<PipelineEvent>> order_;        // by stage
    std::vector<std::vector<double>> forward_, backward_;  // ends, by chunk and microbatch
    PipelineTime time_;
};

}  // namespace

Result<PipelineSchedule> read_schedule(std::string_view name) {
    std::vector<std::string_view> names;
    for (const auto& [schedule, known] : kSchedules) {
        if (known == name) return schedule;
        names.push_back(known);
    }
    return Error(Code::E0501, "there is no schedule \"{}\"", name).hint("there are: {}", fmt::join(names, ", "));
}

std::string_view schedule_name(PipelineSchedule schedule) {
    for (const auto& [known, name] : kSchedules)
        if (known == schedule) return name;
    return {};
}

double PipelineTime::bubble() const {
    double busiest = 0;
    for (double b : busy) busiest += b;
    return seconds > 0 ? 1 - busiest / (seconds * double(busy.size())) : 0;
}

Result<PipelineTime> pipeline_time(const PipelineShape& options, const std::vector<ChunkTime>& chunk_times) {
    const bool interleaved = options.schedule == PipelineSchedule::Interleaved;
    if (interleaved && options.microbatches % options.stages != 0)
        return Error(Code::E0501, "{} microbatches are not a multiple of {} stages, as an interleaved schedule needs",
                     options.microbatches, options.stages);
    CHECK(int64_t(chunk_times.size()) == options.stages * (interleaved ? options.chunks : 1), "{} chunks for {} stages",
          chunk_times.size(), options.stages);
    return PipelineRun(options, chunk_times).run();
}

}  // namespace tessera::shard
