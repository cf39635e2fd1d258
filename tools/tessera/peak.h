// What this machine can do at most: measured, in a quarter of a second.
#pragma once

namespace tessera::cli {

struct Peak {
    double flops = 0;  // f32 per second, by fused multiply-adds in registers
    double bytes = 0;  // read per second from memory
    int threads = 1;
};

Peak measure_peak(int threads);  // 0: one for each core

}  // namespace tessera::cli
