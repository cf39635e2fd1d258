// How the named functions are made out of plain C++ ones, and what several of them need.
#pragma once

#include <algorithm>
#include <cmath>
#include <tuple>

#include "rewrite/rules/functions.h"

namespace tessera::functions {

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

inline std::optional<double> real_of(const RuleValue& v) {
    if (auto* d = get<double>(v)) return *d;
    if (auto* e = get<Expr>(v))
        if (auto i = e->as_int()) return static_cast<double>(*i);
    return {};
}

template <typename T>
inline std::optional<T> argument(const RuleValue& v) {
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

inline std::optional<int64_t> whole(const Expr& e) { return e.as_int(); }

inline std::optional<std::vector<int64_t>> whole(const Ints& list) { return numbers_of(list); }

inline Ints exprs(const std::vector<int64_t>& list) { return Ints(list.begin(), list.end()); }

inline bool ranked(const Value* v) { return v->type().is_tensor() && v->type().tensor().shape.ranked(); }
inline const Shape& shape(const Value* v) { return v->type().tensor().shape; }

inline std::optional<Ints> ints_of(Value* v) {
    if (v->contents()) return *v->contents();
    if (v->is_constant() && kInts.has(v->tensor()->dtype()) && v->tensor()->elements() <= 4096)
        return exprs(v->tensor()->to_ints());
    return {};
}

// Whether a == b is certain; empty where it depends on sizes.
inline std::optional<bool> same(const Expr& a, const Expr& b) {
    if (a == b) return true;
    Bounds difference = bounds(a - b);
    if ((difference.low && *difference.low > 0) || (difference.high && *difference.high < 0)) return false;
    return {};
}

inline std::optional<bool> less(const Expr& a, const Expr& b) {
    Bounds difference = bounds(a - b);
    if (difference.high && *difference.high < 0) return true;
    if (difference.low && *difference.low >= 0) return false;
    return {};
}

inline std::optional<bool> negate(std::optional<bool> b) { return b ? std::optional<bool>(!*b) : b; }

inline std::optional<bool> same(const Ints& a, const Ints& b) {
    if (a.size() != b.size()) return false;
    bool known = true;
    for (size_t i = 0; i < a.size(); ++i) {
        std::optional<bool> one = same(a[i], b[i]);
        if (one == false) return false;
        known &= one.has_value();
    }
    return known ? std::optional<bool>(true) : std::nullopt;
}

inline std::optional<std::vector<int64_t>> permutation(const Ints& p) {
    auto list = whole(p);
    if (!list) return {};
    std::vector<bool> seen(list->size());
    for (int64_t i : *list) {
        if (i < 0 || i >= static_cast<int64_t>(seen.size()) || seen[static_cast<size_t>(i)]) return {};
        seen[static_cast<size_t>(i)] = true;
    }
    return list;
}

inline std::optional<size_t> position(const Expr& index, size_t size) {
    auto i = whole(index);
    if (!i) return {};
    if (*i < 0) *i += static_cast<int64_t>(size);
    if (*i < 0 || *i >= static_cast<int64_t>(size)) return {};
    return static_cast<size_t>(*i);
}

template <typename F>
inline std::optional<Ints> zip(const Ints& a, const Ints& b, F f) {
    if (a.size() != b.size()) return {};
    Ints out;
    for (size_t i = 0; i < a.size(); ++i) out.push_back(f(a[i], b[i]));
    return out;
}

template <typename F>
inline std::optional<bool> each_real(Value* v, F f) {
    if (!v->is_constant() || v->tensor()->dtype() == DType::string || kComplex.has(v->tensor()->dtype())) return {};
    for (int64_t i = 0; i < v->tensor()->elements(); ++i)
        if (!f(v->tensor()->real_at(i))) return false;
    return true;
}

// The parts of the table, each from one file.
std::vector<RuleFunction> arithmetic();
std::vector<RuleFunction> lists();
std::vector<RuleFunction> axes();
std::vector<RuleFunction> tensors();
std::vector<RuleFunction> einsum();

}  // namespace tessera::functions
