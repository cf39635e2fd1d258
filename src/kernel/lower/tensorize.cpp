// The innermost loops of a stage as one call of an intrinsic.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "expr/simplify.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/lower/emit_stages.h"

namespace tessera {
namespace {

// How an intrinsic's axes are loops of the nest, and where its operands come from.
class Matching {
  public:
    Matching(const Kernel& kernel, const std::vector<Expr>& loops) : kernel_(kernel), loops_(loops) {}

    Access out;
    std::vector<Access> operands;
    std::vector<Expr> args;

    bool matches(const Intrinsic& intrinsic, const Access& to, const Expr& value, const std::vector<size_t>& order) {
        names_.clear();
        for (const auto* axes : {&intrinsic.axes, &intrinsic.reduce})
            for (const ReduceAxis& a : *axes) names_.push_back(a.var.node().name);
        order_ = order;
        std::vector<Expr> tile;
        for (const ReduceAxis& a : intrinsic.axes) tile.push_back(a.var);
        if (!take(to, tile, false, out, strides_out_)) return false;
        operands.assign(intrinsic.operands.size(), {});
        strides_.assign(intrinsic.operands.size(), {});
        if (!same(intrinsic.value, value)) return false;
        args = strides_out_;
        for (const auto& s : strides_) args.insert(args.end(), s.begin(), s.end());
        return true;
    }

  private:
    // Both are built alike; loads of the first are operands.
    bool same(const Expr& pattern, const Expr& e) {
        if (pattern.is(ExprKind::Load)) {
            auto i = static_cast<size_t>(pattern.node().slot);
            return e.is(ExprKind::Load) && e.dtype() == pattern.dtype() &&
                   take({e.node().slot, e.args()}, pattern.args(), true, operands[i], strides_[i]);
        }
        if (pattern.kind() != e.kind() || pattern.dtype() != e.dtype() || pattern.args().size() != e.args().size())
            return false;
        if (pattern.is(ExprKind::Call) && pattern.node().fn != e.node().fn) return false;
        if (pattern.is(ExprKind::Mul) && e.args().size() == 2)  // in either order
            return (same(pattern.arg(0), e.arg(0)) && same(pattern.arg(1), e.arg(1))) ||
                   (same(pattern.arg(0), e.arg(1)) && same(pattern.arg(1), e.arg(0)));
        for (size_t i = 0; i < e.args().size(); ++i)
            if (!same(pattern.arg(i), e.arg(i))) return false;
        return pattern.is(ExprKind::Const) ? pattern.same(e) : !pattern.is(ExprKind::Var);
    }

    // The access moves by a fixed step along just the axes that the tile has. An operand may stay where it is along
    // some of them: all lanes read one element.
    bool take(const Access& access, const std::vector<Expr>& tile, bool may_stay, Access& first,
              std::vector<Expr>& strides) {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(access.buffer)];
        Expr offset = 0;
        for (size_t d = 0; d < access.indices.size(); ++d)
            offset =
                b.strides.empty() ? offset * b.shape[d] + access.indices[d] : offset + access.indices[d] * b.strides[d];
        strides.clear();
        Bindings zero;
        for (const Expr& loop : loops_) zero.emplace(loop.node().name, 0);
        for (size_t i = 0; i < names_.size(); ++i) {
            const Expr& loop = loops_[order_[i]];
            Expr step = 0;
            for (const Expr& term : terms_of(offset)) {
                if (!mentions(term, loop.node().name)) continue;
                Monomial m = as_monomial(term);
                if (m.count != 1 || !m.atoms[0].same(loop)) return false;
                step = m.coefficient;
            }
            bool has = std::any_of(tile.begin(), tile.end(),
                                   [&](const Expr& v) { return v.is(ExprKind::Var) && v.node().name == names_[i]; });
            if (has ? step.is_int(0) && !may_stay : !step.is_int(0)) return false;
            strides.push_back(step);
        }
        first = {access.buffer, {}};
        for (const Expr& index : access.indices) first.indices.push_back(substitute(index, zero));
        return true;
    }

    const Kernel& kernel_;
    const std::vector<Expr>& loops_;
    std::vector<std::string> names_;
    std::vector<size_t> order_;
    std::vector<Expr> strides_out_;
    std::vector<std::vector<Expr>> strides_;
};

}  // namespace

Result<Stmt> StageEmitter::tensorized(size_t stage, size_t level) {
    const PlacedStage& p = placed_[stage];
    const LoopPlan& plan = p.plan->loops[level];
    const Intrinsic* intrinsic = find_intrinsic(plan.intrinsic);
    CHECK(intrinsic, "no intrinsic {}", plan.intrinsic);
    auto differs = [&](std::string why) {
        return Error(Code::E0602, "the nest from {} on does not match {}: {}", plan.name, intrinsic->name, why);
    };
    for (const Guard& guard : p.guards)
        if (guard.level > level)
            return differs(
                       fmt::format("some iterations do not count, where {} does not hold", to_string(guard.condition)))
                .hint("pad the stage, so that every tile is complete");
    for (const PlacedStage& other : placed_)
        if (other.host == stage && other.host_loop >= level)
            return differs(fmt::format("{} is computed inside it", other.stage->name));
    if (combine_of(*p.stage) != ReduceOp::Sum || (p.init_level > level && !p.along))
        return differs("it does not add to sums that are there")
            .hint("decompose_reduction puts the init before {}", plan.name);
    std::vector<Expr> loops(p.loops.vars.begin() + static_cast<ptrdiff_t>(level), p.loops.vars.end());
    std::vector<ReduceAxis> axes = intrinsic->axes;
    axes.insert(axes.end(), intrinsic->reduce.begin(), intrinsic->reduce.end());
    if (axes.size() != loops.size())
        return differs(fmt::format("it has {} loops, and there are {}", axes.size(), loops.size()));
    std::vector<size_t> order(loops.size());
    std::iota(order.begin(), order.end(), size_t{0});
    Access to{slot(p.stage->buffer), target(p, p.values)};
    Expr value = value_of(p);
    Matching matching(kernel_, loops);
    do {
        bool fits = true;
        for (size_t i = 0; i < order.size() && fits; ++i) {
            size_t l = level + order[i];
            bool reduces = i >= intrinsic->axes.size();
            // An outer product has no reduction of its own: the sum runs outside.
            fits = p.extents[l].same(axes[i].extent) && p.plan->loops[l].reduces == reduces;
        }
        if (fits && matching.matches(*intrinsic, to, value, order))
            return make_stmt(Call{intrinsic->name, {matching.out}, matching.operands, matching.args});
    } while (std::next_permutation(order.begin(), order.end()));
    std::string shape;
    for (size_t l = level; l < p.extents.size(); ++l)
        shape += fmt::format("{}{}", shape.empty() ? "" : " x ", to_string(p.extents[l]));
    return differs(fmt::format("loops of {} over {}", shape, to_string(value)));
}

}  // namespace tessera
