// How fast the reference evaluator is: time per multiply-add or per element of ops that models spend their time in.
#include <benchmark/benchmark.h>

#include "graph/evaluate/evaluate.h"

namespace tessera {
namespace {

using Ints = std::vector<int64_t>;

Tensor noise(const Sizes& sizes) {
    Tensor t = *Tensor::zeros(DType::f32, sizes);
    uint32_t state = 1;
    for (float& v : t.mutable_as<float>()) {
        state = state * 1664525 + 1013904223;
        v = static_cast<float>(state >> 8) / (1 << 23) - 1;
    }
    return t;
}

// items: multiply-adds or elements.
void run(benchmark::State& state, const char* name, const std::vector<Tensor>& inputs, const AttrMap& attrs,
         int64_t items) {
    const OpDef* op = find_op(name);
    std::vector<std::optional<Datum>> data(inputs.begin(), inputs.end());
    for (auto _ : state) {
        auto out = evaluate_op(*op, data, attrs);
        if (!out.ok()) return state.SkipWithError(out.error().to_string().c_str());
        benchmark::DoNotOptimize(out);
    }
    state.counters["per_item"] = benchmark::Counter(
        static_cast<double>(items), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// The input's channels and size, the output's channels, the kernel's size, groups.
void conv(benchmark::State& state) {
    const int64_t c = state.range(0), size = state.range(1), m = state.range(2), k = state.range(3), g = state.range(4);
    run(state, "conv", {noise({1, c, size, size}), noise({m, c / g, k, k})},
        {{"pads", Attr(Ints(4, k / 2))}, {"group", Attr(g)}}, c / g * m * k * k * size * size);
}
BENCHMARK(conv)->Args({64, 56, 64, 3, 1})->Args({512, 7, 512, 3, 1})->Args({2048, 7, 512, 1, 1});
BENCHMARK(conv)->Args({128, 56, 128, 3, 128})->Args({128, 28, 128, 3, 4});

void matmul(benchmark::State& state) {
    const int64_t m = state.range(0), n = state.range(1);
    run(state, "matmul", {noise({m, n}), noise({n, n})}, {}, m * n * n);
}
BENCHMARK(matmul)->Args({512, 512})->Args({1, 2048});

void add(benchmark::State& state) {
    run(state, "add", {noise({state.range(0), 1000}), noise({state.range(0), 1000})}, {}, state.range(0) * 1000);
}
BENCHMARK(add)->Arg(1000);

void add_of_two_elements(benchmark::State& state) { run(state, "add", {noise({2}), noise({2})}, {}, 1); }
BENCHMARK(add_of_two_elements);

void exp(benchmark::State& state) { run(state, "exp", {noise({1000, 1000})}, {}, 1000000); }
BENCHMARK(exp);

void softmax(benchmark::State& state) { run(state, "softmax", {noise({1000, 1000})}, {}, 1000000); }
BENCHMARK(softmax);

void max_pool(benchmark::State& state) {
    run(state, "max_pool", {noise({1, 64, 56, 56})}, {{"kernel_shape", Attr(Ints{3, 3})}, {"pads", Attr(Ints(4, 1))}},
        64 * 56 * 56 * 9);
}
BENCHMARK(max_pool);

}  // namespace
}  // namespace tessera
