// Clocks. CPU time measures a run on a machine that other processes use too. For a process with a limit of CPU time
// (ulimit -t), Linux updates the process's clock once per tick only; short runs on one thread need the thread's.
#pragma once

#include <ctime>

namespace tessera {

inline double seconds_by(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
inline double processor_seconds() { return seconds_by(CLOCK_PROCESS_CPUTIME_ID); }
inline double thread_seconds() { return seconds_by(CLOCK_THREAD_CPUTIME_ID); }
inline double wall_seconds() { return seconds_by(CLOCK_MONOTONIC); }

}  // namespace tessera
