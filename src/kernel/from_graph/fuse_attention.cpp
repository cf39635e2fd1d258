// Softmax of scores between two products: one kernel, which keeps no more than a block of the scores.
#include <algorithm>
#include <map>
#include <set>

#include "kernel/analyse/scaled_load.h"
#include "kernel/from_graph/fuse_groups.h"

namespace tessera {
namespace {

constexpr size_t kMaxVisited = 200;    // definitions between the product with V and the scores
constexpr size_t kMaxFollowed = 1000;  // that are asked whether they are computed from the scores
constexpr double kFewerElements = 16;  // in what a mask is made of

class AttentionSearch {
  public:
    AttentionSearch(Fusion& fusion, const LowerOptions& options)
        : fusion_(fusion), acc_(fusion.acc), options_(options), scheduling_(scheduling_of(options)) {}

    void run() {
        find_maxima();
        for (int n = 0; n < acc_.count(); ++n) {
            if (!is_product(n) || fusion_.decided[size_t(n)]) continue;
            for (size_t side : {0, 1})
                for (int scores : scores_behind(acc_.body(n).arg(side)))
                    if (!fusion_.decided[size_t(n)]) try_group(n, side, scores);
        }
    }

  private:
    bool is_product(int n) const {
        const Definition& d = acc_.def(n);
        return acc_.live(n) && d.kind == Definition::Kind::Reduction && d.reduce.size() == 1 &&
               d.combine == ReduceOp::Sum && acc_.body(n).is(ExprKind::Mul) && acc_.body(n).args().size() == 2 &&
               is_contraction(acc_, n) && (d.dtype == DType::f32 || d.dtype == DType::f64);
    }

    bool is_maximum(int n) const {
        const Definition& d = acc_.def(n);
        return d.kind == Definition::Kind::Reduction && d.combine == ReduceOp::Max && d.reduce.size() == 1;
    }

    // Definitions from which a row's largest is reached through maps alone: there is no softmax without.
    void find_maxima() {
        behind_maximum_.assign(size_t(acc_.count()), false);
        for (int n = 0; n < acc_.count(); ++n) {
            if (!acc_.live(n) || !acc_.def(n).has_body()) continue;
            bool found = is_maximum(n);
            if (acc_.def(n).kind == Definition::Kind::Map)
                for (const Reading& a : acc_.reads(n)) found = found || behind_maximum_[size_t(a.source)];
            behind_maximum_[size_t(n)] = found;
        }
    }

    // What `wanted` says yes to, reached from `work` through maps that `through` says yes to.
    template <typename Wanted, typename Through>
    std::vector<int> reached(std::vector<int> work, const Wanted& wanted, const Through& through) const {
        std::vector<int> found;
        std::set<int> seen;
        while (!work.empty() && seen.size() < kMaxVisited) {
            const int n = work.back();
            work.pop_back();
            if (!seen.insert(n).second) continue;
            if (wanted(n))
                found.push_back(n);
            else if (acc_.def(n).kind == Definition::Kind::Map && through(n))
                for (const Reading& a : acc_.reads(n)) work.push_back(a.source);
        }
        return found;
    }

    // Products that an expression may be the softmax of: behind maps, a row's largest, and maps.
    std::vector<int> scores_behind(const Expr& e) const {
        std::vector<int> rows;
        for (int max : reached(
                 loaded_slots(e), [&](int n) { return is_maximum(n); },
                 [&](int n) { return behind_maximum_[size_t(n)]; }))
            for (const Reading& a : acc_.reads(max)) rows.push_back(a.source);
        return reached(
            std::move(rows), [&](int n) { return is_product(n); }, [](int) { return true; });
    }

    // Whether n is computed from the scores. Where that takes too long to find, `lost_` says so.
    bool follows(int n) {
        if (n == scores_) return true;
        if (n < scores_ || !acc_.def(n).has_body()) return false;
        if (auto at = follows_.find(n); at != follows_.end()) return at->second;
        if (follows_.size() >= kMaxFollowed) return !(lost_ = true);
        follows_.emplace(n, false);
        bool any = false;
        for (const Reading& a : acc_.reads(n)) any |= follows(a.source);
        return follows_[n] = any;
    }

    // The expression with the maps that follow from the scores put in.
    Expr spelled(const Expr& e) {
        return map_loads(e, [&](const Expr& x) -> Expr {
            const int n = x.node().slot;
            if (acc_.def(n).kind != Definition::Kind::Map || !follows(n)) return x;
            maps_.insert(n);
            Bindings at;
            for (size_t d = 0; d < x.args().size(); ++d) at.emplace(fmt::format("%i{}", d), x.arg(d));
            return substitute(spelled(acc_.body(n)), at);
        });
    }

    void try_group(int product, size_t side, int scores) {
        scores_ = scores;
        follows_.clear();
        lost_ = false;
        maps_.clear();
        const Definition& d = acc_.def(product);
        if (fusion_.decided[size_t(scores)] || acc_.kept(scores)) return;
        for (int n : loaded_slots(acc_.body(product).arg(1 - side)))
            if (follows(n) || lost_) return;
        auto find = [&](int n) -> std::optional<RowReduction> {
            const Definition& r = acc_.def(n);
            if (r.kind != Definition::Kind::Reduction || r.reduce.size() != 1 || r.dtype != d.dtype)
                return std::nullopt;
            return RowReduction{index_vars(r.shape), r.reduce[0], r.combine, spelled(acc_.body(n))};
        };
        auto weights = match_weights(spelled(acc_.body(product).arg(side)), d.reduce[0].var, find,
                                     scheduling_.attention_rounding());
        if (!weights || lost_ || acc_.def(scores).dtype != d.dtype) return;
        const std::vector<int> loads = loaded_slots(weights->score);
        if (std::find(loads.begin(), loads.end(), scores) == loads.end()) return;
        // Nobody else sees what is between.
        std::set<int> members{scores, weights->max, weights->sum, product};
        std::set<int> all = maps_;
        all.insert(members.begin(), members.end());
        for (int n : all) {
            if (n == product) continue;
            if (acc_.kept(n) || fusion_.decided[size_t(n)]) return;
            for (int r : acc_.readers(n))
                if (!all.contains(r)) return;
        }
        CopiedOperands operands;
        Decision decision = no("it was not asked for");
        if (options_.attention != LowerOptions::Attention::Never)
            decision = scheduling_.copies_attention_tiles() ? suits_copies(product, side, *weights, operands)
                                                            : worth_it(product, side, scores);
        const bool yes = bool(decision);
        fusion_.choose(fmt::format("attention {} as one kernel", acc_.name(product)), std::move(decision));
        if (!yes) return;
        for (int n : maps_) fusion_.decided[size_t(n)] = true;
        fusion_.stored.insert(fusion_.stored.end(), operands.computed.begin(), operands.computed.end());
        for (int n : operands.places) fusion_.decided[size_t(n)] = true;
        std::vector<int> stages(members.begin(), members.end());
        int last = epilogue_of(product);
        // What only places it goes along.
        for (int n = last; n >= 0 && scheduling_.copies_attention_tiles();) {
            n = epilogue_of(n);
            if (n < 0 || !scaled_load(acc_.body(n))) break;
            fusion_.decided[size_t(last)] = true;
            last = n;
        }
        if (last >= 0) stages.push_back(last);
        fusion_.add_group(stages);
    }

    // A map of the result, or of a map of it, that nobody but it reads.
    int epilogue_of(int product) const {
        if (acc_.kept(product) || acc_.readers(product).size() != 1) return -1;
        const int reader = acc_.readers(product)[0];
        const Definition& d = acc_.def(reader);
        if (d.kind != Definition::Kind::Map || fusion_.decided[size_t(reader)]) return -1;
        for (const Reading& a : acc_.reads(reader))
            if (a.source == product && !same_elements_by_digits(d.shape, acc_.def(product).shape, a.at)) return -1;
        return reader;
    }

    // Where tiles of operands are copied: what those are computed from is kept. What only scales or places them is not,
    // nor are masks that are made of places and of much smaller ones.
    struct CopiedOperands {
        std::vector<int> computed, places;
    };

    // The load of 16 bits that an operand is once maps are put in, as far as they only scale or place it. What it loads
    // may be computed otherwise.
    std::optional<Expr> copied_operand(const Expr& operand, CopiedOperands& out) const {
        auto found = scaled_load(operand);
        while (found) {
            const int n = found->load.node().slot;
            const Definition& d = acc_.def(n);
            if (d.kind != Definition::Kind::Map || acc_.kept(n) || fusion_.decided[size_t(n)]) break;
            auto further = scaled_load(acc_.body(n));
            if (!further || !is_copied(further->load.dtype())) {
                out.computed.push_back(n);
                break;
            }
            out.places.push_back(n);
            Bindings at;
            for (size_t i = 0; i < found->load.args().size(); ++i)
                at.emplace(fmt::format("%i{}", i), found->load.arg(i));
            found->load = substitute(further->load, at);
        }
        return found && is_copied(found->load.dtype()) ? std::optional(found->load) : std::nullopt;
    }

    // Whether tiles of it can be copied: rows along `row`, which begin at multiples of 16 bytes, elements along
    // `column`.
    bool lies_in_rows(const Expr& load, const Expr& row, const Expr& column) const {
        const Definition& d = acc_.def(load.node().slot);
        const std::vector<int>& order = acc_.order(load.node().slot);
        Expr stride = 1;
        bool found = false;
        for (size_t i = order.size(); i-- > 0;) {
            const Expr& at = load.arg(size_t(order[i]));
            const bool last = i + 1 == order.size();
            if (depends_on(at, column) != last) return false;
            if (last && (depends_on(at, row) || !step_of(at, column) || !step_of(at, column)->is_int(1))) return false;
            if (!last && depends_on(at, row)) {
                if (found || !step_of(at, row) || !step_of(at, row)->is_int(1)) return false;
                found = true;
            }
            stride = stride * d.shape[size_t(order[i])];
            if (i > 0 && !mod(stride, 8).is_int(0)) return false;
        }
        return found;
    }

    // Whether what comes after the last along an axis is outside of what is read.
    bool ends_with(const Expr& load, const ReduceAxis& axis) const {
        for (size_t i = 0; i < load.args().size(); ++i)
            if (depends_on(load.arg(i), axis.var))
                return load.arg(i) == axis.var && acc_.def(load.node().slot).shape[i] == axis.extent;
        return false;
    }

    // Whether it is read in vectors of 16 bytes along `column`.
    bool lies_in_vectors(const Expr& load, const ReduceAxis& column) const {
        const Definition& d = acc_.def(load.node().slot);
        const std::vector<int>& order = acc_.order(load.node().slot);
        if (order.empty() || !mod(column.extent, kVectorElements).is_int(0)) return false;
        for (size_t i = 0; i + 1 < order.size(); ++i)
            if (depends_on(load.arg(size_t(order[i])), column.var)) return false;
        const Expr& at = load.arg(size_t(order.back()));
        const auto step = step_of(at, column.var);
        if (!step || !step->is_int(1)) return false;
        const Expr first = substitute(at, {{column.var.node().name, Expr(0)}});
        return mod(first, kVectorElements).is_int(0) &&
               (order.size() == 1 || mod(d.shape[size_t(order.back())], kVectorElements).is_int(0));
    }

    Decision suits_copies(int product, size_t side, const AttentionWeights& weights, CopiedOperands& out) const {
        const Definition &d = acc_.def(product), &scores = acc_.def(scores_);
        const Expr &w = acc_.body(product).arg(side), &v = acc_.body(product).arg(1 - side), &key = d.reduce[0].var;
        std::optional<size_t> key_axis;
        visit(weights.score, [&](const Expr& e) {
            if (!e.is(ExprKind::Load) || e.node().slot != scores_) return;
            for (size_t i = 0; i < e.args().size(); ++i)
                if (e.arg(i) == key) key_axis = i;
        });
        if (!key_axis) return no("scores do not lie along keys");
        const std::vector<Expr> vars = index_vars(scores.shape);
        const Expr& score_key = vars[*key_axis];
        const ReduceAxis& depth = scores.reduce[0];
        Expr q = acc_.body(scores_).arg(0), k = acc_.body(scores_).arg(1);
        if (depends_on(q, score_key)) std::swap(q, k);
        std::optional<size_t> query;
        for (size_t i = 0; i < vars.size(); ++i) {
            if (scores.shape[i].is_int(1) || !depends_on(q, vars[i]) || depends_on(k, vars[i])) continue;
            auto size = [&](size_t axis) { return scores.shape[axis].as_int().value_or(INT64_MAX); };
            if (!query || size(i) >= size(*query)) query = i;
        }
        std::optional<ReduceAxis> column;
        for (const ReduceAxis& axis : d.axes())
            if (!axis.extent.is_int(1) && depends_on_any(v, {axis}) && !depends_on_any(w, {axis})) {
                if (column) return no("the values have more than one axis");
                column = axis;
            }
        if (!depth.extent.as_int() || !column || !column->extent.as_int()) return no("the size of a head is not known");
        const auto from_q = copied_operand(q, out), from_k = copied_operand(k, out), from_v = copied_operand(v, out);
        if (!from_q || !from_k || !from_v) return no("an operand is not of 16 bits");
        AttentionForm form = form_of(d, *depth.extent.as_int(), *column->extent.as_int());
        form.one_query = !query;
        if (query) form.queries = scores.shape[*query].as_int();
        form.q = {query && lies_in_rows(*from_q, vars[*query], depth.var), ends_with(*from_q, depth),
                  lies_in_vectors(*from_q, depth)};
        form.k = {lies_in_rows(*from_k, score_key, depth.var), ends_with(*from_k, depth),
                  lies_in_vectors(*from_k, depth)};
        form.v = {lies_in_rows(*from_v, key, column->var), ends_with(*from_v, d.reduce[0]),
                  lies_in_vectors(*from_v, *column)};
        Decision suits = scheduling_.suits_attention(form, schedule_options(options_));
        if (!suits) return suits;
        for (const Expr& e : {weights.score, weights.blind})
            for (int n : loaded_slots(e)) add_places(n, out);
        return suits;
    }

    AttentionForm form_of(const Definition& product, int64_t depth, int64_t columns) const {
        return {.wanted = options_.attention == LowerOptions::Attention::Always,
                .keys = product.reduce[0].extent.as_int(),
                .depth = depth,
                .columns = columns,
                .score_bytes = bytes_of(acc_.def(scores_)),
                .element_bytes = int(dtype_bytes(product.dtype)),
                .dynamic_sizes = int(std::count_if(product.shape.begin(), product.shape.end(),
                                                   [](const Expr& size) { return !size.as_int(); }))};
    }

    static bool only_places(const Expr& body) {
        const auto found = scaled_load(body);
        return found && found->factor == 1 && found->load.dtype() == body.dtype();
    }

    // Whether what is loaded says where something else is loaded.
    static bool looks_up(const Expr& body) {
        bool found = false;
        visit(body, [&](const Expr& e) {
            if (!e.is(ExprKind::Load)) return;
            for (const Expr& at : e.args()) found |= at.node().reads;
        });
        return found;
    }

    // A map that only places what it reads, or reads nothing but maps of that kind and what has far fewer elements.
    bool add_places(int n, CopiedOperands& out) const {
        const Definition& d = acc_.def(n);
        if (d.kind != Definition::Kind::Map || acc_.kept(n)) return false;
        if (fusion_.decided[size_t(n)]) return fusion_.group_of[size_t(n)] < 0;
        if (looks_up(acc_.body(n))) return false;
        CopiedOperands with = out;
        for (int read : loaded_slots(acc_.body(n))) {
            if (add_places(read, with)) continue;
            const bool fewer = elements_of(acc_.def(read).shape) * kFewerElements <= elements_of(d.shape);
            if (!fewer && !only_places(acc_.body(n))) return false;
            if (acc_.def(read).kind == Definition::Kind::Map) with.computed.push_back(read);
        }
        out = std::move(with);
        out.places.push_back(n);
        return true;
    }

    Decision worth_it(int product, size_t side, int scores) const {
        const Definition& d = acc_.def(product);
        const Expr &w = acc_.body(product).arg(side), &v = acc_.body(product).arg(1 - side);
        std::optional<Expr> query, column;
        for (const ReduceAxis& axis : d.axes()) {
            const bool in_w = depends_on_any(w, {axis}), in_v = depends_on_any(v, {axis});
            if (axis.extent.is_int(1) || in_w == in_v) continue;
            if (in_v && column) return no("the values have more than one axis");
            std::optional<Expr>& extent = in_v ? column : query;
            if (!extent || axis.extent.as_int().value_or(INT64_MAX) > extent->as_int().value_or(INT64_MAX))
                extent = axis.extent;
        }
        const Expr& depth = acc_.def(scores).reduce[0].extent;
        if (!column || !column->as_int() || !depth.as_int()) return no("the size of a head is not known");
        AttentionForm form = form_of(d, *depth.as_int(), *column->as_int());
        form.one_query = !query;
        if (query) form.queries = query->as_int();
        return scheduling_.suits_attention(form, schedule_options(options_));
    }

    Fusion& fusion_;
    const Accesses& acc_;
    const LowerOptions& options_;
    const Scheduling& scheduling_;
    int scores_ = -1;
    std::vector<bool> behind_maximum_;  // by definition
    std::map<int, bool> follows_;
    bool lost_ = false;
    std::set<int> maps_;
};

}  // namespace

void fuse_attention(Fusion& fusion, const LowerOptions& options) { AttentionSearch(fusion, options).run(); }

}  // namespace tessera
