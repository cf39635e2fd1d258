// Stores that pass the caches by: of what a launch writes once, does not read, and writes more of than the last cache
// keeps. What memory held there is not read first, and what others have in the cache stays. Others see such stores
// after end_streams.
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <numeric>

#include "kernel/ir/tile_calls.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kPieceBytes = 16;        // that every such store has, and is aligned to
constexpr int64_t kLeastBytes = 32 << 20;  // of a launch, whatever cache the target is said to have
constexpr int64_t kLeastRun = 1 << 10;     // bytes that are written one after the other: lines are written whole

// How many elements a launch stores at one place of its code, and whether each is another and follows the one before.
struct Stored {
    int buffer = -1;
    Expr count = 1;
    bool in_order = false;
};

bool mentions_any(const std::vector<Expr>& indices, const Expr& var) {
    return std::any_of(indices.begin(), indices.end(), [&](const Expr& e) { return depends_on(e, var); });
}

// `around`: the loops, outermost first.
bool is_in_order(const Kernel& kernel, const Store& s, const std::vector<const For*>& around) {
    const Buffer& buffer = kernel.buffers[static_cast<size_t>(s.to.buffer)];
    if (s.combine || around.empty() || around.back()->kind != LoopKind::Vector || s.to.indices.empty() ||
        !buffer.strides.empty())
        return false;
    bool tiled = false;  // tiles of registers are written row by row
    visit(s.value, [&](const Expr& e) {
        if (!e.is(ExprKind::Load)) return;
        tiled |= kernel.buffers[static_cast<size_t>(e.node().slot)].scope == Scope::Register && !e.args().empty();
    });
    for (const For* loop : around)
        if (tiled || !mentions_any(s.to.indices, loop->var)) return false;
    const std::vector<Expr> rows(s.to.indices.begin(), s.to.indices.end() - 1);
    const auto least = kLeastRun / static_cast<int64_t>(dtype_bytes(buffer.dtype));
    int64_t run = 1;
    for (size_t i = around.size(); i-- > 0 && run < least;) {
        const auto step = step_of(s.to.indices.back(), around[i]->var);
        if (!step || !step->is_int(run) || mentions_any(rows, around[i]->var)) return false;
        const auto extent = around[i]->extent.as_int();
        if (!extent) return true;
        run *= *extent;
    }
    return run >= least;
}

void collect(const Kernel& kernel, const Stmt& s, std::vector<const For*>& around, std::vector<Stored>& all) {
    if (!s) return;
    if (const For* loop = s->as<For>()) {
        around.push_back(loop);
        collect(kernel, loop->body, around, all);
        around.pop_back();
    } else if (const Seq* list = s->as<Seq>()) {
        for (const Stmt& each : list->stmts) collect(kernel, each, around, all);
    } else if (const If* branch = s->as<If>()) {
        collect(kernel, branch->then, around, all);
        collect(kernel, branch->otherwise, around, all);
    } else if (const Alloc* a = s->as<Alloc>()) {
        collect(kernel, a->body, around, all);
    } else if (const Store* st = s->as<Store>()) {
        Stored stored{st->to.buffer, 1, is_in_order(kernel, *st, around)};
        for (const For* loop : around) stored.count = stored.count * loop->extent;
        all.push_back(std::move(stored));
    }
}

}  // namespace

void Emitter::find_streams(const LaunchPlan& plan) {
    streams_.clear();
    if (!target_.code->streams()) return;
    const int64_t most = std::max(target_.machine.l3_bytes / 2, kLeastBytes);  // what is read takes as much
    std::set<int> others;  // buffers that are used in other ways too
    visit_exprs(kernel_.body, [&](const Expr& whole) {
        if (!whole.node().reads) return;
        visit(whole, [&](const Expr& e) {
            if (e.is(ExprKind::Load)) others.insert(e.node().slot);
        });
    });
    visit(kernel_.body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        if (!call || call->name == "prefetch") return;
        for (const auto* list : {&call->writes, &call->reads})
            for (const Access& a : *list) others.insert(a.buffer);
    });
    std::vector<const For*> around;
    std::vector<Stored> all;
    collect(kernel_, plan.stmt, around, all);
    std::map<int, Expr> counts;
    for (const Stored& stored : all) {
        const Buffer& buffer = kernel_.buffers[static_cast<size_t>(stored.buffer)];
        const std::vector<std::string> names = free_symbols(stored.count);
        const bool known = !stored.count.node().reads && std::all_of(names.begin(), names.end(), [&](const auto& name) {
            return std::find(kernel_.symbols.begin(), kernel_.symbols.end(), name) != kernel_.symbols.end();
        });
        if (stored.buffer >= static_cast<int>(kernel_.params) || is_anywhere(buffer) || !stored.in_order || !known)
            others.insert(stored.buffer);
        // Of two branches, one is taken.
        auto [place, fresh] = counts.try_emplace(stored.buffer, stored.count);
        if (!fresh && place->second.as_int().value_or(0) < stored.count.as_int().value_or(0))
            place->second = stored.count;
    }
    for (const auto& [buffer, count] : counts) {
        if (others.contains(buffer)) continue;
        const auto bytes = static_cast<int64_t>(dtype_bytes(kernel_.buffers[static_cast<size_t>(buffer)].dtype));
        Value* large = builder_.CreateICmpSGT(emit_alone(count), builder_.getInt64(most / bytes));
        if (auto* decided = llvm::dyn_cast<llvm::ConstantInt>(large); decided && decided->isZero()) continue;
        streams_[buffer] = large;
    }
}

void Emitter::end_streams() {
    if (streams_.empty()) return;
    Value* any = builder_.getFalse();
    for (const auto& [buffer, large] : streams_) any = builder_.CreateOr(any, large);
    emit_where(any, [&] { target_.code->end_streams(builder_); });
}

Value* Emitter::streams_to(int buffer) const {
    const auto found = streams_.find(buffer);
    return found == streams_.end() ? nullptr : found->second;
}

// Whole vectors, where the first lies at a place that such stores need.
bool Emitter::stream_lanes(const Slot& slot, const Linear& at, Value* v, Value* large,
                           const std::function<void()>& otherwise) {
    const auto bytes = static_cast<int64_t>(dtype_bytes(slot.dtype));
    if (mask_ || at.lane != 1 || at.irregular || lanes_ * bytes % kPieceBytes) return false;
    Value* first = address(slot, at);
    Value* place = builder_.CreatePtrToInt(first, i64());
    const auto is_aligned = [&](int64_t to) {
        return builder_.CreateICmpEQ(builder_.CreateAnd(place, builder_.getInt64(to - 1)), builder_.getInt64(0));
    };
    const auto store_pieces = [&](int64_t piece) {
        const auto lanes = static_cast<int>(piece / bytes);
        auto* past = llvm::MDNode::get(module_.getContext(),
                                       llvm::ConstantAsMetadata::get(llvm::cast<llvm::Constant>(builder_.getInt32(1))));
        for (int from = 0; from < lanes_; from += lanes) {
            std::vector<int> taken(static_cast<size_t>(lanes));
            std::iota(taken.begin(), taken.end(), from);
            Value* to =
                builder_.CreateGEP(memory_type(slot.dtype), first, builder_.getInt64(static_cast<uint64_t>(from)));
            auto* store = builder_.CreateAlignedStore(builder_.CreateShuffleVector(v, taken), to,
                                                      llvm::Align(static_cast<uint64_t>(piece)));
            store->setMetadata(llvm::LLVMContext::MD_nontemporal, past);
            tag(store, slot.scope, slot.noalias);
        }
    };
    const int64_t whole = std::min<int64_t>(lanes_ * bytes, target_.machine.vector_bytes);
    Value* streamed = builder_.CreateAnd(large, is_aligned(kPieceBytes));
    emit_either(
        streamed,
        [&] {
            if (whole == kPieceBytes) return store_pieces(kPieceBytes);
            emit_either(
                is_aligned(whole), [&] { store_pieces(whole); }, [&] { store_pieces(kPieceBytes); });
        },
        otherwise);
    return true;
}

void Emitter::emit_either(Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
    llvm::LLVMContext& c = module_.getContext();
    auto* taken = llvm::BasicBlock::Create(c, "taken", function_);
    auto* other = llvm::BasicBlock::Create(c, "other", function_);
    auto* after = llvm::BasicBlock::Create(c, "after", function_);
    builder_.CreateCondBr(condition, taken, other);
    builder_.SetInsertPoint(taken);
    then();
    builder_.CreateBr(after);
    builder_.SetInsertPoint(other);
    otherwise();
    builder_.CreateBr(after);
    builder_.SetInsertPoint(after);
}

}  // namespace tessera::codegen
