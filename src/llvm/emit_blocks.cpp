// Launches for targets that run blocks of threads: a kernel with a parameter for each buffer and size. An iteration of
// a Parallel loop is one thread; Bound loops are the blocks and threads that they name. What stands in a block outside
// of loops over threads is done by one thread while the others wait.
#include <llvm/IR/CallingConv.h>
#include <llvm/IR/Intrinsics.h>

#include "base/check.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/races.h"
#include "kernel/ir/tile_calls.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr unsigned kGlobalSpace = 1, kSharedSpace = 3;
constexpr uint64_t kParamAlignment = 16;
constexpr uint64_t kMapBytes = 128, kMapAlignment = 64;  // of a description of tiles
constexpr int64_t kMostRows = 65535;                     // blocks along y and z
constexpr int64_t kThreadsAtOnce = 512;                  // of an SM, that never wait for another block
constexpr int kMostSpread = 256;                         // threads of a block of a Parallel loop

using Place = TargetCode::Place;

bool has_threads(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const For* loop = x->as<For>();
        found |= loop && is_thread_loop(*loop);
    });
    return found;
}

// Whether there are so few blocks that none waits for another.
bool runs_at_once(const LaunchPlan& plan, const Machine& machine) {
    if (plan.roles || plan.team) return true;
    const int64_t most = machine.cores * kThreadsAtOnce;
    int64_t threads = plan.parallel ? plan.parallel->extent.as_int().value_or(most + 1) : 1;
    if (plan.bound)
        for (size_t d = 0; d < 3; ++d)
            threads *= plan.shape.grid[d].as_int().value_or(most + 1) * plan.shape.block[d].as_int().value_or(1);
    return threads <= most;
}

}  // namespace

Status Emitter::emit_blocks(const LaunchPlan& plan, const std::string& symbol) {
    open_kernel(plan, symbol);
    own_buffers_ = threads_own_buffers(kernel_, plan.stmt);
    open_ = {};
    if (plan.parallel) {
        auto wide = [&](Place which) { return builder_.CreateZExt(target_.code->place(builder_, which, 0), i64()); };
        Value* threads = wide(Place::Threads);
        Value* first = builder_.CreateAdd(builder_.CreateMul(wide(Place::Block), threads, "", true, true),
                                          wide(Place::Thread), "thread", true, true);
        Value* extent = emit_alone(plan.parallel->extent);
        auto one = [&](Value* i) {
            with_binding(plan.parallel->var, {i, 0, false, depth_, last_of(plan.parallel->extent)},
                         [&] { emit(plan.parallel->body); });
        };
        if (plan.scratch_bytes.is_int(0)) {
            emit_where(builder_.CreateICmpSLT(first, extent), [&] { one(first); });
        } else {
            // So many threads as there is memory for, each with some iterations.
            Value* all = builder_.CreateMul(wide(Place::Blocks), threads, "", true, true);
            scratch_ = builder_.CreateGEP(builder_.getInt8Ty(), scratch_,
                                          builder_.CreateMul(first, emit_alone(plan.scratch_bytes)));
            Value* last = builder_.CreateUDiv(
                builder_.CreateAdd(builder_.CreateSub(extent, first), builder_.CreateSub(all, builder_.getInt64(1))),
                all);
            emit_where(builder_.CreateICmpSLT(first, extent), [&] {
                emit_loop(builder_.getInt64(0), last, 1, true, [&](Value* round) {
                    one(builder_.CreateAdd(first, builder_.CreateMul(round, all, "", true, true), "i", true, true));
                });
            });
        }
    } else if (plan.bound) {
        const BoundNest nest = bound_nest(*plan.bound);
        if (plan.roles) {
            emit_roles(nest);
        } else if (plan.team) {
            emit_team(nest);
        } else if (is_thread_loop(*plan.bound)) {
            emit_threads(*plan.bound);
        } else {
            std::function<void(size_t)> bind = [&](size_t i) {
                if (i == nest.loops.size()) return emit_block(nest.body);
                emit_block_loop(*nest.loops[i], [&] { bind(i + 1); });
            };
            bind(0);
        }
    } else {
        emit(plan.stmt);
    }
    builder_.CreateRetVoid();
    return status_;
}

// Along y and z there are not always as many blocks as iterations: each takes some, one after the other.
void Emitter::emit_block_loop(const For& loop, const std::function<void()>& body) {
    Value* first = place_of(loop.axis);
    const auto last = last_of(loop.extent);
    if (loop.axis.back() == 'x' || (last && *last < kMostRows))
        return with_binding(loop.var, {first, 0, false, 0, last}, body);
    Value* blocks = builder_.CreateZExt(target_.code->place(builder_, Place::Blocks, loop.axis.back() - 'x'), i64());
    Value* left = builder_.CreateSub(emit_alone(loop.extent), first);
    Value* rounds =
        builder_.CreateSDiv(builder_.CreateAdd(left, builder_.CreateSub(blocks, builder_.getInt64(1))), blocks);
    emit_loop(builder_.getInt64(0), rounds, 1, false, [&](Value* round) {
        Value* at = builder_.CreateAdd(first, builder_.CreateMul(round, blocks, "", true, true), "block", true, true);
        with_binding(loop.var, {at, 0, false, depth_, last}, body);
        meet();
        open_ = {};
    });
}

void Emitter::open_kernel(const LaunchPlan& plan, const std::string& symbol) {
    llvm::LLVMContext& c = module_.getContext();
    llvm::Type* global = builder_.getPtrTy(kGlobalSpace);
    std::vector<llvm::Type*> types(kernel_.params, global);
    types.insert(types.end(), kernel_.symbols.size(), i64());
    types.push_back(global);  // scratch
    types.insert(types.end(), plan.shape.maps.size(), builder_.getPtrTy());
    auto* type = llvm::FunctionType::get(builder_.getVoidTy(), types, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
    function_->setCallingConv(llvm::CallingConv::PTX_Kernel);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    function_->addFnAttr("target-cpu", target_.cpu);
    function_->addFnAttr("target-features", target_.features);
    std::vector<std::pair<const char*, int64_t>> notes{{"kernel", 1}};
    if (plan.bound) {
        static constexpr const char* kMost[] = {"maxntidx", "maxntidy", "maxntidz"};
        for (size_t d = 0; d < 3; ++d)
            if (auto threads = plan.shape.block[d].as_int())
                notes.emplace_back(kMost[d], *threads * (d == 2 && plan.roles ? plan.shape.groups : 1));
        if (plan.roles || plan.team || plan.blocks_at_once > 1) notes.emplace_back("minctasm", plan.blocks_at_once);
    } else {
        notes.emplace_back("maxntidx", plan.parallel ? kMostSpread : 1);
    }
    std::vector<llvm::Metadata*> described{llvm::ValueAsMetadata::get(function_)};
    for (const auto& [name, value] : notes) {
        described.push_back(llvm::MDString::get(c, name));
        described.push_back(llvm::ConstantAsMetadata::get(builder_.getInt32(static_cast<uint32_t>(value))));
    }
    const auto fixed = static_cast<unsigned>(types.size() - plan.shape.maps.size());
    std::vector<llvm::Metadata*> by_value;  // numbers of parameters, from 1
    for (unsigned i = fixed; i < types.size(); ++i) {
        auto* bytes = llvm::ArrayType::get(builder_.getInt8Ty(), kMapBytes);
        function_->addParamAttr(i, llvm::Attribute::getWithByValType(c, bytes));
        function_->addParamAttr(i, llvm::Attribute::getWithAlignment(c, llvm::Align(kMapAlignment)));
        by_value.push_back(llvm::ConstantAsMetadata::get(builder_.getInt32(i + 1)));
    }
    if (!by_value.empty()) {
        described.push_back(llvm::MDString::get(c, "grid_constant"));
        described.push_back(llvm::MDNode::get(c, by_value));
    }
    module_.getOrInsertNamedMetadata("nvvm.annotations")->addOperand(llvm::MDNode::get(c, described));

    entry_ = llvm::BasicBlock::Create(c, "entry", function_);
    auto* body = llvm::BasicBlock::Create(c, "body", function_);
    builder_.SetInsertPoint(entry_);
    builder_.SetInsertPoint(builder_.CreateBr(body));
    const auto params = static_cast<unsigned>(kernel_.params), symbols = static_cast<unsigned>(kernel_.symbols.size());
    for (unsigned i = 0; i < symbols; ++i) bindings_[kernel_.symbols[i]] = {function_->getArg(params + i), 0, false, 0};
    describe_slots();
    const std::set<int> written = written_buffers(kernel_.body);
    for (unsigned i = 0; i < params; ++i) {
        function_->addParamAttr(i, llvm::Attribute::getWithAlignment(c, llvm::Align(kParamAlignment)));
        slots_[i].base = function_->getArg(i);
        bool apart = !is_anywhere(kernel_.buffers[i]);  // from all that is written
        for (int w : written)
            if (w < static_cast<int>(params))
                apart &= !is_anywhere(kernel_.buffers[static_cast<size_t>(w)]) &&
                         !may_share_memory(kernel_, i, static_cast<size_t>(w));
        if (!apart || written.contains(static_cast<int>(i))) continue;
        function_->addParamAttr(i, llvm::Attribute::NoAlias);
        // Loads of what is only read would not wait: the assembler moves them to before the instruction that does.
        if (!begins_early()) function_->addParamAttr(i, llvm::Attribute::ReadOnly);
    }
    for (int tile : plan.panels) {
        Slot& slot = slots_[static_cast<size_t>(tile)];
        const auto bytes = static_cast<int64_t>(dtype_bytes(slot.dtype));
        slot.panel = std::min(kPanelBytes / bytes, *slot.shape[1].as_int());
        slot.strides = {slot.shape[0] * slot.panel, slot.panel, kPieceBytes / bytes, 1};
    }
    describe_aliases();
    scratch_ = function_->getArg(params + symbols);
    builder_.SetInsertPoint(body);
    if (!waits_in_roles(plan)) wait_for_launches();
}

bool Emitter::waits_in_roles(const LaunchPlan& plan) const {
    return begins_early() && plan.roles && plan.roles->ahead->notes.contains("early");
}

// A launch may begin early, and waits here until all before it is done. Where all blocks run at once, the next may be
// brought by then: with more, to say so costs each of them more than it saves.
void Emitter::wait_for_launches() {
    if (!begins_early()) return;
    if (runs_at_once(*plan_, target_.machine)) assembly("griddepcontrol.launch_dependents;", "", {});
    assembly("griddepcontrol.wait;", "", {});
}

Value* Emitter::place_of(const std::string& axis) {
    if (roles_ && axis == "thread.z") return builder_.CreateZExt(plan_->team ? roles_->warp : warp_in_group(), i64());
    const Place which = is_block_axis(axis) ? Place::Block : Place::Thread;
    return builder_.CreateZExt(target_.code->place(builder_, which, axis.back() - 'x'), i64());
}

void Emitter::meet() {
    if (plan_->team) return;  // threads have nothing of each other's
    if (roles_)
        meet_in_group();
    else
        target_.code->barrier(builder_);
    loads_.clear();
}

void Emitter::emit_where(Value* condition, const std::function<void()>& body) {
    auto* then = llvm::BasicBlock::Create(module_.getContext(), "then", function_);
    auto* after = llvm::BasicBlock::Create(module_.getContext(), "after", function_);
    builder_.CreateCondBr(condition, then, after);
    builder_.SetInsertPoint(then);
    const Loads before = loads_;
    body();
    loads_ = before;
    builder_.CreateBr(after);
    builder_.SetInsertPoint(after);
    loads_.clear();
}

void Emitter::emit_block_items(const std::vector<Stmt>& all) {
    auto stores_tile = [&](size_t i) {
        const Call* call = all[i]->as<Call>();
        return call && call->name == kStoreTile;
    };
    if (!roles_ && !plan_->team) {
        for (const Stmt& each : all) emit_block(each);
        return;
    }
    for (size_t i = 0; i < all.size(); ++i) {
        if (plan_->team)
            wait_for_stored(all[i]);
        else if (roles_)
            leave_stored(all[i]);
        if (i > 0 && !stores_tile(i) && !stores_tile(i - 1)) meet();
        emit_block(all[i]);
    }
}

Value* Emitter::is_first_thread() {
    Value* others = roles_ ? warp_in_group() : target_.code->place(builder_, Place::Thread, 2);
    for (int d : {0, 1}) others = builder_.CreateOr(others, target_.code->place(builder_, Place::Thread, d));
    return builder_.CreateICmpEQ(others, builder_.getInt32(0));
}

void Emitter::emit_block(const Stmt& s) {
    if (!s || !status_.ok()) return;
    if (const Seq* all = s->as<Seq>()) return emit_block_items(all->stmts);
    if (const Alloc* a = s->as<Alloc>()) return emit_alloc(*a, [&] { emit_block(a->body); });
    const For* loop = s->as<For>();
    const bool in_steps = !roles_ && !plan_->team;
    const bool around = loop && !is_thread_loop(*loop) ? has_threads(s) : s->as<If>() && has_threads(s);
    if (loop && loop->notes.contains("brings") && !rings_.empty()) return;  // see bring_tiles
    if (loop && plan_->ahead.contains(loop)) return emit_ahead(*loop, plan_->ahead.at(loop));
    const Call* product = s->as<Call>();
    const bool wide = product && plan_->wide.contains(product);
    if (in_steps && !wide) {
        if (around)
            settle_all();
        else
            settle_touched(s);
    }
    if (in_steps && !around) meet_before(touched_by(s), wide);
    if (wide) return emit_wide(*product);
    if (loop && is_thread_loop(*loop)) return emit_threads(*loop);
    if (const Call* call = s->as<Call>(); call && call->name == kLeave) return emit_tile_language_call(*call);
    if (const Call* call = s->as<Call>(); call && call->name == kSwapLanes) return emit_swap(*call);
    if (const Call* call = s->as<Call>(); call && !plan_->team && (call->name == kQuadMax || call->name == kQuadSum))
        return emit_quad(*call);
    if (plan_->roles && loop && loop == plan_->roles->ahead) return emit_consumed(*loop);
    if (const Call* call = s->as<Call>(); call && plan_->team) return emit_team_call(*call);
    if (const Call* call = s->as<Call>(); call && is_tile_call(*call)) return emit_tile_call(*call);
    if (const Call* call = s->as<Call>())
        if (const Intrinsic* known = find_intrinsic(call->name); known && known->by_block) return emit_mma(*call);
    if (!has_threads(s)) {
        return emit_where(is_first_thread(), [&] { emit(s); });
    }
    if (loop) {
        const auto extent = loop->extent.as_int();
        if (in_steps) {
            Touched limit;
            add_reads(loop->extent, limit);
            meet_before(limit);
            // One iteration begins after another, whatever that ended with.
            if (!(loop->kind == LoopKind::Unrolled && extent)) open_.add(touched_by(loop->body));
        }
        auto body = [&](Value* i, int64_t offset) {
            with_binding(loop->var, {i, offset, false, depth_, last_of(loop->extent)},
                         [&] { without_bringing([&] { emit_block(loop->body); }); });
            if (!in_steps) meet();
        };
        if (loop->kind == LoopKind::Unrolled && extent) {
            for (int64_t i = 0; i < *extent; ++i) body(nullptr, i);
            return;
        }
        Value* count = emit_alone(loop->extent);
        const Touched before = open_;
        emit_loop(builder_.getInt64(0), count, 1, bounds(loop->extent).low.value_or(0) > 0,
                  [&](Value* i) { body(i, 0); });
        open_.add(before);
        return;
    }
    const If* branch = s->as<If>();
    CHECK(branch, "kernel {}: a statement around loops over threads", kernel_.name);
    Touched asked;
    add_reads(branch->condition, asked);
    if (in_steps) meet_before(asked);
    Value* condition = emit_alone(branch->condition);
    const Touched before = open_;
    const auto part = [&](const Stmt& body) { without_bringing([&] { emit_block(body); }); };
    emit_where(condition, [&] { part(branch->then); });
    Touched after = std::exchange(open_, before);
    if (branch->otherwise) emit_where(builder_.CreateNot(condition), [&] { part(branch->otherwise); });
    open_.add(after);
}

void Emitter::emit_threads(const For& first) {
    const BoundNest nest = bound_nest(first);
    Value* condition = nullptr;
    std::function<void(size_t)> bind = [&](size_t i) {
        if (i == nest.loops.size()) {
            // Those that the block has and this nest has not.
            for (int d = 0; d < 3; ++d) {
                const std::string axis = std::string("thread.") + char('x' + d);
                const For* own = nullptr;
                for (const For* loop : nest.loops)
                    if (loop->axis == axis) own = loop;
                const Expr extent = own ? own->extent : Expr(1);
                if (extent == plan_->shape.block[static_cast<size_t>(d)]) continue;
                if (plan_->team && d == 2) continue;  // the others are the producer's
                Value* here = builder_.CreateICmpSLT(place_of(axis), emit_alone(extent));
                condition = condition ? builder_.CreateAnd(condition, here) : here;
            }
            if (condition && has_barrier(nest.body))
                return fail(
                    Error(Code::E0604, "kernel {}: a barrier that not all threads of the block reach", kernel_.name));
            if (!condition) return emit(nest.body);
            return emit_where(condition, [&] { emit(nest.body); });
        }
        const For& loop = *nest.loops[i];
        with_binding(loop.var, {place_of(loop.axis), 0, false, 0, last_of(loop.extent)}, [&] { bind(i + 1); });
    };
    bind(0);
}

Value* Emitter::shared_memory(int buffer) {
    if (plan_->team) return shared_in_team(buffer);
    if (roles_) return shared_in_group(buffer);
    for (const Ring& ring : rings_)
        if (auto placed = ring.bases.find(buffer); placed != ring.bases.end()) return placed->second;
    if (auto placed = plan_->shared.find(buffer); placed != plan_->shared.end())
        return builder_.CreateInBoundsGEP(builder_.getInt8Ty(), launched_memory(),
                                          builder_.getInt64(placed->second.offset));
    const Slot& slot = slots_[static_cast<size_t>(buffer)];
    Expr count = 1;
    for (size_t d = 0; d < slot.shape.size(); ++d) count = count + (slot.shape[d] - 1) * slot.strides[d];
    const auto elements = count.as_int();
    if (!elements) {
        fail(Error(Code::E0604, "kernel {}: {} in shared memory has no constant size", kernel_.name,
                   kernel_.buffers[static_cast<size_t>(buffer)].name));
        return nullptr;
    }
    auto* type = llvm::ArrayType::get(memory_type(slot.dtype), static_cast<uint64_t>(*elements));
    auto* made = new llvm::GlobalVariable(module_, type, false, llvm::GlobalValue::InternalLinkage,
                                          llvm::UndefValue::get(type), function_->getName() + "_shared", nullptr,
                                          llvm::GlobalValue::NotThreadLocal, kSharedSpace);
    made->setAlignment(llvm::Align(kParamAlignment));
    return made;
}

// The first dimensions say whose it is: each thread has what the others leave.
Value* Emitter::threads_memory(int buffer) {
    Slot& slot = slots_[static_cast<size_t>(buffer)];
    for (size_t d = 0; d < 3; ++d) slot.strides[d] = 0;
    slot.own = 1;
    for (size_t d = 3; d < slot.shape.size(); ++d) slot.own *= *slot.shape[d].as_int();
    auto* type = llvm::ArrayType::get(memory_type(slot.dtype), static_cast<uint64_t>(slot.own));
    return stack_memory(builder_, type, kernel_.buffers[static_cast<size_t>(buffer)].name.c_str());
}

Value* Emitter::divided(const Expr& e, Value* a, Value* b) {
    constexpr int64_t kMost = 0xffffffff;
    const auto top = bounds(e.arg(0)).high, bottom = bounds(e.arg(1)).high;
    if (!top || !bottom || *top > kMost || *bottom > kMost) return nullptr;
    llvm::Type *narrow = like(a, builder_.getInt32Ty()), *wide = a->getType();
    a = builder_.CreateTrunc(a, narrow), b = builder_.CreateTrunc(b, narrow);
    return builder_.CreateZExt(e.is(ExprKind::FloorDiv) ? builder_.CreateUDiv(a, b) : builder_.CreateURem(a, b), wide);
}

}  // namespace tessera::codegen
