#include "kernel/ir/tile_copy.h"

#include <cmath>
#include <set>

#include "base/check.h"

namespace tessera {
namespace {

Stmt serial(const Expr& var, const Expr& extent, Stmt body) {
    return for_loop({.var = var, .extent = extent, .body = std::move(body)});
}

class CopyWriter {
  public:
    explicit CopyWriter(const Kernel& kernel) : kernel_(kernel) {}

    Kernel run() {
        visit(kernel_.body, [&](const Stmt& s) {
            const Call* call = s->as<Call>();
            if (call && brings_tile(*call)) incoming_.emplace(call->writes[0].buffer, -1);
        });
        for (auto& [tile, beside] : incoming_) {
            beside = static_cast<int>(kernel_.buffers.size());
            Buffer made = kernel_.buffers[static_cast<size_t>(tile)];
            made.name += ".incoming";
            kernel_.buffers.push_back(std::move(made));
        }
        kernel_.body = mutate(kernel_.body, [&](const Stmt& s) -> Stmt {
            if (!s) return s;
            if (const Alloc* a = s->as<Alloc>(); a && incoming_.contains(a->buffer))
                return alloc(a->buffer, alloc(incoming_.at(a->buffer), a->body));
            const Call* call = s->as<Call>();
            if (!call || !is_tile_call(*call)) return s;
            if (call->name == kFreeTile) return lose(*call);
            return call->name == kWaitTile ? land(*call) : copied(*call);
        });
        return std::move(kernel_);
    }

  private:
    Kernel kernel_;
    std::map<int, int> incoming_;  // by tile
    int number_ = 0;

    Expr variable(const char* name, int64_t extent) { return index_var(fmt::format("{}.{}", name, number_), extent); }

    Stmt land(const Call& call) {
        const int tile = call.writes[0].buffer;
        auto from = incoming_.find(tile);
        if (from == incoming_.end()) return nullptr;
        const Buffer& b = kernel_.buffers[static_cast<size_t>(tile)];
        ++number_;
        const Expr i = variable("landed", *b.shape[0].as_int()), j = variable("landed_in", *b.shape[1].as_int());
        Stmt body = store(tile, {i, j}, load(from->second, b.dtype, {i, j}));
        return serial(i, b.shape[0], serial(j, b.shape[1], std::move(body)));
    }

    Stmt lose(const Call& call) {
        const int tile = call.writes[0].buffer;
        const Buffer& b = kernel_.buffers[static_cast<size_t>(tile)];
        ++number_;
        const Expr i = variable("lost", *b.shape[0].as_int()), j = variable("lost_in", *b.shape[1].as_int());
        return serial(i, b.shape[0], serial(j, b.shape[1], store(tile, {i, j}, constant(NAN, b.dtype))));
    }

    // Where place i is in memory, and whether it is inside.
    static Expr in_places(const TilePlaces& p, const Expr& i, const Buffer& global, std::vector<Expr>& at) {
        const Expr place = p.first + i;
        at[0] = floor_div(place, p.height * p.width);
        at[1] = mod(floor_div(place, p.width), p.height) * p.every_y + (p.further_y + p.from_y);
        at[2] = mod(place, p.width) * p.every_x + (p.further_x + p.from_x);
        Expr inside = lt(at[0], global.shape[0]);
        for (size_t d : {1, 2}) inside = logical_and(inside, logical_and(le(0, at[d]), lt(at[d], global.shape[d])));
        return inside;
    }

    Stmt copied(const Call& call) {
        const auto copy = tile_copy(kernel_, call);
        CHECK(copy, "kernel {}: a copy of no tile", kernel_.name);
        const bool stores = call.name == kStoreTile;
        ++number_;
        const Expr i = variable("copied", copy->copied), j = variable("copied_in", copy->columns);
        const Access& first = stores ? call.writes[0] : call.reads[0];
        const Buffer& global = kernel_.buffers[static_cast<size_t>(copy->global)];
        std::vector<Expr> at = first.indices;
        at[copy->along_columns] = at[copy->along_columns] + j;
        Expr inside = lt(at[copy->along_columns], global.shape[copy->along_columns]);
        if (copy->places) {
            inside = logical_and(inside, in_places(*copy->places, i, global, at));
        } else {
            at[copy->along_rows] = at[copy->along_rows] + i;
            inside = logical_and(inside, lt(at[copy->along_rows], global.shape[copy->along_rows]));
        }
        Stmt body;
        if (stores) {
            const int64_t each = kPieceBytes / static_cast<int64_t>(dtype_bytes(global.dtype));
            const Expr piece = bit(ExprKind::BitXor, mod(floor_div(j, each), kPieces), mod(i, kPieces));
            const Expr value = load(copy->tile, global.dtype, {floor_div(j, each * kPieces), i, piece, mod(j, each)});
            body = if_then(inside, store(copy->global, at, value));
        } else {
            const Expr value = select(inside, load(copy->global, global.dtype, at), constant(0, global.dtype));
            body = store(incoming_.at(copy->tile), {i, j}, value);
        }
        return serial(i, copy->copied, serial(j, copy->columns, std::move(body)));
    }
};

// What has happened to each tile.
class TileTurns {
  public:
    explicit TileTurns(const Kernel& kernel) : kernel_(kernel) {}

    std::optional<std::string> run() {
        walk(kernel_.body);
        for (const auto& [tile, state] : states_)
            if (state != State::Free) fail(tile, "is not freed at the end");
        return problem_;
    }

  private:
    enum class State { Free, Copied, Here };
    using States = std::map<int, State>;

    void fail(int tile, const char* what) {
        if (!problem_) problem_ = fmt::format("{} {}", kernel_.buffers[static_cast<size_t>(tile)].name, what);
    }

    void walk(const Stmt& s) {
        if (!s) return;
        if (const Seq* all = s->as<Seq>())
            for (const Stmt& each : all->stmts) walk(each);
        if (const Alloc* a = s->as<Alloc>()) walk(a->body);
        if (const Call* call = s->as<Call>()) take(*call);
        if (const For* loop = s->as<For>()) {
            const States before = states_;
            walk(loop->body);
            compare(before, "is not at the end of a loop what it is at its beginning");
        }
        if (const If* branch = s->as<If>()) {
            const States before = states_;
            walk(branch->then);
            States after = std::exchange(states_, before);
            walk(branch->otherwise);
            compare(after, "is not the same after both branches");
        }
    }

    void compare(const States& with, const char* what) {
        for (const auto& [tile, state] : states_) {
            auto other = with.find(tile);
            if (state != (other == with.end() ? State::Free : other->second)) fail(tile, what);
        }
    }

    void take(const Call& call) {
        const bool copies = call.name == kCopyTile, waits = call.name == kWaitTile, frees = call.name == kFreeTile;
        if (copies || waits || frees) {
            const int tile = call.writes[0].buffer;
            State& state = states_.try_emplace(tile, State::Free).first->second;
            if (copies && state != State::Free) fail(tile, "is copied to, and was not freed");
            if (waits && state != State::Copied) fail(tile, "is waited for, and nothing was copied to it");
            if (frees && state != State::Here) fail(tile, "is freed, and was not waited for");
            state = copies ? State::Copied : waits ? State::Here : State::Free;
        }
        for (const Access& read : call.reads)
            if (auto state = states_.find(read.buffer); state != states_.end() && state->second != State::Here)
                fail(read.buffer, "is read, and what was copied to it is not there");
    }

    const Kernel& kernel_;
    States states_;
    std::optional<std::string> problem_;
};

}  // namespace

std::optional<std::string> misused_tile(const Kernel& kernel) {
    bool frees = false;
    visit(kernel.body, [&](const Stmt& s) {
        const Call* call = s->as<Call>();
        frees |= call && call->name == kFreeTile;
    });
    return frees ? TileTurns(kernel).run() : std::nullopt;
}

bool is_tile_call(const Call& call) {
    return brings_tile(call) || call.name == kWaitTile || call.name == kStoreTile || call.name == kFreeTile;
}

bool brings_tile(const Call& call) { return call.name == kCopyTile || call.name == kCopyPlaces; }

bool has_tile_calls(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const Call* call = x->as<Call>();
        found |= call && is_tile_call(*call);
    });
    return found;
}

namespace {

std::optional<TilePlaces> tile_places(const Call& call) {
    if (call.args.size() != 9) return {};
    std::vector<int64_t> fixed;
    for (size_t i = 1; i < 7; ++i) {
        auto n = call.args[i].as_int();
        if (!n || (i < 5 && *n < 1)) return {};
        fixed.push_back(*n);
    }
    for (size_t d = 0; d < 3; ++d)
        if (d >= call.reads[0].indices.size() || !call.reads[0].indices[d].is_int(0)) return {};
    return TilePlaces{call.args[0], fixed[0], fixed[1],     fixed[2],    fixed[3],
                      fixed[4],     fixed[5], call.args[7], call.args[8]};
}

}  // namespace

std::optional<TileCopy> tile_copy(const Kernel& kernel, const Call& call) {
    const bool stores = call.name == kStoreTile, places = call.name == kCopyPlaces;
    if (!stores && !brings_tile(call)) return {};
    if (call.writes.size() != 1 || call.reads.size() != 1) return {};
    const bool some = call.name == kCopyTile && call.args.size() == 3;
    if (!places && !some && call.args.size() != 2) return {};
    const Access &tile = stores ? call.reads[0] : call.writes[0], &global = stores ? call.writes[0] : call.reads[0];
    const Buffer &t = kernel.buffers[static_cast<size_t>(tile.buffer)],
                 &g = kernel.buffers[static_cast<size_t>(global.buffer)];
    const std::optional<TilePlaces> at = places ? tile_places(call) : std::nullopt;
    if (places && (!at || g.shape.size() != 4)) return {};
    const auto d = at ? std::optional<int64_t>(0) : call.args[0].as_int(),
               e = at ? std::optional<int64_t>(3) : call.args[1].as_int();
    const auto rank = static_cast<int64_t>(g.shape.size());
    if (t.scope != Scope::Shared || g.scope != Scope::Global || t.dtype != g.dtype || !t.strides.empty()) return {};
    if (!d || !e || *d < 0 || *e < 0 || *d >= rank || *e >= rank || *d == *e) return {};
    if (t.shape.size() != (stores ? 4u : 2u)) return {};
    for (const Expr& size : t.shape)
        if (!size.as_int()) return {};
    for (const Expr& index : tile.indices)
        if (!index.is_int(0)) return {};
    auto size = [&](size_t i) { return *t.shape[i].as_int(); };
    const auto bytes = static_cast<int64_t>(dtype_bytes(t.dtype));
    if (stores && (size(2) != kPieces || size(3) * bytes != kPieceBytes || size(1) % kPieces)) return {};
    const int64_t rows = size(stores ? 1 : 0), copied = some ? call.args[2].as_int().value_or(0) : rows;
    if (copied < 1 || copied > rows) return {};
    return TileCopy{tile.buffer,
                    global.buffer,
                    rows,
                    stores ? size(0) * size(2) * size(3) : size(1),
                    static_cast<size_t>(*d),
                    static_cast<size_t>(*e),
                    at,
                    copied};
}

Kernel expand_tile_copies(const Kernel& kernel) {
    return has_tile_calls(kernel.body) ? CopyWriter(kernel).run() : kernel;
}

}  // namespace tessera
