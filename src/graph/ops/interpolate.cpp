#include "graph/ops/interpolate.h"

namespace tessera {

Expr linear_weight(const Expr& distance) { return max(real_const(1) - call(Fn::Abs, {distance}), real_const(0)); }

Expr cubic_weight(const Expr& distance, double a) {
    Expr d = call(Fn::Abs, {distance});
    Expr near = (real_const(a + 2) * d - real_const(a + 3)) * d * d + real_const(1);
    Expr far = ((real_const(a) * d - real_const(5 * a)) * d + real_const(8 * a)) * d - real_const(4 * a);
    return select(le(d, real_const(1)), near, select(lt(d, real_const(2)), far, real_const(0)));
}

Taps taps_around(const OpView& op, const Expr& position, int64_t count) {
    ReduceAxis axis = op.reduce(count);
    Expr element = cast(call(Fn::Floor, {position}), DType::i64) + axis.var - (count / 2 - 1);
    return {axis, element, position - cast(element, DType::f64)};
}

}  // namespace tessera
