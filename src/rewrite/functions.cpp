#include "rewrite/functions.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "expr/simplify.h"

namespace tessera {
namespace {

using Ints = std::vector<Expr>;

template <typename T>
constexpr TermKind kind_of() {
    if constexpr (std::is_same_v<T, Value*>)
        return TermKind::Tensor;
    else if constexpr (std::is_same_v<T, std::vector<Value*>>)
        return TermKind::Tensors;
    else if constexpr (std::is_same_v<T, Expr>)
        return TermKind::Int;
    else if constexpr (std::is_same_v<T, Ints>)
        return TermKind::Ints;
    else if constexpr (std::is_same_v<T, double>)
        return TermKind::Float;
    else if constexpr (std::is_same_v<T, std::vector<double>>)
        return TermKind::Floats;
    else if constexpr (std::is_same_v<T, std::string>)
        return TermKind::String;
    else if constexpr (std::is_same_v<T, bool>)
        return TermKind::Bool;
    else {
        static_assert(std::is_same_v<T, DType>);
        return TermKind::DType;
    }
}

template <typename T>
const T* get(const RuleValue& v) {
    return std::get_if<T>(&v);
}

std::optional<double> real_of(const RuleValue& v) {
    if (auto* d = get<double>(v)) return *d;
    if (auto* e = get<Expr>(v))
        if (auto i = e->as_int()) return static_cast<double>(*i);
    return {};
}

template <typename T>
std::optional<T> argument(const RuleValue& v) {
    if constexpr (std::is_same_v<T, double>) {
        return real_of(v);
    } else {
        const T* found = get<T>(v);
        return found ? std::optional<T>(*found) : std::nullopt;
    }
}

// A function from its C++ form: the kinds follow from the parameter types. Not known where an argument is not given.
template <typename R, typename... Args>
RuleFunction make(std::string name, std::string meaning, std::optional<R> (*f)(Args...)) {
    RuleFunction out{std::move(name), {kind_of<Args>()...}, kind_of<R>(), std::move(meaning), {}};
    out.evaluate = [f](const std::vector<RuleValue>& values) -> std::optional<RuleValue> {
        return [&]<size_t... I>(std::index_sequence<I...>)->std::optional<RuleValue> {
            std::tuple<std::optional<Args>...> args{argument<Args>(values[I])...};
            if (!(std::get<I>(args).has_value() && ...)) return std::nullopt;
            std::optional<R> result = f(*std::get<I>(args)...);
            if (!result) return std::nullopt;
            return RuleValue(std::move(*result));
        }
        (std::index_sequence_for<Args...>());
    };
    return out;
}

std::optional<int64_t> whole(const Expr& e) { return e.as_int(); }

std::optional<std::vector<int64_t>> whole(const Ints& list) {
    std::vector<int64_t> out;
    for (const Expr& e : list) {
        auto i = e.as_int();
        if (!i) return {};
        out.push_back(*i);
    }
    return out;
}

Ints exprs(const std::vector<int64_t>& list) { return Ints(list.begin(), list.end()); }

bool ranked(const Value* v) { return v->type().is_tensor() && v->type().tensor().shape.ranked(); }
const Shape& shape(const Value* v) { return v->type().tensor().shape; }

std::optional<Ints> ints_of(Value* v) {
    if (v->contents()) return *v->contents();
    if (v->is_constant() && kInts.has(v->tensor()->dtype()) && v->tensor()->elements() <= 4096)
        return exprs(v->tensor()->to_ints());
    return {};
}

// Whether a == b is certain; empty where it depends on sizes.
std::optional<bool> same(const Expr& a, const Expr& b) {
    if (a == b) return true;
    Bounds difference = bounds(a - b);
    if ((difference.low && *difference.low > 0) || (difference.high && *difference.high < 0)) return false;
    return {};
}

std::optional<bool> less(const Expr& a, const Expr& b) {
    Bounds difference = bounds(a - b);
    if (difference.high && *difference.high < 0) return true;
    if (difference.low && *difference.low >= 0) return false;
    return {};
}

std::optional<bool> negate(std::optional<bool> b) { return b ? std::optional<bool>(!*b) : b; }

std::optional<bool> same(const Ints& a, const Ints& b) {
    if (a.size() != b.size()) return false;
    bool known = true;
    for (size_t i = 0; i < a.size(); ++i) {
        std::optional<bool> one = same(a[i], b[i]);
        if (one == false) return false;
        known &= one.has_value();
    }
    return known ? std::optional<bool>(true) : std::nullopt;
}

std::optional<std::vector<int64_t>> permutation(const Ints& p) {
    auto list = whole(p);
    if (!list) return {};
    std::vector<bool> seen(list->size());
    for (int64_t i : *list) {
        if (i < 0 || i >= static_cast<int64_t>(seen.size()) || seen[static_cast<size_t>(i)]) return {};
        seen[static_cast<size_t>(i)] = true;
    }
    return list;
}

std::optional<size_t> position(const Expr& index, size_t size) {
    auto i = whole(index);
    if (!i) return {};
    if (*i < 0) *i += static_cast<int64_t>(size);
    if (*i < 0 || *i >= static_cast<int64_t>(size)) return {};
    return static_cast<size_t>(*i);
}

template <typename F>
std::optional<Ints> zip(const Ints& a, const Ints& b, F f) {
    if (a.size() != b.size()) return {};
    Ints out;
    for (size_t i = 0; i < a.size(); ++i) out.push_back(f(a[i], b[i]));
    return out;
}

template <typename F>
std::optional<bool> each_real(Value* v, F f) {
    if (!v->is_constant() || v->tensor()->dtype() == DType::string || kComplex.has(v->tensor()->dtype())) return {};
    for (int64_t i = 0; i < v->tensor()->elements(); ++i)
        if (!f(v->tensor()->real_at(i))) return false;
    return true;
}

std::vector<RuleFunction> arithmetic() {
    return {
        make(
            "+", "the sum", +[](Expr a, Expr b) { return std::optional(a + b); }),
        make(
            "+", "the sum", +[](double a, double b) { return std::optional(a + b); }),
        make(
            "+", "element by element",
            +[](Ints a, Ints b) { return zip(a, b, [](auto& x, auto& y) { return x + y; }); }),
        make(
            "-", "the difference", +[](Expr a, Expr b) { return std::optional(a - b); }),
        make(
            "-", "the difference", +[](double a, double b) { return std::optional(a - b); }),
        make(
            "-", "element by element",
            +[](Ints a, Ints b) { return zip(a, b, [](auto& x, auto& y) { return x - y; }); }),
        make(
            "*", "the product", +[](Expr a, Expr b) { return std::optional(a * b); }),
        make(
            "*", "the product", +[](double a, double b) { return std::optional(a * b); }),
        make(
            "*", "element by element",
            +[](Ints a, Ints b) { return zip(a, b, [](auto& x, auto& y) { return x * y; }); }),
        make(
            "/", "the quotient, rounded down; not known for 0",
            +[](Expr a, Expr b) -> std::optional<Expr> {
                if (same(b, Expr(0)) != false) return {};
                return floor_div(a, b);
            }),
        make(
            "/", "the quotient", +[](double a, double b) { return std::optional(a / b); }),
        make(
            "%", "what the division leaves",
            +[](Expr a, Expr b) -> std::optional<Expr> {
                if (same(b, Expr(0)) != false) return {};
                return mod(a, b);
            }),
        make(
            "negate", "-a", +[](Expr a) { return std::optional(Expr(0) - a); }),
        make(
            "negate", "-a", +[](double a) { return std::optional(-a); }),
        make(
            "==", "equal for all sizes", +[](Expr a, Expr b) { return same(a, b); }),
        make(
            "==", "equal for all sizes", +[](Ints a, Ints b) { return same(a, b); }),
        make(
            "==", "equal", +[](double a, double b) { return std::optional(a == b); }),
        make(
            "==", "equal", +[](std::string a, std::string b) { return std::optional(a == b); }),
        make(
            "==", "equal", +[](DType a, DType b) { return std::optional(a == b); }),
        make(
            "==", "the same value", +[](Value* a, Value* b) { return std::optional(a == b); }),
        make(
            "==", "both true or both false", +[](bool a, bool b) { return std::optional(a == b); }),
        make(
            "!=", "different for all sizes", +[](Expr a, Expr b) { return negate(same(a, b)); }),
        make(
            "!=", "different for all sizes", +[](Ints a, Ints b) { return negate(same(a, b)); }),
        make(
            "!=", "different", +[](double a, double b) { return std::optional(a != b); }),
        make(
            "!=", "different", +[](std::string a, std::string b) { return std::optional(a != b); }),
        make(
            "!=", "different", +[](DType a, DType b) { return std::optional(a != b); }),
        make(
            "!=", "not the same value", +[](Value* a, Value* b) { return std::optional(a != b); }),
        make(
            "<", "less for all sizes", +[](Expr a, Expr b) { return less(a, b); }),
        make(
            "<", "less", +[](double a, double b) { return std::optional(a < b); }),
        make(
            "<=", "at most, for all sizes", +[](Expr a, Expr b) { return negate(less(b, a)); }),
        make(
            "<=", "at most", +[](double a, double b) { return std::optional(a <= b); }),
        make(
            ">", "greater for all sizes", +[](Expr a, Expr b) { return less(b, a); }),
        make(
            ">", "greater", +[](double a, double b) { return std::optional(a > b); }),
        make(
            ">=", "at least, for all sizes", +[](Expr a, Expr b) { return negate(less(a, b)); }),
        make(
            ">=", "at least", +[](double a, double b) { return std::optional(a >= b); }),
        make(
            "not", "the opposite", +[](bool a) { return std::optional(!a); }),
        make(
            "and", "both", +[](bool a, bool b) { return std::optional(a && b); }),
        make(
            "or", "one or both", +[](bool a, bool b) { return std::optional(a || b); }),
        make(
            "smaller", "the lesser of two", +[](Expr a, Expr b) { return std::optional(min(a, b)); }),
        make(
            "larger", "the greater of two", +[](Expr a, Expr b) { return std::optional(max(a, b)); }),
        make(
            "smaller", "the lesser of two", +[](double a, double b) { return std::optional(std::fmin(a, b)); }),
        make(
            "larger", "the greater of two", +[](double a, double b) { return std::optional(std::fmax(a, b)); }),
        make(
            "square_root", "of a float", +[](double a) { return std::optional(std::sqrt(a)); }),
    };
}

std::vector<RuleFunction> lists() {
    return {
        make(
            "at", "list[i]; a negative i counts from the end",
            +[](Ints l, Expr i) -> std::optional<Expr> {
                auto at = position(i, l.size());
                if (!at) return {};
                return l[*at];
            }),
        make(
            "length", "how many elements", +[](Ints l) { return std::optional(Expr(static_cast<int64_t>(l.size()))); }),
        make(
            "length", "how many tensors",
            +[](std::vector<Value*> l) { return std::optional(Expr(static_cast<int64_t>(l.size()))); }),
        make(
            "join", "one list after the other",
            +[](Ints a, Ints b) {
                a.insert(a.end(), b.begin(), b.end());
                return std::optional(a);
            }),
        make(
            "take", "the first n elements; all but the last -n where n is negative",
            +[](Ints l, Expr n) -> std::optional<Ints> {
                auto count = whole(n);
                if (!count) return {};
                if (*count < 0) *count += static_cast<int64_t>(l.size());
                if (*count < 0 || *count > static_cast<int64_t>(l.size())) return {};
                l.resize(static_cast<size_t>(*count));
                return l;
            }),
        make(
            "drop", "all but the first n elements; the last -n where n is negative",
            +[](Ints l, Expr n) -> std::optional<Ints> {
                auto count = whole(n);
                if (!count) return {};
                if (*count < 0) *count += static_cast<int64_t>(l.size());
                if (*count < 0 || *count > static_cast<int64_t>(l.size())) return {};
                l.erase(l.begin(), l.begin() + *count);
                return l;
            }),
        make(
            "set_at", "the list with element i replaced",
            +[](Ints l, Expr i, Expr v) -> std::optional<Ints> {
                auto at = position(i, l.size());
                if (!at) return {};
                l[*at] = v;
                return l;
            }),
        make(
            "repeat", "n times the same element",
            +[](Expr v, Expr n) -> std::optional<Ints> {
                auto count = whole(n);
                if (!count || *count < 0 || *count > 1000) return {};
                return Ints(static_cast<size_t>(*count), v);
            }),
        make(
            "range", "[0, 1, ..., n-1]",
            +[](Expr n) -> std::optional<Ints> {
                auto count = whole(n);
                if (!count || *count < 0 || *count > 1000) return {};
                Ints out;
                for (int64_t i = 0; i < *count; ++i) out.push_back(i);
                return out;
            }),
        make(
            "sum_of", "the sum of the elements",
            +[](Ints l) {
                Expr s = 0;
                for (const Expr& e : l) s = s + e;
                return std::optional(s);
            }),
        make(
            "product_of", "the product of the elements",
            +[](Ints l) {
                Expr p = 1;
                for (const Expr& e : l) p = p * e;
                return std::optional(p);
            }),
        make(
            "contains", "whether an element is certainly in the list",
            +[](Ints l, Expr v) -> std::optional<bool> {
                bool known = true;
                for (const Expr& e : l) {
                    std::optional<bool> one = same(e, v);
                    if (one == true) return true;
                    known &= one.has_value();
                }
                return known ? std::optional<bool>(false) : std::nullopt;
            }),
        make(
            "all_equal", "whether every element is v", +[](Ints l, Expr v) { return same(l, Ints(l.size(), v)); }),
        make(
            "all_known", "whether every element is a number",
            +[](Ints l) { return std::optional(whole(l).has_value()); }),
        make(
            "sorted", "the elements in ascending order",
            +[](Ints l) -> std::optional<Ints> {
                auto list = whole(l);
                if (!list) return {};
                std::sort(list->begin(), list->end());
                return exprs(*list);
            }),
        make(
            "consecutive", "whether each element is one more than the one before",
            +[](Ints l) -> std::optional<bool> {
                auto list = whole(l);
                if (!list) return {};
                for (size_t i = 1; i < list->size(); ++i)
                    if ((*list)[i] != (*list)[i - 1] + 1) return false;
                return true;
            }),
        make(
            "axis_in", "an axis of a tensor of rank n, made non-negative",
            +[](Expr a, Expr n) -> std::optional<Expr> {
                auto rank = whole(n);
                if (!rank) return {};
                auto at = position(a, static_cast<size_t>(*rank));
                if (!at) return {};
                return Expr(static_cast<int64_t>(*at));
            }),
        make(
            "axes_in", "axes of a tensor of rank n, made non-negative and put in order",
            +[](Ints l, Expr n) -> std::optional<Ints> {
                auto rank = whole(n);
                if (!rank) return {};
                std::vector<int64_t> out;
                for (const Expr& e : l) {
                    auto at = position(e, static_cast<size_t>(*rank));
                    if (!at) return {};
                    out.push_back(static_cast<int64_t>(*at));
                }
                std::sort(out.begin(), out.end());
                return exprs(out);
            }),
        make(
            "axes_after", "the axes (of rank n) that are not in the list, in order",
            +[](Ints l, Expr n) -> std::optional<Ints> {
                auto rank = whole(n);
                auto gone = whole(l);
                if (!rank || !gone) return {};
                Ints out;
                for (int64_t i = 0; i < *rank; ++i)
                    if (std::find(gone->begin(), gone->end(), i) == gone->end()) out.push_back(i);
                return out;
            }),
        make(
            "is_permutation", "whether it has each of 0 ... n-1 once",
            +[](Ints p) { return std::optional(permutation(p).has_value()); }),
        make(
            "is_identity", "whether a permutation changes nothing",
            +[](Ints p) -> std::optional<bool> {
                auto list = permutation(p);
                if (!list) return {};
                return std::is_sorted(list->begin(), list->end());
            }),
        make(
            "inverse", "the permutation that undoes p",
            +[](Ints p) -> std::optional<Ints> {
                auto list = permutation(p);
                if (!list) return {};
                Ints out(list->size());
                for (size_t i = 0; i < list->size(); ++i)
                    out[static_cast<size_t>((*list)[i])] = static_cast<int64_t>(i);
                return out;
            }),
        make(
            "permute", "[l[p[0]], l[p[1]], ...]: a transposed tensor's sizes; of two permutations, first l then p",
            +[](Ints l, Ints p) -> std::optional<Ints> {
                auto list = permutation(p);
                if (!list || list->size() != l.size()) return {};
                Ints out;
                for (int64_t i : *list) out.push_back(l[static_cast<size_t>(i)]);
                return out;
            }),
        make(
            "swaps_last", "the permutation that exchanges the last two of n axes",
            +[](Expr n) -> std::optional<Ints> {
                auto rank = whole(n);
                if (!rank || *rank < 2 || *rank > 1000) return {};
                Ints out;
                for (int64_t i = 0; i < *rank; ++i) out.push_back(i);
                std::swap(out[out.size() - 1], out[out.size() - 2]);
                return out;
            }),
        make(
            "reshape_dims", "sizes as reshape takes them: one that is not known becomes -1",
            +[](Ints l) -> std::optional<Ints> {
                bool open = false;
                for (Expr& e : l) {
                    if (e.as_int()) {
                        if (e.is_int(0)) return {};
                        continue;
                    }
                    if (open) return {};
                    open = true;
                    e = -1;
                }
                return l;
            }),
    };
}

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
                return first;
            }),
        make(
            "positive", "whether every element of a constant is greater than 0",
            +[](Value* x) { return each_real(x, [](double v) { return v > 0; }); }),
        make(
            "non_negative", "whether every element of a constant is at least 0 (and not -0.0)",
            +[](Value* x) { return each_real(x, [](double v) { return v >= 0 && !std::signbit(v); }); }),
        make(
            "regular", "whether every element of a constant is finite and not 0",
            +[](Value* x) { return each_real(x, [](double v) { return std::isfinite(v) && v != 0; }); }),
        make(
            "finite", "whether every element of a constant is finite",
            +[](Value* x) { return each_real(x, [](double v) { return std::isfinite(v); }); }),
        make(
            "power_of_two",
            "whether every element of a constant is a power of two, so that x/c and x*(1/c) are the same",
            +[](Value* x) {
                return each_real(x, [](double v) {
                    int exponent = 0;
                    return v != 0 && std::isfinite(v) && std::fabs(std::frexp(v, &exponent)) == 0.5 &&
                           std::abs(exponent) < 10;
                });
            }),
        make(
            "uses", "how often a value is used",
            +[](Value* x) { return std::optional(Expr(static_cast<int64_t>(x->uses().size()))); }),
        make(
            "fits_into", "whether x broadcasts to the sizes that y has",
            +[](Value* x, Value* y) -> std::optional<bool> {
                if (!ranked(x) || !ranked(y)) return {};
                if (shape(x).rank() > shape(y).rank()) return false;
                for (int64_t i = 1; i <= shape(x).rank(); ++i) {
                    if (shape(x)[-i].is_int(1)) continue;
                    std::optional<bool> one = same(shape(x)[-i], shape(y)[-i]);
                    if (one != true) return one;
                }
                return true;
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
    return out;
}

}  // namespace

const std::vector<RuleFunction>& rule_functions() {
    static const std::vector<RuleFunction> all = [] {
        std::vector<RuleFunction> out = arithmetic();
        for (auto& part : {lists(), tensors()}) out.insert(out.end(), part.begin(), part.end());
        return out;
    }();
    return all;
}

std::vector<const RuleFunction*> find_rule_functions(std::string_view name) {
    std::vector<const RuleFunction*> found;
    for (const RuleFunction& f : rule_functions())
        if (f.name == name) found.push_back(&f);
    return found;
}

}  // namespace tessera
