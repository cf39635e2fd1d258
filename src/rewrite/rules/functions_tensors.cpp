#include "base/numeric.h"
#include "rewrite/rules/make_function.h"

namespace tessera::functions {

namespace {

// Significant bits and the range that an element type has, to compare what it can hold.
bool widens(DType from, DType to) {
    if (from == to) return true;
    auto bits = [](DType t) { return dtype_bits(t); };
    if (kWideFloats.has(from) && kWideFloats.has(to))
        return to == DType::f64 || (to == DType::f32 && from != DType::f64);
    bool whole = kInts.has(from) && kInts.has(to) && bits(from) >= 8 && bits(to) >= 8;
    if (whole && kUnsignedInts.has(from))
        return bits(to) > bits(from) || (kUnsignedInts.has(to) && bits(to) >= bits(from));
    if (whole) return kSignedInts.has(to) && bits(to) >= bits(from);
    if (from == DType::boolean) return kWideFloats.has(to) || (kInts.has(to) && bits(to) >= 8);
    if (kInts.has(from) && bits(from) >= 8 && to == DType::f64) return bits(from) <= 32;
    if (kInts.has(from) && bits(from) >= 8 && to == DType::f32) return bits(from) <= 16;
    return false;
}

std::optional<bool> fits(const Ints& small, const Ints& large) {
    if (small.size() > large.size()) return false;
    for (size_t i = 1; i <= small.size(); ++i) {
        const Expr &a = small[small.size() - i], &b = large[large.size() - i];
        if (a.is_int(1)) continue;
        std::optional<bool> one = same(a, b);
        if (one != true) return one;
    }
    return true;
}

}  // namespace

std::vector<RuleFunction> tensors() {
    std::vector<RuleFunction> out = {
        make(
            "rank", "the number of dimensions",
            +[](Value* x) -> std::optional<Expr> {
                if (!ranked(x)) return {};
                return Expr(shape(x).rank());
            }),
        make(
            "dims", "the sizes",
            +[](Value* x) -> std::optional<Ints> {
                if (!ranked(x)) return {};
                return shape(x).dims();
            }),
        make(
            "dim", "the size along an axis, from the end where it is negative",
            +[](Value* x, Expr axis) -> std::optional<Expr> {
                if (!ranked(x)) return {};
                auto at = position(axis, shape(x).dims().size());
                if (!at) return {};
                return shape(x).dims()[*at];
            }),
        make(
            "count", "the number of elements",
            +[](Value* x) -> std::optional<Expr> {
                if (!ranked(x)) return {};
                return shape(x).elements();
            }),
        make(
            "dtype", "the element type",
            +[](Value* x) -> std::optional<DType> {
                if (!x->type().is_tensor()) return {};
                return x->type().tensor().dtype;
            }),
        make(
            "element_bits", "of the element type",
            +[](Value* x) -> std::optional<Expr> {
                if (!x->type().is_tensor()) return {};
                return Expr(static_cast<int64_t>(dtype_bytes(x->type().tensor().dtype)) * 8);
            }),
        make(
            "is_float", "whether the elements are floats",
            +[](Value* x) { return std::optional(x->type().is_tensor() && kFloats.has(x->type().tensor().dtype)); }),
        make(
            "is_int", "whether the elements are integers",
            +[](Value* x) { return std::optional(x->type().is_tensor() && kInts.has(x->type().tensor().dtype)); }),
        make("ints", "an integer tensor's elements, where they are known (they may be symbolic)", +ints_of),
        make(
            "number", "the value that every element of a constant has",
            +[](Value* x) -> std::optional<double> {
                if (!x->is_constant() || x->tensor()->elements() == 0) return {};
                double first = x->tensor()->dtype() == DType::string ? NAN : x->tensor()->real_at(0);
                if (each_real(x, [&](double v) { return v == first; }) != true) return {};
                // From 2^53 on, several integers are one double.
                if (!is_float(x->tensor()->dtype()) && std::fabs(first) >= 0x1p53) return {};
                return first;
            }),
        make(
            "positive", "whether every element of a constant is greater than 0",
            +[](Value* x) { return each_real(x, [](double v) { return v > 0; }); }),
        make(
            "non_negative", "whether every element of a constant is at least 0 (and not -0.0)",
            +[](Value* x) { return each_real(x, [](double v) { return v >= 0 && !std::signbit(v); }); }),
        make(
            "invertible", "whether 1/c neither overflows nor loses digits for every element c of a constant",
            +[](Value* x) -> std::optional<bool> {
                if (!is_float(x->type().tensor().dtype)) return false;
                // Below 4/max a number has fewer digits.
                double max = float_max(x->type().tensor().dtype);
                return each_real(x, [&](double v) { return std::fabs(v) >= 1 / max && std::fabs(v) <= max / 4; });
            }),
        make(
            "finite", "whether every element of a constant is finite",
            +[](Value* x) { return each_real(x, [](double v) { return std::isfinite(v); }); }),
        make(
            "power_of_two",
            "whether every element of a constant is a power of two, so that x/c and x*(1/c) are the same",
            +[](Value* x) -> std::optional<bool> {
                // Floats of 8 bits and less do not have the reciprocals of all of theirs.
                if (!x->type().is_tensor() || !kWideFloats.has(x->type().tensor().dtype)) return false;
                return each_real(x, [](double v) {
                    int exponent = 0;
                    return v != 0 && std::isfinite(v) && std::fabs(std::frexp(v, &exponent)) == 0.5 &&
                           std::abs(exponent) < 10;
                });
            }),
        make(
            "all_true", "whether every element of a constant is other than 0",
            +[](Value* x) { return each_real(x, [](double v) { return v != 0; }); }),
        make(
            "all_false", "whether every element of a constant is 0",
            +[](Value* x) { return each_real(x, [](double v) { return v == 0; }); }),
        make(
            "fully_known", "whether every size is a number",
            +[](Value* x) { return std::optional(ranked(x) && shape(x).sizes().has_value()); }),
        make(
            "widens", "whether every value of the first element type is one of the second",
            +[](DType from, DType to) { return std::optional(widens(from, to)); }),
        make(
            "uses", "how often a value is used",
            +[](Value* x) { return std::optional(Expr(static_cast<int64_t>(x->uses().size()))); }),
        make(
            "varies_only_along", "whether x, broadcast to rank n, has sizes other than 1 along one axis only",
            +[](Value* x, Expr axis, Expr n) -> std::optional<bool> {
                auto rank = whole(n);
                auto at = whole(axis);
                if (!ranked(x) || !rank || !at || shape(x).rank() > *rank) return false;
                int64_t missing = *rank - shape(x).rank();
                for (int64_t i = 0; i < shape(x).rank(); ++i)
                    if (i + missing != *at && !shape(x)[i].is_int(1)) return false;
                return true;
            }),
        make(
            "same_dims_after", "whether x keeps its sizes when c is broadcast with it",
            +[](Value* x, Value* c) -> std::optional<bool> {
                if (!ranked(x) || !ranked(c)) return {};
                auto together = broadcast(shape(x), shape(c));
                return together && *together == shape(x);
            }),
        make(
            "heads_agree", "whether q, the transposed k and v are stacks of matrices with equal outer sizes",
            +[](Value* q, Value* k, Value* v) -> std::optional<bool> {
                if (!ranked(q) || !ranked(k) || !ranked(v)) return {};
                auto outer = [](Value* x) { return shape(x).slice(0, shape(x).rank() - 2).dims(); };
                if (shape(q).rank() < 2 || shape(q).rank() != shape(k).rank() || shape(q).rank() != shape(v).rank())
                    return false;
                if (same(outer(q), outer(k)) != true || same(outer(q), outer(v)) != true) return false;
                return same(shape(k)[-1], shape(v)[-2]);
            }),
        make(
            "mask_fits", "whether m broadcasts to the scores of q and the transposed k, its last axis being theirs",
            +[](Value* m, Value* q, Value* k) -> std::optional<bool> {
                if (!ranked(m) || !ranked(q) || !ranked(k) || shape(m).rank() < 2) return false;
                Ints scores = shape(q).slice(0, shape(q).rank() - 1).dims();
                scores.push_back(shape(k)[-1]);
                if (same(shape(m)[-1], shape(k)[-1]) != true) return false;
                return fits(shape(m).dims(), scores);
            }),
        make(
            "fits_into_dims", "whether x broadcasts to these sizes",
            +[](Value* x, Ints d) -> std::optional<bool> {
                if (!ranked(x)) return {};
                return fits(shape(x).dims(), d);
            }),
        make(
            "smaller_than", "whether x has size 1 along an axis where y need not",
            +[](Value* x, Value* y) -> std::optional<bool> {
                if (!ranked(x) || !ranked(y)) return {};
                for (int64_t i = 1; i <= shape(y).rank(); ++i) {
                    bool one = i > shape(x).rank() || shape(x)[-i].is_int(1);
                    if (one && !shape(y)[-i].is_int(1)) return true;
                }
                return false;
            }),
        make(
            "fits_into", "whether x broadcasts to the sizes that y has",
            +[](Value* x, Value* y) -> std::optional<bool> {
                if (!ranked(x) || !ranked(y)) return {};
                return fits(shape(x).dims(), shape(y).dims());
            }),
        make(
            "same_dims", "whether two tensors have the same sizes",
            +[](Value* x, Value* y) -> std::optional<bool> {
                if (!ranked(x) || !ranked(y)) return {};
                return same(shape(x).dims(), shape(y).dims());
            }),
        make(
            "opset", "the version of the default operator set that the model of x is in",
            +[](Value* x) { return std::optional(Expr(int64_t{x->graph().outermost().info().opset})); }),
    };
    RuleFunction known{"const", {TermKind::Tensor}, TermKind::Bool, "whether all of them are constants", {}};
    known.variadic = true;
    known.evaluate = [](const std::vector<RuleValue>& values) -> std::optional<RuleValue> {
        for (const RuleValue& v : values)
            if (auto* x = get<Value*>(v); x && !(*x)->is_constant()) return RuleValue(false);
        return RuleValue(true);
    };
    out.push_back(std::move(known));
    RuleFunction all{"consts", {TermKind::Tensors}, TermKind::Bool, "whether all tensors of a list are constants", {}};
    all.evaluate = [](const std::vector<RuleValue>& values) -> std::optional<RuleValue> {
        auto* xs = get<std::vector<Value*>>(values[0]);
        return RuleValue(xs && std::all_of(xs->begin(), xs->end(), [](Value* x) { return x && x->is_constant(); }));
    };
    out.push_back(std::move(all));
    RuleFunction given{"given", {TermKind::Any}, TermKind::Bool, "whether an optional input or attribute is there", {}};
    given.evaluate = [](const std::vector<RuleValue>& values) -> std::optional<RuleValue> {
        return RuleValue(!std::holds_alternative<std::monostate>(values[0]));
    };
    out.push_back(std::move(given));
    RuleFunction otherwise{"or_else",
                           {TermKind::Ints, TermKind::Ints},
                           TermKind::Ints,
                           "an attribute, or the second list where it is not given",
                           {}};
    otherwise.evaluate = [](const std::vector<RuleValue>& values) -> std::optional<RuleValue> {
        return std::holds_alternative<std::monostate>(values[0]) ? values[1] : values[0];
    };
    out.push_back(std::move(otherwise));
    return out;
}

}  // namespace tessera::functions
