#include "kernel/ir/tile_copy.h"

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
            if (call && call->name == kCopyTile) incoming_.emplace(call->writes[0].buffer, -1);
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

    Stmt copied(const Call& call) {
        const auto copy = tile_copy(kernel_, call);
        CHECK(copy, "kernel {}: a copy of no tile", kernel_.name);
        const bool stores = call.name == kStoreTile;
        ++number_;
        const Expr i = variable("copied", copy->rows), j = variable("copied_in", copy->columns);
        const Access& first = stores ? call.writes[0] : call.reads[0];
        const Buffer& global = kernel_.buffers[static_cast<size_t>(copy->global)];
        std::vector<Expr> at = first.indices;
        at[copy->along_rows] = at[copy->along_rows] + i;
        at[copy->along_columns] = at[copy->along_columns] + j;
        const Expr inside = logical_and(lt(at[copy->along_rows], global.shape[copy->along_rows]),
                                        lt(at[copy->along_columns], global.shape[copy->along_columns]));
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
        return serial(i, copy->rows, serial(j, copy->columns, std::move(body)));
    }
};

}  // namespace

bool is_tile_call(const Call& call) {
    return call.name == kCopyTile || call.name == kWaitTile || call.name == kStoreTile;
}

bool has_tile_calls(const Stmt& s) {
    bool found = false;
    visit(s, [&](const Stmt& x) {
        const Call* call = x->as<Call>();
        found |= call && is_tile_call(*call);
    });
    return found;
}

std::optional<TileCopy> tile_copy(const Kernel& kernel, const Call& call) {
    const bool stores = call.name == kStoreTile;
    if (!stores && call.name != kCopyTile) return {};
    if (call.writes.size() != 1 || call.reads.size() != 1 || call.args.size() != 2) return {};
    const Access &tile = stores ? call.reads[0] : call.writes[0], &global = stores ? call.writes[0] : call.reads[0];
    const Buffer &t = kernel.buffers[static_cast<size_t>(tile.buffer)],
                 &g = kernel.buffers[static_cast<size_t>(global.buffer)];
    const auto d = call.args[0].as_int(), e = call.args[1].as_int();
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
    return TileCopy{tile.buffer,
                    global.buffer,
                    size(stores ? 1 : 0),
                    stores ? size(0) * size(2) * size(3) : size(1),
                    static_cast<size_t>(*d),
                    static_cast<size_t>(*e)};
}

Kernel expand_tile_copies(const Kernel& kernel) {
    return has_tile_calls(kernel.body) ? CopyWriter(kernel).run() : kernel;
}

}  // namespace tessera
