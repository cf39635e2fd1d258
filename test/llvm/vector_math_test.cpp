#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "llvm/run_kernel.h"

namespace tessera::vector_math_test {
namespace {

constexpr int64_t kCount = 1 << 13;

Kernel function_kernel(Fn fn) {
    Expr i = index_var("i", kCount / 32), j = index_var("j", 32);
    Expr at = i * 32 + j;
    Stmt body = store(1, {at}, call(fn, {load(0, DType::f32, {at})}));
    body = for_loop({j, 32, LoopKind::Vector, {}, {}, body});
    body = for_loop({i, kCount / 32, LoopKind::Parallel, {}, {}, body});
    return make_kernel(std::string(fn_name(fn)), {}, {{"x", DType::f32, {kCount}}, {"y", DType::f32, {kCount}}}, 2,
                       body);
}

double exact(Fn fn, double x) {
    switch (fn) {
        case Fn::Exp: return std::exp(x);
        case Fn::Expm1: return std::expm1(x);
        case Fn::Log: return std::log(x);
        case Fn::Log1p: return std::log1p(x);
        case Fn::Tanh: return std::tanh(x);
        case Fn::Erf: return std::erf(x);
        case Fn::Sinh: return std::sinh(x);
        case Fn::Cosh: return std::cosh(x);
        case Fn::Sin: return std::sin(x);
        case Fn::Cos: return std::cos(x);
        case Fn::Tan: return std::tan(x);
        case Fn::Atan: return std::atan(x);
        case Fn::Asin: return std::asin(x);
        case Fn::Acos: return std::acos(x);
        case Fn::Sqrt: return std::sqrt(x);
        default: return 0;
    }
}

// How far y is from the exact value, in the distance of floats there.
double ulps(float y, double exact) {
    const float rounded = static_cast<float>(exact);
    if (std::isnan(exact)) return std::isnan(y) ? 0 : 1e9;
    if (std::isinf(rounded)) return y == rounded || std::abs(y) == std::numeric_limits<float>::max() ? 0 : 1e9;
    if (!std::isfinite(y)) return std::abs(exact) > 3.4028e38 ? 0 : 1e9;
    if (rounded == 0 && y == 0) return std::signbit(rounded) == std::signbit(y) ? 0 : 1e8;
    const float next = std::nextafter(std::abs(rounded), std::numeric_limits<float>::infinity());
    const double step = std::isinf(next) ? std::ldexp(1.0, 104) : static_cast<double>(next) - std::abs(rounded);
    return std::abs(y - exact) / step;
}

struct Bound {
    Fn fn;
    double ulps;
};

// The bounds of docs/vector_math.md.
const std::vector<Bound> kBounds{{Fn::Exp, 1.5}, {Fn::Expm1, 2}, {Fn::Log, 1},  {Fn::Log1p, 2}, {Fn::Tanh, 5},
                                 {Fn::Erf, 5},   {Fn::Sinh, 3},  {Fn::Cosh, 2}, {Fn::Sin, 2},   {Fn::Cos, 2},
                                 {Fn::Tan, 4},   {Fn::Atan, 2},  {Fn::Asin, 3}, {Fn::Acos, 2},  {Fn::Sqrt, 0.5001}};

TEST(VectorMath, KeepsItsErrorBounds) {
    std::vector<Kernel> kernels;
    for (const Bound& b : kBounds) kernels.push_back(function_kernel(b.fn));
    auto compiled = compile_kernels(kernels, {});
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    Memory x_memory = make_memory(kCount * 4), y_memory = make_memory(kCount * 4);
    float *x = reinterpret_cast<float*>(x_memory.get()), *y = reinterpret_cast<float*>(y_memory.get());
    const std::vector<void*> buffers{x, y};
    const bool dense = std::getenv("TESSERA_DENSE_MATH") != nullptr;  // every 7th float: minutes
    const uint32_t step = dense ? 7 : 4099;
    for (size_t k = 0; k < kBounds.size(); ++k) {
        const Fn fn = kBounds[k].fn;
        double worst = 0;
        bool above_one = false, short_of_one = false;
        float worst_at = 0;
        auto check = [&] {
            run_launches((*compiled)->kernels()[k], buffers, {}, {});
            for (int64_t i = 0; i < kCount; ++i) {
                double e = ulps(y[i], exact(fn, x[i]));
                if ((fn == Fn::Tanh || fn == Fn::Erf) && std::abs(y[i]) > 1) above_one = true;
                // What multiplies 1 + tanh(x) may be large.
                if (std::abs(x[i]) >= (fn == Fn::Tanh ? 10 : 4.2f) && std::abs(y[i]) < 1) short_of_one = true;
                if (e > worst) worst = e, worst_at = x[i];
            }
        };
        int64_t filled = 0;
        auto add = [&](float v) {
            x[filled++] = v;
            if (filled == kCount) check(), filled = 0;
        };
        const float inf = std::numeric_limits<float>::infinity();
        for (float v : {0.0f,      -0.0f,    1.0f,     -1.0f,   inf,    -inf,          std::nanf(""), 88.72283f,
                        88.72284f, -103.97f, -103.98f, -87.34f, 1e-45f, -1e-45f,       3e38f,         -3e38f,
                        1e6f,      1.1e6f,   3.4e38f,  0.5f,    1e-38f, 1.1754944e-38f})
            add(v);
        for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += step)
            add(std::bit_cast<float>(static_cast<uint32_t>(bits)));
        for (int i = -60000; i < 60000; ++i) add(static_cast<float>(i) * 0.001f);
        for (int i = -60000; i < 60000; ++i) add(static_cast<float>(i) * 0.0000173f);
        while (filled) add(0);
        EXPECT_FALSE(above_one) << fn_name(fn);
        EXPECT_FALSE(short_of_one && (fn == Fn::Tanh || fn == Fn::Erf)) << fn_name(fn);
        RecordProperty(std::string(fn_name(fn)), std::to_string(worst));
        EXPECT_LE(worst, kBounds[k].ulps) << fn_name(fn) << " at " << worst_at;
        if (std::getenv("TESSERA_SHOW_MATH")) fmt::print("{:8} {:.3f} ulp at {}\n", fn_name(fn), worst, worst_at);
    }
}

// exp(min(x, 0)), as softmax has it.
TEST(VectorMath, ExpUpToOne) {
    Expr i = index_var("i", kCount / 32), j = index_var("j", 32), at = i * 32 + j;
    Stmt body = store(1, {at}, call(Fn::Exp, {min(load(0, DType::f32, {at}), constant(0, DType::f32))}));
    body = for_loop({i, kCount / 32, LoopKind::Serial, {}, {}, for_loop({j, 32, LoopKind::Vector, {}, {}, body})});
    auto compiled = compile_kernels(
        {make_kernel("exp", {}, {{"x", DType::f32, {kCount}}, {"y", DType::f32, {kCount}}}, 2, body)}, {});
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    Memory x_memory = make_memory(kCount * 4), y_memory = make_memory(kCount * 4);
    float *in = reinterpret_cast<float*>(x_memory.get()), *out = reinterpret_cast<float*>(y_memory.get());
    const float inf = std::numeric_limits<float>::infinity(), tiny = std::numeric_limits<float>::min();
    double worst = 0;
    for (int block = 0; block < 64; ++block) {
        for (int64_t k = 0; k < kCount; ++k) in[k] = static_cast<float>(block * kCount + k) * -0.00017f;
        in[0] = inf, in[1] = -inf, in[2] = std::nanf(""), in[3] = -200, in[4] = -0.0f, in[5] = -1e-45f, in[6] = -3e38f;
        run_launches((*compiled)->kernels()[0], {in, out}, {}, {});
        EXPECT_EQ(out[0], 1);
        EXPECT_EQ(out[1], 0);
        EXPECT_TRUE(std::isnan(out[2]));
        EXPECT_EQ(out[3], 0);
        EXPECT_EQ(out[4], 1);
        EXPECT_EQ(out[5], 1);
        EXPECT_EQ(out[6], 0);
        for (int64_t k = 7; k < kCount; ++k) {
            const double want = std::exp(std::min(0.0, static_cast<double>(in[k])));
            if (want < 1.01 * tiny)
                EXPECT_LE(std::abs(out[k] - want), 1.01 * tiny) << in[k];
            else
                worst = std::max(worst, ulps(out[k], want));
        }
    }
    if (std::getenv("TESSERA_SHOW_MATH")) fmt::print("exp(min(x, 0)) {:.3f} ulp\n", worst);
    EXPECT_LE(worst, 3);
}

TEST(VectorMath, Sigmoid) {
    Expr i = index_var("i", kCount / 32), j = index_var("j", 32), at = i * 32 + j;
    Expr one = constant(1, DType::f32), x = load(0, DType::f32, {at});
    Stmt body = store(1, {at}, one / (one + call(Fn::Exp, {-x})));
    body = for_loop({i, kCount / 32, LoopKind::Serial, {}, {}, for_loop({j, 32, LoopKind::Vector, {}, {}, body})});
    auto compiled = compile_kernels(
        {make_kernel("sigmoid", {}, {{"x", DType::f32, {kCount}}, {"y", DType::f32, {kCount}}}, 2, body)}, {});
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    Memory x_memory = make_memory(kCount * 4), y_memory = make_memory(kCount * 4);
    float *in = reinterpret_cast<float*>(x_memory.get()), *out = reinterpret_cast<float*>(y_memory.get());
    double worst = 0;
    for (int block = 0; block < 64; ++block) {
        for (int64_t k = 0; k < kCount; ++k) in[k] = static_cast<float>(block * kCount + k) * 0.00033f - 86.0f;
        const float inf = std::numeric_limits<float>::infinity();
        in[0] = inf, in[1] = -inf, in[2] = std::nanf(""), in[3] = -200, in[4] = 1e30f;
        run_launches((*compiled)->kernels()[0], {in, out}, {}, {});
        EXPECT_EQ(out[0], 1);
        EXPECT_EQ(out[1], 0);
        EXPECT_TRUE(std::isnan(out[2]));
        EXPECT_EQ(out[3], 0);
        EXPECT_EQ(out[4], 1);
        for (int64_t k = 5; k < kCount; ++k)
            worst = std::max(worst, ulps(out[k], 1 / (1 + std::exp(-static_cast<double>(in[k])))));
    }
    if (std::getenv("TESSERA_SHOW_MATH")) fmt::print("sigmoid {:.3f} ulp\n", worst);
    EXPECT_LE(worst, 3.5);
}

}  // namespace
}  // namespace tessera::vector_math_test
