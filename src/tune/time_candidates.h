// The candidates of a search, compiled and timed end to end, each alternating with the first, which is what came in.
// With one thread they are timed in processor time, on a GPU by its own clock, weights and inputs being there already.
// A candidate is taken only where it is faster by more than the clock's noise, in most pairs of runs, and gives the
// same results on random inputs.
#pragma once

#include <functional>
#include <map>

#include "base/deadline.h"
#include "base/error.h"
#include "tessera/compile.h"
#include "tune/time_kernel.h"

namespace tessera {

struct TimedPace {
    double preparing = 0, running = 0;  // the least seconds by the wall's clock: of compiling, and of a run
    void add(double to_prepare, double to_run);
};

struct TimeOptions {
    std::string target = "host";  // or a GPU of this machine, "cuda:1"
    std::string precision = "default";
    int threads = 1;      // more than one, or 0 for all: by the wall's clock
    double seconds = 30;  // no candidate but the first two is begun after that
    // Nothing is begun that would end later, by what it took so far: one that is not reached is not timed.
    Deadline until = {};
    double least_gain = 0.01;                   // of the time
    double most_difference = 1e-4;              // of a result, relative to the largest number in it
    std::map<std::string, int64_t> sizes = {};  // of symbols
    size_t least_runs = 7;                      // but of slow models fewer, where they take over four seconds
    // One that computes in more, and in more than the first, is not timed; none: most_timed_bytes of the device.
    std::optional<int64_t> most_bytes = {};
    TimedPace pace = {};  // of candidates timed before, which says what can be begun
    const std::atomic<bool>* cancel = nullptr;
};

struct Timed {
    TimedPace pace;
    size_t fastest = 0;
    std::vector<double> seconds;       // by candidate, the median over its runs; 0: not timed
    std::vector<double> speedup;       // over the first, in the same runs
    std::vector<double> difference;    // of its results from those of the first
    std::vector<std::string> refused;  // why it was not timed, where the device cannot run it
};

// `candidate(i)` makes one of `count` models; it is called once, and the model goes when it is timed.
Result<Timed> time_candidates(size_t count, const std::function<Result<Model>(size_t)>& candidate,
                              const TimeOptions& options = {});

}  // namespace tessera
