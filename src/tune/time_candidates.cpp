#include "tune/time_candidates.h"

#include <algorithm>

#include "backends/backend.h"
#include "base/cancel_scope.h"
#include "base/clock.h"
#include "runtime/difference.h"
#include "tune/cancel_at.h"

namespace tessera {
namespace {

constexpr double kLeastSeconds = 0.3, kMostSeconds = 4;  // of each candidate
constexpr size_t kFewTurns = 3, kMostTurns = 200;        // the least of a slow model, the most of a quick one
constexpr double kClearGain = 0.05;                      // that fewer turns must show, where no more fit in
constexpr double kSureGain = 0.15;                       // that a single one must
constexpr double kSlowRun = 1;                           // seconds: the first run is a turn too
constexpr double kNotSlower = 0.995;                     // three quarters of the turns are above
constexpr double kDeviceTurn = 3e-3;                     // seconds on a GPU: many runs of what is quick are one turn
constexpr int kMostInTurn = 100;

double at_share(std::vector<double> v, double share) {
    const auto place = static_cast<std::ptrdiff_t>(share * double(v.size() - 1) + 0.5);
    std::nth_element(v.begin(), v.begin() + place, v.end());
    return v[size_t(place)];
}

double median(const std::vector<double>& v) { return at_share(v, 0.5); }

// Runs of two in turns.
struct Turns {
    std::vector<double> first, other, ratios;
    double sum = 0;  // of all runs of the other
    void add(double a, double b, int runs = 1) {
        first.push_back(a);
        other.push_back(b);
        ratios.push_back(a / b);
        sum += runs * b;
    }
    double least_gain(double of_many) const {
        if (ratios.size() >= kFewTurns) return of_many;
        return std::max(of_many, ratios.size() == 1 ? kSureGain : kClearGain);
    }
    bool hopeless() const { return *std::max_element(ratios.begin(), ratios.end()) < 1; }
};

// What a device does not do for one candidate, and may do for another: it has not enough memory, or refuses its code.
bool of_device(const Error& error) { return error.code() == Code::E0408 || error.code() == Code::E0702; }

// Seconds of one run, whatever it runs on.
class Ready {
  public:
    static Result<Ready> make(Executable made, NamedData inputs, const TimeOptions& options, const Device& device,
                              const std::atomic<bool>* cancel) {
        Ready ready(std::move(made), std::move(inputs), options.threads == 1 && device.shares_memory());
        const double began = ready.now();
        ready.outputs = TRY(ready.made_.run(ready.inputs_, {.cancel = cancel}));
        ready.seconds = ready.now() - began;
        if (device.shares_memory()) return ready;
        auto runs = ready.made_.on_device(ready.inputs_);
        if (!runs.ok() && runs.error().code() != Code::E0501) return runs.error();
        if (!runs.ok()) return ready;
        ready.on_device_ = std::move(*runs);
        TRY(ready.on_device_->seconds());  // the first is slower
        ready.seconds = TRY(ready.on_device_->seconds());
        return ready;
    }

    bool on_device() const { return on_device_.has_value(); }  // no step is left to the processor
    int runs_in_turn() const {
        if (!on_device()) return 1;
        return std::clamp(static_cast<int>(kDeviceTurn / std::max(seconds, 1e-9)), 1, kMostInTurn);
    }
    Result<double> again(bool by_device, int runs) const {
        if (by_device) return on_device_->seconds(runs);
        const double start = now();
        TRY(made_.run(inputs_));
        return now() - start;
    }

    std::vector<Datum> outputs;
    double seconds = 0;  // of the first run

  private:
    Ready(Executable made, NamedData inputs, bool by_processor)
        : made_(std::move(made)), inputs_(std::move(inputs)), by_processor_(by_processor) {}
    double now() const { return by_processor_ ? thread_seconds() : wall_seconds(); }

    Executable made_;
    NamedData inputs_;
    bool by_processor_;
    std::optional<DeviceRuns> on_device_;
};

}  // namespace

void TimedPace::add(double to_prepare, double to_run) {
    preparing = preparing > 0 ? std::min(preparing, to_prepare) : to_prepare;
    running = running > 0 ? std::min(running, to_run) : to_run;
}

Result<Timed> time_candidates(size_t count, const std::function<Result<Model>(size_t)>& candidate,
                              const TimeOptions& options) {
    const Deadline until = options.until, wanted_by = until.within(options.seconds);
    Timed timed;
    timed.seconds.resize(count, 0);
    timed.speedup.resize(count, 0);
    timed.difference.resize(count, 0);
    timed.pace = options.pace;
    timed.refused.resize(count);
    if (count < 2 || until.left() <= timed.pace.preparing + timed.pace.running) return timed;
    auto cancelled = [&] { return options.cancel && *options.cancel; };
    const CancelAt cancel(until, options.cancel);
    const CancelScope scope(cancel.flag());
    auto late = [&](const auto& result) { return result.error().code() == Code::E0410 && !cancelled(); };
    const std::shared_ptr<RunMemory> memory = make_run_memory();  // they run in turns
    double preparing = 0, running = 0;                            // seconds by the wall's clock, the most so far
    int64_t most_bytes = 0;                                       // of any but the first
    const Device& device = *TRY(device_for(options.target));
    auto prepare = [&](size_t i) -> Result<std::optional<Ready>> {
        const double start = wall_seconds();
        Model model = TRY(candidate(i));
        NamedData inputs = TRY(model.random_inputs(0, options.sizes));
        CompileOptions how{.target = options.target, .threads = options.threads, .precision = options.precision};
        how.cache = "";
        how.memory = memory;
        auto made = TRY(compile(std::move(model), how));
        const int64_t bytes = made.arena_bytes(options.sizes).value_or(0);
        if (i == 0) most_bytes = std::max(options.most_bytes.value_or(most_timed_bytes(device)), bytes);
        const double compiled = wall_seconds();
        preparing = std::max(preparing, compiled - start);
        if (bytes > most_bytes) return std::optional<Ready>();
        Ready ready = TRY(Ready::make(std::move(made), std::move(inputs), options, device, cancel.flag()));
        running = std::max(running, wall_seconds() - compiled);
        timed.pace.add(compiled - start, wall_seconds() - compiled);
        return std::optional<Ready>(std::move(ready));
    };
    auto input = prepare(0);
    if (!input.ok() && late(input)) return timed;
    const Ready first = std::move(*TRY(std::move(input)));
    for (size_t i = 1; i < count && (i == 1 || !wanted_by.passed()) && !cancelled(); ++i) {
        const bool slow = running > kSlowRun;
        if (until.left() < preparing + (slow ? 1 : 3) * running) break;
        auto ready = prepare(i);
        if (!ready.ok() && late(ready)) break;
        if (!ready.ok() && !of_device(ready.error())) return ready.error();
        if (!ready.ok()) timed.refused[i] = ready.error().message();
        if (!ready.ok() || !*ready) continue;
        const Ready& other = **ready;
        if (first.on_device() && !other.on_device()) {
            timed.refused[i] = "some steps run on the CPU";
            continue;
        }
        const bool by_device = first.on_device();
        const int runs = by_device ? std::max(first.runs_in_turn(), other.runs_in_turn()) : 1;
        timed.difference[i] = relative_difference(other.outputs, first.outputs);
        if (!(timed.difference[i] <= options.most_difference)) continue;
        Turns turns;
        if (slow) turns.add(first.seconds, other.seconds);
        auto again = [&] {
            const size_t k = turns.ratios.size();
            if (k > 0 && (cancelled() || until.left() < 2 * running)) return false;
            if (k < kFewTurns) return true;
            if (turns.hopeless() || wanted_by.passed() || k >= kMostTurns) return false;
            return k < options.least_runs ? turns.sum < kMostSeconds : turns.sum < kLeastSeconds;
        };
        while (again()) {
            // Either may come first: what runs second may find the caches better, or worse.
            double a = 0, b = 0;
            if (turns.ratios.size() % 2 == 0) a = TRY(first.again(by_device, runs));
            b = TRY(other.again(by_device, runs));
            if (turns.ratios.size() % 2 == 1) a = TRY(first.again(by_device, runs));
            turns.add(a, b, runs);
        }
        timed.seconds[0] = median(turns.first);
        timed.seconds[i] = median(turns.other);
        timed.speedup[0] = 1;
        timed.speedup[i] = std::min(median(turns.ratios), median(turns.first) / median(turns.other));
        if (timed.speedup[i] > std::max(1 + turns.least_gain(options.least_gain), timed.speedup[timed.fastest]) &&
            at_share(turns.ratios, 0.25) > kNotSlower)
            timed.fastest = i;
    }
    return timed;
}

}  // namespace tessera
