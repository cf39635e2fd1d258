// Reductions of tiles in lanes, and reductions and scans by functions of the user.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernel/from_tile/lowering.h"

namespace tessera::from_tile_detail {

using tile::Instruction;
using tile::Kind;

namespace {

constexpr int64_t kManyLanesBytes = 32;  // of a vector

}  // namespace

Status TileLowering::lower_reduce(const Instruction& i) {
    if (warps_) return reduce_in_threads(i);
    const int x = i.inputs[0], out = i.outputs[0];
    const DType dtype = type(out).dtype;
    const std::vector<int64_t> shape = type(x).shape, outer = type(out).shape;
    const auto axis = static_cast<size_t>(i.numbers[0]);
    const auto with = [&](const TileIndices& at, const Expr& k) {
        TileIndices all = at;
        all.insert(all.begin() + static_cast<std::ptrdiff_t>(axis), k);
        return all;
    };
    const int slot = local(dtype, outer);
    const bool sums = i.word == "sum", least = i.word == "min";
    if (i.word == "xor" || dtype == DType::boolean) {
        emit(over(outer, [&](const TileIndices& at) { return store(slot, at, element(x, with(at, 0))); }));
        emit(unrolled(
            shape[axis] - 1,
            [&](const Expr& k) {
                return over(outer, [&](const TileIndices& at) {
                    const Expr have = at_buffer(slot, at), next = element(x, with(at, k + Expr(1)));
                    return store(slot, at,
                                 dtype == DType::boolean ? ne(have, next) : bit(ExprKind::BitXor, have, next));
                });
            },
            LoopKind::Serial));
        define_buffer(out, slot);
        return {};
    }
    const ReduceOp op = sums ? ReduceOp::Sum : least ? ReduceOp::Min : ReduceOp::Max;
    const Expr start = sums ? constant(0, dtype) : infinity(dtype, !least);
    const bool last = axis + 1 == shape.size();
    const auto width =
        last ? std::min<int64_t>(std::bit_floor(static_cast<uint64_t>(shape[axis])), machine_.vector_bytes) : 1;
    if (!last || shape[axis] % width != 0 || width < 2) {
        emit(over(outer, [&](const TileIndices& at) { return store(slot, at, start); }));
        emit(unrolled(
            shape[axis],
            [&](const Expr& k) {
                return over(outer, [&](const TileIndices& at) { return store(slot, at, element(x, with(at, k)), op); });
            },
            LoopKind::Serial));
        define_buffer(out, slot);
        return {};
    }
    // Lanes of partial results, which meet at the end. A tile that was just written is reduced on the way.
    const Stmt written = take_copy(x, width);
    TileIndices at;
    const auto row = [&](const Stmt& copy) {
        const size_t before = allocated_.size();
        const int partial = local(dtype, {width}, Scope::Register);
        allocated_.resize(before);
        const auto vector = [&](const std::function<Stmt(const Expr&)>& f) {
            return unrolled(width, f, LoopKind::Vector);
        };
        const Stmt clear = vector([&](const Expr& lane) { return store(partial, {lane}, start); });
        const auto add = [&](const Expr& k) {
            return vector([&](const Expr& lane) {
                return store(partial, {lane}, element(x, with(at, k * Expr(width) + lane)), op);
            });
        };
        Stmt all;
        if (!copy) {
            all = unrolled(shape[axis] / width, add, LoopKind::Serial);
        } else if (copy->as<For>()->kind == LoopKind::Vector) {
            all = seq({copy, add(0)});
        } else {
            For made = *copy->as<For>();
            made.body = seq({made.body, add(made.var)});
            all = make_stmt(std::move(made));
        }
        const Stmt begin = store(slot, at, start);
        const Stmt meet = vector([&](const Expr& lane) { return store(slot, at, at_buffer(partial, {lane}), op); });
        return alloc(partial, seq({clear, all, begin, meet}));
    };
    std::function<Stmt(size_t, const Stmt&)> nest = [&](size_t d, const Stmt& copy) -> Stmt {
        if (d == outer.size()) return row(copy);
        For loop = copy ? *copy->as<For>() : For{.var = variable(outer[d]), .extent = outer[d], .body = nullptr};
        at.push_back(loop.var);
        loop.body = nest(d + 1, loop.body);
        at.pop_back();
        return for_loop(std::move(loop));
    };
    emit(nest(0, written));
    define_buffer(out, slot);
    return {};
}

// The loops that have just written a tile, whose innermost has vectors of `width`; they are no longer there.
Stmt TileLowering::take_copy(int value, int64_t width) {
    const std::vector<int64_t>& shape = type(value).shape;
    const std::set<int> read = reads_of(value);
    if (apart_ || statements_.empty() || read.size() != 1 || !read.contains(last_copied_)) return nullptr;
    TileIndices probe;
    for (int64_t size : shape) probe.push_back(variable(size));
    if (!reads_only_at(value, last_copied_, probe, probe)) return nullptr;
    Stmt inner = statements_.back();
    for (size_t d = 0; d < shape.size(); ++d) {
        const bool last = d + 1 == shape.size();
        const For* loop = inner ? inner->as<For>() : nullptr;
        const int64_t extent = last && shape[d] > width ? shape[d] / width : shape[d];
        const LoopKind kind = last && shape[d] <= width ? LoopKind::Vector : LoopKind::Serial;
        if (!loop || loop->kind != kind || !loop->extent.is_int(extent)) return nullptr;
        inner = loop->body;
        if (!last || kind == LoopKind::Vector) continue;
        const For* vector = inner->as<For>();
        if (!vector || vector->kind != LoopKind::Vector || !vector->extent.is_int(width)) return nullptr;
        inner = vector->body;
    }
    const Store* store = inner->as<Store>();
    if (!store || store->to.buffer != last_copied_) return nullptr;
    // Functions, where vectors are short, leave no registers for partial results.
    bool calls = false;
    visit(store->value, [&](const Expr& e) { calls |= e.is(ExprKind::Call) && e.node().fn >= Fn::Sqrt; });
    if (calls && machine_.vector_bytes < kManyLanesBytes) return nullptr;
    Stmt copy = statements_.back();
    statements_.pop_back();
    return copy;
}

Status TileLowering::lower_combine(const Instruction& i) {
    const bool scans = i.kind == Kind::Scan;
    if (warps_ && !scans) return reduce_in_threads(i);
    const auto axis = static_cast<size_t>(i.numbers[0]);
    const std::vector<int64_t> shape = type(i.inputs[0]).shape;
    std::vector<int64_t> outer = shape;
    outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(axis));
    const int64_t length = shape[axis];
    const bool reverse = scans && i.numbers[1];
    const size_t n = i.inputs.size();
    for (int input : i.inputs) materialise(input);
    std::vector<int> results, have, next;
    for (size_t r = 0; r < n; ++r) results.push_back(local(type(i.outputs[r]).dtype, scans ? shape : outer));
    const size_t before = allocated_.size();
    ++in_threads_;
    for (size_t r = 0; r < n; ++r) have.push_back(local(type(i.outputs[r]).dtype, {}));
    for (size_t r = 0; r < n; ++r) next.push_back(local(type(i.outputs[r]).dtype, {}));
    allocated_.resize(before);
    // The function, of what it has and of the element at `place`.
    Expr place = 0;
    TileIndices at;
    const auto with = [&](const Expr& k) {
        TileIndices all = at;
        all.insert(all.begin() + static_cast<std::ptrdiff_t>(axis), k);
        return all;
    };
    const auto position = [&](const Expr& k) { return reverse ? Expr(length - 1) - k : k; };
    const tile::Region& region = i.regions[0];
    const auto step = [&](const Expr& k) -> Result<Stmt> {
        for (size_t r = 0; r < n; ++r) {
            tile(region.arguments[r]) = {
                .type = type(region.arguments[r]),
                .at = [this, slot = have[r]](const TileIndices&) { return at_buffer(slot, {}); }};
            tile(region.arguments[r + n]) = {
                .type = type(region.arguments[r + n]),
                .at = [this, value = element(i.inputs[r], with(position(k)))](const TileIndices&) { return value; }};
        }
        return lower_region(region, [&]() -> Status {
            for (size_t r = 0; r < n; ++r) emit(store(next[r], {}, element(region.results[r], {})));
            for (size_t r = 0; r < n; ++r) emit(store(have[r], {}, at_buffer(next[r], {})));
            if (scans)
                for (size_t r = 0; r < n; ++r) emit(store(results[r], with(position(k)), at_buffer(have[r], {})));
            return {};
        });
    };
    Status status;
    std::function<Stmt(size_t)> nest = [&](size_t d) -> Stmt {
        if (d < outer.size())
            return unrolled(
                outer[d],
                [&](const Expr& var) {
                    at.push_back(var);
                    Stmt inner = nest(d + 1);
                    at.pop_back();
                    return inner;
                },
                LoopKind::Serial);
        std::vector<Stmt> list;
        for (size_t r = 0; r < n; ++r) {
            list.push_back(store(have[r], {}, element(i.inputs[r], with(position(0)))));
            if (scans) list.push_back(store(results[r], with(position(0)), at_buffer(have[r], {})));
        }
        list.push_back(unrolled(
            length - 1,
            [&](const Expr& k) -> Stmt {
                Result<Stmt> made = step(k + Expr(1));
                if (!made.ok()) {
                    status = std::move(made).error();
                    return nullptr;
                }
                return *made;
            },
            LoopKind::Serial));
        if (!scans)
            for (size_t r = 0; r < n; ++r) list.push_back(store(results[r], at, at_buffer(have[r], {})));
        Stmt body = seq(std::move(list));
        for (size_t r = 0; r < n; ++r) body = alloc(have[r], alloc(next[r], body));
        return body;
    };
    Stmt whole;
    if (warps_) {
        whole = over_threads(
            outer,
            [&](const TileIndices& place_of) {
                at = place_of;
                return nest(outer.size());
            },
            false);
    } else {
        whole = nest(0);
    }
    --in_threads_;
    TRY(std::move(status));
    emit(std::move(whole));
    for (size_t r = 0; r < n; ++r) define_buffer(i.outputs[r], results[r]);
    return {};
}

}  // namespace tessera::from_tile_detail
