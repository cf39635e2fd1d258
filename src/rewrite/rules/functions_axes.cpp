#include "rewrite/rules/make_function.h"

namespace tessera::functions {

namespace {

// Which of n places the axes name; empty where one is outside or named twice.
std::optional<std::vector<bool>> marked(const Ints& axes, int64_t n) {
    std::vector<bool> out(static_cast<size_t>(n));
    for (const Expr& e : axes) {
        auto at = position(e, static_cast<size_t>(n));
        if (!at || out[*at]) return {};
        out[*at] = true;
    }
    return out;
}

}  // namespace

std::vector<RuleFunction> axes() {
    return {
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
            "moves_only_ones", "whether a permutation of these sizes leaves those that are not 1 in their order",
            +[](Ints p, Ints d) -> std::optional<bool> {
                auto list = permutation(p);
                if (!list || list->size() != d.size()) return {};
                int64_t last = -1;
                for (int64_t i : *list) {
                    if (d[static_cast<size_t>(i)].is_int(1)) continue;
                    if (i < last) return false;
                    last = i;
                }
                return true;
            }),
        make(
            "axes_of_both", "the axes that unsqueeze by a, then by b, adds to a tensor of rank n",
            +[](Ints a, Ints b, Expr n) -> std::optional<Ints> {
                auto rank = whole(n);
                if (!rank) return {};
                int64_t middle = *rank + static_cast<int64_t>(a.size());
                auto inner = marked(a, middle), outer = marked(b, middle + static_cast<int64_t>(b.size()));
                if (!inner || !outer) return {};
                Ints out;
                size_t at = 0;
                for (size_t i = 0; i < outer->size(); ++i) {
                    bool added = (*outer)[i] || (*inner)[at];
                    if (!(*outer)[i]) ++at;
                    if (added) out.push_back(static_cast<int64_t>(i));
                }
                return out;
            }),
        make(
            "squeezed_axes", "the axes that squeeze by a, then by b, takes from a tensor of rank n",
            +[](Ints a, Ints b, Expr n) -> std::optional<Ints> {
                auto rank = whole(n);
                if (!rank || static_cast<int64_t>(a.size()) > *rank) return {};
                auto first = marked(a, *rank), second = marked(b, *rank - static_cast<int64_t>(a.size()));
                if (!first || !second) return {};
                Ints out;
                size_t at = 0;
                for (size_t i = 0; i < first->size(); ++i)
                    if ((*first)[i] || (*second)[at++]) out.push_back(static_cast<int64_t>(i));
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
        make(
            "each_at", "[l[i[0]], l[i[1]], ...]: the axes that these were before a transposition by l",
            +[](Ints l, Ints i) -> std::optional<Ints> {
                Ints out;
                for (const Expr& e : i) {
                    auto at = position(e, l.size());
                    if (!at) return {};
                    out.push_back(l[*at]);
                }
                return out;
            }),
        make(
            "left_over", "how a transposition by p looks once the axes a of its result are gone",
            +[](Ints p, Ints a) -> std::optional<Ints> {
                auto list = permutation(p);
                auto gone = marked(a, static_cast<int64_t>(p.size()));
                if (!list || !gone) return {};
                std::vector<int64_t> kept;
                for (size_t i = 0; i < list->size(); ++i)
                    if (!(*gone)[i]) kept.push_back((*list)[i]);
                std::vector<int64_t> order = kept;
                std::sort(order.begin(), order.end());
                Ints out;
                for (int64_t k : kept) out.push_back(std::lower_bound(order.begin(), order.end(), k) - order.begin());
                return out;
            }),
    };
}

}  // namespace tessera::functions
