#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/numeric.h"
#include "kernel/random_kernel.h"
#include "llvm/run_kernel.h"

namespace tessera::operations_test {
namespace {

constexpr int64_t kCount = 167;  // vectors, and a tail of every size
const std::vector<DType> kTypes{DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64,
                                DType::i32, DType::i16, DType::i8,  DType::i4,   DType::u64,
                                DType::u32, DType::u16, DType::u8,  DType::u4,   DType::boolean};

// Edges of the type first, then any values; some of the second input's are small, as shifts and exponents are.
Tensor values(DType t, uint64_t seed) {
    std::mt19937_64 random(seed);
    Tensor out = std::move(Tensor::zeros(t, {kCount}).value());
    const double inf = std::numeric_limits<double>::infinity();
    const std::vector<double> reals{0.0,   -0.0,  1,     -1,     inf,   -inf,       std::nan(""), 0.5,          -0.5,
                                    1.5,   2.5,   -2.5,  3,      -7.25, 100.75,     -129.5,       255.5,        300,
                                    40000, 65504, 70000, -70000, 3e9,   -3e9,       1e19,         -1e19,        2e19,
                                    1e-5,  1e-8,  1e38,  -1e38,  1e-40, 2147483647, 2147483648,   -2147483649.0};
    for (int64_t i = 0; i < kCount; ++i) {
        const auto n = static_cast<size_t>((i * 7 + static_cast<int64_t>(seed) * 11) % kCount);
        if (is_float(t)) {
            const double any = (static_cast<double>(random() % 2000001) / 1000000 - 1) * std::pow(10.0, random() % 4);
            out.set_real(i, n < reals.size() ? reals[n] : any);
        } else {
            const int64_t small = static_cast<int64_t>(random() % 21) - 10;
            const int64_t edges[] = {int_min(t), int_max(t), 0, 1, -1, int_max(t) - 1, 2, 3};
            out.set_int(i, n < 8 ? edges[n] : random() % 2 ? small : static_cast<int64_t>(random()));
        }
    }
    return out;
}

// out[i] = value of element i, lanes over i.
struct Case {
    std::string name;
    std::vector<DType> inputs;
    Expr value;  // over loads of the inputs at `i`
    double tolerance = 0;
};

Expr index() { return index_var("i", kCount); }
Expr in(int slot, DType t) { return load(slot, t, {index()}); }

Kernel kernel_of(const Case& c, LoopKind kind) {
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < c.inputs.size(); ++i) buffers.push_back({fmt::format("x{}", i), c.inputs[i], {kCount}});
    buffers.push_back({"y", c.value.dtype(), {kCount}});
    const int out = static_cast<int>(c.inputs.size());
    Stmt body = for_loop({index(), kCount, kind, {}, {}, store(out, {index()}, c.value)});
    return make_kernel(c.name, {}, buffers, buffers.size(), body);
}

void check(const std::vector<Case>& cases) {
    // Every other case also one element at a time.
    std::vector<Kernel> kernels;
    for (size_t i = 0; i < cases.size(); ++i) {
        kernels.push_back(kernel_of(cases[i], LoopKind::Vector));
        kernels.push_back(kernel_of(cases[i], i % 2 ? LoopKind::Vector : LoopKind::Serial));
    }
    auto compiled = compile_kernels(kernels, {});
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    for (size_t k = 0; k < kernels.size(); ++k) {
        const Case& c = cases[k / 2];
        std::vector<Tensor> expected;
        for (size_t i = 0; i < c.inputs.size(); ++i) expected.push_back(values(c.inputs[i], i + 1));
        expected.push_back(std::move(Tensor::zeros(c.value.dtype(), {kCount}).value()));
        std::vector<Tensor> got = copies(expected), inputs = copies(expected);
        Status status = interpret(kernels[k], expected);
        ASSERT_TRUE(status.ok()) << c.name << status.error().to_string();
        std::vector<GuardedMemory> memory;
        std::vector<void*> pointers;
        for (const Tensor& t : got) {
            memory.emplace_back(t.bytes());
            std::memcpy(memory.back().data(), t.data(), static_cast<size_t>(t.bytes()));
            pointers.push_back(memory.back().data());
        }
        run_launches((*compiled)->kernels()[k], pointers, {}, {});
        std::memcpy(got.back().mutable_data(), pointers.back(), static_cast<size_t>(got.back().bytes()));
        const Tensor &e = expected.back(), &g = got.back();
        for (int64_t i = 0; i < kCount; ++i) {
            const double x = e.real_at(i), y = g.real_at(i);
            const bool same =
                is_float(e.dtype()) ? x == y || (std::isnan(x) && std::isnan(y)) : e.int_at(i) == g.int_at(i);
            if (same || std::abs(x - y) <= c.tolerance * std::abs(x)) continue;
            std::string at;
            for (size_t j = 0; j + 1 < inputs.size(); ++j) at += fmt::format(" {}", inputs[j].real_at(i));
            ADD_FAILURE() << c.name << (k % 2 ? " (serial)" : " (vector)") << " of" << at << ": " << x << ", compiled "
                          << y;
            break;
        }
    }
}

double rounding(DType t) {
    return t == DType::f64 ? 1e-15 : t == DType::f32 ? 2e-7 : t == DType::f16 ? 1e-3 : t == DType::bf16 ? 8e-3 : 0;
}

TEST(Operations, BinaryOfEveryType) {
    std::vector<Case> cases;
    for (DType t : kTypes) {
        if (t == DType::boolean) continue;
        Expr a = in(0, t), b = in(1, t);
        auto add = [&](const char* name, Expr e) {
            cases.push_back({fmt::format("{} {}", name, dtype_name(t)), {t, t}, e, rounding(t)});
        };
        add("add", a + b), add("sub", a - b), add("mul", a * b), add("div", a / b), add("rem", rem(a, b));
        add("mod", mod(a, b)), add("min", min(a, b)), add("max", max(a, b)), add("neg", -a);
        add("less", lt(a, b)), add("at most", le(a, b)), add("equal", eq(a, b)), add("different", ne(a, b));
        add("times add", a * b + a);
        if (is_int(t)) add("square less", a * a - b), add("less product", a - a * b);
        if (t == DType::i64) add("floor_div", floor_div(a, b));
        if (is_int(t)) {
            add("pow", pow(a, b)), add("not", bit_not(a));
            add("and", bit(ExprKind::BitAnd, a, b)), add("or", bit(ExprKind::BitOr, a, b));
            add("xor", bit(ExprKind::BitXor, a, b)), add("shl", bit(ExprKind::Shl, a, b));
            add("shr", bit(ExprKind::Shr, a, b)), add("by 7", a / int_const(7, t)),
                add("mod 3", mod(a, int_const(3, t)));
            add("pow 3", pow(a, int_const(3, t)));
        }
    }
    check(cases);
}

// Words that are products of bytes, and words that are read from bytes, also where those lie apart.
TEST(Operations, Words) {
    const Expr a = in(0, DType::i32), b = in(1, DType::i32);
    std::vector<Case> cases{{"dot_i8", {DType::i32, DType::i32}, call(Fn::DotI8, {a, b})},
                            {"dot_u8i8", {DType::i32, DType::i32}, call(Fn::DotU8I8, {a, b})},
                            {"sum of dot_i8", {DType::i32, DType::i32}, b + call(Fn::DotI8, {a, b})},
                            {"sum of dot_u8i8", {DType::i32, DType::i32}, b + call(Fn::DotU8I8, {a, b})}};
    for (DType t : {DType::u8, DType::i8})
        for (int64_t step : {1, 2}) {
            Expr word = int_const(0, DType::i32);
            for (int64_t i = 0; i < 4; ++i) {
                const Expr at = mod(index() * 4 + i * step, kCount), few = mod(index(), 40) * 4 + i * step;
                const Expr byte =
                    cast(cast(load(0, t, {step == 1 ? min(few, kCount - 4 + i) : at}), DType::u8), DType::i32);
                word = i ? bit(ExprKind::BitOr, word, bit(ExprKind::Shl, byte, int_const(8 * i, DType::i32))) : byte;
            }
            cases.push_back({fmt::format("word of {}, {} apart", dtype_name(t), step), {t}, word});
        }
    check(cases);
}

TEST(Operations, Bools) {
    Expr a = in(0, DType::boolean), b = in(1, DType::boolean);
    const std::vector<DType> two{DType::boolean, DType::boolean};
    check({{"and", two, logical_and(a, b)},
           {"or", two, logical_or(a, b)},
           {"not", two, logical_not(a)},
           {"equal", two, eq(a, b)},
           {"min", two, min(a, b)},
           {"max", two, max(a, b)},
           {"choose", two, select(a, b, logical_not(b))}});
}

TEST(Operations, CastsBetweenAllTypes) {
    std::vector<Case> cases;
    for (DType from : kTypes)
        for (DType to : kTypes) {
            cases.push_back(
                {fmt::format("{} to {}", dtype_name(from), dtype_name(to)), {from}, cast(in(0, from), to), 0});
            cases.push_back({fmt::format("{} to {} saturated", dtype_name(from), dtype_name(to)),
                             {from},
                             cast_saturate(in(0, from), to),
                             0});
        }
    check(cases);
}

TEST(Operations, Functions) {
    std::vector<Case> cases;
    for (DType t : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8}) {
        for (int n = 0; n <= static_cast<int>(Fn::Atan2); ++n) {
            const Fn fn = static_cast<Fn>(n);
            // Of an integer type: only those that do not go through a real, whose last bits may differ.
            if (is_int(t) && fn > Fn::Sqrt && fn != Fn::IsNan && fn != Fn::IsInf) continue;
            std::vector<DType> types{t};
            std::vector<Expr> args{in(0, t)};
            if (fn == Fn::Atan2) types.push_back(t), args.push_back(in(1, t));
            const double tolerance = t == DType::f64 ? 1e-14 : t == DType::f32 ? 6e-7 : rounding(t);
            cases.push_back({fmt::format("{} {}", fn_name(fn), dtype_name(t)), types, call(fn, args), tolerance});
        }
        if (is_int(t)) continue;
        Expr a = in(0, t);
        for (double e : {0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -0.5, 1.7})
            cases.push_back(
                {fmt::format("pow {} {}", e, dtype_name(t)), {t}, pow(a, real_const(e, t)), 4 * rounding(t)});
        cases.push_back({fmt::format("pow {}", dtype_name(t)), {t, t}, pow(a, in(1, t)), 4 * rounding(t)});
    }
    check(cases);
}

}  // namespace
}  // namespace tessera::operations_test
