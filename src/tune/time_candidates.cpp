#include "tune/time_candidates.h"

#include <algorithm>
#include <chrono>

#include "tune/clock.h"

namespace tessera {
namespace {

constexpr double kLeastSeconds = 0.3, kMostSeconds = 4;  // of each candidate
constexpr int kFewRuns = 3, kMostRuns = 200;             // the least of a slow model, the most of a quick one

double median(std::vector<double> v) {
    std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
    return v[v.size() / 2];
}

}  // namespace

Result<Timed> time_candidates(size_t count, const std::function<Result<Model>(size_t)>& candidate,
                              const TimeOptions& options) {
    const auto began = std::chrono::steady_clock::now();
    auto late = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > options.seconds ||
               (options.cancel && *options.cancel);
    };
    Timed timed;
    timed.seconds.resize(count, 0);
    timed.speedup.resize(count, 0);
    if (count < 2) return timed;
    auto prepare = [&](size_t i) -> Result<std::pair<Executable, NamedData>> {
        Model model = TRY(candidate(i));
        NamedData inputs = TRY(model.random_inputs(0));
        auto made =
            TRY(compile(model, {.target = options.target, .threads = 1, .precision = options.precision, .cache = ""}));
        return std::pair(std::move(made), std::move(inputs));
    };
    auto first = TRY(prepare(0));
    TRY(first.first.run(first.second));
    for (size_t i = 1; i < count && (i == 1 || !late()); ++i) {
        auto other = TRY(prepare(i));
        TRY(other.first.run(other.second));
        std::vector<double> a, b;
        double sum = 0;
        auto again = [&](int k) {
            if (k < kFewRuns) return true;
            return k < kMostRuns && (k < options.least_runs ? sum < kMostSeconds : sum < kLeastSeconds);
        };
        for (int k = 0; again(k); ++k) {
            const double t0 = processor_seconds();
            TRY(first.first.run(first.second));
            const double t1 = processor_seconds();
            TRY(other.first.run(other.second));
            const double t2 = processor_seconds();
            a.push_back(t1 - t0);
            b.push_back(t2 - t1);
            sum += t2 - t1;
        }
        timed.seconds[0] = median(a);
        timed.seconds[i] = median(b);
        timed.speedup[i] = median(a) / median(b);
        timed.speedup[0] = 1;
        if (timed.speedup[i] > std::max(1 + options.least_gain, timed.speedup[timed.fastest])) timed.fastest = i;
    }
    return timed;
}

}  // namespace tessera
