#include <unordered_map>

#include "base/numeric.h"
#include "kernel/from_graph/definitions.h"
#include "kernel/ir/narrow_floats.h"

namespace tessera {
namespace {

constexpr DTypes kNarrow = kFloats.without({DType::f32, DType::f64});

bool narrow(DType t) { return kNarrow.has(t); }

// x where it is x as f64, and no wider than f32 before.
std::optional<Expr> as_narrow(const Expr& x) {
    if (x.is(ExprKind::Cast) && x.arg(0).dtype() == DType::f32) return x.arg(0);
    if (x.is(ExprKind::Const) && double(float(x.node().real)) == x.node().real)
        return real_const(x.node().real, DType::f32);
    return std::nullopt;
}

// One operation in f64 on f32 operands, rounded to f32, is that operation in f32: f64 has more than twice its bits.
std::optional<Expr> as_f32(const Expr& e) {
    if (e.dtype() != DType::f64) return std::nullopt;
    switch (e.kind()) {
        case ExprKind::Add:
        case ExprKind::Sub:
        case ExprKind::Mul:
        case ExprKind::Div: break;
        case ExprKind::Call:
            if (e.node().fn == Fn::Sqrt) break;
            return std::nullopt;
        default: return std::nullopt;
    }
    std::vector<Expr> args;
    for (const Expr& a : e.args()) {
        auto x = as_narrow(a);
        if (!x) return std::nullopt;
        args.push_back(*x);
    }
    return with_args(e, std::move(args));
}

class Widening {
  public:
    // Of type f32 where the expression's is narrower.
    Expr wide(const Expr& e) {
        auto found = done_.find(e.get());
        if (found != done_.end()) return found->second;
        Expr made = kNarrowFloats.has(e.dtype()) ? decoded(e.dtype(), stored(e)) : make(e);
        done_.emplace(e.get(), made);
        return made;
    }

    // As it lies in memory.
    Expr stored(const Expr& e) {
        const DType t = e.dtype();
        if (!kNarrowFloats.has(t)) return cast(wide(e), t);
        switch (e.kind()) {
            case ExprKind::Const: return int_const(int64_t(float_to_bits(t, e.node().real)), DType::u8);
            case ExprKind::Load: {
                std::vector<Expr> at;
                for (const Expr& a : e.args()) at.push_back(wide(a));
                return load(e.node().slot, DType::u8, std::move(at));
            }
            case ExprKind::Cast: return e.arg(0).dtype() == t ? stored(e.arg(0)) : encoded(t, wide(e.arg(0)), false);
            case ExprKind::CastSaturate: return encoded(t, wide(e.arg(0)), true);
            case ExprKind::Select: return select(wide(e.arg(0)), stored(e.arg(1)), stored(e.arg(2)));
            default: return encoded(t, make(e), false);
        }
    }

  private:
    Expr make(const Expr& e) {
        if (e.is(ExprKind::Const)) return narrow(e.dtype()) ? real_const(e.node().real, DType::f32) : e;
        if (e.is(ExprKind::Var)) return e;
        std::vector<Expr> args;
        for (const Expr& a : e.args()) args.push_back(wide(a));
        if (e.is(ExprKind::Load)) {
            Expr x = load(e.node().slot, e.dtype(), std::move(args));
            return narrow(e.dtype()) ? cast(x, DType::f32) : x;
        }
        if (e.is(ExprKind::Reduce)) {
            std::vector<ReduceAxis> axes;
            for (const ReduceAxis& a : e.node().axes) axes.push_back({a.var, wide(a.extent)});
            return reduce(e.node().reduce_op, std::move(axes), args[0]);
        }
        if (e.is(ExprKind::Cast) || e.is(ExprKind::CastSaturate)) {
            if (e.is(ExprKind::Cast) && e.dtype() == DType::f32)
                if (auto x = as_f32(args[0])) return *x;
            Expr x = e.is(ExprKind::Cast) ? cast(args[0], e.dtype()) : cast_saturate(args[0], e.dtype());
            return narrow(e.dtype()) ? cast(x, DType::f32) : x;
        }
        return with_args(e, std::move(args));
    }

    std::unordered_map<const ExprNode*, Expr> done_;
};

}  // namespace

Expr widen(const Expr& e) { return Widening().stored(e); }

}  // namespace tessera
