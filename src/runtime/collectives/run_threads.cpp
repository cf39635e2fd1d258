#include "runtime/collectives/run_threads.h"

#include <mutex>
#include <thread>

namespace tessera::shard {

Status on_threads(size_t ranks, const std::function<Status(size_t)>& f) {
    std::optional<Error> first;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks; ++r)
        threads.emplace_back([&, r] {
            const Status done = f(r);
            if (done.ok()) return;
            const std::lock_guard lock(mutex);
            if (!first) first = done.error();
        });
    for (std::thread& t : threads) t.join();
    if (first) return *first;
    return {};
}

Result<std::vector<std::vector<Datum>>> run_on_threads(const Plan& plan, const std::vector<Datum>& inputs,
                                                       const std::vector<ThreadRank>& ranks) {
    std::vector<std::vector<Datum>> outputs(ranks.size());
    TRY(on_threads(ranks.size(), [&](size_t r) -> Status {
        outputs[r] = TRY(run_local(plan, ranks[r].program, inputs, *ranks[r].transport, ranks[r].segments));
        return {};
    }));
    return outputs;
}

}  // namespace tessera::shard
