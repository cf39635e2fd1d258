// tessera bench in parts: the process that runs the compiled model, and what was measured as text and JSON.
#pragma once

#include "command.h"

namespace tessera::cli {

// Answers on standard output what it is asked on standard input, as peers/peer.py does: the compiled model in a process
// of its own, so that its memory and its threads are its own.
Status serve_compiled();

struct RunnerTimes {
    std::string name, version;  // "tessera", "onnxruntime"
    std::string failed;         // why there is nothing else
    std::vector<double> seconds;
    std::vector<double> turns;  // the median of each turn's runs
    double load = 0;
    int64_t peak_rss = 0;
    std::optional<double> difference;  // of its outputs to ours, relative to the largest
    std::optional<double> error;       // to the reference in f64
};

struct ThreadTimes {
    int threads = 1;
    std::vector<RunnerTimes> runners;  // ours first
};

struct Quartiles {
    double low = 0, median = 0, high = 0;
};
Quartiles quartiles(std::vector<double> values);
// Of their time to ours, turn by turn: above 1 where ours is faster.
Quartiles ratio_to(const RunnerTimes& ours, const RunnerTimes& theirs);

Json times_json(const std::vector<ThreadTimes>& all);
void print_times(const std::vector<ThreadTimes>& all);

}  // namespace tessera::cli
