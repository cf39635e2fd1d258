// Cooperative warpgroups: launches in which both consumer warpgroups share a block's tiles (LaunchPlan::team). The
// launch is persistent: each SM runs one block of three warpgroups, which processes the kernel's blocks one after the
// other. The last warpgroup is the producer: one of its threads issues the TMA copies, with a ring buffer in shared
// memory for each kind of tile, in the kernel's order. The first two are the kernel's eight warps. They share only the
// tiles and never wait for each other: values that a thread keeps for itself stay in its registers. A tile from which
// results are stored is split in two halves, one for each warpgroup to write and to copy.
//
// Each stage of a ring has two barriers: one for the arrival of a tile, one for its release by both warpgroups.
#include <llvm/IR/IntrinsicsNVPTX.h>

#include "base/check.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr uint32_t kStripColumns = 8;  // blocks along x that come together: heads whose keys stay in the second cache
constexpr uint32_t kLoaderRegisters = 40, kTeamRegisters = 232;
constexpr int64_t kStepOf16 = 32, kStepsOfPanel = 4;  // bytes of 16 elements along a row, and such steps
constexpr int64_t kEightRowBytes = 1024, kGroupBytes = 8 * kEightRowBytes;  // of a panel: 8 rows, the 64 of a group

using Place = TargetCode::Place;

bool copies_tiles(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const Call* call = x->as<Call>();
        found |= call && call->name == kCopyTile;
    });
    return found;
}

}  // namespace

void Emitter::emit_team(const BoundNest& nest) {
    find_group();
    const TeamPlan& plan = *plan_->team;
    llvm::Type* word = builder_.getInt32Ty();
    for (const auto& [tile, ring] : plan.rings) {
        Roles::Ring& state = roles_->rings[tile];
        state = {stack_memory(builder_, word, "stage"), stack_memory(builder_, word, "phase")};
        builder_.CreateStore(builder_.getInt32(0), state.stage);
        builder_.CreateStore(builder_.getInt32(0), state.phase);
    }
    Value* in_first = builder_.CreateICmpEQ(roles_->group, builder_.getInt32(0));
    emit_where(builder_.CreateAnd(is_first_thread(), in_first), [&] {
        for (const auto& [tile, ring] : plan.rings)
            for (int64_t i = 0; i < ring.stages; ++i)
                for (bool empty : {false, true})
                    assembly(fmt::format("mbarrier.init.shared::cta.b64 [$0], {};", empty ? 2 : 1), "r",
                             {team_slot(tile, empty, builder_.getInt32(static_cast<uint32_t>(i)))});
        assembly("fence.mbarrier_init.release.cluster;", "", {});
    });
    target_.code->barrier(builder_);

    llvm::LLVMContext& c = module_.getContext();
    auto* producer = llvm::BasicBlock::Create(c, "producer", function_);
    auto* consumer = llvm::BasicBlock::Create(c, "consumer", function_);
    auto* done = llvm::BasicBlock::Create(c, "done", function_);
    builder_.CreateCondBr(builder_.CreateICmpEQ(roles_->group, builder_.getInt32(2)), producer, consumer);
    for (auto* role : {producer, consumer}) {
        builder_.SetInsertPoint(role);
        loads_.clear();
        MemoScope scope(*this);
        const bool fetches = role == producer;
        builder_.CreateIntrinsic(fetches ? llvm::Intrinsic::nvvm_setmaxnreg_dec_sync_aligned_u32
                                         : llvm::Intrinsic::nvvm_setmaxnreg_inc_sync_aligned_u32,
                                 {}, {builder_.getInt32(fetches ? kLoaderRegisters : kTeamRegisters)});
        if (fetches) {
            for (const auto& [tile, ring] : roles_->rings)
                builder_.CreateStore(builder_.getInt32(1), ring.phase);  // all places are free at first
            emit_where(is_first_thread(), [&] { emit_team_tiles(nest, [&] { emit_team_copies(nest.body); }); });
        } else {
            emit_team_tiles(nest, [&] { emit_block(nest.body); });
            if (!plan.stored.empty())
                emit_where(is_first_thread(), [&] { assembly("cp.async.bulk.wait_group 0;", "", {}); });
        }
        builder_.CreateBr(done);
    }
    loads_.clear();
    builder_.SetInsertPoint(done);
    roles_.reset();
}

void Emitter::emit_team_tiles(const BoundNest& nest, const std::function<void()>& body) {
    emit_tiles(nest, target_.code->place(builder_, Place::Block, 0), target_.code->place(builder_, Place::Blocks, 0),
               kStripColumns, body);
}

Value* Emitter::team_slot(int tile, bool empty, Value* stage) {
    const TeamPlan::Ring& ring = plan_->team->rings.at(tile);
    const int64_t offset = ring.barriers + (empty ? 8 * ring.stages : 0);
    return builder_.CreateAdd(builder_.CreateAdd(roles_->base, builder_.getInt32(static_cast<uint32_t>(offset))),
                              builder_.CreateShl(stage, builder_.getInt32(3)));
}

Value* Emitter::team_stage(int tile) {
    return builder_.CreateLoad(builder_.getInt32Ty(), roles_->rings.at(tile).stage);
}

void Emitter::wait_in_team(int tile, bool empty) {
    Value* phase = builder_.CreateLoad(builder_.getInt32Ty(), roles_->rings.at(tile).phase);
    wait_for(team_slot(tile, empty, team_stage(tile)), phase);
}

void Emitter::advance_in_team(int tile) {
    const Roles::Ring& state = roles_->rings.at(tile);
    llvm::Type* word = builder_.getInt32Ty();
    const auto stages = static_cast<uint32_t>(plan_->team->rings.at(tile).stages);
    Value* next = builder_.CreateAdd(team_stage(tile), builder_.getInt32(1));
    Value* over = builder_.CreateICmpEQ(next, builder_.getInt32(stages));
    builder_.CreateStore(builder_.CreateSelect(over, builder_.getInt32(0), next), state.stage);
    Value* phase = builder_.CreateLoad(word, state.phase);
    builder_.CreateStore(builder_.CreateXor(phase, builder_.CreateZExt(over, word)), state.phase);
}

// The copies of a statement, with the loops and branches that they stand in.
void Emitter::emit_team_copies(const Stmt& s) {
    if (!s || !status_.ok() || !copies_tiles(s)) return;
    if (const Seq* all = s->as<Seq>())
        for (const Stmt& each : all->stmts) emit_team_copies(each);
    if (const Alloc* a = s->as<Alloc>()) emit_team_copies(a->body);
    if (const Call* call = s->as<Call>()) emit_team_copy(*call);
    if (const For* loop = s->as<For>())
        emit_loop(builder_.getInt64(0), emit_alone(loop->extent), 1, false, [&](Value* i) {
            with_binding(loop->var, {i, 0, false, depth_, last_of(loop->extent)},
                         [&] { emit_team_copies(loop->body); });
        });
    if (const If* branch = s->as<If>()) {
        Value* condition = emit_alone(branch->condition);
        emit_where(condition, [&] { emit_team_copies(branch->then); });
        emit_where(builder_.CreateNot(condition), [&] { emit_team_copies(branch->otherwise); });
    }
}

void Emitter::emit_team_copy(const Call& call) {
    const TileCopy copy = *tile_copy(kernel_, call);
    const TeamPlan::Ring& ring = plan_->team->rings.at(copy.tile);
    const auto size = static_cast<int64_t>(dtype_bytes(slots_[static_cast<size_t>(copy.tile)].dtype));
    wait_in_team(copy.tile, true);
    Value *stage = team_stage(copy.tile), *full = team_slot(copy.tile, false, stage);
    assembly(fmt::format("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], {};",
                         copy.copied * copy.columns * size),
             "r", {full});
    const auto map =
        static_cast<unsigned>(function_->arg_size() - plan_->shape.maps.size() + plan_->team->maps.at(&call));
    Value* to = builder_.CreateMul(stage, builder_.getInt32(static_cast<uint32_t>(ring.bytes)));
    to = builder_.CreateAdd(to, roles_->base);
    for (int64_t p = 0; p * kPanelBytes < copy.columns * size; ++p) {
        std::vector<Value*> at = tile_coordinates(copy, call.reads[0], p * kPanelBytes / size);
        std::string places, kinds;
        for (size_t d = 0; d < at.size(); ++d) {
            places += fmt::format("{}${}", d ? ", " : "", d + 2);
            kinds += "r,";
        }
        const auto offset = static_cast<uint32_t>(ring.offset + p * copy.rows * kPanelBytes);
        std::vector<Value*> arguments{builder_.CreateAdd(to, builder_.getInt32(offset)), function_->getArg(map)};
        arguments.insert(arguments.end(), at.begin(), at.end());
        arguments.push_back(full);
        assembly(fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], "
                             "[$1, {{{}}}], [${}];",
                             at.size(), places, at.size() + 2),
                 "r,l," + kinds + "r", arguments);
    }
    advance_in_team(copy.tile);
}

void Emitter::emit_team_call(const Call& call) {
    if (call.name == kCopyTile) return;  // the producer does it
    if (call.name == kWaitTile) return wait_in_team(call.writes[0].buffer, false);
    if (call.name == kFreeTile) {
        const int tile = call.writes[0].buffer;
        arrive_at(team_slot(tile, true, team_stage(tile)), is_first_thread());
        return advance_in_team(tile);
    }
    if (call.name == kStoreTile) return emit_team_store(call);
    if (call.name == kQuadMax || call.name == kQuadSum) return emit_quad(call);
    if (call.name == kWaitProduct) {
        auto begun = std::find(roles_->begun.begin(), roles_->begun.end(), call.writes[0].buffer);
        CHECK(begun != roles_->begun.end(), "kernel {}: wait_product of nothing", kernel_.name);
        settle_sums(call.writes[0].buffer, static_cast<int>(roles_->begun.end() - begun) - 1);
        roles_->begun.erase(roles_->begun.begin(), begun + 1);
        return;
    }
    const Intrinsic* known = find_intrinsic(call.name);
    if (!known || !known->later)
        return fail(Error(Code::E0604, "kernel {}: {} beside tiles that are copied ahead", kernel_.name, call.name));
    emit_team_product(call, *known);
}

Value* Emitter::shared_in_team(int buffer) {
    auto stored = plan_->team->stored.find(buffer);
    const int64_t offset = stored == plan_->team->stored.end() ? 0 : stored->second;
    return builder_.CreateConstInBoundsGEP1_64(builder_.getInt8Ty(), module_.getNamedGlobal("tessera_shared"),
                                               static_cast<uint64_t>(offset));
}

// Before a tile is written again, what was copied from it last has been read.
void Emitter::wait_for_stored(const Stmt& s) {
    const std::set<int> written = written_buffers(s);
    for (const auto& [tile, offset] : plan_->team->stored) {
        if (!written.contains(tile)) continue;
        emit_where(is_first_thread(), [&] { assembly("cp.async.bulk.wait_group.read 0;", "", {}); });
        meet_in_group();
    }
}

// Each group copies the rows that it has written.
void Emitter::emit_team_store(const Call& call) {
    const TileCopy copy = *tile_copy(kernel_, call);
    const auto size = static_cast<int64_t>(dtype_bytes(slots_[static_cast<size_t>(copy.tile)].dtype));
    const auto map =
        static_cast<unsigned>(function_->arg_size() - plan_->shape.maps.size() + plan_->team->maps.at(&call));
    assembly("fence.proxy.async.shared::cta;", "", {});
    meet_in_group();
    emit_where(is_first_thread(), [&] {
        const auto rank = call.writes[0].indices.size();
        auto number = [&](int64_t n) { return builder_.getInt32(static_cast<uint32_t>(n)); };
        Value* from = builder_.CreateAdd(roles_->base, number(plan_->team->stored.at(copy.tile)));
        from = builder_.CreateAdd(from, builder_.CreateMul(roles_->group, number(copy.rows / 2 * kPanelBytes)));
        for (int64_t p = 0; p * kPanelBytes < copy.columns * size; ++p) {
            std::vector<Value*> at = tile_coordinates(copy, call.writes[0], p * kPanelBytes / size);
            Value*& down = at[rank - 1 - copy.along_rows];
            down = builder_.CreateAdd(down, builder_.CreateMul(roles_->group, number(copy.rows / 2)));
            std::string places, kinds;
            for (size_t d = 0; d < at.size(); ++d) {
                places += fmt::format("{}${}", d ? ", " : "", d + 1);
                kinds += "r,";
            }
            std::vector<Value*> arguments{function_->getArg(map)};
            arguments.insert(arguments.end(), at.begin(), at.end());
            arguments.push_back(builder_.CreateAdd(from, number(p * copy.rows * kPanelBytes)));
            assembly(fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group [$0, {{{}}}], [${}];",
                                 at.size(), places, at.size() + 1),
                     "l," + kinds + "r", arguments);
        }
        assembly("cp.async.bulk.commit_group;", "", {});
    });
}

// Between the four threads of a group, whose numbers differ in the last two bits.
void Emitter::emit_quad(const Call& call) {
    const Slot& slot = slots_[static_cast<size_t>(call.writes[0].buffer)];
    const ReduceOp combine = call.name == kQuadMax ? ReduceOp::Max : ReduceOp::Sum;
    for (int64_t i = 0; i < slot.own; ++i) {
        Value* at = builder_.CreateConstInBoundsGEP1_64(builder_.getFloatTy(), slot.base, static_cast<uint64_t>(i));
        Value* value = builder_.CreateLoad(builder_.getFloatTy(), at);
        for (uint32_t apart : {1u, 2u}) {
            Value* other = builder_.CreateIntrinsic(
                llvm::Intrinsic::nvvm_shfl_sync_bfly_f32, {},
                {builder_.getInt32(~0u), value, builder_.getInt32(apart), builder_.getInt32(31)});
            value = combine == ReduceOp::Max ? target_.code->extreme(builder_, target_.machine, true, value, other)
                                             : builder_.CreateFAdd(value, other);
        }
        builder_.CreateStore(value, at);
    }
    forget_loads(call.writes[0].buffer);
}

// The first tile of the ring: pieces exchanged in rows of 128 bytes, eight rows 1024 bytes apart.
Value* Emitter::team_descriptor(int tile, int64_t next_panel) {
    const TeamPlan::Ring& ring = plan_->team->rings.at(tile);
    Value* at = builder_.CreateMul(team_stage(tile), builder_.getInt32(static_cast<uint32_t>(ring.bytes)));
    at =
        builder_.CreateAdd(at, builder_.CreateAdd(roles_->base, builder_.getInt32(static_cast<uint32_t>(ring.offset))));
    at = builder_.CreateAnd(builder_.CreateLShr(at, builder_.getInt32(4)), builder_.getInt32(0x3FFF));
    at = builder_.CreateOr(at, builder_.getInt32(static_cast<uint32_t>((next_panel >> 4) << 16)));
    const auto high = static_cast<uint64_t>((kEightRowBytes >> 4) | (int64_t{1} << 30));
    return builder_.CreateOr(builder_.CreateZExt(at, i64()), builder_.getInt64(high << 32));
}

void Emitter::emit_team_product(const Call& call, const Intrinsic& known) {
    enum TeamAxis : size_t { kU, kX, kH, kG, kT, kP, kY, kS, kQ, kTeamAxes };
    auto stride = [&](size_t operand, size_t axis) { return *call.args[operand * kTeamAxes + axis].as_int(); };
    const int64_t columns = *known.axes[kX].extent.as_int() * 8, depth = *known.reduce[0].extent.as_int() * 8;
    auto panel_bytes = [&](size_t read) {
        return *kernel_.buffers[static_cast<size_t>(call.reads[read].buffer)].shape[0].as_int() * kPanelBytes;
    };
    const bool along = stride(2, kQ) == 1;  // B lies along what is added up
    Value* b = team_descriptor(call.reads[1].buffer, along ? 16 : panel_bytes(1));
    Value* a = nullptr;
    if (!known.from_threads) {
        Value* group = builder_.CreateZExt(roles_->group, i64());
        a = builder_.CreateAdd(team_descriptor(call.reads[0].buffer, 16),
                               builder_.CreateMul(group, builder_.getInt64(kGroupBytes >> 4)));
    }
    auto further = [&](Value* from, int64_t bytes) {
        return builder_.CreateAdd(from, builder_.getInt64(static_cast<uint64_t>(bytes >> 4)));
    };
    auto in_rows = [&](int64_t step, int64_t panel) {
        return step / kStepsOfPanel * panel + step % kStepsOfPanel * kStepOf16;
    };
    assembly("wgmma.fence.sync.aligned;", "", {});
    for (int64_t step = 0; step < depth / 16; ++step) {
        std::vector<Value*> operands;
        if (a) operands.push_back(further(a, in_rows(step, panel_bytes(0))));
        for (int64_t i = 0; !a && i < 4; ++i) {  // pairs of columns, by half and then by 8
            const Slot& slot = slots_[static_cast<size_t>(call.reads[0].buffer)];
            const int64_t element = (2 * step + i / 2) * 4 + i % 2 * 2;
            Value* at =
                builder_.CreateConstInBoundsGEP1_64(memory_type(slot.dtype), slot.base, static_cast<uint64_t>(element));
            operands.push_back(builder_.CreateLoad(builder_.getInt32Ty(), at));
        }
        operands.push_back(further(b, along ? in_rows(step, panel_bytes(1)) : step * 2 * kEightRowBytes));
        add_wide_product({.sums = call.writes[0].buffer,
                          .columns = columns,
                          .dtype = known.multiplied,
                          .by = known.multiplied_by,
                          .fresh = known.fresh && step == 0,
                          .b_across = !along},
                         operands);
    }
    assembly("wgmma.commit_group.sync.aligned;", "", {});
    roles_->begun.push_back(call.writes[0].buffer);
    forget_loads(call.writes[0].buffer);
}

}  // namespace tessera::codegen
