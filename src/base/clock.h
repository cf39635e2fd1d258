// Clocks. The processor time of this process is what a run on one thread takes on a machine that others use too.
#pragma once

#include <ctime>

namespace tessera {

inline double seconds_by(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
inline double processor_seconds() { return seconds_by(CLOCK_PROCESS_CPUTIME_ID); }
inline double wall_seconds() { return seconds_by(CLOCK_MONOTONIC); }

}  // namespace tessera
