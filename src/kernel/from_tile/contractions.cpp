// Products of tiles in register tiles, reductions in lanes, and reductions and scans by functions of the user.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernel/from_tile/lowering.h"

namespace tessera::from_tile_detail {

using tile::Instruction;
using tile::Kind;

int TileLowering::packed(int value, DType dtype) {
    const LoweredTile& t = tile(value);
    if (t.buffer >= 0 && type(value).dtype == dtype) return t.buffer;
    const int slot = local(dtype, type(value).shape);
    emit(over(type(value).shape,
              [&](const TileIndices& at) { return store(slot, at, cast(element(value, at), dtype)); }));
    return slot;
}

// One product: out += a b, tile by tile of registers. `a` by vectors along k where the processor multiplies by a lane.
Stmt TileLowering::multiply(int a, int b, int out, const std::vector<int64_t>& shape_a, int64_t columns, DType dtype) {
    const int64_t rows = shape_a[shape_a.size() - 2], depth = shape_a.back();
    const int64_t lane_count = std::max<int64_t>(1, machine_.vector_bytes / static_cast<int64_t>(dtype_bytes(dtype)));
    const int64_t lane = std::min(lane_count, columns);
    const int64_t wide = std::min<int64_t>(2, columns / lane);
    const int64_t high = std::min<int64_t>(rows, machine_.vector_registers >= 32 ? 8 : 4);
    const int64_t deep = machine_.lane_multiply ? std::min(depth, lane_count) : 1;
    const bool batched = shape_a.size() == 3;
    const auto body = [&](const Expr& batch) {
        const auto at = [&](Expr i, Expr j) { return batched ? TileIndices{batch, i, j} : TileIndices{i, j}; };
        return unrolled(
            rows / high,
            [&](const Expr& row) {
                return unrolled(
                    columns / (lane * wide),
                    [&](const Expr& column) {
                        const size_t before = allocated_.size();
                        const int sums = local(dtype, {high, wide * lane}, Scope::Register);
                        const int taken = deep > 1 ? local(dtype, {high, deep}, Scope::Register) : -1;
                        allocated_.resize(before);  // they are allocated here
                        const auto each = [&](const std::function<Stmt(const Expr&, const Expr&)>& f) {
                            return unrolled(high, [&](const Expr& i) {
                                return unrolled(wide, [&](const Expr& part) {
                                    return unrolled(
                                        lane, [&](const Expr& j) { return f(i, part * Expr(lane) + j); },
                                        LoopKind::Vector);
                                });
                            });
                        };
                        const auto place = [&](const Expr& i, const Expr& j) {
                            return at(row * Expr(high) + i, column * Expr(lane * wide) + j);
                        };
                        const Stmt fetch = each([&](const Expr& i, const Expr& j) {
                            return store(sums, {i, j}, at_buffer(out, place(i, j)));
                        });
                        const Stmt put = each([&](const Expr& i, const Expr& j) {
                            return store(out, place(i, j), at_buffer(sums, {i, j}));
                        });
                        const Stmt along = unrolled(
                            depth / deep,
                            [&](const Expr& k) -> Stmt {
                                const auto add = [&](const Expr& kk) {
                                    return each([&](const Expr& i, const Expr& j) {
                                        const Expr left = taken >= 0 ? at_buffer(taken, {i, kk})
                                                                     : at_buffer(a, at(row * Expr(high) + i, k));
                                        const Expr right =
                                            at_buffer(b, at(k * Expr(deep) + kk, column * Expr(lane * wide) + j));
                                        return store(sums, {i, j}, left * right, ReduceOp::Sum);
                                    });
                                };
                                if (taken < 0) return add(0);
                                const Stmt take = unrolled(high, [&](const Expr& i) {
                                    return unrolled(
                                        deep,
                                        [&](const Expr& kk) {
                                            return store(taken, {i, kk},
                                                         at_buffer(a, at(row * Expr(high) + i, k * Expr(deep) + kk)));
                                        },
                                        LoopKind::Vector);
                                });
                                return alloc(taken, seq({take, unrolled(deep, add)}));
                            },
                            LoopKind::Serial);
                        return alloc(sums, seq({fetch, along, put}));
                    },
                    LoopKind::Serial);
            },
            LoopKind::Serial);
    };
    return batched ? unrolled(shape_a[0], body, LoopKind::Serial) : body(0);
}

Status TileLowering::lower_dot(const Instruction& i) {
    const int a = i.inputs[0], b = i.inputs[1], out = i.outputs[0];
    const DType dtype = type(out).dtype, sum_type = is_float(dtype) && dtype != DType::f64 ? DType::f32 : dtype;
    const int left = packed(a, sum_type), right = packed(b, sum_type);
    int slot = -1;
    if (i.inputs.size() == 3) {
        const int add = i.inputs[2];
        const auto n = static_cast<size_t>(add);
        if (sum_type == dtype) {
            const bool over_it = remaining_[n] == 0 && region_of_[n] == region_ && !uses_.inside[n];
            if (over_it) materialise(add);
            if (over_it && tile(add).buffer >= 0) slot = tile(add).buffer;
        }
        if (slot < 0) {
            slot = local(sum_type, type(out).shape);
            emit(over(type(out).shape,
                      [&](const TileIndices& at) { return store(slot, at, cast(element(add, at), sum_type)); }));
        } else {
            before_write(slot, add);
        }
    } else {
        slot = local(sum_type, type(out).shape);
        emit(over(type(out).shape, [&](const TileIndices& at) { return store(slot, at, constant(0, sum_type)); }));
    }
    emit(multiply(left, right, slot, type(a).shape, type(b).shape.back(), sum_type));
    if (sum_type == dtype) {
        define_buffer(out, slot);
        return {};
    }
    sources_[static_cast<size_t>(out)].clear();
    define(out, {.type = type(out),
                 .at = [this, slot, dtype](const TileIndices& at) { return cast(at_buffer(slot, at), dtype); },
                 .costly = true,
                 .reads = {slot}});
    return {};
}

Status TileLowering::lower_reduce(const Instruction& i) {
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
    // Lanes of partial results, which meet at the end.
    TileIndices at;
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
        const size_t before = allocated_.size();
        const int partial = local(dtype, {width}, Scope::Register);
        allocated_.resize(before);
        const auto vector = [&](const std::function<Stmt(const Expr&)>& f) {
            return unrolled(width, f, LoopKind::Vector);
        };
        const Stmt clear = vector([&](const Expr& lane) { return store(partial, {lane}, start); });
        const Stmt add = unrolled(
            shape[axis] / width,
            [&](const Expr& k) {
                return vector([&](const Expr& lane) {
                    return store(partial, {lane}, element(x, with(at, k * Expr(width) + lane)), op);
                });
            },
            LoopKind::Serial);
        const Stmt begin = store(slot, at, start);
        const Stmt meet = vector([&](const Expr& lane) { return store(slot, at, at_buffer(partial, {lane}), op); });
        return alloc(partial, seq({clear, add, begin, meet}));
    };
    emit(nest(0));
    define_buffer(out, slot);
    return {};
}

Status TileLowering::lower_combine(const Instruction& i) {
    const bool scans = i.kind == Kind::Scan;
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
    Stmt whole = nest(0);
    TRY(std::move(status));
    emit(std::move(whole));
    for (size_t r = 0; r < n; ++r) define_buffer(i.outputs[r], results[r]);
    return {};
}

}  // namespace tessera::from_tile_detail
