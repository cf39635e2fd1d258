#include <algorithm>
#include <unordered_map>

#include "kernel/from_graph/definitions.h"
#include "kernel/ir/compute.h"

namespace tessera {
namespace {

// Where an extent depends on the axes around it, one that it never exceeds; nothing where that is not seen.
std::optional<Expr> largest(Expr extent, const std::vector<ReduceAxis>& axes) {
    if (auto high = bounds(extent).high) return Expr(*high);
    for (const ReduceAxis& axis : axes) {
        const std::string& name = axis.var.node().name;
        Expr at0 = substitute(extent, {{name, Expr(0)}}), at1 = substitute(extent, {{name, Expr(1)}});
        if (at0 == extent) continue;
        auto slope = (at1 - at0).as_int();
        if (!slope || !(at0 + axis.var * *slope == extent)) return std::nullopt;
        extent = *slope > 0 ? at0 + (axis.extent - 1) * *slope : at0;
    }
    return max(extent, 0);
}

class Lifting {
  public:
    Lifting(std::vector<ReduceAxis> axes, const AddReduction& add) : axes_(std::move(axes)), add_(add) {}

    Expr lift(const Expr& e) {
        if (!reduces(e)) return e;
        switch (e.kind()) {
            case ExprKind::Reduce: return taken_out(e);
            case ExprKind::Select: {
                Expr condition = lift(e.arg(0));
                conditions_.push_back(condition);
                Expr then = lift(e.arg(1));
                conditions_.back() = logical_not(condition);
                Expr otherwise = lift(e.arg(2));
                conditions_.pop_back();
                return select(condition, then, otherwise);
            }
            default: break;
        }
        std::vector<Expr> args;
        for (const Expr& a : e.args()) args.push_back(lift(a));
        return with_args(e, std::move(args));
    }
    bool failed() const { return failed_; }

  private:
    bool reduces(const Expr& e) {
        if (auto found = reduces_.find(e.get()); found != reduces_.end()) return found->second.second;
        bool any = e.is(ExprKind::Reduce);
        for (const Expr& a : e.args()) any |= reduces(a);
        reduces_.emplace(e.get(), std::pair(e, any));
        return any;
    }

    Expr taken_out(const Expr& e) {
        // Its variables get names that nothing else has.
        Bindings fresh;
        std::vector<ReduceAxis> over;
        Expr inside = int_const(1, DType::boolean);
        for (const ReduceAxis& axis : e.node().axes) {
            Expr extent = substitute(axis.extent, fresh);
            if (extent.node().reads) failed_ = true;
            std::optional<Expr> most = extent;
            if (depends(extent)) most = largest(extent, axes_);
            if (!most) failed_ = true;
            if (failed_) return constant(0, e.dtype());
            Expr var = index_var(fmt::format("%{}", next_++), most->as_int());
            if (!(*most == extent)) inside = logical_and(inside, lt(var, extent));
            fresh.insert_or_assign(axis.var.node().name, var);
            over.push_back({var, *most});
        }
        Expr value = substitute(e.arg(0), fresh);
        std::vector<Expr> outer_conditions = conditions_;
        if (!inside.is(ExprKind::Const)) conditions_.push_back(inside);
        axes_.insert(axes_.end(), over.begin(), over.end());
        value = lift(value);
        axes_.resize(axes_.size() - over.size());
        for (size_t i = conditions_.size(); i-- > 0;)
            value = select(conditions_[i], value, identity(e.node().reduce_op, e.dtype()));
        conditions_ = std::move(outer_conditions);
        return as_definition(e.node().reduce_op, over, value);
    }

    bool depends(const Expr& e) const {
        std::vector<std::string> names = free_symbols(e);
        return std::any_of(axes_.begin(), axes_.end(), [&](const ReduceAxis& axis) {
            return std::binary_search(names.begin(), names.end(), axis.var.node().name);
        });
    }

    Expr as_definition(ReduceOp op, const std::vector<ReduceAxis>& over, const Expr& value) {
        std::vector<std::string> names = free_symbols(value);
        Definition d;
        d.kind = Definition::Kind::Reduction;
        d.dtype = value.dtype();
        d.combine = op;
        Bindings own;
        std::vector<Expr> at;
        for (const ReduceAxis& axis : axes_) {
            const std::string& name = axis.var.node().name;
            if (!std::binary_search(names.begin(), names.end(), name)) continue;
            own.emplace(name, index_var(fmt::format("%i{}", at.size()), axis.extent.as_int()));
            d.shape.push_back(axis.extent);
            at.push_back(axis.var);
        }
        for (const ReduceAxis& axis : over) {
            Expr var = index_var(fmt::format("%r{}", d.reduce.size()), axis.extent.as_int());
            own.emplace(axis.var.node().name, var);
            d.reduce.push_back({var, axis.extent});
        }
        d.body = substitute(value, own);
        for (const auto& [known, number] : made_)
            if (known.combine == op && known.body == d.body && known.shape == d.shape && same_extents(known, d))
                return load(number, d.dtype, std::move(at));
        DType dtype = d.dtype;
        made_.emplace_back(d, -1);
        made_.back().second = add_(std::move(d));
        return load(made_.back().second, dtype, std::move(at));
    }

    static bool same_extents(const Definition& a, const Definition& b) {
        return std::equal(a.reduce.begin(), a.reduce.end(), b.reduce.begin(), b.reduce.end(),
                          [](const ReduceAxis& x, const ReduceAxis& y) { return x.extent == y.extent; });
    }

    std::vector<ReduceAxis> axes_;
    const AddReduction& add_;
    std::vector<Expr> conditions_;
    std::unordered_map<const ExprNode*, std::pair<Expr, bool>> reduces_;  // keeps them, so that addresses stay theirs
    std::vector<std::pair<Definition, int>> made_;
    int next_ = 0;
    bool failed_ = false;
};

}  // namespace

std::optional<Expr> lift_reductions(const Expr& body, const std::vector<ReduceAxis>& axes, const AddReduction& add) {
    Lifting lifting(axes, add);
    Expr value = lifting.lift(body);
    if (lifting.failed()) return std::nullopt;
    return value;
}

}  // namespace tessera
