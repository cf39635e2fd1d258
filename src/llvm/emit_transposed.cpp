// Copies that read along one loop and write along another, as packing and transposing do: a square of elements is read
// in rows, turned in registers, and written in columns.
#include <algorithm>

#include "base/check.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

// By how many elements an access moves when a variable grows by one; nothing where that is not constant.
std::optional<int64_t> step_of(const std::vector<Expr>& strides, const std::vector<Expr>& indices, const Expr& var) {
    int64_t sum = 0;
    const Bindings next{{var.node().name, var + 1}};
    for (size_t d = 0; d < indices.size(); ++d) {
        const auto moved = (substitute(indices[d], next) - indices[d]).as_int();
        if (moved == 0) continue;
        const auto stride = strides[d].as_int();
        if (!moved || !stride) return {};
        sum += *moved * *stride;
    }
    return sum;
}

bool mentions(const Expr& e, const Expr& var) {
    bool found = false;
    visit(e, [&](const Expr& x) { found |= x.is(ExprKind::Var) && x.node().name == var.node().name; });
    return found;
}

// Does an access move by the same distance each time that a variable grows by one, whatever the strides are?
bool moves_evenly(const std::vector<Expr>& indices, const Expr& var) {
    const Bindings next{{var.node().name, var + 1}};
    return std::none_of(indices.begin(), indices.end(),
                        [&](const Expr& i) { return mentions(substitute(i, next) - i, var); });
}

}  // namespace

// One store inside unrolled loops and a vector loop, which reads along `along` and writes along the lanes: all of them,
// or those that a condition chooses.
bool Emitter::is_transposed(const Stmt& body, const Expr& along, int64_t side) const {
    const For* loop = body ? body->as<For>() : nullptr;
    if (!loop) return false;
    const auto extent = loop->extent.as_int();
    if (loop->kind == LoopKind::Unrolled && extent) return is_transposed(loop->body, along, side);
    const If* some = loop->body ? loop->body->as<If>() : nullptr;
    if (some && (some->otherwise || mentions(some->condition, along) || target_.machine.masked)) return false;
    const Stmt& inner = some ? some->then : loop->body;
    const Store* store = inner ? inner->as<Store>() : nullptr;
    if (loop->kind != LoopKind::Vector || !extent || *extent % side != 0 || !store || store->combine) return false;
    const Slot& to = slots_[store->to.buffer];
    if (to.per_lane || dtype_bytes(to.dtype) != 4 || kernel_.buffers[store->to.buffer].scope == Scope::Register)
        return false;
    if (step_of(to.strides, store->to.indices, loop->var) != 1 || !moves_evenly(store->to.indices, along)) return false;
    bool fits = true, across = false;
    visit(store->value, [&](const Expr& e) {
        if (e.is(ExprKind::Select)) fits &= !mentions(e.arg(0), along);
        if (!e.is(ExprKind::Load)) {
            fits &= e.dtype() == DType::i64 || e.dtype() == DType::boolean || dtype_bytes(e.dtype()) == 4;
            return;
        }
        const Slot& from = slots_[e.node().slot];
        fits &= e.node().slot != store->to.buffer && dtype_bytes(from.dtype) == 4;
        const auto step = step_of(from.strides, e.args(), along), lane = step_of(from.strides, e.args(), loop->var);
        fits &= step == 0 || step == 1;
        across |= step == 1 && lane != 1 && lane != 0;
    });
    return fits && across;
}

bool Emitter::emit_transposed(const For& loop) {
    const int side = target_.machine.vector_bytes / 4;
    const auto extent = loop.extent.as_int();
    if (lanes_ != 1 || loop.kind != LoopKind::Serial || !extent || *extent < side) return false;
    if (!is_transposed(loop.body, loop.var, side)) return false;
    const int64_t whole = *extent / side * side;
    emit_loop(builder_.getInt64(0), builder_.getInt64(whole), side, true,
              [&](Value* i) { emit_squares(loop.body, loop, i, side); });
    for (int64_t i = whole; i < *extent; ++i) with_binding(loop.var, {nullptr, i, false, 0}, [&] { emit(loop.body); });
    return true;
}

void Emitter::emit_squares(const Stmt& body, const For& along, Value* at, int side) {
    const For& loop = *body->as<For>();
    if (loop.kind == LoopKind::Unrolled) {
        for (int64_t i = 0; i < *loop.extent.as_int(); ++i)
            with_binding(loop.var, {nullptr, i, false, 0}, [&] { emit_squares(loop.body, along, at, side); });
        return;
    }
    const auto most = last_of(along.extent, side);
    if (loop.body->as<If>()) {
        // Rows that are chosen one by one, each element stored where it belongs.
        for (int64_t i = 0; i < *loop.extent.as_int(); ++i)
            with_binding(loop.var, {nullptr, i, false, 0}, [&] {
                lanes_ = side;
                lane_var_ = along.var.node().name;
                with_binding(along.var, {at, 0, true, depth_, most}, [&] {
                    FreshMemo memo(*this);
                    emit(loop.body);
                });
                lanes_ = 1;
                lane_var_.clear();
            });
        return;
    }
    const Store& store = *loop.body->as<Store>();
    const Slot& to = slots_[store.to.buffer];
    for (int64_t first = 0; first < *loop.extent.as_int(); first += side) {
        std::vector<Value*> rows;
        lanes_ = side;
        lane_var_ = along.var.node().name;
        with_binding(along.var, {at, 0, true, depth_, most}, [&] {
            for (int i = 0; i < side; ++i)
                with_binding(loop.var, {nullptr, first + i, false, 0}, [&] {
                    FreshMemo memo(*this);
                    rows.push_back(splat(to_memory(emit(store.value), to.dtype)));
                });
        });
        turn(rows);
        lane_var_ = loop.var.node().name;
        with_binding(loop.var, {nullptr, first, true, 0}, [&] {
            for (int i = 0; i < side; ++i)
                with_binding(along.var, {at, i, false, depth_, most}, [&] {
                    FreshMemo memo(*this);
                    store_lanes(to, offset_of(to, store.to.indices), rows[static_cast<size_t>(i)]);
                });
        });
        lanes_ = 1;
        lane_var_.clear();
        forget_loads(store.to.buffer);
    }
}

// A square matrix by its rows becomes its columns: in each step, pairs of rows exchange halves of blocks that are
// twice as wide as those of the step before.
void Emitter::turn(std::vector<Value*>& rows) {
    const int side = static_cast<int>(rows.size());
    for (int width = 1; width < side; width *= 2) {
        for (int i = 0; i < side; ++i) {
            if (i & width) continue;
            std::vector<int> upper, lower;
            for (int j = 0; j < side; ++j) {
                upper.push_back(j & width ? side + j - width : j);
                lower.push_back(j & width ? side + j : j + width);
            }
            Value *&a = rows[static_cast<size_t>(i)], *&b = rows[static_cast<size_t>(i + width)];
            Value* x = builder_.CreateShuffleVector(a, b, upper);
            b = builder_.CreateShuffleVector(a, b, lower);
            a = x;
        }
    }
}

}  // namespace tessera::codegen
