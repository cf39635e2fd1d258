// Pieces of work of a compiler, which take milliseconds each and may throw.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/usable_cores.h"

namespace tessera {

// work(i) for each i below `count`, on so many threads (0: one for each core), the first ones first. Throws what the
// first of those that threw did, when all are done.
template <typename Work>
void in_parallel(size_t count, int threads, const Work& work) {
    std::atomic<size_t> next = 0;
    std::vector<std::exception_ptr> failures(count);
    auto take = [&] {
        for (size_t i; (i = next++) < count;) try {
                work(i);
            } catch (...) {
                failures[i] = std::current_exception();
            }
    };
    const auto wanted = static_cast<size_t>(threads > 0 ? threads : usable_cores());
    std::vector<std::thread> helpers;
    for (size_t i = 1; i < std::min(wanted, count); ++i) helpers.emplace_back(take);
    take();
    for (std::thread& t : helpers) t.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

}  // namespace tessera
