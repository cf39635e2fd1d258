#include <algorithm>

#include "base/check.h"
#include "kernel/ir/multiples.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

int64_t floor_div_int(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

}  // namespace

int Emitter::depth_of(const Expr& e) const {
    if (e.is(ExprKind::Var)) {
        auto it = bindings_.find(e.node().name);
        return it == bindings_.end() || !it->second.value ? 0 : it->second.depth + 1;
    }
    int depth = e.is(ExprKind::Load) ? depth_ : 0;
    for (const Expr& a : e.args()) depth = std::max(depth, depth_of(a));
    return depth;
}

bool Emitter::depends_on_lane(const Expr& e) const {
    if (lanes_ == 1) return false;
    if (e.is(ExprKind::Var)) return e.node().name == lane_var_;
    if (e.is(ExprKind::Load) && slots_[e.node().slot].per_lane) return true;
    return std::any_of(e.args().begin(), e.args().end(), [&](const Expr& a) { return depends_on_lane(a); });
}

void Emitter::add_linear(Linear& to, const Linear& from, int64_t factor) {
    for (Linear::Term t : from.terms) {
        t.factor *= factor;
        auto same = std::find_if(to.terms.begin(), to.terms.end(), [&](const auto& o) { return o.value == t.value; });
        if (same == to.terms.end())
            to.terms.push_back(t);
        else if ((same->factor += t.factor) == 0)
            to.terms.erase(same);
    }
    to.constant += from.constant * factor;
    to.lane += from.lane * factor;
    to.wraps |= from.wraps;
    if (from.irregular) {
        auto scaled = [&](Value* v) { return factor == 1 ? v : builder_.CreateMul(v, of_int(v->getType(), factor)); };
        auto sum = [&](Value* before, Value* v) {
            return to.irregular ? builder_.CreateAdd(before, scaled(v)) : scaled(v);
        };
        if (from.even && (to.even || !to.irregular)) {
            const Linear::Even before = to.even.value_or(Linear::Even{});
            to.even = {sum(before.first, from.even->first), sum(before.step, from.even->step)};
        } else {
            to.even.reset();
        }
        to.irregular = sum(to.irregular, from.irregular);
    }
}

Emitter::Linear Emitter::linear(const Expr& e) {
    Linear out;
    switch (e.kind()) {
        case ExprKind::Const: out.constant = e.node().integer; return out;
        case ExprKind::Var: {
            auto it = bindings_.find(e.node().name);
            CHECK(it != bindings_.end(), "kernel {}: {} is not bound", kernel_.name, e.node().name);
            const Binding& b = it->second;
            out.constant = b.offset;
            out.lane = b.lane ? 1 : 0;
            if (b.value) out.terms.push_back({b.value, 1, b.depth + 1, {0, b.most}});
            return out;
        }
        case ExprKind::Add:
            for (const Expr& a : e.args()) add_linear(out, linear(a), 1);
            return out;
        case ExprKind::Mul: {
            Linear product;
            product.constant = 1;
            bool simple = true;
            for (const Expr& a : e.args()) {
                Linear next = linear(a);
                if (!next.is_constant()) std::swap(next, product);
                if (!next.is_constant()) {
                    simple = false;
                    break;
                }
                Linear scaled;
                if (next.constant) add_linear(scaled, product, next.constant);
                product = std::move(scaled);
            }
            if (simple) return product;
            break;
        }
        case ExprKind::FloorDiv:
        case ExprKind::Mod: return linear_quotient(e);
        default: break;
    }
    Value* v = emit(e);
    if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(v))
        out.constant = known->getSExtValue();
    else if (v->getType()->isVectorTy())
        out.irregular = v, out.even = even_product(e);
    else
        out.terms.push_back({v, 1, depth_of(e), bounds(e), divisor_of(e)});
    out.wraps = e.node().reads;
    return out;
}

// A factor that grows evenly from lane to lane, times others that are the same in all.
std::optional<Emitter::Linear::Even> Emitter::even_product(const Expr& e) {
    if (!e.is(ExprKind::Mul) || e.node().reads) return {};
    std::optional<Linear> grows;
    Value* others = nullptr;
    for (const Expr& a : e.args()) {
        Linear factor = linear(a);
        if (factor.irregular || (grows && !factor.uniform())) return {};
        if (factor.uniform())
            others = others ? builder_.CreateMul(others, sum_of(factor)) : sum_of(factor);
        else
            grows = std::move(factor);
    }
    if (!grows || !others) return {};
    return Linear::Even{builder_.CreateMul(sum_of(*grows), others),
                        builder_.CreateMul(others, builder_.getInt64(static_cast<uint64_t>(grows->lane)))};
}

// A quotient by a constant, or the remainder, where most terms are multiples of the divisor and what is left of them
// does not cross one.
Emitter::Linear Emitter::linear_quotient(const Expr& e) {
    const bool quotient = e.is(ExprKind::FloorDiv);
    const int64_t divisor = e.arg(1).as_int().value_or(0);
    Linear out;
    if (divisor > 0) {
        Linear top = linear(e.arg(0));
        const int64_t rest = top.constant - floor_div_int(top.constant, divisor) * divisor;
        const int64_t last = rest + top.lane * (lanes_ - 1);
        const bool multiples =
            std::all_of(top.terms.begin(), top.terms.end(), [&](const auto& t) { return t.factor % divisor == 0; });
        const bool stays = last >= 0 && last < divisor;
        if (multiples && !top.irregular && (stays || top.lane % divisor == 0)) {
            if (quotient) {
                for (const auto& t : top.terms) out.terms.push_back({t.value, t.factor / divisor, t.depth, t.bounds});
                out.constant = floor_div_int(top.constant, divisor);
                if (!stays) out.lane = top.lane / divisor;
            } else {
                out.constant = rest;
                if (stays) out.lane = top.lane;
            }
            out.wraps = top.wraps;
            return out;
        }
    }
    Value* v = emit_binary(e);
    if (v->getType()->isVectorTy())
        out.irregular = v;
    else
        out.terms.push_back({v, 1, depth_of(e), bounds(e)});
    out.wraps = e.node().reads;
    return out;
}

Emitter::Linear Emitter::offset_of(const Slot& slot, const std::vector<Expr>& given) {
    Linear out;
    std::vector<Expr> indices = given;
    if (slot.panel) {
        // In 128 bytes are one row, two or four: those of eight rows that follow each other begin in different banks.
        const int64_t piece = kPieceBytes / static_cast<int64_t>(dtype_bytes(slot.dtype));  // elements
        const int64_t pieces = slot.panel / piece;
        const Expr row = given[0], column = given[1];
        indices = {
            floor_div(column, slot.panel), row,
            bit(ExprKind::BitXor, mod(floor_div(column, piece), pieces), mod(floor_div(row, kPieces / pieces), pieces)),
            mod(column, piece)};
    }
    CHECK(indices.size() == slot.strides.size(), "kernel {}: {} indices of a buffer of rank {}", kernel_.name,
          indices.size(), slot.strides.size());
    for (size_t d = 0; d < indices.size(); ++d) {
        Linear index = linear(indices[d]);
        if (auto stride = slot.strides[d].as_int()) {
            if (*stride) add_linear(out, index, *stride);
            continue;
        }
        if (index.is_constant() && index.constant == 0) continue;
        Value* stride = emit(slot.strides[d]);
        Linear scaled;
        if (!index.uniform()) {
            scaled.irregular = builder_.CreateMul(lane_offsets(index), splat(stride));
            if (!index.irregular)
                scaled.even = {builder_.CreateMul(sum_of(index), stride),
                               builder_.CreateMul(stride, builder_.getInt64(static_cast<uint64_t>(index.lane)))};
        } else if (index.is_constant()) {
            scaled.terms.push_back({stride, index.constant, 0});
        } else {
            int depth = 0;
            for (const auto& t : index.terms) depth = std::max(depth, t.depth);
            scaled.terms.push_back({builder_.CreateMul(sum_of(index), stride, "", false, !index.wraps), 1, depth});
        }
        scaled.wraps = index.wraps;
        add_linear(out, scaled, 1);
    }
    if (slot.per_lane) {
        Linear spread;
        add_linear(spread, out, slot.per_lane);
        spread.lane += 1;
        return spread;
    }
    return out;
}

bool Emitter::in_bounds(const Slot& slot, const std::vector<Expr>& indices) const {
    for (size_t d = 0; d < indices.size(); ++d) {
        const auto extent = slot.shape[d].as_int();
        const Bounds b = bounds(indices[d]);
        if (!extent || !b.low || !b.high || *b.low < 0 || *b.high >= *extent) return false;
    }
    return true;
}

// Whether it is the place of the element that is being stored, which the buffer that is stored to has too.
bool Emitter::is_where_stored(const Slot& slot, const std::vector<Expr>& indices) const {
    if (!storing_ || storing_->indices.size() != indices.size()) return false;
    const std::vector<Expr>& stored = slots_[storing_->buffer].shape;
    for (size_t d = 0; d < indices.size(); ++d)
        if (!indices[d].same(storing_->indices[d]) || !(slot.shape[d] == stored[d])) return false;
    return true;
}

std::optional<bool> Emitter::decided(const Linear& gap) const {
    if (gap.irregular || gap.wraps) return {};
    std::optional<int64_t> low = gap.constant, high = gap.constant;
    auto add = [](std::optional<int64_t>& sum, std::optional<int64_t> v, int64_t factor) {
        int64_t scaled = 0, total = 0;
        if (!sum || !v || __builtin_mul_overflow(*v, factor, &scaled) || __builtin_add_overflow(*sum, scaled, &total))
            sum.reset();
        else
            sum = total;
    };
    add(gap.lane < 0 ? low : high, lanes_ - 1, gap.lane);
    for (const auto& t : gap.terms) {
        add(low, t.factor > 0 ? t.bounds.low : t.bounds.high, t.factor);
        add(high, t.factor > 0 ? t.bounds.high : t.bounds.low, t.factor);
    }
    if (low && *low > 0) return true;
    if (high && *high <= 0) return false;
    return {};
}

// Outer loops' terms first, so that their sum is computed outside the inner ones.
Value* Emitter::sum_of(const Linear& l) {
    std::vector<Linear::Term> terms = l.terms;
    std::stable_sort(terms.begin(), terms.end(), [](const auto& a, const auto& b) { return a.depth < b.depth; });
    Value* sum = nullptr;
    for (const auto& t : terms) {
        Value* v =
            t.factor == 1 ? t.value : builder_.CreateMul(t.value, builder_.getInt64(t.factor), "", false, !l.wraps);
        sum = sum ? builder_.CreateAdd(sum, v, "", false, !l.wraps) : v;
    }
    if (!sum) return builder_.getInt64(l.constant);
    return l.constant ? builder_.CreateAdd(sum, builder_.getInt64(l.constant), "", false, !l.wraps) : sum;
}

Value* Emitter::moving_pointer(const Slot& slot, const Linear& at) {
    if (open_loops_.empty()) return nullptr;
    OpenLoop& loop = open_loops_.back();
    // What is at hand here and was not made inside the loop was made before it.
    auto known_before = [&](Value* v) {
        auto* made = llvm::dyn_cast<llvm::Instruction>(v);
        if (!made) return true;
        return std::none_of(loop.block->getIterator(), function_->end(),
                            [&](const llvm::BasicBlock& b) { return &b == made->getParent(); });
    };
    if (!known_before(slot.base)) return nullptr;
    Linear start = at;
    int64_t factor = 0;
    std::erase_if(start.terms, [&](const auto& t) {
        if (t.value == loop.counter) factor = t.factor;
        return t.value == loop.counter;
    });
    if (!factor || !std::all_of(start.terms.begin(), start.terms.end(), [&](auto& t) { return known_before(t.value); }))
        return nullptr;
    std::vector<std::pair<Value*, int64_t>> terms;
    for (const auto& t : at.terms) terms.emplace_back(t.value, t.factor);
    std::sort(terms.begin(), terms.end());
    auto [found, fresh] = loop.pointers.try_emplace({slot.base, std::move(terms)});
    if (!fresh) return found->second.phi;
    llvm::Type* element = memory_type(slot.dtype);
    llvm::IRBuilder<>::InsertPointGuard guard(builder_);
    builder_.SetInsertPoint(loop.before->getTerminator());
    Value* first = start.terms.empty() ? slot.base : builder_.CreateGEP(element, slot.base, sum_of(start));
    builder_.SetInsertPoint(loop.block, loop.block->begin());
    found->second = {first, builder_.CreatePHI(first->getType(), 2), factor, element, loop.pointers.size()};
    return found->second.phi;
}

// The pointers of an innermost loop grow from iteration to iteration; those of others are computed from the counter.
void Emitter::close_loop(const OpenLoop& loop, Value* begin, llvm::BasicBlock* end) {
    llvm::IRBuilder<>::InsertPointGuard guard(builder_);
    // The same code each time: not in the order of addresses.
    std::vector<OpenLoop::Pointer> pointers;
    for (const auto& [key, p] : loop.pointers) pointers.push_back(p);
    std::sort(pointers.begin(), pointers.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    for (const OpenLoop::Pointer& p : pointers) {
        auto moved = [&](Value* from, Value* rounds) {
            Value* by = builder_.CreateMul(rounds, builder_.getInt64(p.factor), "", false, true);
            return builder_.CreateGEP(p.element, from, by);
        };
        if (!loop.innermost) {
            builder_.SetInsertPoint(loop.block, loop.block->getFirstNonPHIIt());
            p.phi->replaceAllUsesWith(moved(p.start, loop.counter));
            p.phi->eraseFromParent();
            continue;
        }
        builder_.SetInsertPoint(loop.before->getTerminator());
        p.phi->addIncoming(moved(p.start, begin), loop.before);
        builder_.SetInsertPoint(end);
        p.phi->addIncoming(moved(p.phi, builder_.getInt64(loop.step)), end);
    }
}

Value* Emitter::address(const Slot& slot, const Linear& at) {
    llvm::Type* element = memory_type(slot.dtype);
    Linear moving = at;
    moving.constant = 0;
    Value* base = moving_pointer(slot, moving);
    if (!base) base = slot.base;
    if (base == slot.base && !moving.terms.empty()) base = builder_.CreateGEP(element, base, sum_of(moving));
    if (at.constant) base = builder_.CreateGEP(element, base, builder_.getInt64(at.constant));
    return base;
}

Value* Emitter::lane_offsets(const Linear& at) {
    Value* sum = sum_of(at);
    if (at.uniform()) return sum;
    sum = builder_.CreateVectorSplat(lanes_, sum);
    if (at.lane) {
        std::vector<llvm::Constant*> steps;
        for (int i = 0; i < lanes_; ++i) steps.push_back(builder_.getInt64(i * at.lane));
        sum = builder_.CreateAdd(sum, llvm::ConstantVector::get(steps));
    }
    return at.irregular ? builder_.CreateAdd(sum, at.irregular) : sum;
}

std::vector<Value*> Emitter::lane_addresses(const Slot& slot, const Linear& at) {
    llvm::Type* type = memory_type(slot.dtype);
    Value *first = slot.base, *offsets = nullptr;
    Linear regular = at;
    regular.irregular = nullptr;
    if (!at.irregular || at.even)
        first = address(slot, regular);
    else
        offsets = lane_offsets(at);
    Value* step = builder_.getInt64(static_cast<uint64_t>(at.lane));
    if (at.even) {
        first = builder_.CreateGEP(type, first, at.even->first);
        step = builder_.CreateAdd(at.even->step, step);
    }
    std::vector<Value*> places;
    for (int i = 0; i < lanes_; ++i) {
        Value* offset = offsets ? builder_.CreateExtractElement(offsets, i)
                                : builder_.CreateMul(step, builder_.getInt64(static_cast<uint64_t>(i)));
        places.push_back(builder_.CreateGEP(type, first, offset));
    }
    return places;
}

}  // namespace tessera::codegen
