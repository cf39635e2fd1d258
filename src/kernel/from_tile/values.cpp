// Values while a program is lowered: computed where they are read, or put into memory.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "kernel/from_tile/lowering.h"
#include "kernel/ir/multiples.h"
#include "kernel/ir/narrow_floats.h"

namespace tessera::from_tile_detail {
namespace {

using tile::Kind;

// That one vector loop fills with elements of four bytes: enough to keep the pipes busy with what depends on each
// other.
int registers_of_lanes(const Machine& machine) { return machine.fma_pipes >= 4 ? 8 : 4; }

constexpr int64_t kMostMultiple = 16;  // elements of a vector of bytes

// Who reads elements more than once, or in another region.
bool reads_again(const tile::Instruction& user, bool in_threads) {
    switch (user.kind) {
        case Kind::Dot: return in_threads;  // elsewhere it copies its operands
        case Kind::Gather:
        case Kind::Scan:
        case Kind::For:
        case Kind::While:
        case Kind::If: return true;
        case Kind::Reduce: return !user.regions.empty();
        default: return false;
    }
}

}  // namespace

void TileLowering::emit(Stmt s) {
    const For* loop = s && apart_ ? s->as<For>() : nullptr;
    if (apart_ && s && !loop) {
        // One element: a loop of one iteration holds the place.
        s = unrolled(
            1, [&](const Expr&) { return s; }, LoopKind::Serial);
        loop = s->as<For>();
    }
    if (loop && place_.line) {
        For placed = *loop;
        placed.notes = {{"line", place_.line}, {"column", place_.column}, {"file", place_.file}};
        s = make_stmt(std::move(placed));
    }
    statements_.push_back(std::move(s));
}

Expr TileLowering::variable(int64_t extent) { return index_var(fmt::format("i{}", names_++), extent); }

int TileLowering::local(DType dtype, std::vector<int64_t> shape, Scope scope) {
    if (warps_ && scope == Scope::Local && (!in_threads_ || shape.empty()))
        scope = in_threads_ ? Scope::Register : Scope::Shared;
    Buffer buffer{
        .name = fmt::format("t{}", kernel_.buffers.size()), .dtype = stored_as(dtype), .shape = {}, .scope = scope};
    for (int64_t size : shape) buffer.shape.emplace_back(size);
    kernel_.buffers.push_back(std::move(buffer));
    const int slot = static_cast<int>(kernel_.buffers.size()) - 1;
    allocated_.push_back(slot);
    return slot;
}

Expr TileLowering::at_buffer(int slot, const TileIndices& indices) const {
    return load(slot, kernel_.buffers[static_cast<size_t>(slot)].dtype, indices);
}

Stmt TileLowering::unrolled(int64_t extent, const std::function<Stmt(const Expr&)>& body, LoopKind kind) {
    const Expr var = variable(extent);
    return for_loop({.var = var, .extent = extent, .kind = kind, .body = body(var)});
}

Stmt TileLowering::lanes(int64_t extent, const std::function<Stmt(const Expr&)>& body) {
    const int64_t width = std::gcd(extent, int64_t{machine_.vector_bytes} / 4 * registers_of_lanes(machine_));
    if (width < 2) return unrolled(extent, body, LoopKind::Serial);
    if (width == extent) return unrolled(extent, body, LoopKind::Vector);
    return unrolled(
        extent / width,
        [&](const Expr& outer) {
            return unrolled(
                width, [&](const Expr& lane) { return body(outer * Expr(width) + lane); }, LoopKind::Vector);
        },
        LoopKind::Serial);
}

Stmt TileLowering::over(const std::vector<int64_t>& shape, const std::function<Stmt(const TileIndices&)>& body) {
    if (shape.empty()) return body({});
    if (warps_) return over_threads(shape, body, true);
    // Dimensions of one element are no loops, and the innermost of the others has lanes.
    size_t innermost = shape.size() - 1;
    while (innermost > 0 && shape[innermost] == 1) --innermost;
    TileIndices indices(shape.size(), Expr(0));
    std::function<Stmt(size_t)> nest = [&](size_t axis) -> Stmt {
        const auto inside = [&](const Expr& var) {
            indices[axis] = var;
            return axis == innermost ? body(indices) : nest(axis + 1);
        };
        if (shape[axis] == 1 && axis != innermost) return inside(0);
        return axis == innermost ? lanes(shape[axis], inside) : unrolled(shape[axis], inside, LoopKind::Serial);
    };
    return nest(0);
}

Stmt TileLowering::each(const std::vector<int64_t>& shape, const std::function<Stmt(const TileIndices&)>& body) {
    if (warps_) return over_threads(shape, body, false);
    TileIndices at;
    std::function<Stmt(size_t)> nest = [&](size_t axis) -> Stmt {
        if (axis == shape.size()) return body(at);
        return unrolled(
            shape[axis],
            [&](const Expr& var) {
                at.push_back(var);
                Stmt inner = nest(axis + 1);
                at.pop_back();
                return inner;
            },
            LoopKind::Serial);
    };
    return nest(0);
}

Expr TileLowering::element(int value, const TileIndices& indices) {
    const LoweredTile& t = tile(value);
    if (t.buffer >= 0 && is_stored_turned(value)) return at_buffer(t.buffer, {indices[1], indices[0]});
    if (t.buffer >= 0 && t.multiple > 1) return at_buffer(t.buffer, indices) * int_const(t.multiple, type(value).dtype);
    if (t.buffer >= 0) return at_buffer(t.buffer, indices);
    std::optional<Memo>& memo = memo_[static_cast<size_t>(value)];
    if (memo && same_indices(memo->indices, indices)) return memo->value;
    Expr made = t.at(indices);
    memo = Memo{indices, made};
    return made;
}

std::set<int> TileLowering::reads_of(int value) const {
    const LoweredTile& t = tiles_[static_cast<size_t>(value)];
    if (t.buffer >= 0) return {t.buffer};
    std::set<int> all = t.reads;
    for (int source : sources_[static_cast<size_t>(value)]) all.merge(reads_of(source));
    return all;
}

std::vector<int> TileLowering::sources_in_memory(int value) const {
    std::vector<int> all;
    for (int source : sources_[static_cast<size_t>(value)]) {
        if (tiles_[static_cast<size_t>(source)].buffer >= 0) {
            all.push_back(source);
            continue;
        }
        const std::vector<int> further = sources_in_memory(source);
        all.insert(all.end(), further.begin(), further.end());
    }
    return all;
}

bool TileLowering::is_costly(int value) const {
    if (value < 0) return false;
    const LoweredTile& t = tiles_[static_cast<size_t>(value)];
    if (t.buffer >= 0) return false;
    const std::vector<int>& sources = sources_[static_cast<size_t>(value)];
    return t.costly || std::any_of(sources.begin(), sources.end(), [&](int s) { return is_costly(s); });
}

void TileLowering::define(int value, LoweredTile made) {
    const auto v = static_cast<size_t>(value);
    tile(value) = std::move(made);
    memo_[v].reset();
    if (tile(value).type.pointer) return pointers_.push_back(value);
    if (is_costly(value) && !is_turned_operand(value) &&
        (apart_ || uses_.count[v] > 1 || uses_.inside[v] ||
         (uses_.last[v] && reads_again(*uses_.last[v], warps_ > 0)))) {
        materialise(value);
        return;
    }
    if (!reads_of(value).empty()) waiting_.push_back(value);
}

void TileLowering::define_buffer(int value, int slot) {
    LoweredTile& t = tile(value);
    t.type = type(value);
    t.buffer = slot;
    t.multiple = 1;
    t.at = {};
    sources_[static_cast<size_t>(value)].clear();
    memo_[static_cast<size_t>(value)].reset();
    std::erase(waiting_, value);
}

bool TileLowering::reads_only_at(int value, int slot, const TileIndices& at, const TileIndices& index) {
    bool only = true;
    visit(element(value, at), [&](const Expr& e) {
        if (e.is(ExprKind::Load) && e.node().slot == slot) only &= same_indices(e.args(), index);
    });
    return only;
}

int TileLowering::place_for(int value, bool in_place) {
    const tile::Type& of = type(value);
    const DType dtype = of.pointer ? DType::i64 : of.dtype;
    if (is_stored_turned(value)) return local(dtype, {of.shape[1], of.shape[0]});
    if (in_place && !of.shape.empty()) {
        TileIndices probe;
        for (int64_t size : of.shape) probe.push_back(variable(size));
        const auto is_pointed_by = [&](int slot) {
            return std::any_of(pointers_.begin(), pointers_.end(),
                               [&](int p) { return is_read_later(p) && reads_of(p).count(slot) > 0; });
        };
        for (int source : sources_in_memory(value)) {
            const LoweredTile& s = tile(source);
            if (is_pointed_by(s.buffer) || s.type != of || remaining_[static_cast<size_t>(source)] > 0 ||
                region_of_[static_cast<size_t>(source)] != region_ || uses_.inside[static_cast<size_t>(source)])
                continue;
            if (reads_only_at(value, s.buffer, probe, probe)) return s.buffer;
        }
    }
    return local(dtype, of.shape);
}

// On a GPU, what a single integer is seen to be a multiple of: vectors at places that are made of it are aligned.
int64_t TileLowering::known_multiple(int value) {
    const tile::Type& of = type(value);
    if (!warps_ || of.pointer || !of.shape.empty() || !is_int(of.dtype) || of.dtype == DType::boolean) return 1;
    return std::gcd(kMostMultiple, divisor_of(element(value, {})));
}

void TileLowering::materialise(int value, bool in_place) {
    if (tile(value).buffer >= 0) return;
    if (const int64_t multiple = known_multiple(value); multiple > 1) {
        const int slot = local(type(value).dtype, {});
        emit(store(slot, {}, element(value, {}) / int_const(multiple, type(value).dtype)));
        define_buffer(value, slot);
        tile(value).multiple = multiple;
        return;
    }
    const int slot = place_for(value, in_place);
    before_write(slot, value);
    copy_into(slot, value);
    define_buffer(value, slot);
}

void TileLowering::copy_into(int slot, int value) {
    const auto to = [&](TileIndices at) {
        if (is_stored_turned(value)) std::swap(at[0], at[1]);
        return at;
    };
    if (const auto layout = layout_of_load(value)) {
        // Others see a tile that lies in another way.
        const TilePlace place = place_in(*layout, names_);
        ++in_threads_;
        Stmt one = store(slot, to(place.at), element(value, place.at));
        --in_threads_;
        emit(in_threads(place, elements_of(place, std::move(one), true)));
        return;
    }
    emit(over(type(value).shape, [&](const TileIndices& at) { return store(slot, to(at), element(value, at)); }));
    last_copied_ = slot;
}

void TileLowering::compute_waiting() {
    settle_pointers({});
    const std::vector<int> waiting = waiting_;
    for (int value : waiting)
        if (tile(value).buffer < 0 &&
            (remaining_[static_cast<size_t>(value)] > 0 || uses_.inside[static_cast<size_t>(value)]))
            materialise(value, false);
}

void TileLowering::settle(int value, std::optional<int> slot) {
    const std::set<int> reads = reads_of(value);
    if (tile(value).buffer >= 0 || reads.empty() || (slot && !reads.count(*slot))) return;
    memo_[static_cast<size_t>(value)].reset();
    if (!type(value).pointer) return materialise(value, false);
    for (int source : std::vector<int>(sources_[static_cast<size_t>(value)])) settle(source, slot);
}

void TileLowering::settle_pointers(std::optional<int> slot) {
    for (int value : std::vector<int>(pointers_))
        if (is_read_later(value)) settle(value, slot);
}

void TileLowering::before_write(int slot, int except) {
    settle_pointers(slot);
    const std::vector<int> waiting = waiting_;
    for (int value : waiting) {
        if (value == except || tile(value).buffer >= 0) continue;
        if (remaining_[static_cast<size_t>(value)] <= 0 && !uses_.inside[static_cast<size_t>(value)]) continue;
        if (reads_of(value).count(slot)) materialise(value, false);
    }
}

}  // namespace tessera::from_tile_detail
