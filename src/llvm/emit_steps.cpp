// What the threads of a block do one after the other: where they have to meet in between, where shared memory lies, and
// what the lanes of a warp exchange.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

#include "kernel/ir/group_steps.h"
#include "kernel/ir/races.h"
#include "kernel/ir/tile_calls.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

constexpr int64_t kStaticBytes = 32 << 10;  // more is placed, and comes with the launch
constexpr int64_t kSharedUnit = 128, kPanelUnit = 1024;
constexpr int64_t kReservedOfBlock = 1 << 10;   // beside what it asks for
constexpr int64_t kMostSumsOfBlock = 64 * 256;  // registers, of which there are four times as many

int64_t shared_bytes_of(const Buffer& b) {
    Expr count = 1;
    if (b.strides.empty())
        for (const Expr& e : b.shape) count = count * e;
    else
        for (size_t d = 0; d < b.shape.size(); ++d) count = count + (b.shape[d] - 1) * b.strides[d];
    const auto bytes = static_cast<int64_t>(dtype_bytes(b.dtype));
    return (count.as_int().value_or(1 << 30) * bytes + kSharedUnit - 1) / kSharedUnit * kSharedUnit;
}

// When each buffer in shared memory is needed: from its first to its last use, and, where it outlives a loop that uses
// it, all along that loop.
struct Lifetimes {
    const Kernel& kernel;
    const std::set<int>& shared;
    const std::map<const For*, AheadPlan>& ahead;
    struct Span {
        int64_t begin = -1, end = -1;
        size_t loops = 0;  // around its Alloc
    };
    std::map<int, Span> spans = {};
    std::vector<std::pair<int64_t, std::set<int>>> loops = {};  // where each began, and what it touches
    int64_t now = 0;

    void touch(int buffer) {
        if (!shared.contains(buffer)) return;
        Span& s = spans[buffer];
        if (s.begin < 0) s.begin = now;
        s.end = now;
        for (auto& [begin, touched] : loops) touched.insert(buffer);
    }
    void look(const Expr& e) {
        if (e.node().reads)
            visit(e, [&](const Expr& x) {
                if (x.is(ExprKind::Load)) touch(x.node().slot);
            });
    }
    void walk(const Stmt& s) {
        if (!s) return;
        ++now;
        if (const Seq* all = s->as<Seq>())
            for (const Stmt& each : all->stmts) walk(each);
        if (const Store* to = s->as<Store>()) {
            look(to->value);
            for (const Expr& e : to->to.indices) look(e);
            touch(to->to.buffer);
        }
        if (const Call* call = s->as<Call>()) {
            for (const Expr& e : call->args) look(e);
            for (const auto* list : {&call->writes, &call->reads})
                for (const Access& a : *list) {
                    touch(a.buffer);
                    for (const Expr& e : a.indices) look(e);
                }
        }
        if (const If* branch = s->as<If>()) look(branch->condition), walk(branch->then), walk(branch->otherwise);
        if (const Alloc* a = s->as<Alloc>()) {
            if (shared.contains(a->buffer)) spans[a->buffer].loops = loops.size();
            walk(a->body);
        }
        const For* loop = s->as<For>();
        if (!loop) return;
        look(loop->extent);
        loops.emplace_back(now, std::set<int>());
        walk(loop->body);
        ++now;
        const auto [begin, touched] = loops.back();
        loops.pop_back();
        const auto rings = ahead.find(loop);
        for (int b : touched) {
            Span& span = spans[b];
            const bool in_ring = rings != ahead.end() && rings->second.tiles.contains(b);
            if (span.loops > loops.size() && !in_ring) continue;
            span.begin = std::min(span.begin, begin);
            span.end = now;
        }
    }
};

}  // namespace

std::set<int> threads_own_buffers(const Kernel& kernel, const Stmt& s) {
    std::set<int> own;
    visit(s, [&](const Stmt& x) {
        const Alloc* a = x->as<Alloc>();
        if (a && kernel.buffers[static_cast<size_t>(a->buffer)].scope == Scope::Shared && is_threads_own(kernel, *a))
            own.insert(a->buffer);
    });
    return own;
}

namespace {

// Products by instructions of four warps, the tiles they read, and loops whose tiles are brought ahead.
void find_products(const Kernel& kernel, LaunchPlan& plan) {
    visit(plan.stmt, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        const Intrinsic* known = call ? find_intrinsic(call->name) : nullptr;
        if (known && known->by_block && known->needs == "wgmma") {
            plan.wide.insert(call);
            for (size_t i = known->from_threads ? 1 : 0; i < call->reads.size(); ++i)
                plan.panels.insert(call->reads[i].buffer);
        }
        const For* loop = s->as<For>();
        if (!loop || !loop->notes.contains("ahead")) return;
        AheadPlan& made = plan.ahead[loop];
        made.ahead = loop->notes.at("ahead");
        made.goes_on = true;
        Stmt body = loop->body;
        while (body->as<Alloc>()) body = body->as<Alloc>()->body;
        for (const Stmt& each : body->as<Seq>()->stmts) {
            const For* nest = each->as<For>();
            if (nest && nest->notes.contains("brings")) {
                const int tile = *written_buffers(each).begin();
                made.tiles[tile] = shared_bytes_of(kernel.buffers[static_cast<size_t>(tile)]);
                continue;
            }
            const Call* product = each->as<Call>();
            const Intrinsic* by = product ? find_intrinsic(product->name) : nullptr;
            made.goes_on &= by && by->by_block && by->needs == "wgmma" && !by->from_threads;
        }
        // All that products read must stay until they have ended.
        for (const Stmt& each : body->as<Seq>()->stmts)
            if (const Call* product = each->as<Call>())
                for (const Access& a : product->reads) made.goes_on &= made.tiles.contains(a.buffer);
        made.places = made.ahead + (made.goes_on ? 2 : 1);
        made.written = written_buffers(loop->body);
        for (const auto& [tile, bytes] : made.tiles) made.written.erase(tile);
    });
}

int64_t threads_of(const LaunchPlan& plan) {
    int64_t threads = 1;
    for (const Expr& size : plan.shape.block) threads *= size.as_int().value_or(1024);
    return threads;
}

// Registers of sums, and of those that are added up in parts.
int64_t sums_of_thread(const Kernel& kernel, const LaunchPlan& plan) {
    std::set<int> sums;
    int64_t all = 0;
    for (const Call* call : plan.wide) {
        sums.insert(call->writes[0].buffer);
        if (const int64_t columns = columns_in_parts(*call)) all = std::max(all, columns / 2);
    }
    for (int slot : sums) all += kernel.buffers[static_cast<size_t>(slot)].shape.back().as_int().value_or(0);
    return all;
}

// Gives each buffer a place, and says how many bytes that takes.
int64_t place_shared(const Kernel& kernel, LaunchPlan& plan, const std::set<int>& shared) {
    Lifetimes lives{kernel, shared, plan.ahead};
    lives.walk(plan.stmt);
    // The first that is needed first; each at the lowest place that no other has at the same time.
    std::vector<int> order;
    for (const auto& [buffer, span] : lives.spans)
        if (span.begin >= 0) order.push_back(buffer);
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return std::pair(lives.spans[a].begin, a) < std::pair(lives.spans[b].begin, b); });
    int64_t most = 0;
    plan.shared.clear();
    for (int buffer : order) {
        const auto& span = lives.spans[buffer];
        int64_t bytes = shared_bytes_of(kernel.buffers[static_cast<size_t>(buffer)]);
        for (const auto& [loop, ring] : plan.ahead)
            if (ring.tiles.contains(buffer)) bytes *= ring.places;
        const int64_t unit = plan.panels.contains(buffer) ? kPanelUnit : kSharedUnit;
        std::vector<SharedPlace> beside;
        for (const auto& [other, place] : plan.shared)
            if (lives.spans[other].begin <= span.end && span.begin <= lives.spans[other].end) beside.push_back(place);
        std::sort(beside.begin(), beside.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
        int64_t at = 0;
        for (const SharedPlace& p : beside)
            if (at < p.offset + p.bytes && p.offset < at + bytes) at = (p.offset + p.bytes + unit - 1) / unit * unit;
        plan.shared.emplace(buffer, SharedPlace{at, bytes});
        most = std::max(most, at + bytes);
    }
    return most;
}

// Where there is no room, tiles are brought less far ahead; then no products go on; then each is brought where it is
// used.
bool bring_less(LaunchPlan& plan) {
    bool less = false;
    for (auto& [loop, ring] : plan.ahead)
        if (ring.ahead > 1) --ring.ahead, --ring.places, less = true;
    if (less) return true;
    for (auto& [loop, ring] : plan.ahead)
        if (std::exchange(ring.goes_on, false)) --ring.places, less = true;
    if (less) return true;
    return !std::exchange(plan.ahead, {}).empty();
}

}  // namespace

Status plan_shared(const Kernel& kernel, const Machine& machine, LaunchPlan& plan) {
    const std::set<int> own = threads_own_buffers(kernel, plan.stmt);
    std::set<int> shared;
    int64_t all = 0;
    visit(plan.stmt, [&](const Stmt& x) {
        const Alloc* a = x->as<Alloc>();
        if (!a || own.contains(a->buffer)) return;
        const Buffer& b = kernel.buffers[static_cast<size_t>(a->buffer)];
        if (b.scope != Scope::Shared) return;
        shared.insert(a->buffer);
        all += shared_bytes_of(b);
    });
    find_products(kernel, plan);
    if (all <= kStaticBytes && plan.ahead.empty() && plan.panels.empty()) return {};
    int64_t most = place_shared(kernel, plan, shared);
    // Two blocks of a multiprocessor do more for each other than products that go on.
    const auto fits_twice = [&] { return 2 * (most + kReservedOfBlock) <= machine.shared_bytes + kReservedOfBlock; };
    const bool twice = sums_of_thread(kernel, plan) * threads_of(plan) <= kMostSumsOfBlock;
    if (twice && !fits_twice()) {
        const auto kept = plan.ahead;
        for (auto& [loop, ring] : plan.ahead)
            if (std::exchange(ring.goes_on, false)) --ring.places;
        most = place_shared(kernel, plan, shared);
        if (!fits_twice()) {
            plan.ahead = kept;
            most = place_shared(kernel, plan, shared);
        }
    }
    if (twice && fits_twice() && !plan.wide.empty()) plan.blocks_at_once = 2;
    while (most > machine.shared_bytes && bring_less(plan)) most = place_shared(kernel, plan, shared);
    if (most > machine.shared_bytes)
        return Error(Code::E0604, "kernel {}: its tiles take {} bytes of shared memory, and a block has {}",
                     kernel.name, most, machine.shared_bytes)
            .hint("take smaller tiles, or fewer at a time");
    plan.shape.shared_bytes = most;
    return {};
}

Value* Emitter::launched_memory() {
    llvm::GlobalVariable* shared = module_.getNamedGlobal("tessera_shared");
    if (shared) return shared;
    constexpr unsigned kSharedSpace = 3;
    auto* type = llvm::ArrayType::get(builder_.getInt8Ty(), 0);
    shared = new llvm::GlobalVariable(module_, type, false, llvm::GlobalValue::ExternalLinkage, nullptr,
                                      "tessera_shared", nullptr, llvm::GlobalValue::NotThreadLocal, kSharedSpace);
    shared->setAlignment(llvm::Align(1024));
    return shared;
}

// Memory that other threads see: what a statement, with all inside of it, reads and writes.
Emitter::Touched Emitter::touched_by(const Stmt& s) const {
    Touched all;
    const auto in_ring = [&](int buffer) {
        return std::any_of(rings_.begin(), rings_.end(), [&](const Ring& r) { return r.bases.contains(buffer); });
    };
    const auto seen = [&](int buffer) {
        const Scope scope = kernel_.buffers[static_cast<size_t>(buffer)].scope;
        return scope == Scope::Global || (scope == Scope::Shared && !own_buffers_.contains(buffer) && !in_ring(buffer));
    };
    visit(s, [&](const Stmt& x) {
        if (const Store* to = x->as<Store>(); to && seen(to->to.buffer)) all.writes.insert(to->to.buffer);
        const Call* call = x->as<Call>();
        if (!call) return;
        for (const Access& a : call->writes)
            if (seen(a.buffer)) all.writes.insert(a.buffer);
        for (const Access& a : call->reads)
            if (seen(a.buffer)) all.reads.insert(a.buffer);
        // Who exchanges may hold a lock: what is done before stays before, and what comes after stays after.
        if (orders_memory(*call))
            for (size_t i = 0; i < kernel_.params; ++i) all.writes.insert(static_cast<int>(i));
    });
    visit_exprs(s, [&](const Expr& whole) { add_reads(whole, all); });
    return all;
}

void Emitter::add_reads(const Expr& e, Touched& to) const {
    if (!e.node().reads) return;
    visit(e, [&](const Expr& x) {
        if (!x.is(ExprKind::Load) || own_buffers_.contains(x.node().slot)) return;
        const Scope scope = kernel_.buffers[static_cast<size_t>(x.node().slot)].scope;
        if (scope == Scope::Global || scope == Scope::Shared) to.reads.insert(x.node().slot);
    });
}

bool Emitter::may_meet_in_memory(int a, int b) const {
    if (a == b) return true;
    const Buffer &one = kernel_.buffers[static_cast<size_t>(a)], &two = kernel_.buffers[static_cast<size_t>(b)];
    if (one.scope == Scope::Global && two.scope == Scope::Global) return is_anywhere(one) || is_anywhere(two);
    auto first = plan_->shared.find(a), second = plan_->shared.find(b);
    if (first == plan_->shared.end() || second == plan_->shared.end()) return false;
    return first->second.offset < second->second.offset + second->second.bytes &&
           second->second.offset < first->second.offset + first->second.bytes;
}

// Before a statement that does this: threads meet where another may have touched what it touches.
void Emitter::meet_before(const Touched& now, bool wide) {
    const auto any = [&](const std::set<int>& some, const std::set<int>& others) {
        return std::any_of(some.begin(), some.end(), [&](int a) {
            return std::any_of(others.begin(), others.end(), [&](int b) { return may_meet_in_memory(a, b); });
        });
    };
    if (any(now.writes, open_.writes) || any(now.writes, open_.reads) || any(now.reads, open_.writes)) {
        if (wide)
            assembly("fence.proxy.async.shared::cta;", "", {});  // what threads wrote, instructions of four warps read
        meet();
        open_ = {};
    }
    loads_.clear();
    open_.add(now);
}

void Emitter::emit_swap(const Call& call) {
    const Slot &to = slots_[static_cast<size_t>(call.writes[0].buffer)],
               &from = slots_[static_cast<size_t>(call.reads[0].buffer)];
    llvm::Type *type = memory_type(from.dtype), *word = builder_.getInt32Ty();
    const auto bits = static_cast<unsigned>(dtype_bytes(from.dtype)) * 8;
    llvm::Type* number = builder_.getIntNTy(bits);
    const auto mask = static_cast<uint32_t>(*call.args[0].as_int());
    const auto swap = [&](Value* v) {
        return builder_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, {},
                                        {builder_.getInt32(~0u), v, builder_.getInt32(mask), builder_.getInt32(31)});
    };
    for (int64_t i = 0; i < from.own; ++i) {
        const auto at = static_cast<uint64_t>(i);
        Value* value = builder_.CreateLoad(type, builder_.CreateConstInBoundsGEP1_64(type, from.base, at));
        value = builder_.CreateBitCast(value, number);
        if (bits == 64) {
            Value* low = swap(builder_.CreateTrunc(value, word));
            Value* high = swap(builder_.CreateTrunc(builder_.CreateLShr(value, 32), word));
            value = builder_.CreateOr(builder_.CreateZExt(low, number),
                                      builder_.CreateShl(builder_.CreateZExt(high, number), 32));
        } else {
            value = builder_.CreateTrunc(swap(builder_.CreateZExt(value, word)), number);
        }
        builder_.CreateStore(builder_.CreateBitCast(value, type),
                             builder_.CreateConstInBoundsGEP1_64(type, to.base, at));
    }
    forget_loads(call.writes[0].buffer);
}

}  // namespace tessera::codegen
