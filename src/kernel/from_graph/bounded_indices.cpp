// Indices that lie inside of what they pick from by the way they are computed: such as a clip to its size.
#include <algorithm>

#include "kernel/from_graph/definitions.h"
#include "kernel/ir/regions.h"

namespace tessera {
namespace {

constexpr int64_t kMostIndices = 1 << 16;  // of a constant, that are looked at

class IndexRange {
  public:
    IndexRange(const Definitions& all, Expr extent) : all_(all), extent_(std::move(extent)) {}

    // Is it at least 0? There is an element, so the extent is 1 or more.
    bool above(const Expr& e, int depth = 0) const {
        if (depth > kDeepest) return false;
        auto again = [&](const Expr& x) { return above(x, depth + 1); };
        if (!e.node().reads) return always(le(0, e), {}) || e.same(extent_ - 1);
        if (e.is(ExprKind::Max)) return std::any_of(e.args().begin(), e.args().end(), again);
        if (e.is(ExprKind::Min)) return std::all_of(e.args().begin(), e.args().end(), again);
        if (e.is(ExprKind::Select)) return again(e.arg(1)) && again(e.arg(2));
        // What is below the extent does not wrap when a number is added.
        if (e.is(ExprKind::Add))
            return std::all_of(e.args().begin(), e.args().end(),
                               [&](const Expr& x) { return again(x) && (x.as_int() || below(x, depth + 1)); });
        const std::optional<Expr> body = body_of(e);
        return body && again(*body);
    }

    bool below(const Expr& e, int depth = 0) const {
        if (depth > kDeepest) return false;
        auto again = [&](const Expr& x) { return below(x, depth + 1); };
        if (!e.node().reads) return always(lt(e, extent_), {});
        if (e.is(ExprKind::Min)) return std::any_of(e.args().begin(), e.args().end(), again);
        if (e.is(ExprKind::Max)) return std::all_of(e.args().begin(), e.args().end(), again);
        if (e.is(ExprKind::Select)) return again(e.arg(1)) && again(e.arg(2));
        const std::optional<Expr> body = body_of(e);
        return body && again(*body);
    }

  private:
    static constexpr int kDeepest = 16;

    // The body of what is loaded, in which single numbers that follow from sizes are what they are.
    std::optional<Expr> body_of(const Expr& e, int depth = 0) const {
        if (!e.is(ExprKind::Load) || depth > kDeepest) return std::nullopt;
        const Definition& d = all_.list[size_t(e.node().slot)];
        if (d.kind != Definition::Kind::Map || !is_int(d.dtype)) return std::nullopt;
        return map_loads(d.body, [&](const Expr& x) {
            for (const Expr& extent : all_.list[size_t(x.node().slot)].shape)
                if (!extent.is_int(1)) return x;
            const std::optional<Expr> number = body_of(x, depth + 1);
            return number && !number->node().reads ? *number : x;
        });
    }

    const Definitions& all_;
    const Expr extent_;
};

}  // namespace

bool indices_stay_inside(const Node& node, const Definitions& all) {
    if (!node.op().indexed_axes || node.inputs().size() < 2) return false;
    const std::vector<int64_t> axes = node.op().indexed_axes(node.view());
    auto number = all.numbers.find(node.input(1));
    if (axes.size() != 1 || number == all.numbers.end()) return false;
    const Expr extent = node.input(0)->type().tensor().shape[axes[0]];
    const Definition& indices = all.list[size_t(number->second)];
    // Nothing to pick from is only met where nothing is picked.
    Expr count = 1;
    for (const Expr& d : indices.shape) count = count * d;
    if (!always(le(1, extent), {})) {
        if (!extent.is(ExprKind::Var) || !substitute(count, {{extent.node().name, 0}}).is_int(0)) return false;
    }
    const IndexRange range(all, extent);
    const Expr picked = load(number->second, indices.dtype, index_vars(indices.shape));
    return range.above(picked) && range.below(picked);
}

Expr without_negative_indices(const Expr& body, const KnownTensor& known) {
    auto has_none = [&](int slot) {
        const Tensor* t = known(slot);
        if (!t || t->elements() > kMostIndices) return false;
        for (int64_t i = 0; i < t->elements(); ++i)
            if (t->int_at(i) < 0) return false;
        return true;
    };
    return rewrite(body, [&](const Expr& e) -> Expr {
        if (!e.is(ExprKind::Select) || !e.arg(0).is(ExprKind::Lt) || !e.arg(0).arg(1).is_int(0)) return e;
        const Expr& index = e.arg(0).arg(0);
        return index.is(ExprKind::Load) && is_int(index.dtype()) && has_none(index.node().slot) ? e.arg(2) : e;
    });
}

Expr without_broadcast(const Expr& body, const std::vector<Expr>& vars, const Shape& shape) {
    std::vector<ReduceAxis> axes;
    for (size_t d = 0; d < vars.size(); ++d) axes.push_back({vars[d], shape[int64_t(d)]});
    visit(body, [&](const Expr& e) {
        if (e.is(ExprKind::Reduce)) axes.insert(axes.end(), e.node().axes.begin(), e.node().axes.end());
    });
    std::erase_if(axes, [](const ReduceAxis& a) { return a.extent.as_int().has_value(); });
    if (axes.empty()) return body;
    return rewrite(body, [&](const Expr& e) -> Expr {
        if (!e.is(ExprKind::Select) || !e.arg(1).is_int(0)) return e;
        for (const ReduceAxis& a : axes)
            if (e.arg(2) == a.var && e.arg(0) == eq(a.extent, 1)) return a.var;
        return e;
    });
}

}  // namespace tessera
