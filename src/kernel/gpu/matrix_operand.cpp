#include "kernel/gpu/matrix_operand.h"

#include <algorithm>

#include "kernel/ir/narrow_floats.h"

namespace tessera {
namespace {

constexpr DType kByteFloats[] = {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz};

// All floats of 16 bits and more hold what those of 8 bits do.
Expr without_float_casts(Expr e) {
    while (e.is(ExprKind::Cast) && is_float(e.dtype()) && is_float(e.arg(0).dtype())) e = Expr(e.arg(0));
    return e;
}

// The load of a float of 8 bits, as arithmetic on its bits makes a number of it.
std::optional<MatrixLoad> byte_float(const Expr& operand) {
    const Expr e = without_float_casts(operand);
    std::optional<Expr> only;
    bool one = e.is(ExprKind::Select);
    if (!one) return {};
    visit(e, [&](const Expr& x) {
        if (!x.is(ExprKind::Load)) return;
        one &= x.dtype() == DType::u8 && (!only || only->same(x));
        only = x;
    });
    if (!only || !one) return {};
    for (DType t : kByteFloats)
        if (decoded(t, *only).same(e)) return MatrixLoad{*only, t};
    return {};
}

bool is_byte(DType t) { return t == DType::i8 || t == DType::u8; }

// The byte that a number of i32 is.
std::optional<Expr> byte_of(const Expr& e) {
    if (e.is(ExprKind::Cast) && is_byte(e.arg(0).dtype())) return e.arg(0);
    if (!e.is(ExprKind::Select)) return {};
    auto then = byte_of(e.arg(1)), otherwise = byte_of(e.arg(2));
    auto as = [](const Expr& number, DType t) -> std::optional<Expr> {
        const int64_t n = number.is(ExprKind::Const) ? number.node().integer : INT64_MAX;
        const bool fits = t == DType::i8 ? n >= -128 && n <= 127 : n >= 0 && n <= 255;
        return fits ? std::optional(int_const(n, t)) : std::nullopt;
    };
    if (then && !otherwise) otherwise = as(e.arg(2), then->dtype());
    if (otherwise && !then) then = as(e.arg(1), otherwise->dtype());
    if (!then || !otherwise || then->dtype() != otherwise->dtype()) return {};
    return select(e.arg(0), *then, *otherwise);
}

// The factors of an operand, of which those that do not change along a reduction go to `outside`.
void take_factors(const Expr& operand, const Stage& stage, std::vector<Expr>& inside, std::vector<Expr>& outside) {
    const Expr e = without_float_casts(operand);
    if (e.is(ExprKind::Mul)) {
        for (const Expr& factor : e.args()) take_factors(factor, stage, inside, outside);
        return;
    }
    const bool changes = std::any_of(stage.reduce.begin(), stage.reduce.end(),
                                     [&](const ReduceAxis& axis) { return depends_on(e, axis.var); });
    (changes ? inside : outside).push_back(changes ? e : cast(operand, DType::f32));
}

}  // namespace

std::optional<Expr> narrowed(const Expr& e) {
    if (e.dtype() == DType::i32) return byte_of(e);
    if (e.is(ExprKind::Cast) && e.dtype() == DType::f32) return e.arg(0);
    if (byte_float(e)) return cast(e, DType::f16);
    if (!e.is(ExprKind::Select) || !e.arg(2).is(ExprKind::Const) || e.arg(2).node().real != 0) return {};
    auto taken = narrowed(e.arg(1));
    if (!taken) return {};
    return select(e.arg(0), *taken, constant(0, taken->dtype()));
}

Expr as_narrow(Expr e) {
    while (e.is(ExprKind::Cast) && e.arg(0).is(ExprKind::Cast) && e.arg(0).dtype() == DType::f32 &&
           e.arg(0).arg(0).dtype() == e.dtype())
        e = Expr(e.arg(0).arg(0));
    return e;
}

std::optional<MatrixLoad> matrix_load(const Expr& operand) {
    if (auto byte = byte_float(operand)) return byte;
    if (operand.is(ExprKind::Cast) && operand.dtype() == DType::i32) {
        const Expr& byte = operand.arg(0);
        const bool reads = byte.is(ExprKind::Load) && is_byte(byte.dtype());
        return reads ? std::optional(MatrixLoad{byte, byte.dtype()}) : std::nullopt;
    }
    if (operand.is(ExprKind::Load) && operand.dtype() == DType::f32) return MatrixLoad{operand, DType::f32};
    const auto narrow = narrowed(operand);
    if (!narrow) return {};
    const Expr e = as_narrow(*narrow);
    return e.is(ExprKind::Load) ? std::optional(MatrixLoad{e, e.dtype()}) : std::nullopt;
}

std::optional<Compute> with_factors_behind(const Compute& compute) {
    if (compute.stages.empty() || compute.stages.size() > 2) return {};
    const Stage& sum = compute.stages[0];
    if (sum.reduce.empty() || sum.combine != ReduceOp::Sum || sum.fold || !sum.value.is(ExprKind::Mul)) return {};
    if (compute.buffers[size_t(sum.buffer)].dtype != DType::f32) return {};
    std::vector<Expr> operands, outside;
    for (const Expr& operand : sum.value.args()) {
        std::vector<Expr> inside;
        take_factors(operand, sum, inside, outside);
        if (inside.size() != 1 || !byte_float(inside[0])) return {};
        operands.push_back(inside[0]);
    }
    if (outside.empty() || operands.size() != 2) return {};
    Compute made = compute;
    made.stages[0].value = operands[0] * operands[1];
    std::vector<Expr> own;
    for (const ReduceAxis& axis : sum.axes) own.push_back(axis.var);
    if (made.stages.size() == 1) {
        const auto slot = static_cast<int>(made.buffers.size());
        Buffer sums{.name = "sums", .dtype = DType::f32, .shape = {}};
        for (const ReduceAxis& axis : sum.axes) sums.shape.push_back(axis.extent);
        made.buffers.push_back(std::move(sums));
        Stage out = sum;
        out.reduce.clear();
        out.name += "_scaled";
        out.value = load(slot, DType::f32, own);
        made.stages[0].buffer = slot;
        made.stages[0].store = own;
        made.stages.push_back(std::move(out));
    }
    const int buffer = made.stages[0].buffer;
    for (size_t d = 0; d < own.size(); ++d)
        if (!made.stages[0].store[d].same(own[d])) return {};
    Stage& out = made.stages[1];
    out.value = rewrite(out.value, [&](const Expr& x) -> Expr {
        if (!x.is(ExprKind::Load) || x.node().slot != buffer) return x;
        Bindings at;
        for (size_t d = 0; d < own.size(); ++d) at.emplace(own[d].node().name, x.arg(d));
        Expr scaled = x;
        for (const Expr& factor : outside) scaled = scaled * substitute(factor, at);
        return scaled;
    });
    return made;
}

}  // namespace tessera
