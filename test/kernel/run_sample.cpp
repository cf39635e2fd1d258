#include "kernel/run_sample.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::sample {
namespace {

Sizes sizes_of(const Buffer& b, const SymbolValues& symbols) {
    Sizes sizes;
    for (const Expr& d : b.shape) sizes.push_back(*evaluate_int(d, symbols));
    return sizes;
}

Tensor zeros(const Buffer& b, const SymbolValues& symbols) { return *Tensor::zeros(b.dtype, sizes_of(b, symbols)); }

}  // namespace

std::vector<Tensor> random_parameters(const Compute& compute, const SymbolValues& symbols) {
    std::vector<Tensor> tensors;
    uint32_t state = 7;
    auto next = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
    for (size_t i = 0; i < compute.params; ++i) {
        Tensor t = zeros(compute.buffers[i], symbols);
        if (t.dtype() == DType::f32)
            for (float& v : t.mutable_as<float>()) v = float(next()) / float(1 << 23) - 1;
        else if (t.dtype() == DType::i64)
            for (int64_t& v : t.mutable_as<int64_t>()) v = next() % 4;
        else
            for (int64_t e = 0; e < t.elements(); ++e)
                t.set_int(e, int64_t(next() % 256) - (t.dtype() == DType::i8 ? 128 : 0));
        tensors.push_back(t);
    }
    return tensors;
}

void run_kernel(const Kernel& kernel, std::vector<Tensor>& params, const SymbolValues& symbols) {
    const size_t given = params.size();
    // A tensor's copies share their memory.
    for (Tensor& t : params) {
        Tensor own = *Tensor::zeros(t.dtype(), t.sizes());
        if (t.bytes()) std::memcpy(own.mutable_data(), t.data(), size_t(t.bytes()));
        t = own;
    }
    for (size_t i = params.size(); i < kernel.params; ++i) params.push_back(zeros(kernel.buffers[i], symbols));
    Status valid = verify(kernel);
    ASSERT_TRUE(valid.ok()) << valid.error().to_string() << "\n" << to_string(kernel);
    Status done = interpret(kernel, params, symbols);
    ASSERT_TRUE(done.ok()) << done.error().to_string() << "\n" << to_string(kernel);
    params.resize(given);
}

void run_lowered(const Lowered& lowered, std::vector<Tensor>& params, const SymbolValues& symbols) {
    const size_t given = params.size();
    for (size_t i = given; i < lowered.kernel.params; ++i) params.push_back(zeros(lowered.kernel.buffers[i], symbols));
    if (lowered.prepare.body) {
        std::vector<Tensor> first;
        for (int slot : lowered.prepare_args) first.push_back(params[size_t(slot)]);
        ASSERT_NO_FATAL_FAILURE(run_kernel(lowered.prepare, first, symbols));
        for (size_t i = 0; i < first.size(); ++i) params[size_t(lowered.prepare_args[i])] = first[i];
    }
    ASSERT_NO_FATAL_FAILURE(run_kernel(lowered.kernel, params, symbols));
    params.resize(given);
}

double distance(const Tensor& a, const Tensor& b) {
    if (a.dtype() != DType::f32) return std::memcmp(a.data(), b.data(), size_t(a.bytes())) ? 1 : 0;
    auto x = a.as<float>(), y = b.as<float>();
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
        double d = std::abs(double(x[i]) - double(y[i])) / std::max(1.0, std::abs(double(y[i])));
        worst = std::isnan(d) ? INFINITY : std::max(worst, d);
    }
    return worst;
}

}  // namespace tessera::sample
