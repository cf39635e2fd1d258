#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "llvm/emitter.h"
#include "llvm/vector_math.h"

namespace tessera::codegen {

namespace {
constexpr int64_t kMostLaneStep = 64;  // from lane to lane, for which lanes are told apart by their numbers
}

Value* Emitter::emit(const Expr& e) {
    for (const auto& layer : memo_)
        if (auto it = layer.find(e.get()); it != layer.end()) return it->second.value;
    Value* v = emit_new(e);
    memo_.back().insert_or_assign(e.get(), Emitted{e, v});
    return v;
}

Value* Emitter::emit_new(const Expr& e) {
    llvm::Type* type = scalar_type(e.dtype());
    switch (e.kind()) {
        case ExprKind::Const:
            if (is_float(e.dtype())) return llvm::ConstantFP::get(type, e.node().real);
            return of_int(type, e.node().integer);
        case ExprKind::Var: return lane_offsets(linear(e));
        case ExprKind::Load: return emit_load(e);
        case ExprKind::Add:
        case ExprKind::Sub: return emit_sum(e);
        case ExprKind::FloorDiv:
        case ExprKind::Mod:
            return e.dtype() == DType::i64 && !e.node().reads ? lane_offsets(linear_quotient(e)) : emit_binary(e);
        case ExprKind::Not:
        case ExprKind::BitNot: return builder_.CreateNot(emit(e.arg(0)));
        case ExprKind::Neg: {
            Value* v = emit(e.arg(0));
            return is_float(e.dtype()) ? builder_.CreateFNeg(v) : builder_.CreateNeg(v);
        }
        case ExprKind::Lt:
        case ExprKind::Le:
        case ExprKind::Eq:
        case ExprKind::Ne: return emit_compare(e);
        case ExprKind::Call: return emit_call(e);
        case ExprKind::Cast:
            if (Value* quick = quick_narrow(e)) return quick;
            return cast(emit_for_cast(e), e.arg(0).dtype(), e.dtype());
        case ExprKind::CastSaturate: return cast_saturate(emit(e.arg(0)), e.arg(0).dtype(), e.dtype());
        case ExprKind::Select: return emit_select(e);
        case ExprKind::Reduce:
            fail(Error(Code::E0601, "kernel {}: a reduction inside an expression", kernel_.name));
            return llvm::PoisonValue::get(type);
        default: return emit_binary(e);
    }
}

Value* Emitter::emit_sum(const Expr& e) {
    if (e.dtype() == DType::i64 && e.is(ExprKind::Add) && !e.node().reads) return lane_offsets(linear(e));
    if (is_float(e.dtype()) && e.args().size() == 2) {
        const bool subtract = e.is(ExprKind::Sub);
        if (e.arg(1).is(ExprKind::Mul))
            if (auto v = fused(e.dtype(), e.arg(1), emit(e.arg(0)), subtract)) return *v;
        if (e.arg(0).is(ExprKind::Mul)) {
            Value* c = emit(e.arg(1));
            if (subtract) c = builder_.CreateFNeg(c);
            if (auto v = fused(e.dtype(), e.arg(0), c, false)) return *v;
        }
    }
    return emit_binary(e);
}

// product + addend (or addend - product) with one rounding, where that is allowed.
std::optional<Value*> Emitter::fused(DType dtype, const Expr& product, Value* addend, bool negate_product) {
    if (product.is(ExprKind::Call) && is_dot(product.node().fn) && !negate_product)
        return dot(product.node().fn, addend, emit(product.arg(0)), emit(product.arg(1)));
    if (!options_.fast_math || !is_float(dtype) || !product.is(ExprKind::Mul)) return {};
    Value *a = emit(product.arg(0)), *b = emit(product.arg(1));
    if (negate_product) a = builder_.CreateFNeg(a);
    return multiply_add(a, b, addend);
}

Value* Emitter::multiply_add(Value* a, Value* b, Value* c) {
    if (a->getType()->isVectorTy() || b->getType()->isVectorTy() || c->getType()->isVectorTy())
        a = splat(a), b = splat(b), c = splat(c);
    return builder_.CreateIntrinsic(llvm::Intrinsic::fmuladd, {a->getType()}, {a, b, c});
}

// The x of 1 / (1 + exp(x)) in f32.
std::optional<Expr> Emitter::sigmoid_argument(const Expr& e) {
    auto is_one = [](const Expr& x) { return x.is(ExprKind::Const) && x.node().real == 1; };
    if (!e.is(ExprKind::Div) || !is_float(e.dtype()) || e.dtype() == DType::f64 || !is_one(e.arg(0))) return {};
    const Expr& sum = e.arg(1);
    if (!sum.is(ExprKind::Add) || sum.args().size() != 2) return {};
    for (size_t i : {0u, 1u})
        if (is_one(sum.arg(i)) && sum.arg(1 - i).is(ExprKind::Call) && sum.arg(1 - i).node().fn == Fn::Exp)
            return sum.arg(1 - i).arg(0);
    return {};
}

Value* Emitter::emit_binary(const Expr& e) {
    if (auto x = sigmoid_argument(e); x && !has_blocks())
        return VectorMath(builder_, target_).sigmoid_of_minus(emit(*x));
    const bool plain = e.dtype() == DType::i64 && !e.node().reads;
    if (plain && (e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod))) {
        Value *a = emit(e.arg(0)), *b = emit(e.arg(1));
        match(a, b);
        const bool positive = bounds(e.arg(0)).low.value_or(-1) >= 0 && bounds(e.arg(1)).low.value_or(-1) > 0;
        if (positive && has_blocks())
            if (Value* narrow = divided(e, a, b)) return narrow;
        return e.is(ExprKind::FloorDiv) ? floor_divide(a, b, positive) : floor_remainder(e.dtype(), a, b, positive);
    }
    if (e.is(ExprKind::BitOr))
        if (Value* word = emit_word(e)) return word;
    Value* out = emit(e.arg(0));
    for (size_t i = 1; i < e.args().size(); ++i) {
        Value* next = emit(e.arg(i));
        if (plain && e.is(ExprKind::Mul)) {
            match(out, next);
            out = builder_.CreateMul(out, next, "", false, true);
        } else {
            out = binary(e.kind(), e.dtype(), out, next);
        }
    }
    return out;
}

Value* Emitter::binary(ExprKind kind, DType dtype, Value* a, Value* b) {
    if (kind == ExprKind::And || kind == ExprKind::Or) {
        if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(a))
            return known->isOne() == (kind == ExprKind::And) ? b : a;
        if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(b))
            return known->isOne() == (kind == ExprKind::And) ? a : b;
    }
    match(a, b);
    const bool real = is_float(dtype), flag = dtype == DType::boolean;
    switch (kind) {
        case ExprKind::Add:
            return real ? builder_.CreateFAdd(a, b) : flag ? builder_.CreateOr(a, b) : builder_.CreateAdd(a, b);
        case ExprKind::Sub:
            return real ? builder_.CreateFSub(a, b) : flag ? builder_.CreateXor(a, b) : builder_.CreateSub(a, b);
        case ExprKind::Mul: return real ? builder_.CreateFMul(a, b) : builder_.CreateMul(a, b);
        case ExprKind::Div:
            if (Value* quick =
                    dtype == DType::f32 && rounds_to_16_bits_ ? target_.code->quick_divide(builder_, a, b) : nullptr)
                return quick;
            return real ? builder_.CreateFDiv(a, b) : int_divide(dtype, a, b);
        case ExprKind::FloorDiv: return floor_divide(a, b, false);
        case ExprKind::Mod: {
            if (!real) return floor_remainder(dtype, a, b, false);
            // The remainder, moved to the divisor's sign; a zero takes that sign too.
            Value* r = remainder(a, b);
            Value* zero = of(r, 0);
            Value* opposite = builder_.CreateXor(builder_.CreateFCmpOLT(r, zero), builder_.CreateFCmpOLT(b, zero));
            Value* none = builder_.CreateFCmpOEQ(r, zero);
            Value* moved = builder_.CreateSelect(opposite, builder_.CreateFAdd(r, b), r);
            return builder_.CreateSelect(none, builder_.CreateCopySign(zero, b), moved);
        }
        case ExprKind::Rem: return real ? remainder(a, b) : int_remainder(dtype, a, b);
        case ExprKind::Min:
        case ExprKind::Max:
            return real ? VectorMath(builder_, target_).extreme(kind == ExprKind::Max, a, b)
                        : int_extreme(kind == ExprKind::Max, dtype, a, b);
        case ExprKind::Pow: return real ? power(dtype, a, b) : int_power(dtype, a, b);
        case ExprKind::BitAnd:
        case ExprKind::And: return builder_.CreateAnd(a, b);
        case ExprKind::BitOr:
        case ExprKind::Or: return builder_.CreateOr(a, b);
        case ExprKind::BitXor: return builder_.CreateXor(a, b);
        case ExprKind::Shl:
        case ExprKind::Shr: return shift(kind, dtype, a, b);
        default: CHECK(false, "kind {} of two values", static_cast<int>(kind));
    }
}

Value* Emitter::emit_compare(const Expr& e) {
    const DType dtype = e.arg(0).dtype();
    const bool ordered = e.is(ExprKind::Lt) || e.is(ExprKind::Le);
    if (dtype == DType::i64 && ordered && !e.node().reads) {
        Linear gap = linear(e.arg(1));
        add_linear(gap, linear(e.arg(0)), -1);
        if (e.is(ExprKind::Le)) gap.constant += 1;
        if (auto known = decided(gap)) return builder_.getInt1(*known);
        if (Value* mask = lane_mask(gap)) return mask;
    }
    Value *a = emit(e.arg(0)), *b = emit(e.arg(1));
    match(a, b);
    using P = llvm::CmpInst;
    if (is_float(dtype)) {
        switch (e.kind()) {
            case ExprKind::Lt: return builder_.CreateFCmpOLT(a, b);
            case ExprKind::Le: return builder_.CreateFCmpOLE(a, b);
            case ExprKind::Eq: return builder_.CreateFCmpOEQ(a, b);
            default: return builder_.CreateFCmpUNE(a, b);
        }
    }
    const bool is_signed = is_signed_int(dtype);
    switch (e.kind()) {
        case ExprKind::Lt: return builder_.CreateICmp(is_signed ? P::ICMP_SLT : P::ICMP_ULT, a, b);
        case ExprKind::Le: return builder_.CreateICmp(is_signed ? P::ICMP_SLE : P::ICMP_ULE, a, b);
        case ExprKind::Eq: return builder_.CreateICmpEQ(a, b);
        default: return builder_.CreateICmpNE(a, b);
    }
}

// The lanes where gap > 0, if it falls or rises by the same each lane: those before, or from, some lane.
Value* Emitter::lane_mask(const Linear& gap) {
    const int64_t step = std::abs(gap.lane);
    if (gap.irregular || step == 0 || step > kMostLaneStep) return nullptr;
    if (gap.terms.empty()) {
        std::vector<llvm::Constant*> on;
        for (int i = 0; i < lanes_; ++i) on.push_back(builder_.getInt1(gap.constant + gap.lane * i > 0));
        return llvm::ConstantVector::get(on);
    }
    Linear start = gap;
    start.lane = 0;
    Value* at = sum_of(start);
    std::vector<llvm::Constant*> numbers;
    for (int i = 0; i < lanes_; ++i) numbers.push_back(builder_.getInt32(i));
    Value* number = llvm::ConstantVector::get(numbers);
    // How often the step goes into it, rounded up, as a lane's number.
    auto lane_of = [&](Value* v) {
        v = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, v, builder_.getInt64(0));
        v = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, v, builder_.getInt64(lanes_ * step));
        v = builder_.CreateTrunc(v, builder_.getInt32Ty());
        if (step > 1)
            v = builder_.CreateUDiv(builder_.CreateAdd(v, builder_.getInt32(static_cast<uint32_t>(step - 1))),
                                    builder_.getInt32(static_cast<uint32_t>(step)));
        return splat(v);
    };
    if (gap.lane < 0) return builder_.CreateICmpULT(number, lane_of(at));
    return builder_.CreateICmpUGE(number, lane_of(builder_.CreateAdd(builder_.CreateNeg(at), builder_.getInt64(1))));
}

// Whether nothing can go wrong when it is computed in vain, after these loads.
bool Emitter::speculatable(const Expr& e, const std::vector<Expr>& done) const {
    if (!e.node().reads) return true;
    if (e.is(ExprKind::Load)) {
        if (std::find(done.begin(), done.end(), e) != done.end()) return true;
        for (const Expr& a : e.args())
            if (!speculatable(a, done)) return false;
        const Slot& slot = slots_[e.node().slot];
        return in_bounds(slot, e.args()) || is_where_stored(slot, e.args());
    }
    for (const Expr& a : e.args())
        if (!speculatable(a, done)) return false;
    return true;
}

// The loads that computing e does in any case.
static void add_certain_loads(const Expr& e, std::vector<Expr>& into) {
    if (!e.node().reads) return;
    if (e.is(ExprKind::Load)) into.push_back(e);
    const size_t certain = e.is(ExprKind::Select) ? 1 : e.args().size();
    for (size_t i = 0; i < certain; ++i) add_certain_loads(e.arg(i), into);
}

// A load where the condition holds, and otherwise something that can be had without one: the load is from memory that
// holds zeros where the condition does not.
Value* Emitter::guarded_load(Value* condition, const Expr& e, const Expr& otherwise) {
    const Slot& slot = slots_[e.node().slot];
    if (mask_ || !slot.base) return nullptr;
    Linear at = offset_of(slot, e.args());
    if (!at.uniform() && (at.irregular || at.lane != 1)) return nullptr;
    auto* type = memory_type(slot.dtype);
    if (!at.uniform()) type = llvm::FixedVectorType::get(type, lanes_);
    const uint64_t bytes = module_.getDataLayout().getTypeStoreSize(type);
    // There is always memory behind a buffer of a device; what it holds is not asked for.
    Value* instead = has_blocks() ? slot.base : zeros(static_cast<int64_t>(bytes));
    Value* from = builder_.CreateSelect(condition, address(slot, at), instead);
    Value* loaded = builder_.CreateAlignedLoad(type, from, align_of(slot, at));
    Value* v = from_memory(loaded, slot.dtype);
    const bool is_zero =
        otherwise.is(ExprKind::Const) && otherwise.node().integer == 0 &&
        (!is_float(otherwise.dtype()) || (otherwise.node().real == 0 && !std::signbit(otherwise.node().real)));
    if (is_zero && !has_blocks()) return v;
    Value* other = emit(otherwise);
    match(v, other);
    return builder_.CreateSelect(condition, v, other);
}

// a < b || isnan(a) ? b : a, or the same with b < a: null where it is something else.
Value* Emitter::extreme_of_numbers(const Expr& e) {
    if (!has_blocks() || e.dtype() != DType::f32 || !e.arg(0).is(ExprKind::Or)) return nullptr;
    const Expr &less = e.arg(0).arg(0), &is_nan = e.arg(0).arg(1), &a = e.arg(2), &b = e.arg(1);
    if (!less.is(ExprKind::Lt) || !is_nan.is(ExprKind::Call) || is_nan.node().fn != Fn::IsNan || !is_nan.arg(0).same(a))
        return nullptr;
    const bool largest = less.arg(0).same(a) && less.arg(1).same(b);
    if (!largest && !(less.arg(0).same(b) && less.arg(1).same(a))) return nullptr;
    Value *one = emit(a), *two = emit(b);
    match(one, two);
    return builder_.CreateBinaryIntrinsic(largest ? llvm::Intrinsic::maxnum : llvm::Intrinsic::minnum, one, two);
}

Value* Emitter::emit_select(const Expr& e) {
    if (Value* extreme = extreme_of_numbers(e)) return extreme;
    Value* condition = emit(e.arg(0));
    if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) return emit(e.arg(known->isOne() ? 1 : 2));
    // A choice inside the first branch with the same alternative: one choice by both conditions.
    Expr taken = e.arg(1);
    while (taken.is(ExprKind::Select) && taken.arg(2) == e.arg(2) && speculatable(taken.arg(0))) {
        condition = binary(ExprKind::And, DType::boolean, condition, emit(taken.arg(0)));
        taken = taken.arg(1);
        if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition)) return emit(known->isOne() ? taken : e.arg(2));
    }
    const bool places_known =
        std::all_of(taken.args().begin(), taken.args().end(), [&](const Expr& at) { return speculatable(at); });
    if (!condition->getType()->isVectorTy() && taken.is(ExprKind::Load) && places_known && !speculatable(taken) &&
        speculatable(e.arg(2)))
        if (Value* v = guarded_load(condition, taken, e.arg(2))) return v;
    if (!condition->getType()->isVectorTy() && taken.is(ExprKind::BitOr) && !speculatable(taken) &&
        speculatable(e.arg(2)))
        if (Value* v = guarded_word(condition, taken, e.arg(2))) return v;
    std::vector<Expr> done;
    add_certain_loads(e.arg(0), done);
    const bool eager = speculatable(taken, done) && speculatable(e.arg(2), done);
    if (eager) {
        Value *a = emit(taken), *b = emit(e.arg(2));
        if (condition->getType()->isVectorTy())
            a = splat(a), b = splat(b);
        else
            match(a, b);
        return builder_.CreateSelect(condition, a, b);
    }
    if (condition->getType()->isVectorTy()) {
        Value *a = nullptr, *b = nullptr;
        auto branch = [&](Value*& out, Value* mask, const Expr& value) {
            MemoScope scope(*this);
            with_mask(mask, [&] { out = splat(emit(value)); });
        };
        branch(a, condition, taken);
        branch(b, builder_.CreateNot(condition), e.arg(2));
        return builder_.CreateSelect(condition, a, b);
    }
    llvm::LLVMContext& c = module_.getContext();
    auto* then = llvm::BasicBlock::Create(c, "then", function_);
    auto* otherwise = llvm::BasicBlock::Create(c, "else", function_);
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    const bool vector = depends_on_lane(taken) || depends_on_lane(e.arg(2));
    builder_.CreateCondBr(condition, then, otherwise);
    const Loads before = loads_;
    auto branch = [&](llvm::BasicBlock*& block, const Expr& value) {
        MemoScope scope(*this);
        loads_ = before;
        builder_.SetInsertPoint(block);
        Value* v = emit(value);
        if (vector) v = splat(v);
        block = builder_.GetInsertBlock();
        builder_.CreateBr(after);
        return v;
    };
    Value* a = branch(then, taken);
    Value* b = branch(otherwise, e.arg(2));
    loads_ = before;
    builder_.SetInsertPoint(after);
    CHECK(a->getType() == b->getType(), "branches of {}", to_string(e));
    auto* phi = builder_.CreatePHI(a->getType(), 2);
    phi->addIncoming(a, then);
    phi->addIncoming(b, otherwise);
    return phi;
}

namespace {

// min(x, c) of a c that is not positive.
bool is_at_most_zero(const Expr& e) {
    auto not_positive = [](const Expr& c) { return c.is(ExprKind::Const) && c.node().real <= 0; };
    return e.is(ExprKind::Min) && is_float(e.dtype()) && (not_positive(e.arg(0)) || not_positive(e.arg(1)));
}

}  // namespace

Value* Emitter::emit_call(const Expr& e) {
    Value* a = emit(e.arg(0));
    Value* b = e.args().size() > 1 ? emit(e.arg(1)) : nullptr;
    if (b) match(a, b);
    const DType dtype = e.arg(0).dtype();
    const Fn fn = e.node().fn;
    if (fn == Fn::Exp && dtype != DType::f64 && is_at_most_zero(e.arg(0)) && !has_blocks())
        return VectorMath(builder_, target_).exp_up_to_one(a);
    if (is_float(dtype)) return math(fn, dtype, a, b);
    Value* zero = llvm::Constant::getNullValue(a->getType());
    if (is_dot(fn)) return dot(fn, zero, a, b);
    switch (fn) {
        case Fn::Abs:
            return is_signed_int(dtype) ? builder_.CreateBinaryIntrinsic(llvm::Intrinsic::abs, a, builder_.getFalse())
                                        : a;
        case Fn::Sign: {
            Value* positive = builder_.CreateZExt(builder_.CreateICmpNE(a, zero), a->getType());
            if (!is_signed_int(dtype)) return positive;
            return builder_.CreateSelect(builder_.CreateICmpSLT(a, zero), of_int(a->getType(), -1), positive);
        }
        case Fn::Floor:
        case Fn::Ceil:
        case Fn::Round:
        case Fn::Trunc: return a;
        case Fn::IsNan:
        case Fn::IsInf: return of_int(like(a, builder_.getInt1Ty()), 0);
        default: break;
    }
    // Any other function of an integer goes through a real.
    Value* real = cast(a, dtype, DType::f64);
    Value* other = b ? cast(b, dtype, DType::f64) : nullptr;
    return cast(math(fn, DType::f64, real, other), DType::f64, dtype);
}

}  // namespace tessera::codegen
