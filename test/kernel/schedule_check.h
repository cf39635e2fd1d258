// Runs a schedule's kernel beside the plain nests of the Compute it started from, on random data.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "kernel/ir/regions.h"
#include "kernel/schedule/schedule.h"

namespace tessera {

inline int64_t size_of(const Buffer& b, const SymbolValues& symbols) {
    int64_t n = 1;
    for (const Expr& e : b.shape) n *= evaluate_int(e, symbols).value_or(0);
    if (!b.strides.empty() && n > 0) {
        n = 1;
        for (size_t d = 0; d < b.shape.size(); ++d)
            n += (*evaluate_int(b.shape[d], symbols) - 1) * *evaluate_int(b.strides[d], symbols);
    }
    return n;
}

inline Tensor random_tensor(const Buffer& b, const SymbolValues& symbols, uint64_t seed) {
    RandomStream random(seed, b.name);
    int64_t n = size_of(b, symbols);
    Tensor t = *Tensor::zeros(b.dtype, {n});
    for (int64_t i = 0; i < n; ++i) {
        if (is_float(b.dtype))
            t.set_real(i, static_cast<double>(static_cast<int64_t>(random.bits(uint64_t(i)) % 17) - 8));
        else
            t.set_int(i, static_cast<int64_t>(random.bits(uint64_t(i)) % 17) - 8);
    }
    return t;
}

// Small integers throughout, so that sums are exact in any order and results must be equal.
inline void expect_same(const Compute& original, const Schedule& schedule, const SymbolValues& symbols = {},
                        uint64_t seed = 1) {
    Result<Lowered> lowered = lower(schedule);
    ASSERT_TRUE(lowered.ok()) << lowered.error().to_string() << schedule.print_trace();
    Kernel plain = plain_nests(original);
    std::vector<Tensor> want, got;
    for (const Buffer& b : plain.buffers) want.push_back(random_tensor(b, symbols, seed));
    Status ran = interpret(plain, want, symbols);
    ASSERT_TRUE(ran.ok()) << ran.error().to_string() << to_string(plain);

    Status sound = verify(lowered->kernel);
    ASSERT_TRUE(sound.ok()) << sound.error().to_string() << to_string(lowered->kernel) << schedule.print_trace();
    for (size_t i = 0; i < lowered->kernel.params; ++i)
        got.push_back(random_tensor(lowered->kernel.buffers[i], symbols, seed));
    if (lowered->prepare.body) {
        Status fine = verify(lowered->prepare);
        ASSERT_TRUE(fine.ok()) << fine.error().to_string() << to_string(lowered->prepare);
        std::vector<Tensor> before;
        for (int slot : lowered->prepare_args) before.push_back(got[static_cast<size_t>(slot)]);
        Status prepared = interpret(lowered->prepare, before);
        ASSERT_TRUE(prepared.ok()) << prepared.error().to_string() << to_string(lowered->prepare);
        for (size_t i = 0; i < before.size(); ++i) got[static_cast<size_t>(lowered->prepare_args[i])] = before[i];
    }
    Status scheduled = interpret(lowered->kernel, got, symbols);
    ASSERT_TRUE(scheduled.ok()) << scheduled.error().to_string() << to_string(lowered->kernel)
                                << schedule.print_trace();
    for (size_t i = 0; i < original.params; ++i)
        for (int64_t e = 0; e < want[i].elements(); ++e) {
            double a = is_float(want[i].dtype()) ? want[i].real_at(e) : double(want[i].int_at(e));
            double b = is_float(got[i].dtype()) ? got[i].real_at(e) : double(got[i].int_at(e));
            if (std::isnan(a) && std::isnan(b)) continue;
            ASSERT_EQ(a, b) << original.buffers[i].name << " at " << e << "\n"
                            << to_string(lowered->kernel) << to_string(lowered->prepare) << schedule.print_trace();
        }
}

inline ReduceAxis axis(const std::string& name, const Expr& extent) {
    return {index_var(name, extent.as_int()), extent};
}

inline int add_buffer(Compute& c, std::string name, std::vector<Expr> shape, DType dtype = DType::f32) {
    c.buffers.push_back({.name = std::move(name), .dtype = dtype, .shape = std::move(shape)});
    return static_cast<int>(c.buffers.size() - 1);
}

inline std::vector<Expr> vars_of(const std::vector<ReduceAxis>& axes) {
    std::vector<Expr> vars;
    for (const ReduceAxis& a : axes) vars.push_back(a.var);
    return vars;
}

inline Expr relu(const Expr& x) { return max(x, constant(0, x.dtype())); }

// y[m,n] = relu(sum over k of a[m,k] * b[k,n] + bias[n]); b is known ahead.
inline Compute matmul_bias_relu(const Expr& m, const Expr& n, const Expr& k, std::vector<std::string> symbols = {}) {
    Compute c;
    c.name = "matmul";
    c.symbols = std::move(symbols);
    int a = add_buffer(c, "a", {m, k}), b = add_buffer(c, "b", {k, n}), bias = add_buffer(c, "bias", {n});
    int y = add_buffer(c, "y", {m, n});
    c.params = 4;
    c.known = {false, true, true, false};
    int sum = add_buffer(c, "sum", {m, n});
    ReduceAxis i = axis("m", m), j = axis("n", n), kk = axis("k", k);
    c.stages.push_back({.name = "mm",
                        .buffer = sum,
                        .axes = {i, j},
                        .reduce = {kk},
                        .combine = ReduceOp::Sum,
                        .store = {i.var, j.var},
                        .value = load(a, DType::f32, {i.var, kk.var}) * load(b, DType::f32, {kk.var, j.var})});
    c.stages.push_back({.name = "out",
                        .buffer = y,
                        .axes = {i, j},
                        .reduce = {},
                        .combine = ReduceOp::Sum,
                        .store = {i.var, j.var},
                        .value = relu(load(sum, DType::f32, {i.var, j.var}) + load(bias, DType::f32, {j.var}))});
    return c;
}

// y[n,h,w,c] = relu(conv of x[n,h,w,ci] and w[c,ci,kh,kw] + bias + residual), channels last, padded with zeros.
struct ConvSizes {
    Expr n = 1, h = 9, w = 10, ci = 5, c = 7;
    int64_t kernel = 3, stride = 1, pad = 1;
    Expr out_h() const { return floor_div(h + (2 * pad - kernel), stride) + 1; }
    Expr out_w() const { return floor_div(w + (2 * pad - kernel), stride) + 1; }
};
inline Compute conv_bias_relu(const ConvSizes& s, std::vector<std::string> symbols = {}) {
    Compute c;
    c.name = "conv";
    c.symbols = std::move(symbols);
    int x = add_buffer(c, "x", {s.n, s.h, s.w, s.ci});
    int w = add_buffer(c, "w", {s.c, s.ci, s.kernel, s.kernel}), bias = add_buffer(c, "bias", {s.c});
    int residual = add_buffer(c, "residual", {s.n, s.out_h(), s.out_w(), s.c});
    int y = add_buffer(c, "y", {s.n, s.out_h(), s.out_w(), s.c});
    c.params = 5;
    c.known = {false, true, true};
    int sum = add_buffer(c, "sum", {s.n, s.out_h(), s.out_w(), s.c});
    std::vector<ReduceAxis> axes{axis("n", s.n), axis("h", s.out_h()), axis("w", s.out_w()), axis("c", s.c)};
    std::vector<ReduceAxis> reduce{axis("ci", s.ci), axis("kh", s.kernel), axis("kw", s.kernel)};
    std::vector<Expr> o = vars_of(axes), r = vars_of(reduce);
    Expr ih = o[1] * s.stride + r[1] - s.pad, iw = o[2] * s.stride + r[2] - s.pad;
    Expr in = logical_and(logical_and(le(0, ih), lt(ih, s.h)), logical_and(le(0, iw), lt(iw, s.w)));
    Expr read = select(in, load(x, DType::f32, {o[0], ih, iw, r[0]}), constant(0, DType::f32));
    c.stages.push_back({.name = "conv",
                        .buffer = sum,
                        .axes = axes,
                        .reduce = reduce,
                        .combine = ReduceOp::Sum,
                        .store = o,
                        .value = read * load(w, DType::f32, {o[3], r[0], r[1], r[2]})});
    c.stages.push_back(
        {.name = "out",
         .buffer = y,
         .axes = axes,
         .reduce = {},
         .combine = ReduceOp::Sum,
         .store = o,
         .value = relu(load(sum, DType::f32, o) + load(bias, DType::f32, {o[3]}) + load(residual, DType::f32, o))});
    return c;
}

#define ASSERT_OK(expression)                                     \
    do {                                                          \
        auto&& status_ = (expression);                            \
        ASSERT_TRUE(status_.ok()) << status_.error().to_string(); \
    } while (0)

}  // namespace tessera
