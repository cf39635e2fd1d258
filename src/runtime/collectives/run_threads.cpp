#include "runtime/collectives/run_threads.h"

#include <mutex>
#include <thread>

namespace tessera::shard {

Result<std::vector<std::vector<Datum>>> run_on_threads(const Plan& plan, const std::vector<Datum>& inputs,
                                                       const std::vector<ThreadRank>& ranks) {
    std::vector<std::vector<Datum>> outputs(ranks.size());
    std::optional<Error> first;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r)
        threads.emplace_back([&, r] {
            auto result = run_local(plan, ranks[r].program, inputs, *ranks[r].transport, ranks[r].segments);
            if (result.ok()) {
                outputs[r] = std::move(*result);
                return;
            }
            const std::lock_guard lock(mutex);
            if (!first) first = result.error();
        });
    for (std::thread& t : threads) t.join();
    if (first) return *first;
    return outputs;
}

}  // namespace tessera::shard
