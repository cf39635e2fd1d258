// Processor time of this process: what a run takes on a machine that others use too. Runs on one thread.
#pragma once

#include <ctime>

namespace tessera {

inline double processor_seconds() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

}  // namespace tessera
