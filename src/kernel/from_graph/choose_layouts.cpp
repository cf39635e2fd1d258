#include "kernel/from_graph/choose_layouts.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tessera {
namespace {

std::vector<int> plain_order(size_t rank) {
    std::vector<int> order(rank);
    std::iota(order.begin(), order.end(), 0);
    return order;
}

std::vector<int> channels_last(size_t rank) {
    std::vector<int> order = {0};
    for (size_t d = 2; d < rank; ++d) order.push_back(int(d));
    order.push_back(1);
    return order;
}

// Whether its output may lie as its inputs do.
bool follows(const Node& node) { return node.is(Trait::Elementwise) || node.op().layout == Layout::AsInputs; }

class Choosing {
  public:
    explicit Choosing(const Definitions& all) : all_(all), fixed_(all.list.size()) {
        for (const Definition& d : all.list) made_.order.push_back(plain_order(d.shape.size()));
        for (int n : all.outputs) fixed_[size_t(n)] = true;
        for (const HostNode& h : all.hosts) {
            for (const auto* list : {&h.inputs, &h.captured})
                for (int n : *list)
                    if (n >= 0) fixed_[size_t(n)] = true;
        }
        for (size_t i = 0; i < all.list.size(); ++i)
            if (all.list[i].kind == Definition::Kind::Given) fixed_[i] = true;
    }

    Layouts run(bool free) {
        for (size_t i = 0; i < all_.list.size() && free; ++i) choose(int(i));
        if (free) lie_as_read();
        for (size_t i = all_.list.size(); i-- > 0;) order_parts(int(i));
        return std::move(made_);
    }

  private:
    const Definition& def(int n) const { return all_.list[size_t(n)]; }

    bool is_channels_last(int n) const {
        const size_t rank = def(n).shape.size();
        return rank >= 3 && made_.order[size_t(n)] == channels_last(rank);
    }

    void choose(int n) {
        const Definition& d = def(n);
        const size_t rank = d.shape.size();
        if (!d.value || !d.node || fixed_[size_t(n)] || rank < 3 || rank > 5) return;
        if (d.node->op().layout == Layout::ChannelsLast) {
            if (stays_plain(d)) return;
            made_.order[size_t(n)] = channels_last(rank);
            note(n, yes("{} takes all channels of a place at once, so that {} lie side by side", d.node->op().name,
                        to_string(d.shape[1])));
            return;
        }
        if (!follows(*d.node)) return;
        for (const Value* v : d.node->inputs()) {
            if (!v) continue;
            auto found = all_.numbers.find(v);
            if (found == all_.numbers.end() || !is_channels_last(found->second)) continue;
            if (is_point(found->second)) continue;
            if (def(found->second).shape.size() != rank && !keeps_channels_last(n, found->second)) continue;
            made_.order[size_t(n)] = channels_last(rank);
            note(n, yes("as {}, from which it is computed", v->name()));
            return;
        }
        const auto& uses = d.value->uses();
        auto in_tiles = [](const Use& use) { return use.node && use.node->op().input_layout == Layout::ChannelsLast; };
        if (uses.empty() || !std::all_of(uses.begin(), uses.end(), in_tiles)) return;
        made_.order[size_t(n)] = channels_last(rank);
        note(n, yes("its tiles are transformed for all channels of a place at once"));
    }

    // Whether the axes that a reduction keeps are in memory, in the order of its input, with the channels innermost.
    bool keeps_channels_last(int n, int from) const {
        const Definition& d = def(n);
        if (!d.has_body()) return false;
        std::vector<int> kept;
        auto keep = [&](const Expr& load, const std::vector<Expr>& vars, const std::function<int(size_t)>& axis_at) {
            std::vector<int> order;
            for (int k : made_.order[size_t(from)])
                if (auto axis = axis_of(vars, load.arg(size_t(k)))) order.push_back(axis_at(*axis));
            if (kept.empty()) kept = std::move(order);
        };
        const std::vector<Expr> vars = index_vars(d.shape);
        visit(d.body, [&](const Expr& e) {
            if (!e.is(ExprKind::Load)) return;
            const Definition& part = def(e.node().slot);
            if (e.node().slot == from) keep(e, vars, [](size_t axis) { return int(axis); });
            if (e.node().slot == from || part.value || !part.has_body()) return;
            const Expr outer = e;
            visit(part.body, [&](const Expr& x) {
                if (!x.is(ExprKind::Load) || x.node().slot != from) return;
                keep(x, index_vars(part.shape), [&](size_t axis) {
                    auto own = axis_of(vars, outer.arg(axis));
                    return own ? int(*own) : -1;
                });
            });
        });
        for (int axis : kept)
            if (axis < 0) return false;
        for (size_t axis = 0; axis < d.shape.size(); ++axis)
            if (std::count(kept.begin(), kept.end(), int(axis)) == 0) {
                if (!d.shape[axis].is_int(1)) return false;
                kept.insert(kept.begin(), int(axis));
            }
        return kept.size() == d.shape.size() && same_memory(d.shape, kept, channels_last(d.shape.size()));
    }

    // Whether what a definition reads of another lies with its own channels innermost, under any shape.
    bool reads_channels_last(const Definition& d, int from) const {
        if (is_channels_last(from)) return true;
        if (!d.has_body()) return false;
        const std::vector<Expr> vars = index_vars(d.shape);
        const std::vector<int>& order = made_.order[size_t(from)];
        bool read = false, all = !order.empty();
        visit(d.body, [&](const Expr& e) {
            if (!e.is(ExprKind::Load) || e.node().slot != from) return;
            read = true;
            all = all && axis_of(vars, e.arg(size_t(order.back()))) == size_t(1);
        });
        return read && all;
    }

    // What a value may go through on its way out, and ops that follow their inputs besides.
    enum class Through { Nothing, Pools, OneProduct, SmallProducts };

    // What comes in ONNX's order and leaves in it, changed on the way by nothing but ops that follow their inputs, is
    // not transposed twice; nor what is pooled, with other pools on the way, or resized, with one product behind it, or
    // goes through a few small products.
    bool stays_plain(const Definition& d) const {
        const Value* x = d.node->inputs().empty() ? nullptr : d.node->inputs()[0];
        auto found = all_.numbers.find(x);
        if (found == all_.numbers.end() || reads_channels_last(d, found->second)) return false;
        return leaves(*d.value, pools(*d.node)              ? Through::Pools
                                : is_small_product(*d.node) ? Through::SmallProducts
                                : d.node->is(Trait::Window) ? Through::Nothing
                                                            : Through::OneProduct);
    }

    static bool pools(const Node& node) { return node.is(Trait::Window) && node.inputs().size() == 1; }

    // Everything of a channel at once: one place is left of it.
    static bool pools_all(const Node& node) {
        if (node.output_count() != 1 || !node.output()->type().is_tensor()) return false;
        const Shape& y = node.output()->type().tensor().shape;
        bool all = y.rank() >= 3;
        for (int64_t d = 2; d < y.rank(); ++d) all &= y[d].is_int(1);
        return all;
    }

    static bool is_one(const Expr& e) { return e.is_int(1); }

    // What is computed as well from lines one after the other as from channels side by side: few channels of long
    // lines, each channel by itself, or products of all channels of a place with the one at the same place.
    static bool is_small_product(const Node& node) {
        constexpr int64_t kFewChannels = 64, kSomeChannels = 256, kLongLine = 24, kShortLine = 8;
        constexpr int64_t kWorthPacking = 5, kFewTaps = 192;  // of results and of windows in lines of open size
        if (!node.is(Trait::Window) || pools(node) || node.output_count() != 1 || !node.input(1)) return false;
        const Type &from = node.input(0)->type(), &type = node.output()->type(), &weights = node.input(1)->type();
        if (!from.is_tensor() || !type.is_tensor() || !weights.is_tensor()) return false;
        const Shape &x = from.tensor().shape, &y = type.tensor().shape, &w = weights.tensor().shape;
        const auto rank = y.rank();
        if ((rank != 3 && rank != 4) || w.rank() != rank || x.rank() != rank) return false;
        auto all_one = [&](const Shape& shape) {
            for (int64_t d = 2; d < rank; ++d)
                if (!is_one(shape[d])) return false;
            return true;
        };
        if (all_one(y)) return true;  // the same memory either way
        if (!y[1].as_int() || !w[1].as_int()) return false;
        const int64_t line = y[rank - 1].as_int().value_or(kLongLine);
        int64_t places = line;
        for (int64_t d = 2; d + 1 < rank; ++d) places *= y[d].as_int().value_or(kLongLine);
        const int64_t most = std::max(*y[1].as_int(), *w[1].as_int());
        int64_t taps = *w[1].as_int();
        for (int64_t d = 2; d < rank; ++d) taps *= w[d].as_int().value_or(kFewTaps + 1);
        const bool halved = node.attrs().contains("halvings");  // by places, which are rows then
        const bool pointwise = all_one(w) && x[rank - 1] == y[rank - 1] && !halved;
        if (is_one(w[1]) && line >= kShortLine) return true;
        if (pointwise && most <= kSomeChannels && places >= kLongLine) return true;
        return line >= kLongLine && most <= kSomeChannels &&
               *y[1].as_int() * *w[1].as_int() <= kFewChannels * kFewChannels &&
               (y[rank - 1].as_int() || *y[1].as_int() >= kWorthPacking || taps <= kFewTaps);
    }

    // Not one of which only the sizes are read.
    bool reads_elements(const Node& node, const Value& v) const {
        auto number = all_.numbers.find(&v);
        if (number == all_.numbers.end()) return true;
        for (size_t i = 0; i < node.output_count(); ++i) {
            auto own = all_.numbers.find(node.output(i));
            if (own == all_.numbers.end()) continue;
            const Definition& d = def(own->second);
            bool reads = !d.has_body();
            if (!reads)
                visit(d.body, [&](const Expr& e) {
                    reads |= e.is(ExprKind::Load) && (e.node().slot == number->second || !def(e.node().slot).value);
                });
            if (reads) return true;
        }
        return false;
    }

    bool leaves(const Value& v, Through through) const {
        int left = 64;  // uses to look at: values that are used several times are met again and again
        return leaves(v, through, 0, left);
    }

    bool leaves(const Value& v, Through through, int depth, int& left) const {
        constexpr int kMostSteps = 16;
        auto goes_out = [&](const Use& use) {
            if (!use.node) return true;
            const Node& node = *use.node;
            if (!reads_elements(node, v)) return true;
            if (depth == kMostSteps || --left < 0 || node.output_count() != 1) return false;
            const bool moves = !node.is(Trait::Window) && node.op().layout == Layout::ChannelsLast;
            const bool multiplies = node.is(Trait::Window) && !pools(node);
            if (through == Through::OneProduct && multiplies)
                return leaves(*node.output(), Through::Nothing, depth + 1, left);
            const bool small = through == Through::SmallProducts && (is_small_product(node) || pools_all(node));
            return (follows(node) || moves || small || (through == Through::Pools && pools(node))) &&
                   leaves(*node.output(), through, depth + 1, left);
        };
        return !v.uses().empty() && std::all_of(v.uses().begin(), v.uses().end(), goes_out);
    }

    // One place for each channel: the same memory either way.
    bool is_point(int n) const {
        const Definition& d = def(n);
        return same_memory(d.shape, made_.order[size_t(n)], plain_order(d.shape.size()));
    }

    void note(int n, Decision decision) {
        made_.choices.push_back({fmt::format("channels of {} innermost", def(n).value->name()), std::move(decision)});
    }

    // A value that nothing reads but transposes, all the same, lies as they want it.
    void lie_as_read() {
        for (size_t i = 0; i < all_.list.size(); ++i) {
            const Definition& d = all_.list[i];
            if (!d.value || !d.node || fixed_[i] || !d.has_body() || is_channels_last(int(i))) continue;
            if (d.node->op().permutation) continue;
            std::optional<std::vector<int>> wanted;
            bool agreed = true;
            for (const Use& use : d.value->uses()) {
                auto perm = use.node ? permutation(*use.node) : std::nullopt;
                agreed &= perm && (!wanted || *wanted == *perm);
                wanted = perm;
            }
            if (!agreed || !wanted || same_memory(d.shape, *wanted, made_.order[i])) continue;
            if (d.shape.empty() || wanted->back() != int(d.shape.size()) - 1) continue;  // what is contiguous stays so
            made_.order[i] = *wanted;
            made_.choices.push_back(
                {fmt::format("{} transposed", d.value->name()), yes("everything that reads it transposes it")});
        }
    }

    static std::optional<std::vector<int>> permutation(const Node& node) {
        if (!node.op().permutation) return std::nullopt;
        const std::vector<int64_t> perm = node.op().permutation(node.view());
        return std::vector<int>(perm.begin(), perm.end());
    }

    // What is a part of a definition lies as it does: a part of a joined one, a reduction by the axes that they share.
    void order_parts(int n) {
        const Definition& d = def(n);
        if (d.kind == Definition::Kind::Joined)
            for (int p : d.parts) made_.order[size_t(p)] = made_.order[size_t(n)];
        if (!d.has_body()) return;
        const std::vector<Expr> vars = index_vars(d.shape);
        std::vector<int> place(d.shape.size());  // of an axis in memory
        for (size_t k = 0; k < place.size(); ++k) place[size_t(made_.order[size_t(n)][k])] = int(k);
        visit(d.body, [&](const Expr& e) {
            if (!e.is(ExprKind::Load) || def(e.node().slot).value || !def(e.node().slot).has_body()) return;
            std::vector<int>& order = made_.order[size_t(e.node().slot)];
            auto key = [&](int axis) {
                auto own = axis_of(vars, e.arg(size_t(axis)));
                return own ? place[*own] : int(place.size());
            };
            std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
        });
    }

    const Definitions& all_;
    std::vector<bool> fixed_;
    Layouts made_;
};

}  // namespace

bool same_memory(const std::vector<Expr>& shape, const std::vector<int>& a, const std::vector<int>& b) {
    auto moved = [&](const std::vector<int>& order) {
        std::vector<int> large;
        for (int d : order)
            if (!shape[size_t(d)].is_int(1)) large.push_back(d);
        return large;
    };
    return moved(a) == moved(b);
}

Layouts choose_layouts(const Definitions& all, bool choose) { return Choosing(all).run(choose); }

}  // namespace tessera
