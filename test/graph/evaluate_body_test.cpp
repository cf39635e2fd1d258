#include <gtest/gtest.h>

#include <random>

#include "expr/format.h"
#include "graph/evaluate/evaluate.h"
#include "graph/naive_body.h"
#include "graph/op_def.h"

namespace tessera::evaluate_body_test {
namespace {

using Random = std::mt19937_64;

const OpDef kTestOp{.name = "test", .inputs = {"x...: *"}, .outputs = {"y: *"}};
const AttrMap kNoAttrs;

std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
    std::vector<const Tensor*> out;
    for (const Tensor& t : tensors) out.push_back(&t);
    return out;
}

Result<Tensor> run(const Expr& body, DType dtype, const Sizes& sizes, const std::vector<Tensor>& inputs) {
    std::vector<Type> types;
    for (const Tensor& t : inputs) types.push_back(type_of(Datum(t)));
    OpView view(kTestOp, kNoAttrs, types, 1);
    view.with_outputs({Type(dtype, Shape(sizes))}).made_concrete();
    return evaluate_body(view, body, pointers(inputs));
}

// Small numbers with, for floats, an occasional special.
Tensor random_tensor(Random& rng, DType dtype, const Sizes& sizes, bool specials = false) {
    Tensor t = *Tensor::zeros(dtype, sizes);
    for (int64_t i = 0; i < t.elements(); ++i) {
        if (is_float(dtype)) {
            double v = std::uniform_real_distribution<double>(-4, 4)(rng);
            if (specials && rng() % 16 == 0) {
                const double odd[] = {std::nan(""), INFINITY, -INFINITY, 0.0, -0.0};
                v = odd[rng() % 5];
            }
            t.set_real(i, v);
        } else {
            t.set_int(i, rng() % 4 == 0 ? static_cast<int64_t>(rng()) : static_cast<int64_t>(rng() % 7) - 3);
        }
    }
    return t;
}

bool close(double got, double want, DType dtype) {
    if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
    if (got == want) return true;
    double relative = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-7 : 0.2;
    return std::fabs(got - want) <= relative * std::max(std::fabs(want), 1e-3);
}

// Every element against the naive body; errors must be errors in both.
// Whether there was a result rather than an error.
bool check_body(const Expr& body, const Sizes& sizes, const std::vector<Tensor>& inputs, const std::string& note = {}) {
    SCOPED_TRACE(fmt::format("{} over {} {}", to_string(body), to_string(sizes), note));
    const DType dtype = body.dtype();
    auto got = run(body, dtype, sizes, inputs);
    Tensor want = *Tensor::zeros(dtype, sizes);
    bool failed = false;
    try {
        const auto slots = pointers(inputs);
        NaiveBody naive(slots);
        for (int64_t i = 0; i < want.elements(); ++i) {
            std::map<std::string, int64_t> vars;
            int64_t rest = i;
            for (int64_t d = want.rank() - 1; d >= 0; --d) {
                vars[fmt::format("i{}", d)] = rest % want.size(d);
                rest /= want.size(d);
            }
            NaiveValue v = naive.value(body, vars);
            is_float(dtype) ? want.set_real(i, v.real) : want.set_int(i, v.integer);
        }
    } catch (const OutOfBounds&) {
        failed = true;
    }
    if (failed) {
        EXPECT_TRUE(!got.ok() && got.error().code() == Code::E0406);
        return false;
    }
    if (!got.ok()) {
        ADD_FAILURE() << got.error().to_string();
        return false;
    }
    for (int64_t i = 0; i < want.elements(); ++i) {
        const bool same =
            is_float(dtype) ? close(got->real_at(i), want.real_at(i), dtype) : got->int_at(i) == want.int_at(i);
        if (same) continue;
        ADD_FAILURE() << "element " << i << ": " << got->real_at(i) << " for " << want.real_at(i);
        break;
    }
    return true;
}

Indices at(const Sizes& sizes) { return output_indices(Shape(sizes)); }
ReduceAxis axis(const char* name, int64_t extent) { return {index_var(name, extent), extent}; }
Expr x(int slot, const Tensor& t, std::vector<Expr> indices) { return load(slot, t.dtype(), std::move(indices)); }

TEST(evaluate_body, elementwise_of_every_type) {
    Random rng(1);
    for (int k = 0; k < kDTypeCount; ++k) {
        DType t = static_cast<DType>(k);
        if (!kBodyTypes.has(t) || t == DType::boolean) continue;
        for (Sizes s : {Sizes{}, Sizes{1}, Sizes{0}, Sizes{7, 3}, Sizes{2, 1, 600}}) {
            std::vector<Tensor> in{random_tensor(rng, t, s, true), random_tensor(rng, t, s, true)};
            auto o = at(s);
            Expr a = x(0, in[0], o.list()), b = x(1, in[1], o.list());
            for (Expr body : {a + b, a - b, a * b, a / b, min(a, b), max(a, b), mod(a, b), rem(a, b), -a,
                              call(Fn::Abs, {a}), call(Fn::Sign, {a}), lt(a, b), le(a, b), eq(a, b), ne(a, b),
                              select(lt(a, b), a, b), pow(a, constant(2, t)), pow(a, constant(3, t))}) {
                if ((body.is(ExprKind::Mod) || body.is(ExprKind::Rem)) && is_float(t) && t != DType::f64) continue;
                check_body(body, s, in);
            }
        }
    }
}

TEST(evaluate_body, bits_and_logic) {
    Random rng(2);
    for (DType t : {DType::i64, DType::i32, DType::i8, DType::i4, DType::u64, DType::u16, DType::u8, DType::u2}) {
        Sizes s{5, 9};
        std::vector<Tensor> in{random_tensor(rng, t, s), random_tensor(rng, t, s)};
        Expr a = x(0, in[0], at(s).list()), b = x(1, in[1], at(s).list());
        for (ExprKind k : {ExprKind::BitAnd, ExprKind::BitOr, ExprKind::BitXor, ExprKind::Shl, ExprKind::Shr})
            check_body(bit(k, a, b), s, in);
        check_body(bit_not(a), s, in);
        check_body(logical_or(lt(a, b), logical_not(le(a, constant(1, t)))), s, in);
    }
}

TEST(evaluate_body, casts_between_all_types) {
    Random rng(3);
    for (int f = 0; f < kDTypeCount; ++f)
        for (int k = 0; k < kDTypeCount; ++k) {
            DType from = static_cast<DType>(f), to = static_cast<DType>(k);
            if (!kBodyTypes.has(from) || !kBodyTypes.has(to)) continue;
            Sizes s{40};
            std::vector<Tensor> in{random_tensor(rng, from, s, true)};
            Expr a = x(0, in[0], at(s).list());
            check_body(cast(a, to), s, in, fmt::format("{} to {}", dtype_name(from), dtype_name(to)));
            if (to != DType::boolean && !(to == DType::f8e8m0 && !is_float(from)))
                check_body(cast_saturate(a, to), s, in);
        }
}

TEST(evaluate_body, broadcast_transpose_and_gather) {
    Random rng(4);
    Sizes s{3, 4, 5};
    std::vector<Tensor> in{random_tensor(rng, DType::f32, {5, 3, 4}), random_tensor(rng, DType::f32, {4, 1}),
                           Tensor::of<int64_t>({4}, {2, 0, 4, 1}), Tensor::of<int64_t>({4}, {2, 0, 5, 1})};
    auto o = at(s);
    check_body(x(0, in[0], {o[2], o[0], o[1]}) + x(1, in[1], {o[1], 0}), s, in);
    Expr good = x(2, in[2], {o[1]}), bad = x(3, in[3], {o[1]});
    check_body(x(0, in[0], {good, o[0], o[1]}), s, in);
    check_body(x(0, in[0], {bad, o[0], o[1]}), s, in);
    check_body(x(0, in[0], {o[2] + 1, o[0], o[1]}), s, in);
    // The branch not taken reads nothing.
    check_body(select(lt(bad, 5), x(0, in[0], {bad, o[0], o[1]}), real_const(7, DType::f32)), s, in);
    check_body(select(lt(o[2], 4), x(0, in[0], {o[2] + 1, o[0], o[1]}), real_const(7, DType::f32)), s, in);
    check_body(select(eq(mod(o[2] + o[1], 3), 0), x(0, in[0], {floor_div(o[2] + o[1], 3), o[0], o[1]}),
                      x(1, in[1], {o[1], 0})),
               s, in);
    check_body(cast(o[0] * 20 + o[1] * 5 + o[2], DType::f32), s, in);
    check_body(select(eq(o[0], o[1]), Expr(1), Expr(0)), s, in);
}

TEST(evaluate_body, reductions_of_every_type) {
    Random rng(5);
    for (int k = 0; k < kDTypeCount; ++k) {
        DType t = static_cast<DType>(k);
        if (!kBodyTypes.has(t) || t == DType::boolean || t == DType::f8e8m0) continue;
        std::vector<Tensor> in{random_tensor(rng, t, {3, 5, 7})};
        if (t == DType::f64 || t == DType::f32 || !is_float(t))
            for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max}) {
                auto a = axis("r0", 3), b = axis("r1", 5), c = axis("r2", 7), none = axis("r3", 0);
                check_body(reduce(op, {a, b, c}, x(0, in[0], {a.var, b.var, c.var})), {}, in);
                check_body(reduce(op, {c}, x(0, in[0], {at({3, 5})[0], at({3, 5})[1], c.var})), {3, 5}, in);
                check_body(reduce(op, {a}, x(0, in[0], {a.var, at({5, 7})[0], at({5, 7})[1]})), {5, 7}, in);
                check_body(reduce(op, {a, c}, x(0, in[0], {a.var, at({5, 2})[0], c.var})), {5, 2}, in);
                check_body(reduce(op, {none}, x(0, in[0], {none.var, none.var, none.var})), {2}, in);
            }
    }
}

TEST(evaluate_body, specials_pass_through_min_and_max) {
    Random rng(6);
    for (int64_t n : {1, 2, 17, 700}) {
        std::vector<Tensor> in{random_tensor(rng, DType::f32, {4, n}, n < 100)};
        auto k = axis("r0", n);
        for (ReduceOp op : {ReduceOp::Min, ReduceOp::Max})
            check_body(reduce(op, {k}, x(0, in[0], {at({4})[0], k.var})), {4}, in);
    }
}

// Softmax and variance in one body: reductions used where more loops run, and an axis name used twice.
TEST(evaluate_body, nested_reductions) {
    Random rng(7);
    for (Sizes s : {Sizes{3, 8}, Sizes{1, 1}, Sizes{5, 37}}) {
        std::vector<Tensor> in{random_tensor(rng, DType::f64, s)};
        auto o = at(s);
        auto k = axis("r0", s[1]), l = axis("r1", s[1]);
        Expr largest = reduce_max({k}, x(0, in[0], {o[0], k.var}));
        Expr total = sum({l}, call(Fn::Exp, {x(0, in[0], {o[0], l.var}) - largest}));
        check_body(call(Fn::Exp, {x(0, in[0], o.list()) - largest}) / total, s, in);
        Expr mean = sum({k}, x(0, in[0], {o[0], k.var})) / real_const(static_cast<double>(s[1]));
        check_body(sum({k}, pow(x(0, in[0], {o[0], k.var}) - mean, real_const(2))), {s[0]}, in);
        auto along = axis("r2", s[0]);  // over the other axis
        check_body(x(0, in[0], o.list()) - reduce_max({along}, x(0, in[0], {along.var, o[1]})), s, in);
    }
}

Expr padded(int slot, const Tensor& t, const std::vector<Expr>& indices) {
    Expr inside = int_const(1, DType::boolean);
    for (size_t d = 0; d < indices.size(); ++d)
        inside = logical_and(inside, logical_and(ge(indices[d], 0), lt(indices[d], t.sizes()[d])));
    return select(inside, load(slot, t.dtype(), indices), constant(0, t.dtype()));
}

TEST(evaluate_body, convolutions) {
    Random rng(8);
    for (int trial = 0; trial < 60; ++trial) {
        SCOPED_TRACE(fmt::format("trial {}", trial));
        auto pick = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(rng() % (high - low + 1)); };
        int64_t n = pick(1, 2), c = pick(1, 9), m = pick(1, 11), h = pick(1, 12), w = pick(1, 12), kh = pick(1, 3),
                kw = pick(1, 3);
        int64_t stride = pick(1, 3), pad = pick(0, 2), dilation = pick(1, 2);
        int64_t oh = (h + 2 * pad - dilation * (kh - 1) - 1) / stride + 1,
                ow = (w + 2 * pad - dilation * (kw - 1) - 1) / stride + 1;
        if (h + 2 * pad < dilation * (kh - 1) + 1 || w + 2 * pad < dilation * (kw - 1) + 1) continue;
        DType t = trial % 3 == 0 ? DType::i32 : trial % 3 == 1 ? DType::f64 : DType::f32;
        std::vector<Tensor> in{random_tensor(rng, t, {n, c, h, w}), random_tensor(rng, t, {m, c, kh, kw}),
                               random_tensor(rng, t, {m})};
        Sizes s{n, m, oh, ow};
        auto o = at(s);
        auto rc = axis("r0", c), rh = axis("r1", kh), rw = axis("r2", kw);
        Expr value = padded(
            0, in[0], {o[0], rc.var, o[2] * stride + rh.var * dilation - pad, o[3] * stride + rw.var * dilation - pad});
        Expr conv = sum({rc, rh, rw}, value * x(1, in[1], {o[1], rc.var, rh.var, rw.var}));
        check_body(conv, s, in);
        check_body(conv + x(2, in[2], {o[1]}), s, in);
    }
}

// Channels in groups, and elements that only change their place.
TEST(evaluate_body, quotients_and_remainders_of_indices) {
    Random rng(11);
    const int64_t groups = 3, per_group = 4, c = 5;
    std::vector<Tensor> in{random_tensor(rng, DType::f32, {groups * c, 20}),
                           random_tensor(rng, DType::f32, {groups * per_group, c})};
    Sizes s{groups * per_group, 20};
    auto o = at(s);
    auto r = axis("r0", c);
    check_body(sum({r}, x(0, in[0], {floor_div(o[0], per_group) * c + r.var, o[1]}) * x(1, in[1], {o[0], r.var})), s,
               in);
    check_body(x(0, in[0], {floor_div(o[1], 4) + mod(o[0], 4), mod(o[1], 4) + floor_div(o[0], 6)}), s, in);
    for (Sizes to : {Sizes{300}, Sizes{5, 60}, Sizes{2, 3, 50}, Sizes{20, 15}}) {
        auto p = at(to);
        Expr flat = 0;
        for (size_t d = 0; d < to.size(); ++d) flat = flat * to[d] + p[d];
        check_body(x(0, in[0], {floor_div(flat, 20), mod(flat, 20)}), to, in);
    }
}

TEST(evaluate_body, matrix_products) {
    Random rng(9);
    for (int trial = 0; trial < 40; ++trial) {
        SCOPED_TRACE(fmt::format("trial {}", trial));
        auto pick = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(rng() % (high - low + 1)); };
        int64_t b = pick(1, 3), m = pick(1, 40), n = pick(1, 300), k = pick(0, trial % 2 ? 20 : 210);
        DType t = std::array{DType::f32, DType::f16, DType::u64, DType::i8}[trial % 4];
        if (trial % 8 == 3) t = DType::f64;
        std::vector<Tensor> in{random_tensor(rng, t, {b, m, k}), random_tensor(rng, t, {k, n}),
                               random_tensor(rng, t, {m, n})};
        Sizes s{b, m, n};
        auto o = at(s);
        auto r = axis("r0", k);
        Expr product = sum({r}, x(0, in[0], {o[0], o[1], r.var}) * x(1, in[1], {r.var, o[2]}));
        if (m * n * b * k > 400000) continue;
        check_body(product, s, in);
        check_body(product + x(2, in[2], {o[1], o[2]}), s, in);
    }
}

// Three factors, and a contraction that not every output dimension sees.
TEST(evaluate_body, other_contractions) {
    Random rng(10);
    std::vector<Tensor> in{random_tensor(rng, DType::f32, {6, 30}), random_tensor(rng, DType::f32, {30, 20}),
                           random_tensor(rng, DType::f32, {30})};
    auto r = axis("r0", 30);
    {
        auto o = at({6, 20});
        check_body(sum({r}, x(0, in[0], {o[0], r.var}) * x(2, in[2], {r.var}) * x(1, in[1], {r.var, o[1]})), {6, 20},
                   in);
    }
    auto o = at({6, 3, 20});
    Expr product = sum({r}, x(0, in[0], {o[0], r.var}) * x(1, in[1], {r.var, o[2]}));
    check_body(product, {6, 3, 20}, in);
    check_body(select(lt(o[1], 1), product, real_const(0, DType::f32)), {6, 3, 20}, in);
    // The factor may be out of bounds, but not where the condition holds.
    Expr shifted = sum({r}, x(0, in[0], {o[0] + o[1], r.var}) * x(1, in[1], {r.var, o[2]}));
    check_body(select(lt(o[0] + o[1], 6), shifted, real_const(0, DType::f32)), {6, 3, 20}, in);
    check_body(shifted, {6, 3, 20}, in);
}

// Random index arithmetic, conditions and reductions; the seed of a failure is printed.
class BodyMaker {
  public:
    BodyMaker(Random& rng, const std::vector<Tensor>& inputs, std::vector<Expr> indices)
        : rng_(rng), inputs_(inputs), scope_(std::move(indices)) {}

    Expr index(int depth) {
        if (depth == 0 || scope_.empty())
            return rng_() % 4 || scope_.empty() ? (scope_.empty() ? Expr(int64_t(rng_() % 3)) : any_var())
                                                : Expr(int64_t(rng_() % 3));
        switch (rng_() % 8) {
            case 0: return index(depth - 1) + index(depth - 1);
            case 1: return index(depth - 1) - index(depth - 1);
            case 2: return index(depth - 1) * Expr(int64_t(rng_() % 4) - 1);
            case 3: return floor_div(index(depth - 1), Expr(int64_t(1 + rng_() % 3)));
            case 4: return mod(index(depth - 1), Expr(int64_t(1 + rng_() % 4)));
            case 5: return min(index(depth - 1), index(depth - 1));
            case 6: return select(condition(depth - 1), index(depth - 1), index(depth - 1));
            default: return any_var();
        }
    }
    Expr condition(int depth) {
        Expr a = index(depth > 0 ? depth - 1 : 0), b = index(0);
        switch (rng_() % 6) {
            case 0: return lt(a, b);
            case 1: return le(a, b + 1);
            case 2: return eq(a, b);
            case 3: return logical_and(ge(a, 0), lt(a, 3));
            case 4: return logical_or(lt(a, b), eq(a, 1));
            default: return logical_not(lt(a, b));
        }
    }
    Expr read(int depth) {
        int slot = static_cast<int>(rng_() % inputs_.size());
        std::vector<Expr> indices;
        Expr inside = int_const(1, DType::boolean);
        bool guard = rng_() % 3 == 0;
        for (int64_t size : inputs_[slot].sizes()) {
            Expr i = index(depth);
            if (!guard && rng_() % 32) i = rng_() % 2 ? mod(i, Expr(size)) : clamp(i, 0, Expr(size - 1));
            inside = logical_and(inside, logical_and(ge(i, 0), lt(i, size)));
            indices.push_back(i);
        }
        Expr value = cast(load(slot, inputs_[slot].dtype(), indices), DType::f64);
        return guard ? select(inside, value, real_const(0.5)) : value;
    }
    Expr value(int depth) {
        if (depth == 0) return rng_() % 4 ? read(2) : real_const(1.5);
        switch (rng_() % 9) {
            case 0: return value(depth - 1) + value(depth - 1);
            case 1: return value(depth - 1) * value(depth - 1);
            case 2: return max(value(depth - 1), value(depth - 1));
            case 3: return select(condition(1), value(depth - 1), value(depth - 1));
            case 4: return select(lt(value(depth - 1), value(0)), value(depth - 1), value(depth - 1));
            case 5:
            case 6:
            case 7: {
                std::vector<ReduceAxis> axes;
                for (size_t i = 0; i <= rng_() % 2; ++i) {
                    int64_t extent = int64_t(rng_() % 5);
                    axes.push_back(axis(fmt::format("r{}", made_++).c_str(), extent));
                    scope_.push_back(axes.back().var);
                }
                Expr inner = value(depth - 1);
                if (rng_() % 2) inner = inner * value(depth - 1);
                scope_.resize(scope_.size() - axes.size());
                return reduce(static_cast<ReduceOp>(rng_() % 4 == 1 ? 0 : rng_() % 4), axes, inner);
            }
            default: return read(2);
        }
    }

  private:
    Expr any_var() { return scope_[rng_() % scope_.size()]; }
    Random& rng_;
    const std::vector<Tensor>& inputs_;
    std::vector<Expr> scope_;
    int made_ = 0;
};

TEST(evaluate_body, random_bodies) {
    int computed = 0;
    for (uint64_t seed = 0; seed < 3000; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        Random rng(seed);
        Sizes s;
        for (uint64_t d = rng() % 4; d > 0; --d) s.push_back(1 + static_cast<int64_t>(rng() % 6));
        std::vector<Tensor> in{random_tensor(rng, DType::f32, {3, 4}), random_tensor(rng, DType::f64, {5}),
                               random_tensor(rng, DType::i32, {2, 3, 2})};
        BodyMaker make(rng, in, at(s).list());
        computed += check_body(make.value(static_cast<int>(rng() % 4)), s, in);
        if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(computed, 1500);  // the others read out of bounds
}

TEST(evaluate_body, strings_and_complex_numbers_are_moved) {
    std::vector<Tensor> in{Tensor::strings({2}, {"a", "b"}), Tensor::strings({3}, {"c", "d", "e"})};
    Expr o = at({5})[0];
    auto out =
        run(select(lt(o, 2), load(0, DType::string, {o}), load(1, DType::string, {o - 2})), DType::string, {5}, in);
    ASSERT_TRUE(out.ok()) << out.error().to_string();
    EXPECT_EQ(out->as_strings(), (std::vector<std::string>{"a", "b", "c", "d", "e"}));
}

}  // namespace
}  // namespace tessera::evaluate_body_test
