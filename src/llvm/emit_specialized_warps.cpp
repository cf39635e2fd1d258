// Warp specialization, for launches with TMA-loaded tiles. The launch is persistent: each SM runs one block of three
// warpgroups, which processes the kernel's blocks one after the other. The last warpgroup is the producer: one of its
// threads issues the TMA copies of successive blocks into a ring buffer in shared memory. The other two are consumers
// and do everything else; they alternate between blocks, so that one multiplies while the other stores (ping-pong). If
// no SM would get two of the kernel's blocks there is one consumer: a smaller block launches sooner.
//
// Each stage of the ring has two barriers: "full" (the tiles have arrived) and "empty" (they may be overwritten). The
// phase bit of a barrier only distinguishes odd laps from even ones. A consumer therefore starts to wait for tiles once
// the other has received all tiles of the previous block: that is its turn, which has a barrier too.
//
// Thread-block clusters: see emit_thread_block_clusters.cpp.
#include "base/check.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/emitter.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

namespace tessera::codegen {
namespace {

constexpr uint32_t kRasterRows = 16;  // blocks below each other that come together
constexpr uint32_t kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr int64_t kEarlySteps = 4;  // whose weights are copied before the launch waits

using Place = TargetCode::Place;

// Whether a copy of the loop, by its number, is of what is known before the program runs.
bool is_early(const For& loop, size_t copy) {
    const auto early = loop.notes.find("early");
    return early != loop.notes.end() && (early->second >> copy & 1);
}

}  // namespace

Value* Emitter::warp_in_group() const { return builder_.CreateAnd(roles_->warp, builder_.getInt32(3)); }

void Emitter::meet_in_group() {
    // A barrier that is not known reserves all there are.
    if (plan_->roles && plan_->roles->consumers == 1)
        return void(assembly(fmt::format("bar.sync 1, {};", kGroupThreads), "", {}));
    assembly(fmt::format("bar.sync $0, {};", kGroupThreads), "r",
             {builder_.CreateAdd(roles_->group, builder_.getInt32(1))});
}

Value* Emitter::shared_in_group(int buffer) {
    const RolesPlan& plan = *plan_->roles;
    auto own = plan.own.find(buffer);
    Value* offset = builder_.getInt32(0);
    if (own != plan.own.end()) {
        offset = builder_.CreateMul(roles_->group, builder_.getInt32(static_cast<uint32_t>(plan.own_bytes)));
        offset = builder_.CreateAdd(offset, builder_.getInt32(static_cast<uint32_t>(own->second)));
    }
    return builder_.CreateInBoundsGEP(builder_.getInt8Ty(), module_.getNamedGlobal("tessera_shared"), offset);
}

Value* Emitter::ring_slot(int64_t kind, Value* stage) {
    const RolesPlan& plan = *plan_->roles;
    const int64_t offset = plan.barriers + 8 * plan.stages * kind;
    return builder_.CreateAdd(builder_.CreateAdd(roles_->base, builder_.getInt32(static_cast<uint32_t>(offset))),
                              builder_.CreateShl(stage, builder_.getInt32(3)));
}

void Emitter::wait_for(Value* barrier, Value* phase) {
    assembly("{ .reg .pred P; W: mbarrier.try_wait.parity.shared::cta.b64 P, [$0], $1; @P bra D; bra W; D: }", "r,r",
             {barrier, phase});
}

void Emitter::arrive_at(Value* barrier, Value* condition) {
    assembly("{ .reg .pred p; setp.ne.b32 p, $0, 0; @p mbarrier.arrive.release.cta.shared::cta.b64 _, [$1]; }", "r,r",
             {builder_.CreateZExt(condition, builder_.getInt32Ty()), barrier});
}

// Some places on in the ring.
void Emitter::advance(Value* by) {
    Value* stages = builder_.getInt32(static_cast<uint32_t>(plan_->roles->stages));
    llvm::Type* word = builder_.getInt32Ty();
    Value *at = builder_.CreateAdd(builder_.CreateLoad(word, roles_->stage), by), *laps = nullptr;
    if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(by); known && known->isOne()) {
        Value* over = builder_.CreateICmpUGE(at, stages);
        laps = builder_.CreateZExt(over, word);
        at = builder_.CreateSelect(over, builder_.CreateSub(at, stages), at);
    } else {
        laps = builder_.CreateAnd(builder_.CreateUDiv(at, stages), builder_.getInt32(1));
        at = builder_.CreateURem(at, stages);
    }
    builder_.CreateStore(at, roles_->stage);
    builder_.CreateStore(builder_.CreateXor(builder_.CreateLoad(word, roles_->phase), laps), roles_->phase);
}

void Emitter::open_barriers() {
    const RolesPlan& plan = *plan_->roles;
    auto make = [&](int64_t kind, int64_t i) {
        const int count = kind == kEmpty && plan.pairs ? 2 : 1;
        assembly(fmt::format("mbarrier.init.shared::cta.b64 [$0], {};", count), "r",
                 {ring_slot(kind, builder_.getInt32(static_cast<uint32_t>(i)))});
    };
    emit_where(builder_.CreateAnd(is_first_thread(), builder_.CreateICmpEQ(roles_->group, builder_.getInt32(0))), [&] {
        for (int64_t i = 0; i < plan.stages; ++i) make(kFull, i), make(kEmpty, i);
        for (int64_t i = 0; i + 1 < plan_->shape.groups; ++i) make(kTurn, i);
        if (plan.together > 1) make(kTurn, plan.consumers);
        assembly("fence.mbarrier_init.release.cluster;", "", {});
    });
    meet_together();
}

// Which warp of which group the thread is in, and where shared memory begins.
void Emitter::find_group() {
    Value* shared = launched_memory();
    llvm::Type* word = builder_.getInt32Ty();
    Value* base = builder_.CreatePtrToInt(shared, word);
    // As the compiler sees, the same in all threads of a warp.
    Value* warp = builder_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {},
                                           {builder_.getInt32(~0u), target_.code->place(builder_, Place::Thread, 2),
                                            builder_.getInt32(0), builder_.getInt32(31)});
    roles_ = std::make_shared<Roles>(Roles{base, warp, builder_.CreateLShr(warp, builder_.getInt32(2))});
}

void Emitter::emit_roles(const BoundNest& nest) {
    llvm::LLVMContext& c = module_.getContext();
    llvm::Type* word = builder_.getInt32Ty();
    find_group();
    roles_->stage = stack_memory(builder_, word, "stage");
    roles_->phase = stack_memory(builder_, word, "phase");
    roles_->turn = stack_memory(builder_, word, "turn");
    builder_.CreateStore(builder_.getInt32(0), roles_->stage);
    builder_.CreateStore(builder_.getInt32(0), roles_->phase);
    builder_.CreateStore(builder_.CreateXor(roles_->group, builder_.getInt32(1)), roles_->turn);
    open_barriers();

    auto* producer = llvm::BasicBlock::Create(c, "producer", function_);
    auto* consumer = llvm::BasicBlock::Create(c, "consumer", function_);
    auto* done = llvm::BasicBlock::Create(c, "done", function_);
    const auto consumers = static_cast<uint32_t>(plan_->shape.groups - 1);
    builder_.CreateCondBr(builder_.CreateICmpEQ(roles_->group, builder_.getInt32(consumers)), producer, consumer);
    for (auto* role : {producer, consumer}) {
        builder_.SetInsertPoint(role);
        loads_.clear();
        MemoScope scope(*this);
        if (role == producer)
            emit_producer(nest);
        else
            emit_consumer(nest);
        builder_.CreateBr(done);
    }
    loads_.clear();
    builder_.SetInsertPoint(done);
    if (plan_->roles->pairs) leave_pair();
    roles_.reset();
}

// The kernel's blocks from `first` on, so many apart, in an order in which neighbours read the same: `strip` of them
// along x, then the next along y. Where those along y have more to do the further they are, the last and the first, and
// so on, are taken together.
void Emitter::emit_tiles(const BoundNest& nest, Value* first, Value* every, uint32_t strip,
                         const std::function<void()>& body) {
    llvm::Type* word = builder_.getInt32Ty();
    Value* one = builder_.getInt32(1);
    const For* loops[3] = {};
    Value* extents[3] = {one, one, one};
    for (const For* loop : nest.loops) {
        const auto d = static_cast<size_t>(loop->axis.back() - 'x');
        loops[d] = loop;
        extents[d] = builder_.CreateTrunc(emit_alone(loop->extent), word);
    }
    const bool uneven = loops[1] && loops[1]->notes.contains("uneven");
    Value* down = uneven ? builder_.CreateLShr(builder_.CreateAdd(extents[1], one), one) : extents[1];
    const bool pairs = plan_->shape.pairs;
    if (pairs) {
        extents[0] = builder_.CreateLShr(builder_.CreateAdd(extents[0], one), one);
        strip /= 2;
    }
    Value *layer = builder_.CreateMul(extents[0], down), *all = builder_.CreateMul(layer, extents[2]);
    Value* left = builder_.CreateAdd(builder_.CreateSub(all, first), builder_.CreateSub(every, one));
    Value* turns = builder_.CreateSExt(builder_.CreateSDiv(left, every), i64());
    emit_loop(builder_.getInt64(0), turns, 1, false, [&](Value* turn) {
        Value* number = builder_.CreateAdd(first, builder_.CreateMul(builder_.CreateTrunc(turn, word), every));
        Value* z = loops[2] ? builder_.CreateUDiv(number, layer) : builder_.getInt32(0);
        Value* in_layer = builder_.CreateSub(number, builder_.CreateMul(z, layer));
        Value* most = builder_.getInt32(strip);
        Value* begin = builder_.CreateMul(builder_.CreateUDiv(in_layer, builder_.CreateMul(most, down)), most);
        Value* in_strip = builder_.CreateSub(in_layer, builder_.CreateMul(begin, down));
        Value* columns =
            builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, builder_.CreateSub(extents[0], begin), most);
        Value* y = builder_.CreateUDiv(in_strip, columns);
        Value* x = builder_.CreateAdd(begin, builder_.CreateSub(in_strip, builder_.CreateMul(y, columns)));
        if (pairs) x = builder_.CreateAdd(builder_.CreateShl(x, one), rank());
        Value* at[3] = {x, y, z};
        std::function<void(size_t)> bind = [&](size_t d) {
            if (d == 3) return body();
            if (!loops[d]) return bind(d + 1);
            with_binding(loops[d]->var,
                         {builder_.CreateZExt(at[d], i64()), 0, false, depth_, last_of(loops[d]->extent)},
                         [&] { bind(d + 1); });
        };
        if (!uneven) return bind(0);
        Value* opposite = builder_.CreateSub(builder_.CreateSub(extents[1], one), y);
        Value* pair =
            builder_.CreateSelect(builder_.CreateICmpEQ(y, opposite), builder_.getInt64(1), builder_.getInt64(2));
        emit_loop(builder_.getInt64(0), pair, 1, true, [&](Value* second) {
            at[1] = builder_.CreateSelect(builder_.CreateICmpEQ(second, builder_.getInt64(0)), opposite, y);
            bind(0);
        });
    });
}

void Emitter::emit_producer(const BoundNest& nest) {
    if (plan_->roles->consumers > 1)
        builder_.CreateIntrinsic(llvm::Intrinsic::nvvm_setmaxnreg_dec_sync_aligned_u32, {},
                                 {builder_.getInt32(kProducerRegisters)});
    builder_.CreateStore(builder_.getInt32(1), roles_->phase);  // all places are free at first
    roles_->fetched = stack_memory(builder_, builder_.getInt1Ty(), "fetched");
    builder_.CreateStore(builder_.getFalse(), roles_->fetched);
    emit_where(is_first_thread(), [&] {
        Value* together = builder_.getInt32(static_cast<uint32_t>(plan_->shape.together));
        emit_tiles(nest, builder_.CreateUDiv(target_.code->place(builder_, Place::Block, 0), together),
                   builder_.CreateUDiv(target_.code->place(builder_, Place::Blocks, 0), together), kRasterRows,
                   [&] { emit_fetched(nest.body); });
    });
}

void Emitter::emit_fetched(const Stmt& s) {
    if (!s || !status_.ok()) return;
    if (const Seq* all = s->as<Seq>()) {
        for (const Stmt& each : all->stmts) emit_fetched(each);
        return;
    }
    if (const Alloc* a = s->as<Alloc>()) return emit_fetched(a->body);
    const For* loop = s->as<For>();
    if (loop && loop == plan_->roles->ahead) return emit_fetched_loop(*loop);
    visit(s, [&](const Stmt& x) {
        const Call* call = x->as<Call>();
        if (call && brings_tile(*call))
            fail(Error(Code::E0604,
                       "kernel {}: a tile that is copied outside of the loop for which tiles are copied "
                       "ahead",
                       kernel_.name));
    });
}

std::vector<Value*> Emitter::tile_coordinates(const TileCopy& copy, const Access& first, int64_t further) {
    std::vector<Expr> from = first.indices;
    if (copy.places) {
        const TilePlaces& p = *copy.places;
        from[0] = floor_div(p.first, p.height * p.width);
        from[1] = mod(floor_div(p.first, p.width), p.height) * p.every_y + p.from_y;
        from[2] = mod(p.first, p.width) * p.every_x + p.from_x;
    }
    std::vector<Value*> at;
    for (size_t d = from.size(); d-- > 0;)
        at.push_back(builder_.CreateTrunc(emit_alone(from[d]), builder_.getInt32Ty()));
    at[0] = builder_.CreateAdd(at[0], builder_.getInt32(static_cast<uint32_t>(further)));
    return at;
}

// One of the copies of a step, into its place in the ring.
void Emitter::emit_fetch(const Call& call, Value* stage) {
    const auto first_map = static_cast<unsigned>(function_->arg_size() - plan_->shape.maps.size());
    const TileCopy copy = *tile_copy(kernel_, call);
    const auto size = static_cast<int64_t>(dtype_bytes(slots_[size_t(copy.tile)].dtype));
    const int64_t panel = kPanelBytes / size, panel_bytes = copy.rows * kPanelBytes;
    const int64_t stage_bytes = plan_->roles->apart.at(copy.tile);
    Value* to = builder_.CreateMul(stage, builder_.getInt32(static_cast<uint32_t>(stage_bytes)));
    to = builder_.CreateAdd(to, roles_->base);
    const unsigned map = first_map + static_cast<unsigned>(plan_->roles->maps.at(&call));
    const bool halved = plan_->roles->halved.contains(&call);
    Value* own_rows = halved ? own_half(copy) : nullptr;
    if (halved)
        to =
            builder_.CreateAdd(to, builder_.CreateMul(own_rows, builder_.getInt32(static_cast<uint32_t>(kPanelBytes))));
    for (int64_t p = 0; p * panel < copy.columns; ++p) {
        std::vector<Value*> at = tile_coordinates(copy, call.reads[0], p * panel);
        if (halved) {
            Value*& row = at[at.size() - 1 - copy.along_rows];
            row = builder_.CreateAdd(row, own_rows);
        }
        const int64_t offset = plan_->roles->ring.at(copy.tile) + p * panel_bytes;
        std::string places, kinds;
        for (size_t d = 0; d < at.size(); ++d) {
            places += fmt::format("{}${}", d ? ", " : "", d + 2);
            kinds += "r,";
        }
        std::vector<Value*> arguments{builder_.CreateAdd(to, builder_.getInt32(static_cast<uint32_t>(offset))),
                                      function_->getArg(map)};
        arguments.insert(arguments.end(), at.begin(), at.end());
        arguments.push_back(ring_slot(kFull, stage));
        std::string mode = "tile", further, everywhere;
        if (copy.places) {
            mode = "im2col", further = fmt::format(", {{${}, ${}}}", at.size() + 3, at.size() + 4);
            for (const Expr& e : {copy.places->further_x, copy.places->further_y})
                arguments.push_back(builder_.CreateTrunc(emit_alone(e), builder_.getInt16Ty()));
        }
        if (halved) {
            everywhere = ".multicast::cluster", further = fmt::format(", ${}", at.size() + 3);
            arguments.push_back(builder_.getInt16(3));
        }
        assembly(fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.{}.mbarrier::complete_tx::"
                             "bytes{} [$0], [$1, {{{}}}], [${}]{};",
                             at.size(), mode, everywhere, places, at.size() + 2, further),
                 "r,l," + kinds +
                     (copy.places ? "r,h,h"
                      : halved    ? "r,h"
                                  : "r"),
                 arguments);
    }
}

// Of the first block, some of what is known before the program runs is copied before the launches before this one are
// done, and the rest after. With more, what is not known would come late where there is no launch before.
void Emitter::emit_fetched_loop(const For& loop) {
    llvm::Type* word = builder_.getInt32Ty();
    std::vector<const Call*> copies, known, others;
    int64_t bytes = 0;
    visit(loop.body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        if (!call || !brings_tile(*call)) return;
        (is_early(loop, copies.size()) ? known : others).push_back(call);
        copies.push_back(call);
        const TileCopy copy = *tile_copy(kernel_, *call);
        bytes += copy.copied * copy.columns * static_cast<int64_t>(dtype_bytes(slots_[size_t(copy.tile)].dtype));
    });
    const auto [first, steps] = own_steps(loop);
    auto fetch = [&, first = first](Value* i, Value* stage, const std::vector<const Call*>& which) {
        with_binding(loop.var, {builder_.CreateAdd(first, i), 0, false, depth_, last_of(loop.extent)}, [&] {
            for (const Call* call : which) emit_fetch(*call, stage);
        });
    };
    auto expect = [&](Value* stage) {
        assembly(fmt::format("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [$0], {};", bytes), "r",
                 {ring_slot(kFull, stage)});
    };
    Value* begin = builder_.getInt64(0);
    if (waits_in_roles(*plan_)) {
        Value* fresh = builder_.CreateNot(builder_.CreateLoad(builder_.getInt1Ty(), roles_->fetched));
        Value* places = builder_.getInt64(static_cast<uint64_t>(std::min(kEarlySteps, plan_->roles->stages)));
        Value* early = builder_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, steps, places);
        begin = builder_.CreateSelect(fresh, early, begin);
        emit_where(fresh, [&] {
            auto fill = [&](const std::vector<const Call*>& which, bool first) {
                emit_loop(builder_.getInt64(0), early, 1, false, [&](Value* i) {
                    Value* stage = builder_.CreateTrunc(i, word);
                    if (first) expect(stage);
                    fetch(i, stage, which);
                });
            };
            fill(known, true);
            wait_for_launches();
            fill(others, false);
            advance(builder_.CreateTrunc(early, word));
            builder_.CreateStore(builder_.getTrue(), roles_->fetched);
        });
    }
    emit_loop(begin, steps, 1, false, [&](Value* i) {
        Value* stage = builder_.CreateLoad(word, roles_->stage);
        wait_for(ring_slot(kEmpty, stage), builder_.CreateLoad(word, roles_->phase));
        expect(stage);
        fetch(i, stage, copies);
        advance(builder_.getInt32(1));
    });
}

void Emitter::emit_consumer(const BoundNest& nest) {
    const auto consumers = static_cast<uint32_t>(plan_->roles->consumers);
    if (consumers > 1)
        builder_.CreateIntrinsic(llvm::Intrinsic::nvvm_setmaxnreg_inc_sync_aligned_u32, {},
                                 {builder_.getInt32(kConsumerRegisters)});
    if (waits_in_roles(*plan_)) wait_for_launches();
    // The blocks that the other takes lie between.
    Value* steps = builder_.CreateTrunc(emit_alone(plan_->roles->ahead->extent), builder_.getInt32Ty());
    advance(builder_.CreateMul(roles_->group, steps));
    Value* together = builder_.getInt32(static_cast<uint32_t>(plan_->shape.together));
    Value *block = builder_.CreateUDiv(target_.code->place(builder_, Place::Block, 0), together),
          *blocks = builder_.CreateUDiv(target_.code->place(builder_, Place::Blocks, 0), together);
    Value* first = builder_.CreateAdd(block, builder_.CreateMul(roles_->group, blocks));
    emit_tiles(nest, first, builder_.CreateMul(blocks, builder_.getInt32(consumers)), kRasterRows, [&] {
        roles_->left = llvm::BasicBlock::Create(module_.getContext(), "left", function_);
        emit_block(nest.body);
        builder_.CreateBr(roles_->left);
        builder_.SetInsertPoint(roles_->left);
        if (consumers > 1) advance(steps);
    });
    emit_where(is_first_thread(), [&] { assembly("cp.async.bulk.wait_group 0;", "", {}); });
}

// One step of matrix instructions goes on while the next is begun; then what the first has read can be overwritten.
void Emitter::emit_consumed(const For& loop) {
    llvm::Type* word = builder_.getInt32Ty();
    std::vector<const Call*> products;
    visit(loop.body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        if (call && !is_tile_call(*call)) products.push_back(call);
        if (!call && !s->as<Seq>())
            fail(Error(Code::E0604,
                       "kernel {}: something beside products of tiles in the loop for which they are copied "
                       "ahead",
                       kernel_.name));
    });
    if (!status_.ok()) return;
    Value* first = is_first_thread();
    const bool in_turn = plan_->roles->consumers > 1;
    if (in_turn) {
        wait_for(ring_slot(kTurn, roles_->group), builder_.CreateLoad(word, roles_->turn));
        builder_.CreateStore(builder_.CreateXor(builder_.CreateLoad(word, roles_->turn), builder_.getInt32(1)),
                             roles_->turn);
    }
    llvm::AllocaInst* before = stack_memory(builder_, word, "before");
    builder_.CreateStore(builder_.getInt32(0), before);
    Value* steps = own_steps(loop).second;
    emit_loop(builder_.getInt64(0), steps, 1, false, [&](Value* i) {
        Value* stage = builder_.CreateLoad(word, roles_->stage);
        wait_for(ring_slot(kFull, stage), builder_.CreateLoad(word, roles_->phase));
        for (const Call* call : products) emit_wgmma(*call, stage);
        assembly("wgmma.wait_group.sync.aligned 1;", "", {});
        Value* has_before = builder_.CreateICmpSGT(i, builder_.getInt64(0));
        free_stage(builder_.CreateLoad(word, before), builder_.CreateAnd(first, has_before));
        builder_.CreateStore(stage, before);
        advance(builder_.getInt32(1));
    });
    if (in_turn) arrive_at(ring_slot(kTurn, builder_.CreateXor(roles_->group, builder_.getInt32(1))), first);
    for (const Call* call : products) settle_sums(call->writes[0].buffer);
    Value* any = builder_.CreateICmpSGT(steps, builder_.getInt64(0));
    free_stage(builder_.CreateLoad(word, before), builder_.CreateAnd(first, any));
    // What was stored of the block before is read by now, or soon.
    emit_where(first, [&] { assembly("cp.async.bulk.wait_group.read 0;", "", {}); });
    roles_->stored = -1;
    if (plan_->roles->together > 1) gather_sums(products[0]->writes[0].buffer);
}

// Where a statement writes what was stored last, and may still be read.
void Emitter::leave_stored(const Stmt& s) {
    if (roles_->stored < 0 || !written_buffers(s).contains(roles_->stored)) return;
    emit_where(is_first_thread(), [&] { assembly("cp.async.bulk.wait_group.read 0;", "", {}); });
    meet();
    roles_->stored = -1;
}

// Of what was stored before, all is read before the threads meet: it can be written again.
void Emitter::emit_tile_call(const Call& call) {
    if (!roles_ || call.name != kStoreTile)
        return fail(Error(Code::E0604, "kernel {}: {} outside of a loop for which tiles are copied ahead", kernel_.name,
                          call.name));
    const TileCopy copy = *tile_copy(kernel_, call);
    const Slot& slot = slots_[static_cast<size_t>(copy.tile)];
    const auto size = static_cast<int64_t>(dtype_bytes(slot.dtype));
    const auto map =
        static_cast<unsigned>(function_->arg_size() - plan_->shape.maps.size() + plan_->roles->maps.at(&call));
    assembly("fence.proxy.async.shared::cta;", "", {});
    Value* first = is_first_thread();
    emit_where(first, [&] { assembly("cp.async.bulk.wait_group.read 0;", "", {}); });
    meet();
    roles_->stored = copy.tile;
    emit_where(first, [&] {
        Value* from = builder_.CreatePtrToInt(slot.base, builder_.getInt32Ty());
        for (int64_t p = 0; p * kPanelBytes < copy.columns * size; ++p) {
            std::vector<Value*> at = tile_coordinates(copy, call.writes[0], p * kPanelBytes / size);
            std::string places, kinds;
            for (size_t d = 0; d < at.size(); ++d) {
                places += fmt::format("{}${}", d ? ", " : "", d + 1);
                kinds += "r,";
            }
            std::vector<Value*> arguments{function_->getArg(map)};
            arguments.insert(arguments.end(), at.begin(), at.end());
            const auto offset = static_cast<uint32_t>(p * copy.rows * kPanelBytes);
            arguments.push_back(builder_.CreateAdd(from, builder_.getInt32(offset)));
            assembly(fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group [$0, {{{}}}], [${}];",
                                 at.size(), places, at.size() + 1),
                     "l," + kinds + "r", arguments);
        }
        assembly("cp.async.bulk.commit_group;", "", {});
    });
}

}  // namespace tessera::codegen
