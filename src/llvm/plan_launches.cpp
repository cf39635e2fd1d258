#include <algorithm>

#include "kernel/ir/races.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/emitter.h"

namespace tessera {
namespace codegen {
namespace {

constexpr int64_t kStackBytes = 16 << 10, kAlignment = 64;
constexpr int64_t kThreadBytes = 1 << 10;  // of the stack of one of many thousand threads

Expr bytes_of(const Buffer& b) {
    Expr count = 1;
    if (b.strides.empty())
        for (const Expr& e : b.shape) count = count * e;
    else
        for (size_t d = 0; d < b.shape.size(); ++d) count = count + (b.shape[d] - 1) * b.strides[d];
    return ceil_div(count * static_cast<int64_t>(dtype_bytes(b.dtype)), kAlignment) * kAlignment;
}

// Gives each buffer that an Alloc makes its place: the stack while there is room, otherwise scratch memory, which is
// used as a stack too.
class Placement {
  public:
    Placement(const Kernel& kernel, LaunchPlan& plan, bool blocks)
        : kernel_(kernel), plan_(plan), blocks_(blocks), most_(blocks ? kThreadBytes : kStackBytes) {}

    void place(const Stmt& s, Expr top) {
        if (!s) return;
        if (const Seq* all = s->as<Seq>())
            for (const Stmt& each : all->stmts) place(each, top);
        else if (const For* loop = s->as<For>())
            place(loop->body, top);
        else if (const If* branch = s->as<If>()) {
            place(branch->then, top);
            place(branch->otherwise, top);
        } else if (const Alloc* a = s->as<Alloc>()) {
            const Buffer& b = kernel_.buffers[a->buffer];
            Expr bytes = bytes_of(b);
            const auto constant = bytes.as_int();
            const bool on_stack = constant && (b.scope == Scope::Register || stack_bytes_ + *constant <= most_);
            if (blocks_ && b.scope == Scope::Shared) {
                // of the block
            } else if (on_stack) {
                stack_bytes_ += *constant;
            } else {
                plan_.in_scratch.emplace(a->buffer, top);
                top = top + bytes;
                plan_.scratch_bytes = max(plan_.scratch_bytes, top);
            }
            place(a->body, top);
        }
    }

  private:
    const Kernel& kernel_;
    LaunchPlan& plan_;
    const bool blocks_;
    const int64_t most_;
    int64_t stack_bytes_ = 0;
};

void take_extents(const BoundNest& nest, std::array<Expr, 3>& extents) {
    for (const For* loop : nest.loops) {
        Expr& extent = extents[static_cast<size_t>(loop->axis.back() - 'x')];
        extent = extent.is_int(1) ? loop->extent : max(extent, loop->extent);
    }
}

// The blocks of a nest, and the most threads that any nest of threads in it has.
LaunchShape shape_of(const For& bound) {
    LaunchShape shape;
    const BoundNest nest = bound_nest(bound);
    if (is_thread_loop(bound)) {
        take_extents(nest, shape.block);
        return shape;
    }
    take_extents(nest, shape.grid);
    std::function<void(const Stmt&)> look = [&](const Stmt& s) {
        visit(s, [&](const Stmt& x) {
            const For* loop = x->as<For>();
            if (loop && is_thread_loop(*loop)) take_extents({{loop}, loop->body}, shape.block);
        });
    };
    look(nest.body);
    return shape;
}

constexpr int64_t kSharedAlignment = 1024;  // of tiles whose pieces are exchanged
constexpr int64_t kBarrierBytes = 8;

TileMap map_of(const Kernel& kernel, const TileCopy& copy) {
    const Buffer& b = kernel.buffers[static_cast<size_t>(copy.global)];
    TileMap map{.buffer = copy.global, .dtype = b.dtype, .sizes = {}, .strides = {}, .box = {}};
    std::vector<Expr> strides = b.strides;
    if (strides.empty()) {
        strides.assign(b.shape.size(), 1);
        for (size_t d = b.shape.size(); d-- > 1;) strides[d - 1] = strides[d] * b.shape[d];
    }
    for (size_t d = b.shape.size(); d-- > 0;) {
        map.sizes.push_back(b.shape[d]);
        if (d + 1 < b.shape.size()) map.strides.push_back(strides[d]);
        map.box.push_back(d == copy.along_rows      ? copy.copied
                          : d == copy.along_columns ? kPanelBytes / static_cast<int64_t>(dtype_bytes(b.dtype))
                                                    : 1);
    }
    if (!copy.places) return map;
    const TilePlaces& p = *copy.places;
    map.box = {map.box[0], copy.rows};
    map.from = {p.from_x, p.from_y};
    map.every = {p.every_x, p.every_y};
    map.to = {p.from_x + (p.width - 1) * p.every_x + 1 - b.shape[2].as_int().value_or(0),
              p.from_y + (p.height - 1) * p.every_y + 1 - b.shape[1].as_int().value_or(0)};
    return map;
}

bool same_map(const TileMap& a, const TileMap& b) {
    return a.buffer == b.buffer && a.box == b.box && a.from == b.from && a.to == b.to && a.every == b.every;
}

// The number of its map, which is added where there is none yet.
size_t map_number(const Kernel& kernel, const TileCopy& copy, std::vector<TileMap>& maps) {
    TileMap map = map_of(kernel, copy);
    auto same = std::find_if(maps.begin(), maps.end(), [&](const TileMap& m) { return same_map(m, map); });
    const auto number = static_cast<size_t>(same - maps.begin());
    if (same == maps.end()) maps.push_back(std::move(map));
    return number;
}

// What the hardware has room for where it counts places.
bool can_count(const Kernel& kernel, const TileCopy& copy) {
    if (!copy.places) return true;
    const Buffer& b = kernel.buffers[static_cast<size_t>(copy.global)];
    if (!b.shape[1].as_int() || !b.shape[2].as_int()) return false;
    const TileMap map = map_of(kernel, copy);
    bool fits = true;
    for (size_t d : {0, 1})
        fits &= map.from[d] >= -128 && map.from[d] < 128 && map.to[d] >= -128 && map.to[d] < 128 && map.every[d] <= 8;
    return fits;
}

int64_t bytes_in_shared(const Buffer& b) {
    const auto bytes = bytes_of(b).as_int();
    return bytes ? (*bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment : 1 << 30;
}

Error no_room(const Kernel& kernel) {
    return Error(Code::E0604, "kernel {}: its tiles do not fit into shared memory", kernel.name);
}

// What pairs of blocks copy half of each, by the number of the copy.
void find_halved(const Kernel& kernel, const For& loop, RolesPlan& roles) {
    const auto note = loop.notes.find("pairs");
    if (note == loop.notes.end()) return;
    int64_t number = 0;
    visit(loop.body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        if (!call || !brings_tile(*call) || !(note->second >> number++ & 1)) return;
        const auto copy = tile_copy(kernel, *call);
        const bool whole = copy && !copy->places && copy->copied == copy->rows && copy->rows % (2 * kPieces) == 0;
        if (whole) roles.halved.insert(call);
    });
    roles.pairs = !roles.halved.empty();
}

// Gives tiles that are copied ahead, and what each group of threads has for itself, their places in shared memory.
Status plan_roles(const Kernel& kernel, const Machine& machine, LaunchPlan& plan) {
    RolesPlan roles;
    Status status;
    visit(plan.stmt, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        if (loop && loop->notes.contains("pipeline")) roles.ahead = loop, find_halved(kernel, *loop, roles);
        const Call* call = s->as<Call>();
        const auto copy = call ? tile_copy(kernel, *call) : std::nullopt;
        if (!copy) return;
        const auto rank = kernel.buffers[static_cast<size_t>(copy->global)].shape.size();
        if (copy->along_columns + 1 != rank || rank > 5 || copy->rows > 256 || !can_count(kernel, *copy))
            status = Error(Code::E0604, "kernel {}: a tile that cannot be copied at once", kernel.name);
        TileCopy of_block = *copy;
        if (roles.halved.contains(call)) of_block.copied /= 2;
        roles.maps.emplace(call, map_number(kernel, of_block, plan.shape.maps));
        if (brings_tile(*call)) roles.ring.emplace(copy->tile, 0);
    });
    TRY(std::move(status));
    if (!roles.ahead) return Error(Code::E0604, "kernel {}: no loop whose tiles are copied ahead", kernel.name);
    std::map<int, int64_t> copied;  // rows, by tile
    for (const auto& [call, map] : roles.maps)
        if (brings_tile(*call)) {
            const TileCopy copy = *tile_copy(kernel, *call);
            const DType dtype = kernel.buffers[static_cast<size_t>(copy.tile)].dtype;
            const bool one = copy.columns * static_cast<int64_t>(dtype_bytes(dtype)) == kPanelBytes;
            copied[copy.tile] = std::max(copied[copy.tile], one ? copy.copied : copy.rows);
        }
    int64_t stage = 0, beyond = 0;
    visit(plan.stmt, [&](const Stmt& s) {
        const Alloc* a = s->as<Alloc>();
        if (!a || kernel.buffers[static_cast<size_t>(a->buffer)].scope != Scope::Shared) return;
        const Buffer& b = kernel.buffers[static_cast<size_t>(a->buffer)];
        const int64_t bytes = bytes_in_shared(b);
        if (roles.ring.contains(a->buffer)) {
            // Rows that are not copied may be anything: the next tile's.
            const int64_t of_copied = bytes / b.shape[0].as_int().value_or(1) * copied.at(a->buffer);
            const int64_t apart = (of_copied + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
            roles.apart[a->buffer] = apart;
            stage += apart, beyond += bytes - apart;
        } else if (!is_threads_own(kernel, *a)) {
            roles.own[a->buffer] = roles.own_bytes;
            roles.own_bytes += bytes;
        }
    });
    int64_t blocks = 1, sent = 0;
    for (const Expr& e : plan.shape.grid) blocks *= e.as_int().value_or(machine.cores + 1);
    if (const auto note = roles.ahead->notes.find("together"); note != roles.ahead->notes.end()) {
        roles.together = note->second;
        visit(roles.ahead->body, [&](const Stmt& s) {
            const Call* call = s->as<Call>();
            if (call && !is_tile_call(*call))
                sent =
                    bytes_in_shared(kernel.buffers[static_cast<size_t>(call->writes[0].buffer)]) * (roles.together - 1);
        });
    }
    if (blocks <= machine.cores || roles.together > 1) roles.consumers = 1;  // for whom there is no second block
    const int64_t wanted = roles.ahead->notes.at("pipeline");
    const int64_t room = machine.shared_bytes - roles.consumers * roles.own_bytes -
                         kBarrierBytes * (2 * wanted + roles.consumers + 1) - beyond - sent;
    roles.stages = std::min(wanted, room / std::max<int64_t>(stage, 1));
    if (roles.stages < 2) return no_room(kernel);
    int64_t at = 0;
    for (auto& [tile, offset] : roles.ring) {
        offset = at;
        const int64_t apart = roles.apart.at(tile);
        at += roles.stages * apart + bytes_in_shared(kernel.buffers[static_cast<size_t>(tile)]) - apart;
    }
    for (auto& [buffer, offset] : roles.own) offset += at;
    roles.received = at + roles.consumers * roles.own_bytes;
    roles.barriers = roles.received + sent;
    plan.shape.shared_bytes =
        roles.barriers + kBarrierBytes * (2 * roles.stages + roles.consumers + (roles.together > 1));
    plan.shape.groups = roles.consumers + 1;
    plan.shape.together = roles.pairs ? 2 : static_cast<int>(roles.together);
    plan.shape.pairs = roles.pairs;
    plan.roles = std::move(roles);
    return {};
}

constexpr int64_t kTeamStages = 2;
constexpr int kProducerWarps = 4;

bool is_for_team(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const Call* call = x->as<Call>();
        const Intrinsic* known = call ? find_intrinsic(call->name) : nullptr;
        found |= known && known->later;
    });
    return found;
}

// Whether the first four warps write the first rows of a tile alone, and the others the others.
bool groups_write_halves(const Stmt& s, int tile, int64_t rows) {
    bool apart = true;
    visit(s, [&](const Stmt& x) {
        const For* warps = x->as<For>();
        if (!warps || warps->axis != "thread.z") return;
        visit(warps->body, [&](const Stmt& y) {
            const Store* to = y->as<Store>();
            if (!to || to->to.buffer != tile) return;
            for (int64_t group : {0, 1}) {
                const Expr warp = index_var("%warp", kProducerWarps) + group * kProducerWarps;
                const Bounds at = bounds(substitute(to->to.indices[1], {{warps->var.node().name, warp}}));
                apart &= at.low && at.high && *at.low >= group * rows && *at.high < (group + 1) * rows;
            }
        });
    });
    return apart;
}

// Tiles that a serial loop copies again and again.
std::set<int> copied_in_loops(const Stmt& s) {
    std::set<int> found;
    visit(s, [&](const Stmt& x) {
        const For* loop = x->as<For>();
        if (!loop || loop->kind != LoopKind::Serial) return;
        visit(loop->body, [&](const Stmt& y) {
            const Call* call = y->as<Call>();
            if (call && call->name == kCopyTile) found.insert(call->writes[0].buffer);
        });
    });
    return found;
}

// A ring for each tile that is copied; all other memory is the threads' own.
Status plan_team(const Kernel& kernel, const Machine& machine, LaunchPlan& plan) {
    TeamPlan team;
    Status status;
    visit(plan.stmt, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        const auto copy = call ? tile_copy(kernel, *call) : std::nullopt;
        if (!copy) return;
        const auto rank = kernel.buffers[static_cast<size_t>(copy->global)].shape.size();
        if (copy->along_columns + 1 != rank || rank > 5 || copy->rows > 256)
            status = Error(Code::E0604, "kernel {}: a tile that cannot be copied at once", kernel.name);
        TileCopy of_group = *copy;
        if (call->name == kStoreTile) {
            of_group.rows /= 2, of_group.copied /= 2;
            team.stored[copy->tile] = 0;
            if (!groups_write_halves(plan.stmt, copy->tile, of_group.rows))
                status = Error(Code::E0604, "kernel {}: a group of warps writes rows of the other's", kernel.name);
        }
        team.maps.emplace(call, map_number(kernel, of_group, plan.shape.maps));
        if (call->name == kCopyTile)
            team.rings[copy->tile].bytes = bytes_in_shared(kernel.buffers[static_cast<size_t>(copy->tile)]);
    });
    visit(plan.stmt, [&](const Stmt& s) {
        const Alloc* a = s->as<Alloc>();
        if (!a || kernel.buffers[static_cast<size_t>(a->buffer)].scope != Scope::Shared) return;
        const bool tile = team.rings.contains(a->buffer) || team.stored.contains(a->buffer);
        if (!tile && !is_threads_own(kernel, *a))
            status = Error(Code::E0604, "kernel {}: {} is neither copied nor of one thread", kernel.name,
                           kernel.buffers[static_cast<size_t>(a->buffer)].name);
    });
    TRY(std::move(status));
    if (!plan.shape.block[2].is_int(2 * kProducerWarps))
        return Error(Code::E0604, "kernel {}: a team of other than eight warps", kernel.name);
    // Where there is no room, tiles that are copied once for a block have one place.
    int64_t wanted = 0;
    for (const auto& [tile, ring] : team.rings) wanted += kTeamStages * (ring.bytes + 2 * kBarrierBytes);
    for (const auto& [tile, offset] : team.stored) wanted += bytes_in_shared(kernel.buffers[static_cast<size_t>(tile)]);
    const std::set<int> again = wanted > machine.shared_bytes ? copied_in_loops(plan.stmt) : std::set<int>();
    int64_t at = 0;
    for (auto& [tile, ring] : team.rings) {
        const bool one = wanted > machine.shared_bytes && !again.contains(tile);
        ring.offset = at, ring.stages = one ? 1 : kTeamStages;
        at += ring.stages * ring.bytes;
    }
    for (auto& [tile, offset] : team.stored) {
        offset = at;
        at += bytes_in_shared(kernel.buffers[static_cast<size_t>(tile)]);
    }
    for (auto& [tile, ring] : team.rings) {
        ring.barriers = at;
        at += 2 * ring.stages * kBarrierBytes;
    }
    if (at > machine.shared_bytes) return no_room(kernel);
    plan.shape.shared_bytes = at;
    plan.shape.block[2] = 3 * kProducerWarps;
    plan.shape.groups = 1;
    plan.team = std::move(team);
    return {};
}

}  // namespace

Result<std::vector<LaunchPlan>> plan_launches(const Kernel& kernel, const Machine& machine) {
    const bool blocks = machine.blocks;
    std::vector<Stmt> tops;
    if (kernel.body) {
        if (const Seq* all = kernel.body->as<Seq>())
            tops = all->stmts;
        else
            tops.push_back(kernel.body);
    }
    // What stands between parallel loops is one launch.
    auto is_parallel = [](const Stmt& s) {
        const For* loop = s->as<For>();
        return loop && loop->kind == LoopKind::Parallel;
    };
    auto is_bound = [&](const Stmt& s) {
        const For* loop = s->as<For>();
        return blocks && loop && loop->kind == LoopKind::Bound;
    };
    auto is_alone = [&](const Stmt& s) { return is_parallel(s) || is_bound(s); };
    std::erase(tops, nullptr);
    std::vector<Stmt> launched;
    for (size_t i = 0; i < tops.size();) {
        size_t end = i + 1;
        while (!is_alone(tops[i]) && end < tops.size() && !is_alone(tops[end])) ++end;
        launched.push_back(
            seq({tops.begin() + static_cast<std::ptrdiff_t>(i), tops.begin() + static_cast<std::ptrdiff_t>(end)}));
        i = end;
    }
    std::vector<LaunchPlan> plans;
    for (const Stmt& s : launched) {
        LaunchPlan plan;
        plan.stmt = s;
        if (is_parallel(s)) plan.parallel = s->as<For>();
        if (is_bound(s)) plan.bound = s->as<For>();
        if (plan.bound) plan.shape = shape_of(*plan.bound);
        if (plan.parallel) plan.shape.fixed = false;
        bool inside = false;
        visit(s, [&](const Stmt& each) {
            const For* loop = each->as<For>();
            inside |= loop && loop != plan.parallel && loop->kind == LoopKind::Parallel;
        });
        if (inside)
            return Error(Code::E0601, "kernel {}: a parallel loop stands inside another statement", kernel.name);
        Placement(kernel, plan, blocks).place(s, 0);
        if (plan.bound && !plan.in_scratch.empty())
            return Error(Code::E0604, "kernel {}: {} is too large for one thread of a block", kernel.name,
                         kernel.buffers[static_cast<size_t>(plan.in_scratch.begin()->first)].name);
        if (plan.bound && has_tile_calls(s))
            TRY(is_for_team(s) ? plan_team(kernel, machine, plan) : plan_roles(kernel, machine, plan));
        else if (plan.bound)
            TRY(plan_shared(kernel, machine, plan));
        plans.push_back(std::move(plan));
    }
    return plans;
}

}  // namespace codegen

namespace {

using Place = std::vector<Expr>;

bool same_indices(const Place& a, const Place& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace

bool may_share_memory(const Kernel& kernel, size_t read, size_t written) {
    const Buffer &r = kernel.buffers[read], &w = kernel.buffers[written];
    if (read == written) return true;
    if (dtype_bytes(r.dtype) != dtype_bytes(w.dtype) || !same_indices(r.shape, w.shape)) return false;
    if (!same_indices(r.strides, w.strides)) return false;
    bool share = true, stored = false;
    std::vector<Place> before;  // where it is read before those elements are written
    auto check = [&](const Expr& e, const Place* target, bool value = false) {
        if (!e.node().reads) return;
        visit(e, [&](const Expr& x) {
            if (!x.is(ExprKind::Load)) return;
            if (x.node().slot == static_cast<int>(written)) share = false;
            if (x.node().slot != static_cast<int>(read) || (target && same_indices(x.args(), *target))) return;
            if (!value || stored) share = false;
            before.push_back(x.args());
        });
    };
    visit(kernel.body, [&](const Stmt& s) {
        if (const Store* st = s->as<Store>()) {
            const bool to_read = st->to.buffer == static_cast<int>(read),
                       to_written = st->to.buffer == static_cast<int>(written);
            if (to_read || (to_written && st->combine)) share = false;
            // Where parts of a loop overlap, elements are made again of what was read.
            bool again = false;
            for (const Expr& e : st->to.indices) visit(e, [&](const Expr& x) { again |= x.is(ExprKind::Min); });
            check(st->value, to_written && !again ? &st->to.indices : nullptr, !again);
            for (const Expr& e : st->to.indices) check(e, nullptr);
            if (!to_written) return;
            stored = true;
            std::erase_if(before, [&](const Place& at) { return same_indices(at, st->to.indices); });
        } else if (const If* branch = s->as<If>()) {
            check(branch->condition, nullptr);
        } else if (const For* loop = s->as<For>()) {
            check(loop->extent, nullptr);
        } else if (const Call* call = s->as<Call>()) {
            for (const auto* list : {&call->writes, &call->reads})
                for (const Access& a : *list)
                    if (a.buffer == static_cast<int>(read) || a.buffer == static_cast<int>(written)) share = false;
            for (const Expr& e : call->args) check(e, nullptr);
        }
    });
    return share && before.empty();
}

}  // namespace tessera
