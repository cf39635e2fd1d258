// The kernels that networks spend their time in, as default schedules compile them: time, FLOP/s with the share of the
// measured peak, and bytes per second that must at least be moved.
//
//   kernel_bench [--threads N] [--rounds N] [--print] [name ...]
#include "compiled_compute.h"
#include "kernel/sample_computes.h"

namespace tessera::bench {
namespace {

struct Case {
    const char* name;
    Compute compute;
};

std::vector<Case> cases() {
    using namespace sample;
    auto conv_of = [](int64_t size, int64_t c, int64_t filters, int64_t kernel, int64_t stride = 1) {
        return conv({.n = 1,
                     .h = size,
                     .w = size,
                     .c = c,
                     .filters = filters,
                     .kernel = kernel,
                     .stride = stride,
                     .pad = kernel / 2});
    };
    return {{"conv3x3 56 64-64", conv_of(56, 64, 64, 3)},
            {"conv3x3 28 128-128", conv_of(28, 128, 128, 3)},
            {"conv3x3 14 256-256", conv_of(14, 256, 256, 3)},
            {"conv3x3 7 512-512", conv_of(7, 512, 512, 3)},
            {"conv1x1 56 64-256", conv_of(56, 64, 256, 1)},
            {"conv1x1 56 256-64", conv_of(56, 256, 64, 1)},
            {"conv1x1 7 2048-512", conv_of(7, 2048, 512, 1)},
            {"conv1x1 112 16-96", conv_of(112, 16, 96, 1)},
            {"conv1x1 112 16-96 swish", conv({.n = 1, .h = 112, .w = 112, .c = 16, .filters = 96, .swish = true})},
            {"conv7x7/2 224 3-64", conv_of(224, 3, 64, 7, 2)},
            {"depthwise3x3 112 32", depthwise(112, 112, 32, 3, 1, 1)},
            {"depthwise3x3/2 112 96", depthwise(112, 112, 96, 3, 2, 1)},
            {"depthwise3x3 14 576", depthwise(14, 14, 576, 3, 1, 1)},
            {"depthwise3x3 7 960", depthwise(7, 7, 960, 3, 1, 1)},
            {"depthwise5x5 28 120", depthwise(28, 28, 120, 5, 1, 2)},
            {"maxpool3x3/2 112 64", max_pool(112, 112, 64, 3, 2, 1)},
            {"mean 7x7 2048", reduce_middle(1, 49, 2048)},
            {"softmax 1536x128", softmax(1536, 128)},
            {"softmax 128x30522", softmax(128, 30522)},
            {"layer norm 128x768", layer_norm(1, 128, 768)},
            {"heads 128 12x64 768", project_to_heads(1, 128, 12, 64, 768)},
            {"linear 128x3072x768", linear(128, 3072, 768)},
            {"linear 1x1000x2048", linear(1, 1000, 2048)},
            {"q k^T 12 128 64", batched_matmul(12, 128, 128, 64, true)},
            {"p v 12 128 64", batched_matmul(12, 128, 64, 128, false)},
            {"bias tanh 56x56x64", add_bias({56, 56, 64}, 2)},
            {"transpose 64x3136", transpose({64, 3136}, {1, 0})},
            {"transpose 12x128x64", transpose({12, 128, 64}, {1, 0, 2})},
            {"sum rows 1000x1000", reduce_last(1000, 1000, ReduceOp::Sum)},
            {"sum columns 1000x1000", reduce_middle(1, 1000, 1000)}};
}

double elements(const std::vector<ReduceAxis>& axes) {
    double n = 1;
    for (const ReduceAxis& a : axes) n *= double(a.extent.as_int().value_or(0));
    return n;
}

void measure(const Case& c, int threads, int rounds, bool print) {
    std::vector<std::unique_ptr<AlignedFloats>> data;
    std::vector<float*> params;
    double bytes = 0, flops = 0;
    for (size_t i = 0; i < c.compute.params; ++i) {
        double count = 1;
        for (const Expr& d : c.compute.buffers[i].shape) count *= double(d.as_int().value());
        bytes += 4 * count;
        data.push_back(std::make_unique<AlignedFloats>(int64_t(count)));
        params.push_back(data.back()->data);
    }
    for (const Stage& s : c.compute.stages)
        flops += elements(s.axes) * elements(s.reduce) * (s.value.is(ExprKind::Mul) ? 2 : 1);
    Compiled compiled(c.compute, threads, params);
    if (print) fmt::print("{}\n", compiled.text());
    std::vector<double> times;
    double start = now();
    compiled.run();
    int repeats = std::max(1, int(2e-3 / std::max(now() - start, 1e-7)));
    for (int r = 0; r < rounds; ++r) {
        start = now();
        for (int i = 0; i < repeats; ++i) compiled.run();
        times.push_back((now() - start) / repeats);
    }
    double time = median(times), peak = measure_peak(threads);
    fmt::print("{:<24} {:>9.1f} us  {:>7.1f} GFLOP/s {:>5.1f}%  {:>6.1f} GB/s\n", c.name, time * 1e6,
               flops / time / 1e9, 100 * flops / time / peak, bytes / time / 1e9);
    std::fflush(stdout);
}

int main(int argc, char** argv) {
    int threads = 1, rounds = 11;
    bool print = false;
    std::vector<std::string> names;
    for (int i = 1; i < argc; ++i) {
        if (!std::strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = std::atoi(argv[++i]);
        else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
            rounds = std::atoi(argv[++i]);
        else if (!std::strcmp(argv[i], "--print"))
            print = true;
        else
            names.push_back(argv[i]);
    }
    alone = threads == 1;
    for (const Case& c : cases()) {
        bool wanted = names.empty();
        for (const std::string& n : names) wanted |= std::string(c.name).find(n) != std::string::npos;
        if (wanted) measure(c, threads, rounds, print);
    }
    return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::bench::main(argc, argv); }
