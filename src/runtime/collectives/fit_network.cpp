#include "runtime/collectives/fit_network.h"

#include <algorithm>

#include "base/clock.h"
#include "graph/builder.h"
#include "runtime/collectives/collect.h"
#include "shard/local_program.h"

namespace tessera::shard {
namespace {

constexpr int64_t kSmall = 64, kLarge = 1 << 20;  // elements
constexpr int kSmallTimes = 200, kLargeTimes = 10;

// The median seconds of an all-reduce of so many floats.
Result<double> all_reduce_seconds(Transport& transport, int64_t elements, int times) {
    auto graph = std::make_shared<Graph>("all_reduce");
    Builder b(*graph);
    Value* terms = graph->add_input("terms", Type(DType::f32, Shape{transport.ranks(), elements}));
    Value* sum = b.reduce("reduce_sum", terms, {0}, false);
    TRY(b.status());
    graph->add_output(sum, "sum");
    const Mesh mesh({{"rank", transport.ranks()}});
    const Shardings given{{terms, TRY(parse_sharding("rank,-", mesh, 2))}, {sum, TRY(parse_sharding("-", mesh, 1))}};
    const auto plan = TRY(make_plan(graph, mesh, given));
    const Tensor own = TRY(Tensor::filled(DType::f32, {elements}, 1));
    for (const PlanStep& step : plan->steps) {
        const auto* combine = std::get_if<CombineStep>(&step);
        if (!combine) continue;
        std::vector<double> seconds;
        for (int i = 0; i <= times; ++i) {
            const double began = wall_seconds();
            Collecting collecting = TRY(start_combine(*plan, *combine, own, transport));
            TRY(finish(collecting, transport));
            if (i > 0) seconds.push_back(wall_seconds() - began);
        }
        std::sort(seconds.begin(), seconds.end());
        return seconds[seconds.size() / 2];
    }
    return Error(Code::E0801, "a divided sum has no all-reduce");
}

}  // namespace

NetworkLevel fitted_level(int64_t ranks, double small_bytes, double small_seconds, double large_bytes,
                          double large_seconds) {
    const auto n = double(ranks);
    const double by_byte = std::max(1e-15, (large_seconds - small_seconds) / (large_bytes - small_bytes));
    NetworkLevel level{.name = "ranks"};
    level.bytes_per_second = 2 * (n - 1) / n / by_byte;
    level.latency = std::max(0.0, small_seconds - by_byte * small_bytes) / (2 * (n - 1));
    return level;
}

Result<NetworkLevel> fit_network(Transport& transport) {
    if (transport.ranks() < 2)
        return Error(Code::E0501, "there is one rank, and no network to measure")
            .hint("start several: mpirun -n 2 tessera simulate --fit FILE");
    const double small = TRY(all_reduce_seconds(transport, kSmall, kSmallTimes));
    const double large = TRY(all_reduce_seconds(transport, kLarge, kLargeTimes));
    return fitted_level(transport.ranks(), 4.0 * kSmall, small, 4.0 * kLarge, large);
}

}  // namespace tessera::shard
