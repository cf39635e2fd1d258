// Thread-block clusters (see emit_specialized_warps.cpp). The blocks of a cluster split the k steps of one output tile.
// At the end they send their accumulators through distributed shared memory to the first block of the cluster, which
// adds them up in a fixed order and computes the epilogue.
//
// Or two blocks, neighbours along x, have output tiles of their own, as many and of as many steps (pairs). Of a tile
// that both read each copies half, into the shared memory of both (multicast), so that it is read once for two blocks.
// A stage of the ring can be overwritten when both have used it: its "empty" barrier counts a consumer of each. "Full"
// barriers expect all bytes, whoever copies them; the other's may come before they are expected.
#include "kernel/ir/tile_copy.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kSentBytes = 16;  // at a time

}  // namespace

Value* Emitter::rank() {
    return builder_.CreateURem(target_.code->place(builder_, TargetCode::Place::Block, 0),
                               builder_.getInt32(static_cast<uint32_t>(plan_->shape.together)));
}

// All threads of the block, and of those that it runs together with.
void Emitter::meet_together() {
    if (plan_->shape.together == 1) return target_.code->barrier(builder_);
    assembly("barrier.cluster.arrive.release.aligned;", "", {});
    assembly("barrier.cluster.wait.acquire.aligned;", "", {});
}

std::pair<Value*, Value*> Emitter::own_steps(const For& loop) {
    Value *all = emit_alone(loop.extent), *none = builder_.getInt64(0);
    const auto count = static_cast<uint64_t>(plan_->roles->together);
    if (count == 1) return {none, all};
    Value* share = builder_.CreateSDiv(builder_.CreateAdd(all, builder_.getInt64(count - 1)), builder_.getInt64(count));
    Value* first = builder_.CreateMul(builder_.CreateZExt(rank(), i64()), share);
    Value* left = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, builder_.CreateSub(all, first), none);
    return {first, builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, share)};
}

// Only the first goes on from here.
void Emitter::gather_sums(int buffer) {
    const RolesPlan& plan = *plan_->roles;
    const Slot& sums = slots_[static_cast<size_t>(buffer)];
    llvm::Type *word = builder_.getInt32Ty(), *type = memory_type(sums.dtype);
    auto number = [&](int64_t n) { return builder_.getInt32(static_cast<uint32_t>(n)); };
    auto sum_at = [&](int64_t i) {
        return builder_.CreateConstInBoundsGEP1_64(type, sums.base, static_cast<uint64_t>(i));
    };
    const int64_t at_once = kSentBytes / 4, pieces = sums.own / at_once, bytes = pieces * kSentBytes * kGroupThreads;
    Value* thread =
        builder_.CreateAdd(target_.code->place(builder_, TargetCode::Place::Thread, 0),
                           builder_.CreateShl(target_.code->place(builder_, TargetCode::Place::Thread, 1), 2));
    thread = builder_.CreateAdd(thread, builder_.CreateShl(warp_in_group(), 5));
    Value *own = rank(), *barrier = ring_slot(kTurn, number(plan.consumers));
    // Neighbours' pieces lie together.
    Value* received = builder_.CreateAdd(builder_.CreateAdd(roles_->base, number(plan.received)),
                                         builder_.CreateMul(thread, number(kSentBytes)));
    Value* is_first = builder_.CreateICmpEQ(own, number(0));
    emit_where(builder_.CreateNot(is_first), [&] {
        Value* to = builder_.CreateAdd(received, builder_.CreateMul(builder_.CreateSub(own, number(1)), number(bytes)));
        auto of_first = [&](Value* address) {
            return assembly("mapa.shared::cluster.u32 $0, $1, 0;", "=r,r", {address}, word);
        };
        Value *address = of_first(to), *done = of_first(barrier);
        for (int64_t p = 0; p < pieces; ++p) {
            std::vector<Value*> arguments{builder_.CreateAdd(address, number(p * kSentBytes * kGroupThreads))};
            for (int64_t i = 0; i < at_once; ++i)
                arguments.push_back(builder_.CreateBitCast(builder_.CreateLoad(type, sum_at(p * at_once + i)), word));
            arguments.push_back(done);
            assembly("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [$0], {$1, $2, $3, $4}, [$5];",
                     "r,r,r,r,r,r", arguments);
        }
    });
    auto* rest = llvm::BasicBlock::Create(module_.getContext(), "rest", function_);
    builder_.CreateCondBr(is_first, rest, roles_->left);
    builder_.SetInsertPoint(rest);
    emit_where(is_first_thread(), [&] {
        assembly(fmt::format("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], {};",
                             bytes * (plan.together - 1)),
                 "r", {barrier});
    });
    assembly(
        "{ .reg .pred P; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 P, [$0], 0; @P bra D; bra W; "
        "D: }",
        "r", {barrier});
    auto* vector = llvm::FixedVectorType::get(type, static_cast<unsigned>(at_once));
    for (int64_t other = 1; other < plan.together; ++other)
        for (int64_t p = 0; p < pieces; ++p) {
            Value* from = builder_.CreateAdd(received, number((other - 1) * bytes + p * kSentBytes * kGroupThreads));
            Value* sent = builder_.CreateAlignedLoad(
                vector, builder_.CreateIntToPtr(from, builder_.getPtrTy(kSharedMemory)), llvm::Align(kSentBytes));
            for (int64_t i = 0; i < at_once; ++i) {
                Value *to = sum_at(p * at_once + i), *sum = builder_.CreateLoad(type, to),
                      *more = builder_.CreateExtractElement(sent, static_cast<uint64_t>(i));
                builder_.CreateStore(
                    is_int(sums.dtype) ? builder_.CreateAdd(sum, more) : builder_.CreateFAdd(sum, more), to);
            }
        }
    forget_loads(buffer);
}

Value* Emitter::own_half(const TileCopy& copy) {
    return builder_.CreateMul(rank(), builder_.getInt32(static_cast<uint32_t>(copy.rows / 2)));
}

void Emitter::free_stage(Value* stage, Value* condition) {
    Value* barrier = ring_slot(kEmpty, stage);
    arrive_at(barrier, condition);
    if (!plan_->roles->pairs) return;
    Value* other = builder_.CreateXor(rank(), builder_.getInt32(1));
    assembly(
        "{ .reg .pred p; .reg .b32 far; setp.ne.b32 p, $0, 0; @p mapa.shared::cluster.u32 far, $1, $2; "
        "@p mbarrier.arrive.shared::cluster.b64 _, [far]; }",
        "r,r,r", {builder_.CreateZExt(condition, builder_.getInt32Ty()), barrier, other});
}

// What the other still copies, or says, comes to memory that is there.
void Emitter::leave_pair() {
    assembly("barrier.cluster.arrive.release;", "", {});
    assembly("barrier.cluster.wait.acquire;", "", {});
}

}  // namespace tessera::codegen
