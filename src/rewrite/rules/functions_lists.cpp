#include "rewrite/rules/make_function.h"

namespace tessera::functions {
namespace {

// Where a list is cut behind its first n elements, or before its last -n.
std::optional<int64_t> cut(const Ints& list, const Expr& n) {
    auto size = static_cast<int64_t>(list.size());
    auto at = whole(n);
    if (at && *at < 0) *at += size;
    if (!at || *at < 0 || *at > size) return {};
    return at;
}

}  // namespace

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
                auto at = cut(l, n);
                if (!at) return {};
                l.resize(static_cast<size_t>(*at));
                return l;
            }),
        make(
            "drop", "all but the first n elements; the last -n where n is negative",
            +[](Ints l, Expr n) -> std::optional<Ints> {
                auto at = cut(l, n);
                if (!at) return {};
                l.erase(l.begin(), l.begin() + *at);
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
            "up_to", "[0, 1, ..., n-1]",
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
            "disjoint", "whether two lists certainly have no element in common",
            +[](Ints a, Ints b) -> std::optional<bool> {
                auto first = whole(a), second = whole(b);
                if (!first || !second) return {};
                for (int64_t i : *first)
                    if (std::find(second->begin(), second->end(), i) != second->end()) return false;
                return true;
            }),
        make(
            "all_at_least", "whether every element is v or more",
            +[](Ints l, Expr v) -> std::optional<bool> {
                for (const Expr& e : l) {
                    std::optional<bool> below = less(e, v);
                    if (below != false) return negate(below);
                }
                return true;
            }),
        make(
            "covers", "whether the ends of a slice reach the ends of these sizes",
            +[](Ints ends, Ints d) -> std::optional<bool> {
                if (ends.size() != d.size()) return false;
                for (size_t i = 0; i < d.size(); ++i) {
                    std::optional<bool> before = less(ends[i], d[i]);
                    if (before != false) return negate(before);
                }
                return true;
            }),
        make(
            "choose", "the first list where the condition holds, else the second",
            +[](bool c, Ints a, Ints b) { return std::optional(c ? a : b); }),
        make(
            "all_below", "whether each element is certainly less than that of the other list",
            +[](Ints a, Ints b) -> std::optional<bool> {
                if (a.size() != b.size()) return false;
                for (size_t i = 0; i < a.size(); ++i) {
                    std::optional<bool> below = less(a[i], b[i]);
                    if (below != true) return below;
                }
                return true;
            }),
        make(
            "choose", "the first integer where the condition holds, else the second",
            +[](bool c, Expr a, Expr b) { return std::optional(c ? a : b); }),
    };
}

}  // namespace tessera::functions
