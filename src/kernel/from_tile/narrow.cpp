#include "kernel/from_tile/narrow.h"

#include <algorithm>

#include "base/numeric.h"
#include "kernel/ir/narrow_floats.h"

namespace tessera::from_tile_detail {
namespace {

class NarrowBody {
  public:
    explicit NarrowBody(const std::function<Expr(int)>& input) : input_(input) {}

    // As it lies in memory.
    Expr stored(const Expr& e) const {
        const DType t = e.dtype();
        if (!is_narrow(t)) return wide(e);
        switch (e.kind()) {
            case ExprKind::Const: return int_const(static_cast<int64_t>(float_to_bits(t, e.node().real)), DType::u8);
            case ExprKind::Load: return input_(e.node().slot);
            case ExprKind::Cast:
            case ExprKind::CastSaturate: return encoded(t, wide(e.arg(0)), e.is(ExprKind::CastSaturate));
            case ExprKind::Select: return select(wide(e.arg(0)), stored(e.arg(1)), stored(e.arg(2)));
            default: return encoded(t, wide(e), true);
        }
    }

  private:
    Expr wide(const Expr& e) const {
        const DType t = e.dtype();
        if (e.is(ExprKind::Const)) return is_narrow(t) ? real_const(e.node().real, DType::f32) : e;
        if (e.is(ExprKind::Load)) return is_narrow(t) ? decoded(t, stored(e)) : input_(e.node().slot);
        if (is_narrow(t) && (e.is(ExprKind::Cast) || e.is(ExprKind::CastSaturate))) return decoded(t, stored(e));
        std::vector<Expr> args;
        for (const Expr& a : e.args()) args.push_back(wide(a));
        return with_args(e, std::move(args));
    }

    const std::function<Expr(int)>& input_;
};

}  // namespace

bool is_narrow(DType dtype) { return stored_as(dtype) != dtype; }

Expr with_narrow_floats(const Expr& body, const std::function<Expr(int)>& input) {
    return NarrowBody(input).stored(body);
}

bool is_short_float(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

bool has_more_digits(const Expr& body) {
    switch (body.kind()) {
        case ExprKind::Const:
        case ExprKind::Load:
        case ExprKind::Cast:
        case ExprKind::CastSaturate: return false;
        case ExprKind::Neg:
        case ExprKind::Min:
        case ExprKind::Max:
        case ExprKind::Select:
            return std::any_of(body.args().begin(), body.args().end(),
                               [](const Expr& e) { return e.dtype() != DType::boolean && has_more_digits(e); });
        default: return is_short_float(body.dtype());
    }
}

Expr without_more_digits(const Expr& value) { return cast(cast(value, DType::f32), value.dtype()); }

Expr number_of(const Expr& element, DType dtype, DType wanted) {
    return cast(is_narrow(dtype) ? decoded(dtype, element) : element, wanted);
}

}  // namespace tessera::from_tile_detail
