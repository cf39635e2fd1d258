// Products of tiles in register tiles, on processors.
#include <algorithm>

#include "kernel/from_tile/lowering.h"

namespace tessera::from_tile_detail {

using tile::Instruction;
using tile::Kind;

int TileLowering::packed(int value, DType dtype) {
    const LoweredTile& t = tile(value);
    if (t.buffer >= 0 && type(value).dtype == dtype) return t.buffer;
    const int slot = local(dtype, type(value).shape);
    emit(over(type(value).shape, [&](const TileIndices& at) {
        return store(slot, at, number_of(element(value, at), type(value).dtype, dtype));
    }));
    return slot;
}

namespace {

constexpr int64_t kSumRegisters = 24, kFewSumRegisters = 8;  // of a register tile, where there are 32, and where 16
constexpr int64_t kDepthAtOnce = 4;                          // steps along k in one iteration
constexpr int64_t kLeastRowBytes = 256;                      // of a row of a panel, at least
constexpr int64_t kLeastColumns = 32;                        // where rows are worth turning
constexpr int64_t kRowsAtOnce = 8;                           // of what is put into panels

}  // namespace

TileProduct TileLowering::plan_product(int a, int b, DType dtype) {
    const std::vector<int64_t>& shape = type(a).shape;
    TileProduct p{.a = -1, .b = -1, .out = -1, .dtype = dtype, .depth = shape.back()};
    p.rows = shape[shape.size() - 2];
    p.columns = type(b).shape.back();
    const auto bytes = static_cast<int64_t>(dtype_bytes(dtype));
    const int64_t lanes = std::max<int64_t>(1, machine_.vector_bytes / bytes);
    const bool many = machine_.vector_registers >= 32;
    p.lane = std::min(lanes, p.columns);
    p.wide = std::min<int64_t>(many && !machine_.lane_multiply ? 4 : 2, p.columns / p.lane);
    const int64_t most = machine_.lane_multiply ? (many ? 8 : 4) : (many ? kSumRegisters : kFewSumRegisters) / p.wide;
    p.high = std::min<int64_t>(p.rows, most);
    // Elements of a column side by side are fetched for all rows at once, by few loads.
    p.row_panels = machine_.lane_multiply && p.lane == lanes && p.rows % p.high == 0 && p.high % lanes == 0 &&
                   p.depth % lanes == 0 && p.columns >= kLeastColumns;
    p.deep = machine_.lane_multiply && !p.row_panels ? std::min(p.depth, lanes) : 1;
    // Rows of wide blocks lie too far apart for the first cache, unless they are put together.
    const int64_t width = p.lane * p.wide;
    p.panels = tile(b).buffer < 0 && p.columns > width && (machine_.lane_multiply || width * bytes >= kLeastRowBytes) &&
               p.depth * width * bytes <= machine_.l1_bytes;
    return p;
}

// Whether elements that follow each other along k do so in memory.
bool TileLowering::lies_along_depth(int b) {
    const tile::Type& of = type(b);
    TileIndices at;
    for (int64_t size : of.shape) at.push_back(variable(size));
    const Expr k = at[at.size() - 2];
    bool along = false;
    visit(element(b, at), [&](const Expr& e) {
        if (!e.is(ExprKind::Load) || e.args().size() != 1) return;
        const Expr next = substitute(e.arg(0), {{k.node().name, k + Expr(1)}});
        along |= (next - e.arg(0)).is_int(1);
    });
    return along;
}

// A few rows at a time, all panels of them: not in steps from row to row, each on another page.
int TileLowering::in_panels(int value, const TileProduct& p) {
    const int64_t width = p.lane * p.wide, rows = std::min(p.depth, kRowsAtOnce);
    const std::vector<int64_t> outer(type(value).shape.begin(), type(value).shape.end() - 2);
    const auto number = [&](const TileIndices& at) {
        return number_of(element(value, at), type(value).dtype, p.dtype);
    };
    std::vector<int64_t> shape = outer, loops = outer;
    if (p.depth % p.lane == 0 && lies_along_depth(value)) {
        shape.insert(shape.end(), {p.columns, p.depth});
        const int columns = local(p.dtype, shape);
        emit(over(shape, [&](const TileIndices& at) {
            TileIndices from = at;
            std::swap(from.back(), from[from.size() - 2]);
            return store(columns, at, number(from));
        }));
        return turned(columns, width, p);
    }
    shape.insert(shape.end(), {p.columns / width, p.depth, width});
    loops.insert(loops.end(), {p.depth / rows, p.columns / width, rows, width});
    const int slot = local(p.dtype, shape);
    emit(over(loops, [&](const TileIndices& at) {
        const auto first = at.begin() + static_cast<std::ptrdiff_t>(outer.size());
        TileIndices from(at.begin(), first), to(at.begin(), first);
        const Expr k = first[0] * Expr(rows) + first[2];
        from.insert(from.end(), {k, first[1] * Expr(width) + first[3]});
        to.insert(to.end(), {first[1], k, first[3]});
        return store(slot, to, number(from));
    }));
    return slot;
}

// Of lines along k: panels of `width` lines side by side. Squares are turned in registers.
int TileLowering::turned(int lines, int64_t width, const TileProduct& p) {
    std::vector<int64_t> shape;
    for (const Expr& size : kernel_.buffers[static_cast<size_t>(lines)].shape) shape.push_back(*size.as_int());
    const int64_t count = shape[shape.size() - 2];
    const std::vector<int64_t> outer(shape.begin(), shape.end() - 2);
    shape = outer;
    shape.insert(shape.end(), {count / width, p.depth, width});
    const int slot = local(p.dtype, shape);
    std::vector<int64_t> squares = outer;
    squares.insert(squares.end(), {count / width, p.depth / p.lane, width / p.lane});
    const auto vector = [&](const std::function<Stmt(const Expr&)>& f) {
        return unrolled(p.lane, f, LoopKind::Vector);
    };
    emit(each(squares, [&](const TileIndices& at) {
        const auto first = at.begin() + static_cast<std::ptrdiff_t>(outer.size());
        const Expr panel = first[0], steps = first[1] * Expr(p.lane), part = first[2] * Expr(p.lane);
        const size_t before = allocated_.size();
        const int square = local(p.dtype, {p.lane, p.lane}, Scope::Register);
        allocated_.resize(before);  // it is allocated here
        const auto place = [&](std::initializer_list<Expr> indices) {
            TileIndices all(at.begin(), first);
            all.insert(all.end(), indices);
            return all;
        };
        const Stmt take = unrolled(p.lane, [&](const Expr& i) {
            return vector([&](const Expr& k) {
                return store(square, {i, k}, at_buffer(lines, place({panel * Expr(width) + part + i, steps + k})));
            });
        });
        const Stmt put = unrolled(p.lane, [&](const Expr& k) {
            return vector([&](const Expr& i) {
                return store(slot, place({panel, steps + k, part + i}), at_buffer(square, {i, k}));
            });
        });
        return alloc(square, seq({take, put}));
    }));
    return slot;
}

int TileLowering::in_row_panels(int value, const TileProduct& p) {
    const auto made = row_panels_.find(value);
    return made != row_panels_.end() ? made->second : turned(packed(value, p.dtype), p.high, p);
}

// The first operand of a product in a loop that it does not change in is put into panels before that.
void TileLowering::put_in_row_panels(int value) {
    const auto v = static_cast<size_t>(value);
    const Instruction* user = uses_.last[v];
    if (warps_ || !uses_.inside[v] || uses_.count[v] != 1 || !user || user->kind != Kind::Dot) return;
    if (user->inputs[0] != value || user->inputs[1] == value) return;
    const TileProduct p = plan_product(value, user->inputs[1], sum_type_of(*user));
    if (p.row_panels) row_panels_[value] = in_row_panels(value, p);
}

DType TileLowering::sum_type_of(const Instruction& dot) const {
    const DType dtype = type(dot.outputs[0]).dtype;
    return is_float(dtype) && dtype != DType::f64 ? DType::f32 : dtype;
}

// Sums of one register tile: `high` rows from `row` on, `wide` vectors of `lane` columns of block `block`. Where the
// processor multiplies by a lane, `a` comes by vectors: along the rows of a panel, or else along k.
Stmt TileLowering::multiply_registers(const TileProduct& p, const Expr& row, int64_t high, const Expr& block) {
    const Expr column = block * Expr(p.lane * p.wide);
    const size_t before = allocated_.size();
    const int sums = local(p.dtype, {high, p.wide * p.lane}, Scope::Register);
    const int taken = p.deep > 1 || p.row_panels ? local(p.dtype, {high, p.deep}, Scope::Register) : -1;
    allocated_.resize(before);  // they are allocated here
    const auto at = [&](Expr i, Expr j) { return p.batch ? TileIndices{*p.batch, i, j} : TileIndices{i, j}; };
    const auto each_sum = [&](const std::function<Stmt(const Expr&, const Expr&)>& f) {
        return unrolled(high, [&](const Expr& i) {
            return unrolled(p.wide, [&](const Expr& part) {
                return unrolled(
                    p.lane, [&](const Expr& j) { return f(i, part * Expr(p.lane) + j); }, LoopKind::Vector);
            });
        });
    };
    const auto right = [&](const Expr& k, const Expr& j) {
        if (!p.panels) return at_buffer(p.b, at(k, column + j));
        return at_buffer(p.b, p.batch ? TileIndices{*p.batch, block, k, j} : TileIndices{block, k, j});
    };
    const auto place = [&](const Expr& i, const Expr& j) { return at(row + i, column + j); };
    const Stmt fetch = each_sum([&](const Expr& i, const Expr& j) {
        return store(sums, {i, j}, p.adds ? at_buffer(p.out, place(i, j)) : constant(0, p.dtype));
    });
    const Stmt put = each_sum([&](const Expr& i, const Expr& j) {
        return store(p.out, place(i, j), at_buffer(sums, {i, j}));
    });
    const auto add = [&](const Expr& k, const Expr& kk) {
        return each_sum([&](const Expr& i, const Expr& j) {
            const Expr left = taken >= 0 ? at_buffer(taken, {i, kk}) : at_buffer(p.a, at(row + i, k));
            return store(sums, {i, j}, left * right(k * Expr(p.deep) + kk, j), ReduceOp::Sum);
        });
    };
    const Expr k = variable(p.depth / p.deep);
    For along{.var = k, .extent = p.depth / p.deep, .body = nullptr};
    if (p.deep == 1 && p.depth % kDepthAtOnce == 0) along.notes = {{"unroll", kDepthAtOnce}};
    if (taken < 0) {
        along.body = add(k, 0);
    } else if (p.row_panels) {
        const Stmt take = unrolled(high / p.lane, [&](const Expr& part) {
            return unrolled(
                p.lane,
                [&](const Expr& lane) {
                    const Expr i = part * Expr(p.lane) + lane, panel = row / Expr(p.high);
                    return store(
                        taken, {i, 0},
                        at_buffer(p.a, p.batch ? TileIndices{*p.batch, panel, k, i} : TileIndices{panel, k, i}));
                },
                LoopKind::Vector);
        });
        along.body = alloc(taken, seq({take, add(k, 0)}));
    } else {
        const Stmt take = unrolled(high, [&](const Expr& i) {
            return unrolled(
                p.deep,
                [&](const Expr& kk) {
                    return store(taken, {i, kk}, at_buffer(p.a, at(row + i, k * Expr(p.deep) + kk)));
                },
                LoopKind::Vector);
        });
        along.body = alloc(taken, seq({take, unrolled(p.deep, [&](const Expr& kk) { return add(k, kk); })}));
    }
    return alloc(sums, seq({fetch, for_loop(std::move(along)), put}));
}

// One product: out += a b, or out = a b, tile by tile of registers. A panel meets all rows while it is in the first
// cache.
Stmt TileLowering::multiply(TileProduct p, int64_t batches) {
    const int64_t high = p.high, left = p.rows % high;
    const auto serial = [&](int64_t extent, const std::function<Stmt(const Expr&)>& f) {
        return unrolled(extent, f, LoopKind::Serial);
    };
    const auto each_block = [&](const std::function<Stmt(const Expr&)>& f) {
        return serial(p.columns / (p.lane * p.wide), f);
    };
    const auto each_row = [&](const std::function<Stmt(const Expr&, int64_t)>& f) {
        const Stmt whole = serial(p.rows / high, [&](const Expr& row) { return f(row * Expr(high), high); });
        return left == 0 ? whole : seq({whole, f(p.rows - left, left)});
    };
    const auto body = [&](const std::optional<Expr>& batch) {
        p.batch = batch;
        const auto sums = [&](const Expr& row, int64_t count, const Expr& block) {
            return multiply_registers(p, row, count, block);
        };
        if (p.panels)
            return each_block([&](const Expr& block) {
                return each_row([&](const Expr& row, int64_t count) { return sums(row, count, block); });
            });
        return each_row([&](const Expr& row, int64_t count) {
            return each_block([&](const Expr& block) { return sums(row, count, block); });
        });
    };
    return batches == 0 ? body({}) : serial(batches, [&](const Expr& batch) { return body(batch); });
}

Status TileLowering::lower_dot(const Instruction& i) {
    const int a = i.inputs[0], b = i.inputs[1], out = i.outputs[0];
    const DType dtype = type(out).dtype, sum_type = sum_type_of(i);
    TileProduct product = plan_product(a, b, sum_type);
    if (!warps_) {
        product.a = product.row_panels ? in_row_panels(a, product) : packed(a, sum_type);
        product.b = product.panels ? in_panels(b, product) : packed(b, sum_type);
    }
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
        product.adds = warps_ > 0;
        if (product.adds)
            emit(over(type(out).shape, [&](const TileIndices& at) { return store(slot, at, constant(0, sum_type)); }));
    }
    product.out = slot;
    if (warps_)
        multiply_in_threads(i, slot, sum_type);
    else
        emit(multiply(product, type(a).shape.size() < 3 ? 0 : type(a).shape[0]));
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

}  // namespace tessera::from_tile_detail
