#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/numeric.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

// Lanes [first, last) in pieces that memory can be read and written in, largest first.
template <typename F>
void for_pieces(std::pair<int, int> lanes, const F& f) {
    for (int from = lanes.first; from < lanes.second;) {
        const int count = static_cast<int>(std::bit_floor(static_cast<unsigned>(lanes.second - from)));
        f(from, count);
        from += count;
    }
}

// Lanes that lie a few elements apart, out of whole vectors between the first and the last of them; null where that
// would take more than half as many loads as there are lanes. `load` is told which lane each element is of, or -1.
template <typename Load>
Value* load_spaced(llvm::IRBuilder<>& builder, llvm::FixedVectorType* vector, Value* first, int64_t apart,
                   const Load& load) {
    const auto lanes = static_cast<int>(vector->getNumElements());
    const int64_t span = (lanes - 1) * apart + 1;
    std::vector<int64_t> starts;
    std::vector<std::pair<size_t, int>> from;  // by lane: vector, place in it
    for (int64_t lane = 0; lane < lanes; ++lane) {
        const int64_t element = lane * apart;
        if (starts.empty() || element >= starts.back() + lanes) starts.push_back(std::min(element, span - lanes));
        from.emplace_back(starts.size() - 1, static_cast<int>(element - starts.back()));
    }
    if (span < lanes || starts.size() * 2 > static_cast<size_t>(lanes)) return nullptr;
    Value* out = nullptr;
    for (size_t v = 0; v < starts.size(); ++v) {
        Value* place = builder.CreateGEP(vector->getElementType(), first, builder.getInt64(starts[v]));
        std::vector<int> taken, lane_of(static_cast<size_t>(lanes), -1);
        for (int lane = 0; lane < lanes; ++lane) {
            const auto& [number, at_place] = from[static_cast<size_t>(lane)];
            taken.push_back(number == v ? lanes + at_place : number < v ? lane : -1);
            if (number == v) lane_of[static_cast<size_t>(at_place)] = lane;
        }
        Value* part = load(place, lane_of);
        out = builder.CreateShuffleVector(out ? out : llvm::PoisonValue::get(vector), part, taken);
    }
    return out;
}

// Of select(x == x, x, -inf), which is no larger than anything where x is NaN, x; or of +inf, which is no smaller.
std::optional<Expr> number_or_nothing(const Expr& e, bool largest) {
    if (!e.is(ExprKind::Select) || e.dtype() != DType::f32 || !e.arg(0).is(ExprKind::Eq)) return {};
    const Expr &a = e.arg(0).arg(0), &b = e.arg(0).arg(1), &x = e.arg(1), &nothing = e.arg(2);
    if (!a.same(x) || !b.same(x) || !nothing.is(ExprKind::Const) || !std::isinf(nothing.node().real)) return {};
    return std::signbit(nothing.node().real) == largest ? std::optional(x) : std::nullopt;
}

}  // namespace

Value* Emitter::emit_load(const Expr& e) {
    const Slot& slot = slots_[e.node().slot];
    CHECK(slot.base, "kernel {}: {} is read outside its Alloc", kernel_.name, kernel_.buffers[e.node().slot].name);
    const Linear at = offset_of(slot, e.args());
    const bool safe = !mask_ || in_bounds(slot, e.args());
    if (!safe || at.irregular) return from_memory(load_from(slot, at, safe), slot.dtype);
    LoadKey key{e.node().slot, at.uniform() ? 1 : lanes_, at.constant, at.lane, {}};
    for (const auto& t : at.terms) key.terms.emplace_back(t.value, t.factor);
    std::sort(key.terms.begin(), key.terms.end());
    auto [known, added] = loads_.try_emplace(std::move(key));
    if (added) known->second = from_memory(load_from(slot, at, true), slot.dtype);
    return known->second;
}

void Emitter::forget_loads(int slot) {
    const auto params = static_cast<int>(kernel_.params);
    std::erase_if(loads_, [&](const auto& entry) {
        const int other = entry.first.slot;
        return other == slot || (other < params && slot < params);
    });
}

bool Emitter::is_own_vector(const Slot& slot, const Linear& at) const {
    if (at.lane != 1 || at.irregular || !at.terms.empty()) return false;
    return at.constant >= 0 && at.constant + lanes_ <= slot.own;
}

std::optional<std::pair<int, int>> Emitter::lanes_on() const {
    auto* mask = llvm::dyn_cast_or_null<llvm::Constant>(mask_);
    if (!mask) return {};
    std::vector<bool> on;
    for (unsigned i = 0; i < static_cast<unsigned>(lanes_); ++i) {
        auto* lane = llvm::dyn_cast_or_null<llvm::ConstantInt>(mask->getAggregateElement(i));
        if (!lane) return {};
        on.push_back(lane->isOne());
    }
    const auto first = std::find(on.begin(), on.end(), true), last = std::find(first, on.end(), false);
    if (std::find(last, on.end(), true) != on.end()) return {};
    return std::pair(static_cast<int>(first - on.begin()), static_cast<int>(last - on.begin()));
}

// Memory that others allocated is aligned to the widest access where there are blocks; elsewhere nothing is known of
// it.
llvm::Align Emitter::align_of(const Slot& slot, const Linear& at) const {
    const auto bytes = static_cast<uint64_t>(dtype_bytes(slot.dtype));
    if (!has_blocks() || at.irregular || slot.per_lane) return llvm::Align(bytes);
    uint64_t bits = 16 / bytes | static_cast<uint64_t>(at.constant);
    for (const auto& t : at.terms) bits |= static_cast<uint64_t>(t.factor * t.multiple);
    return llvm::Align(bytes * (bits & (~bits + 1)));
}

Value* Emitter::chosen_address(Value* condition, Value* address) {
    if (address->getType() != builder_.getPtrTy()) address = builder_.CreateAddrSpaceCast(address, builder_.getPtrTy());
    return builder_.CreateSelect(condition, address, dummy());
}

bool Emitter::gathers(size_t bytes) const {
    return target_.machine.masked && !has_blocks() && lanes_ >= 8 && bytes >= 4;
}

Value* Emitter::lane_steps(int64_t step) {
    llvm::SmallVector<uint64_t, 16> steps;
    for (int i = 0; i < lanes_; ++i) steps.push_back(static_cast<uint64_t>(i * step));
    return llvm::ConstantDataVector::get(module_.getContext(), steps);
}

llvm::Instruction* Emitter::gather(llvm::Type* vector, Value* places, llvm::Align align, bool masked) {
    Value* on = masked ? mask_ : builder_.CreateVectorSplat(static_cast<unsigned>(lanes_), builder_.getTrue());
    return builder_.CreateMaskedGather(vector, places, align, on, llvm::Constant::getNullValue(vector));
}

// In memory's type. A load under a mask, unless it is known to be in bounds, reads the dummy where a lane is off.
Value* Emitter::load_from(const Slot& slot, const Linear& at, bool in_bounds) {
    llvm::Type* type = memory_type(slot.dtype);
    const llvm::Align align(dtype_bytes(slot.dtype));
    auto load = [&](llvm::Type* t, Value* from) {
        return tag(builder_.CreateAlignedLoad(t, from, align), slot.scope, slot.noalias);
    };
    if (at.uniform()) {
        Value* from = address(slot, at);
        if (in_bounds) return load(type, from);
        return load(type, chosen_address(builder_.CreateOrReduce(mask_), from));
    }
    auto* vector = llvm::FixedVectorType::get(type, lanes_);
    if (at.lane == 1 && !at.irregular) {
        if (in_bounds)
            return tag(builder_.CreateAlignedLoad(vector, address(slot, at), align_of(slot, at)), slot.scope,
                       slot.noalias);
        if (target_.machine.masked)
            return tag(builder_.CreateMaskedLoad(vector, address(slot, at), align, mask_,
                                                 llvm::Constant::getNullValue(vector)),
                       slot.scope, slot.noalias);
        if (auto on = lanes_on()) {
            Value *out = llvm::PoisonValue::get(vector), *first = address(slot, at);
            for_pieces(*on, [&](int from, int count) {
                auto* piece = llvm::FixedVectorType::get(type, static_cast<unsigned>(count));
                Value* v = load(piece, builder_.CreateGEP(type, first, builder_.getInt64(from)));
                std::vector<int> wide(static_cast<size_t>(lanes_), -1), both;
                for (int i = 0; i < count; ++i) wide[static_cast<size_t>(from + i)] = i;
                v = builder_.CreateShuffleVector(v, wide);
                for (int i = 0; i < lanes_; ++i) both.push_back(i >= from && i < from + count ? lanes_ + i : i);
                out = builder_.CreateShuffleVector(out, v, both);
            });
            return out;
        }
    }
    Value* offsets = at.irregular ? lane_offsets(at) : nullptr;
    Value* first = offsets ? nullptr : address(slot, at);
    if (in_bounds && first && at.lane > 1 && !has_blocks()) {
        auto whole = [&](Value* from, const std::vector<int>&) { return load(vector, from); };
        if (Value* spaced = load_spaced(builder_, vector, first, at.lane, whole)) return spaced;
    }
    if (!in_bounds && first && at.lane > 1 && target_.machine.masked && !gathers(dtype_bytes(slot.dtype))) {
        auto some = [&](Value* from, std::vector<int> lane_of) {
            std::replace(lane_of.begin(), lane_of.end(), -1, lanes_);
            Value* on = builder_.CreateShuffleVector(mask_, llvm::Constant::getNullValue(mask_->getType()), lane_of);
            return tag(builder_.CreateMaskedLoad(vector, from, align, on, llvm::Constant::getNullValue(vector)),
                       slot.scope, slot.noalias);
        };
        if (Value* spaced = load_spaced(builder_, vector, first, at.lane, some)) return spaced;
    }
    // Wide vectors have an instruction for it.
    if (gathers(dtype_bytes(slot.dtype)) && (offsets || (!in_bounds && at.lane != 1))) {
        Value* places = builder_.CreateGEP(type, offsets ? slot.base : first, offsets ? offsets : lane_steps(at.lane));
        return tag(gather(vector, places, align, !in_bounds), slot.scope, slot.noalias);
    }
    auto one_by_one = [&](bool masked) {
        Value* out = llvm::PoisonValue::get(vector);
        const std::vector<Value*> places = lane_addresses(slot, at);
        for (int i = 0; i < lanes_; ++i) {
            Value* from = places[static_cast<size_t>(i)];
            if (masked) from = chosen_address(builder_.CreateExtractElement(mask_, i), from);
            out = builder_.CreateInsertElement(out, load(type, from), i);
        }
        return out;
    };
    if (in_bounds || has_blocks() || at.lane < 1 || offsets || llvm::isa<llvm::Constant>(mask_))
        return one_by_one(!in_bounds);
    // Next to an edge, all lanes of most vectors still lie in the buffer, and what is read beside the mask is left out.
    Expr last = 0;
    for (size_t d = 0; d < slot.shape.size(); ++d) last = last + (slot.shape[d] - 1) * slot.strides[d];
    if (slot.per_lane) last = last * slot.per_lane + (slot.per_lane - 1);
    Value *begin = sum_of(at), *end = builder_.CreateAdd(begin, builder_.getInt64((lanes_ - 1) * at.lane));
    Value* lies = builder_.CreateAnd(builder_.CreateICmpSGE(begin, builder_.getInt64(0)),
                                     builder_.CreateICmpSLE(end, emit_alone(last)));
    llvm::LLVMContext& c = module_.getContext();
    auto* whole = llvm::BasicBlock::Create(c, "whole", function_);
    auto* some = llvm::BasicBlock::Create(c, "some", function_);
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    builder_.CreateCondBr(lies, whole, some);
    builder_.SetInsertPoint(whole);
    auto part = [&](Value* from, const std::vector<int>&) { return load(vector, from); };
    Value* all = at.lane == 1 ? load(vector, first) : load_spaced(builder_, vector, first, at.lane, part);
    if (!all) all = one_by_one(false);
    builder_.CreateBr(after);
    builder_.SetInsertPoint(some);
    Value* parts = one_by_one(true);
    builder_.CreateBr(after);
    builder_.SetInsertPoint(after);
    auto* phi = builder_.CreatePHI(vector, 2);
    phi->addIncoming(all, whole);
    phi->addIncoming(parts, some);
    return phi;
}

// Lanes of several vectors, whole ones, are stored one vector after the other: what LLVM forwards to loads of one
// vector, it would otherwise take apart element by element.
bool Emitter::store_by_vectors(const Slot& slot, const Linear& at, Value* v) {
    const auto bytes = static_cast<int64_t>(dtype_bytes(slot.dtype));
    const auto lanes = static_cast<int>(std::max<int64_t>(1, target_.machine.vector_bytes / bytes));
    const auto on = mask_ ? lanes_on() : std::pair(0, lanes_);
    if (has_blocks() || lanes_ <= lanes || !on || on->first % lanes || on->second % lanes) return false;
    Value* first = address(slot, at);
    for (int from = on->first; from < on->second; from += lanes) {
        std::vector<int> taken(static_cast<size_t>(lanes));
        std::iota(taken.begin(), taken.end(), from);
        Value* to = builder_.CreateGEP(memory_type(slot.dtype), first, builder_.getInt64(static_cast<uint64_t>(from)));
        tag(builder_.CreateAlignedStore(builder_.CreateShuffleVector(v, taken), to,
                                        llvm::Align(static_cast<uint64_t>(bytes))),
            slot.scope, slot.noalias);
    }
    return true;
}

void Emitter::store_lanes(const Slot& slot, const Linear& at, Value* v) {
    if (storing_ && streams_to(storing_->buffer) && v->getType()->isVectorTy()) {
        const Access* storing = std::exchange(storing_, nullptr);
        const bool done = stream_lanes(slot, at, v, streams_to(storing->buffer), [&] { store_lanes(slot, at, v); });
        storing_ = storing;
        if (done) return;
    }
    llvm::Type* type = memory_type(slot.dtype);
    const llvm::Align align(dtype_bytes(slot.dtype));
    auto save = [&](Value* what, Value* to) {
        tag(builder_.CreateAlignedStore(what, to, align), slot.scope, slot.noalias);
    };
    if (at.uniform() && !v->getType()->isVectorTy()) {
        Value* to = address(slot, at);
        if (mask_) to = chosen_address(builder_.CreateOrReduce(mask_), to);
        return save(v, to);
    }
    v = splat(v);
    if (at.lane == 1 && !at.irregular && store_by_vectors(slot, at, v)) return;
    if (at.lane == 1 && !at.irregular) {
        if (!mask_) {
            // Several words of bytes are stored at once as words.
            if (has_blocks() && dtype_bytes(slot.dtype) == 1 && lanes_ % 4 == 0)
                v = builder_.CreateBitCast(
                    v, llvm::FixedVectorType::get(builder_.getInt32Ty(), static_cast<unsigned>(lanes_ / 4)));
            tag(builder_.CreateAlignedStore(v, address(slot, at), align_of(slot, at)), slot.scope, slot.noalias);
            return;
        }
        if (is_own_vector(slot, at)) {
            Value* to = address(slot, at);
            Value* old = tag(builder_.CreateAlignedLoad(v->getType(), to, align), slot.scope, slot.noalias);
            return save(builder_.CreateSelect(mask_, v, old), to);
        }
        if (target_.machine.masked) {
            tag(builder_.CreateMaskedStore(v, address(slot, at), align, mask_), slot.scope, slot.noalias);
            return;
        }
        if (auto on = lanes_on()) {
            Value* first = address(slot, at);
            for_pieces(*on, [&](int from, int count) {
                std::vector<int> taken;
                for (int i = 0; i < count; ++i) taken.push_back(from + i);
                save(builder_.CreateShuffleVector(v, taken), builder_.CreateGEP(type, first, builder_.getInt64(from)));
            });
            return;
        }
    }
    Value* offsets = at.irregular ? lane_offsets(at) : nullptr;
    Value* first = offsets ? nullptr : address(slot, at);
    if (mask_ && !at.uniform() && gathers(dtype_bytes(slot.dtype))) {
        Value* places = builder_.CreateGEP(type, offsets ? slot.base : first, offsets ? offsets : lane_steps(at.lane));
        tag(builder_.CreateMaskedScatter(v, places, align, mask_), slot.scope, slot.noalias);
        return;
    }
    auto one_by_one = [&] {
        const std::vector<Value*> places = lane_addresses(slot, at);
        for (int i = 0; i < lanes_; ++i) {
            Value* to = places[static_cast<size_t>(i)];
            if (mask_) to = chosen_address(builder_.CreateExtractElement(mask_, i), to);
            save(builder_.CreateExtractElement(v, i), to);
        }
    };
    if (!mask_ || has_blocks() || at.lane != 1 || offsets || llvm::isa<llvm::Constant>(mask_)) return one_by_one();
    // Next to an edge, most vectors still have all of their lanes.
    llvm::LLVMContext& c = module_.getContext();
    auto* whole = llvm::BasicBlock::Create(c, "whole", function_);
    auto* some = llvm::BasicBlock::Create(c, "some", function_);
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    builder_.CreateCondBr(builder_.CreateAndReduce(mask_), whole, some);
    builder_.SetInsertPoint(whole);
    save(v, first);
    builder_.CreateBr(after);
    builder_.SetInsertPoint(some);
    one_by_one();
    builder_.CreateBr(after);
    builder_.SetInsertPoint(after);
}

void Emitter::emit_store(const Store& s) {
    const Slot& slot = slots_[s.to.buffer];
    CHECK(slot.base, "kernel {}: {} is written outside its Alloc", kernel_.name, kernel_.buffers[s.to.buffer].name);
    storing_ = &s.to;
    if (s.combine)
        emit_combine(s);
    else if (!copy_vector(s))
        store_lanes(slot, offset_of(slot, s.to.indices), to_memory(emit(s.value), slot.dtype));
    storing_ = nullptr;
    forget_loads(s.to.buffer);
}

void Emitter::emit_combine(const Store& s) {
    const Slot& slot = slots_[s.to.buffer];
    for (const Accumulator& a : accumulators_) {
        if (a.store != &s) continue;
        auto* type = llvm::FixedVectorType::get(scalar_type(slot.dtype), lanes_);
        Value* old = builder_.CreateLoad(type, a.memory);
        Value* sum = splat(combined(*s.combine, slot.dtype, old, s.value));
        builder_.CreateStore(mask_ ? builder_.CreateSelect(mask_, sum, old) : sum, a.memory);
        return;
    }
    Linear at = offset_of(slot, s.to.indices);
    if (at.uniform() && lanes_ > 1) {
        Value* v = splat(emit(s.value));
        if (mask_) v = builder_.CreateSelect(mask_, v, splat(identity(*s.combine, slot.dtype)));
        Value* old = from_memory(load_from(slot, at, !mask_), slot.dtype);
        return store_lanes(slot, at, to_memory(reduce_lanes(*s.combine, slot.dtype, v, old), slot.dtype));
    }
    if (at.irregular && lanes_ > 1) {  // lanes may meet in one element: one after the other
        Value* v = splat(emit(s.value));
        Value* offsets = lane_offsets(at);
        Value* mask = std::exchange(mask_, nullptr);
        llvm::Type* type = memory_type(slot.dtype);
        const llvm::Align align(dtype_bytes(slot.dtype));
        const int lanes = std::exchange(lanes_, 1);
        const ExprKind kinds[] = {ExprKind::Add, ExprKind::Mul, ExprKind::Min, ExprKind::Max};
        for (int i = 0; i < lanes; ++i) {
            Value* to = builder_.CreateGEP(type, slot.base, builder_.CreateExtractElement(offsets, i));
            if (mask) to = chosen_address(builder_.CreateExtractElement(mask, i), to);
            Value* old = tag(builder_.CreateAlignedLoad(type, to, align), slot.scope, slot.noalias);
            Value* sum = binary(kinds[static_cast<int>(*s.combine)], slot.dtype, from_memory(old, slot.dtype),
                                builder_.CreateExtractElement(v, i));
            tag(builder_.CreateAlignedStore(to_memory(sum, slot.dtype), to, align), slot.scope, slot.noalias);
        }
        lanes_ = lanes;
        mask_ = mask;
        return;
    }
    Value* old = from_memory(load_from(slot, at, !mask_ || is_own_vector(slot, at)), slot.dtype);
    store_lanes(slot, at, to_memory(combined(*s.combine, slot.dtype, old, s.value), slot.dtype));
}

Value* Emitter::combined(ReduceOp op, DType dtype, Value* old, const Expr& value) {
    if (op == ReduceOp::Sum)
        if (auto sum = fused(dtype, value, old, false)) return *sum;
    const bool largest = op == ReduceOp::Max;
    if (auto x = number_or_nothing(value, largest); x && (largest || op == ReduceOp::Min)) {
        Value *v = emit(*x), *before = old;
        match(before, v);
        if (Value* made = target_.code->extreme_of_numbers(builder_, target_.machine, largest, v, before)) return made;
    }
    const ExprKind kinds[] = {ExprKind::Add, ExprKind::Mul, ExprKind::Min, ExprKind::Max};
    return binary(kinds[static_cast<int>(op)], dtype, old, emit(value));
}

Value* Emitter::identity(ReduceOp op, DType dtype) {
    llvm::Type* type = scalar_type(dtype);
    if (is_float(dtype)) {
        if (op == ReduceOp::Sum) return llvm::ConstantFP::get(type, -0.0);
        if (op == ReduceOp::Prod) return llvm::ConstantFP::get(type, 1.0);
        return llvm::ConstantFP::getInfinity(type, op == ReduceOp::Max);
    }
    switch (op) {
        case ReduceOp::Sum: return of_int(type, 0);
        case ReduceOp::Prod: return of_int(type, 1);
        case ReduceOp::Min: return of_int(type, dtype == DType::boolean ? 1 : int_max(dtype));
        case ReduceOp::Max: return of_int(type, dtype == DType::boolean ? 0 : int_min(dtype));
    }
    return nullptr;
}

}  // namespace tessera::codegen
