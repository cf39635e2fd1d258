#include "tune/time_candidates.h"

#include <algorithm>

#include "runtime/difference.h"
#include "tune/clock.h"

namespace tessera {
namespace {

constexpr double kLeastSeconds = 0.3, kMostSeconds = 4;  // of each candidate
constexpr size_t kFewTurns = 3, kMostTurns = 200;        // the least of a slow model, the most of a quick one
constexpr double kClearGain = 0.05;                      // that fewer turns must show, where no more fit in
constexpr double kSureGain = 0.15;                       // that a single one must
constexpr double kSlowRun = 1;                           // seconds: the first run is a turn too
constexpr double kNotSlower = 0.995;                     // three quarters of the turns are above

double at_share(std::vector<double> v, double share) {
    const auto place = static_cast<std::ptrdiff_t>(share * double(v.size() - 1) + 0.5);
    std::nth_element(v.begin(), v.begin() + place, v.end());
    return v[size_t(place)];
}

double median(const std::vector<double>& v) { return at_share(v, 0.5); }

// Runs of two in turns.
struct Turns {
    std::vector<double> first, other, ratios;
    double sum = 0;
    void add(double a, double b) {
        first.push_back(a);
        other.push_back(b);
        ratios.push_back(a / b);
        sum += b;
    }
    double least_gain(double of_many) const {
        if (ratios.size() >= kFewTurns) return of_many;
        return std::max(of_many, ratios.size() == 1 ? kSureGain : kClearGain);
    }
    bool hopeless() const { return *std::max_element(ratios.begin(), ratios.end()) < 1; }
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
    if (count < 2 || until.left() <= timed.pace.preparing + timed.pace.running) return timed;
    auto cancelled = [&] { return options.cancel && *options.cancel; };
    struct Ready {
        Executable made;
        NamedData inputs;
        std::vector<Datum> outputs;
        double seconds;  // of the first run
    };
    const std::shared_ptr<RunMemory> memory = make_run_memory();  // they run in turns
    double preparing = 0, running = 0;                            // seconds by the wall's clock, the most so far
    int64_t most_bytes = 0;                                       // of any but the first
    auto now = [&] { return options.threads == 1 ? processor_seconds() : wall_seconds(); };
    auto prepare = [&](size_t i) -> Result<std::optional<Ready>> {
        const double start = wall_seconds();
        Model model = TRY(candidate(i));
        NamedData inputs = TRY(model.random_inputs(0, options.sizes));
        CompileOptions how{.target = options.target, .threads = options.threads, .precision = options.precision};
        how.cache = "";
        how.memory = memory;
        auto made = TRY(compile(std::move(model), how));
        const int64_t bytes = made.arena_bytes(options.sizes).value_or(0);
        if (i == 0) most_bytes = std::max(options.most_bytes, bytes);
        const double ready = wall_seconds(), began = now();
        preparing = std::max(preparing, ready - start);
        if (bytes > most_bytes) return std::optional<Ready>();
        std::vector<Datum> outputs = TRY(made.run(inputs));
        const double seconds = now() - began;
        running = std::max(running, wall_seconds() - ready);
        timed.pace.add(ready - start, wall_seconds() - ready);
        return Ready{std::move(made), std::move(inputs), std::move(outputs), seconds};
    };
    auto seconds_of = [&](const Ready& one) -> Result<double> {
        const double start = now();
        TRY(one.made.run(one.inputs));
        return now() - start;
    };
    const Ready first = std::move(*TRY(prepare(0)));
    for (size_t i = 1; i < count && (i == 1 || !wanted_by.passed()) && !cancelled(); ++i) {
        const bool slow = running > kSlowRun;
        if (until.left() < preparing + (slow ? 1 : 3) * running) break;
        const std::optional<Ready> ready = TRY(prepare(i));
        if (!ready) continue;
        const Ready& other = *ready;
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
            if (turns.ratios.size() % 2 == 0) a = TRY(seconds_of(first));
            b = TRY(seconds_of(other));
            if (turns.ratios.size() % 2 == 1) a = TRY(seconds_of(first));
            turns.add(a, b);
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
