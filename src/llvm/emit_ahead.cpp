// Software pipelining of loops with products (kernel/from_tile/fetch_ahead.h). Each prefetched tile has a ring buffer
// in shared memory. Threads issue cp.async copies some iterations ahead, and wait for them at the beginning of the
// iteration that needs them, with a block-wide barrier: that is the only barrier for the tiles.
//
// Warpgroup products (wgmma) run asynchronously until the first use of their accumulators. If a loop contains nothing
// else, the products of one iteration overlap the next: a stage of the ring is free again two iterations later.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

#include "base/check.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

using Place = TargetCode::Place;

}  // namespace

Emitter::Ring Emitter::ring_at(const AheadPlan& plan, Value* place) {
    Ring ring{&plan};
    for (const auto& [tile, bytes] : plan.tiles) {
        Value* at = builder_.CreateMul(place, builder_.getInt32(static_cast<uint32_t>(bytes)));
        at = builder_.CreateAdd(at, builder_.getInt32(static_cast<uint32_t>(plan_->shared.at(tile).offset)));
        ring.bases[tile] = builder_.CreateGEP(builder_.getInt8Ty(), launched_memory(), at);
    }
    return ring;
}

void Emitter::bring_tiles(const For& loop, const AheadPlan& plan, Value* iteration, Value* place) {
    rings_.push_back(ring_at(plan, place));
    bringing_ = true;
    loads_.clear();
    std::map<int, Value*> before;
    for (const auto& [tile, base] : rings_.back().bases)
        before[tile] = std::exchange(slots_[static_cast<size_t>(tile)].base, base);
    with_binding(loop.var, {iteration, 0, false, depth_, last_of(loop.extent)}, [&] {
        visit(loop.body, [&](const Stmt& s) {
            const For* nest = s->as<For>();
            if (nest && nest->notes.contains("brings")) emit_threads(*nest);
        });
    });
    for (const auto& [tile, base] : before) slots_[static_cast<size_t>(tile)].base = base;
    loads_.clear();
    bringing_ = false;
    rings_.pop_back();
}

void Emitter::emit_ahead(const For& loop, const AheadPlan& plan) {
    settle_all();
    if (!plan_->panels.empty()) assembly("fence.proxy.async.shared::cta;", "", {});
    meet();
    open_ = {};
    Value* count = emit_alone(loop.extent);
    // Sums that go on meet no others before they are settled.
    emit_where(builder_.CreateICmpSGT(count, builder_.getInt64(0)), [&] { emit_ahead(loop, plan, count); });
    meet();
    open_ = {};
}

void Emitter::emit_ahead(const For& loop, const AheadPlan& plan, Value* count) {
    llvm::Type* word = builder_.getInt32Ty();
    const auto bring = [&](Value* iteration, Value* place) {
        emit_where(builder_.CreateICmpSLT(iteration, count), [&] { bring_tiles(loop, plan, iteration, place); });
        assembly("cp.async.commit_group;", "", {});
    };
    for (int64_t i = 0; i < plan.ahead; ++i)
        bring(builder_.getInt64(static_cast<uint64_t>(i)), builder_.getInt32(static_cast<uint32_t>(i)));
    llvm::AllocaInst *read = stack_memory(builder_, word, "read"), *write = stack_memory(builder_, word, "write");
    const auto advance_place = [&](llvm::AllocaInst* place) {
        Value* next = builder_.CreateAdd(builder_.CreateLoad(word, place), builder_.getInt32(1));
        Value* over = builder_.CreateICmpEQ(next, builder_.getInt32(static_cast<uint32_t>(plan.places)));
        builder_.CreateStore(builder_.CreateSelect(over, builder_.getInt32(0), next), place);
    };
    builder_.CreateStore(builder_.getInt32(0), read);
    builder_.CreateStore(builder_.getInt32(static_cast<uint32_t>(plan.ahead % plan.places)), write);
    emit_loop(builder_.getInt64(0), count, 1, true, [&](Value* i) {
        assembly(fmt::format("cp.async.wait_group {};", plan.ahead - 1), "", {});
        if (!plan_->panels.empty()) assembly("fence.proxy.async.shared::cta;", "", {});
        meet();
        open_ = {};
        Ring ring = ring_at(plan, builder_.CreateLoad(word, read));
        ring.bring = [&] {
            bring(builder_.CreateAdd(i, builder_.getInt64(static_cast<uint64_t>(plan.ahead))),
                  builder_.CreateLoad(word, write));
        };
        rings_.push_back(std::move(ring));
        if (plan_->wide.empty()) std::exchange(rings_.back().bring, {})();
        with_binding(loop.var, {i, 0, false, depth_, last_of(loop.extent)}, [&] { emit_block(loop.body); });
        if (auto begin = std::exchange(rings_.back().bring, {})) begin();
        rings_.pop_back();
        if (plan.goes_on) {
            // Those of the iteration before have ended; sums stay where they are.
            assembly(fmt::format("wgmma.wait_group.sync.aligned {};", begun_.size()), "", {});
        } else {
            settle_all();
        }
        advance_place(read);
        advance_place(write);
    });
    settle_all();
    assembly("cp.async.wait_group 0;", "", {});
}

// A vector that is loaded from global memory, or zeros, and stored as it is.
bool Emitter::copy_vector(const Store& s) {
    const Slot& to = slots_[static_cast<size_t>(s.to.buffer)];
    const auto bytes = static_cast<int64_t>(dtype_bytes(to.dtype)) * lanes_;
    if (!bringing_ || mask_ || s.combine || (bytes != 16 && bytes != 8 && bytes != 4)) return false;
    Expr value = s.value;
    std::optional<Expr> condition;
    if (value.is(ExprKind::Select)) {
        const Expr& none = value.arg(2);
        const bool zero = none.is(ExprKind::Const) &&
                          (is_float(none.dtype()) ? none.node().real == 0 && !std::signbit(none.node().real)
                                                  : none.node().integer == 0);
        if (!zero || depends_on_lane(value.arg(0))) return false;
        condition = value.arg(0);
        value = value.arg(1);
    }
    if (!value.is(ExprKind::Load) || static_cast<size_t>(value.node().slot) >= kernel_.params) return false;
    const Slot& from = slots_[static_cast<size_t>(value.node().slot)];
    if (from.dtype != to.dtype) return false;
    const Linear target = offset_of(to, s.to.indices), source = offset_of(from, value.args());
    if (target.lane != 1 || target.irregular || source.lane != 1 || source.irregular) return false;
    const auto least = std::min(align_of(from, source), align_of(to, target));
    if (least.value() < static_cast<uint64_t>(bytes)) return false;
    Value* into = builder_.CreatePtrToInt(address(to, target), builder_.getInt32Ty());
    Value* out_of = builder_.CreatePtrToInt(address(from, source), i64());
    std::vector<Value*> arguments{into, out_of};
    if (condition) {
        Value* all = builder_.getInt32(static_cast<uint32_t>(bytes));
        arguments.push_back(builder_.CreateSelect(emit(*condition), all, builder_.getInt32(0)));
    }
    assembly(fmt::format("cp.async.{}.shared.global [$0], [$1], {}{};", bytes == 16 ? "cg" : "ca", bytes,
                         condition ? ", $2" : ""),
             condition ? "r,l,r" : "r,l", arguments);
    return true;
}

// `further` in bytes.
Value* Emitter::panel_descriptor(int buffer, bool along_k, Value* further) {
    const Slot& slot = slots_[static_cast<size_t>(buffer)];
    const int64_t row_bytes = static_cast<int64_t>(dtype_bytes(slot.dtype)) * slot.panel,
                  next_panel = along_k ? 16 : *slot.shape[0].as_int() * row_bytes;
    const int64_t exchanged = row_bytes == kPanelBytes ? 1 : row_bytes == kPanelBytes / 2 ? 2 : 3;  // how pieces are
    Value* at = builder_.CreatePtrToInt(slot.base, builder_.getInt32Ty());
    if (further) at = builder_.CreateAdd(at, further);
    at = builder_.CreateAnd(builder_.CreateLShr(at, builder_.getInt32(4)), builder_.getInt32(0x3FFF));
    at = builder_.CreateOr(at, builder_.getInt32(static_cast<uint32_t>((next_panel >> 4) << 16)));
    const auto high = static_cast<uint64_t>((8 * row_bytes >> 4) | (exchanged << 30));
    return builder_.CreateOr(builder_.CreateZExt(at, i64()), builder_.getInt64(high << 32));
}

// Sums of some products alone, in registers of their own: these take the place of the sums until they are added to
// them.
Emitter::Part Emitter::begin_part(int sums, int64_t count) {
    settle_all();
    Slot& slot = slots_[static_cast<size_t>(sums)];
    auto* type = llvm::ArrayType::get(memory_type(slot.dtype), static_cast<uint64_t>(count));
    return {std::exchange(slot.base, stack_memory(builder_, type, "part")), std::exchange(slot.own, count)};
}

// To the sums from element `first` on.
void Emitter::add_part(const Part& whole, int sums, int64_t first) {
    assembly("wgmma.commit_group.sync.aligned;", "", {});
    settle_sums(sums);
    const Slot& part = slots_[static_cast<size_t>(sums)];
    llvm::Type* type = memory_type(part.dtype);
    const auto at = [&](Value* base, int64_t i) {
        return builder_.CreateConstInBoundsGEP1_64(type, base, static_cast<uint64_t>(i));
    };
    for (int64_t i = 0; i < part.own; ++i) {
        Value* to = at(whole.base, first + i);
        builder_.CreateStore(
            builder_.CreateFAdd(builder_.CreateLoad(type, to), builder_.CreateLoad(type, at(part.base, i))), to);
    }
    assembly("wgmma.fence.sync.aligned;", "", {});
}

void Emitter::emit_wide(const Call& call) {
    enum WideAxis : size_t { kU, kC, kV, kX, kH, kG, kT, kP, kY, kS, kQ, kWideAxes };
    const Intrinsic& known = *find_intrinsic(call.name);
    auto stride = [&](size_t operand, size_t axis) { return *call.args[operand * kWideAxes + axis].as_int(); };
    auto extent = [&](size_t axis) { return *known.axes[axis].extent.as_int(); };
    const int64_t down = extent(kU), across = extent(kC), squares = extent(kV), columns = extent(kX) * 8;
    const int64_t depth = *known.reduce[0].extent.as_int() * 8;
    auto number = [&](int64_t n) { return builder_.getInt32(static_cast<uint32_t>(n)); };
    // An operand in shared memory: whether its rows are along what is added up, and its size in bytes.
    struct Operand {
        bool along_k;
        int64_t row, panel;
        int64_t side(int64_t elements) const { return along_k ? elements * row : elements * 2 / row * panel; }
        int64_t step(int64_t i) const {
            if (!along_k) return i * 16 * row;
            return i * kMatrixBytes / row * panel + i * kMatrixBytes % row;
        }
    };
    auto operand = [&](size_t read) {
        const Slot& slot = slots_[static_cast<size_t>(call.reads[read].buffer)];
        const int64_t row = static_cast<int64_t>(dtype_bytes(slot.dtype)) * slot.panel;
        return Operand{stride(read + 1, kQ) == 1, row, *slot.shape[0].as_int() * row};
    };
    const Operand left = operand(0), right = operand(1);
    // As the compiler sees, the same in all threads of a warp.
    Value* warp =
        builder_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {},
                                 {number(-1), target_.code->place(builder_, Place::Thread, 2), number(0), number(31)});
    const int64_t groups = down / 4;  // of four warps, one below the other
    Value* group = builder_.CreateLShr(warp, number(2));
    Value *a = nullptr, *beside = nullptr;
    if (!known.from_threads) {
        Value* below = groups == 1 ? nullptr : across == 1 ? group : builder_.CreateURem(group, number(groups));
        if (below) below = builder_.CreateMul(below, number(left.side(64)));
        a = panel_descriptor(call.reads[0].buffer, left.along_k, below);
    }
    if (across > 1) {
        if (!right.along_k && columns * 2 % right.row)
            return fail(Error(Code::E0604, "kernel {}: warps share a panel of columns", kernel_.name));
        beside = builder_.CreateMul(builder_.CreateUDiv(group, number(groups)), number(right.side(columns)));
    }
    Value* b = panel_descriptor(call.reads[1].buffer, right.along_k, beside);
    auto further = [&](Value* from, int64_t bytes) {
        return builder_.CreateAdd(from, builder_.getInt64(static_cast<uint64_t>(bytes >> 4)));
    };
    const int64_t steps = depth / matrix_depth(known.multiplied);
    const bool in_parts = columns_in_parts(call) > 0;
    const int64_t every =
        in_parts ? std::clamp<int64_t>(*call.args.back().as_int() / matrix_depth(known.multiplied), 1, steps) : steps;
    const int sums = call.writes[0].buffer;
    const Part whole = in_parts ? begin_part(sums, columns / 2) : Part();
    assembly("wgmma.fence.sync.aligned;", "", {});
    for (int64_t square = 0; square < squares; ++square)
        for (int64_t step = 0; step < steps; ++step) {
            std::vector<Value*> operands;
            if (a) operands.push_back(further(a, left.step(step) + left.side(64 * groups) * square));
            for (int64_t i = 0; !a && i < 4; ++i) {  // pairs of columns, by half and then by 8
                const Slot& slot = slots_[static_cast<size_t>(call.reads[0].buffer)];
                const int64_t element = square * stride(1, kV) + (2 * step + i / 2) * 4 + i % 2 * 2;
                Value* at = builder_.CreateConstInBoundsGEP1_64(memory_type(slot.dtype), slot.base,
                                                                static_cast<uint64_t>(element));
                operands.push_back(builder_.CreateLoad(builder_.getInt32Ty(), at));
            }
            operands.push_back(further(b, right.step(step)));
            add_wide_product({.sums = sums,
                              .first = in_parts ? 0 : square * stride(0, kV),
                              .columns = columns,
                              .dtype = known.multiplied,
                              .by = known.multiplied_by,
                              .fresh = in_parts && step % every == 0,
                              .a_across = !left.along_k,
                              .b_across = !right.along_k},
                             operands);
            if (in_parts && (step + 1 == steps || (step + 1) % every == 0))
                add_part(whole, sums, square * stride(0, kV));
        }
    if (in_parts) {
        slots_[static_cast<size_t>(sums)].base = whole.base;
        slots_[static_cast<size_t>(sums)].own = whole.own;
        forget_loads(sums);
        if (rings_.empty()) return;
        if (auto begin = std::exchange(rings_.back().bring, {})) begin();
        return;
    }
    assembly("wgmma.commit_group.sync.aligned;", "", {});
    begun_.push_back({sums, known.from_threads ? call.reads[0].buffer : -1});
    forget_loads(sums);
    if (rings_.empty()) return settle_all();
    if (auto begin = std::exchange(rings_.back().bring, {})) begin();
    // What else it reads must stay as it is: nothing in the loop writes it, or takes its place.
    for (size_t i = known.from_threads ? 1 : 0; i < call.reads.size(); ++i)
        if (rings_.back().plan->written.contains(call.reads[i].buffer)) return settle_all();
}

// Statements that may not be carried out, or more than once, begin no copies.
void Emitter::without_bringing(const std::function<void()>& body) {
    std::function<void()> kept;
    if (!rings_.empty()) kept = std::exchange(rings_.back().bring, {});
    body();
    settle_all();
    if (!rings_.empty()) rings_.back().bring = std::move(kept);
}

void Emitter::settle_all() {
    for (size_t i = 0; i < begun_.size(); ++i) settle_sums(begun_[i].sums, static_cast<int>(begun_.size() - 1 - i));
    begun_.clear();
}

void Emitter::settle_touched(const Stmt& s) {
    if (begun_.empty()) return;
    std::set<int> touched = written_buffers(s);
    visit(s, [&](const Stmt& x) {
        if (const Call* call = x->as<Call>())
            for (const Access& a : call->reads) touched.insert(a.buffer);
    });
    visit_exprs(s, [&](const Expr& e) {
        visit(e, [&](const Expr& x) {
            if (x.is(ExprKind::Load)) touched.insert(x.node().slot);
        });
    });
    size_t last = 0;
    for (size_t i = 0; i < begun_.size(); ++i)
        if (touched.contains(begun_[i].sums) || touched.contains(begun_[i].operand)) last = i + 1;
    for (size_t i = 0; i < last; ++i) settle_sums(begun_[i].sums, static_cast<int>(begun_.size() - 1 - i));
    begun_.erase(begun_.begin(), begun_.begin() + static_cast<std::ptrdiff_t>(last));
}

}  // namespace tessera::codegen
