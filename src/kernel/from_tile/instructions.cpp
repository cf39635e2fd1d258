// Instructions that compute tile by tile: views, maps, memory, branches and loops.
#include <fmt/format.h>

#include <algorithm>

#include "kernel/from_tile/lowering.h"
#include "kernel/ir/narrow_floats.h"
#include "kernel/ir/tile_calls.h"
#include "tile/verify.h"

namespace tessera::from_tile_detail {

using tile::Instruction;
using tile::Kind;

namespace {

// Of an element: which one of the input it is.
std::optional<std::function<TileIndices(const TileIndices&)>> element_of_input(const Instruction& i,
                                                                               const std::vector<int64_t>& from,
                                                                               const std::vector<int64_t>& to) {
    switch (i.kind) {
        case Kind::Broadcast:
            return [from](const TileIndices& at) {
                TileIndices inner;
                for (size_t d = 0; d < from.size(); ++d) inner.push_back(from[d] == 1 ? Expr(0) : at[d]);
                return inner;
            };
        case Kind::Reshape:
            return [from, to](const TileIndices& at) {
                // Dimensions of one element come and go without arithmetic.
                TileIndices kept;
                std::vector<int64_t> sizes_to, sizes_from;
                for (size_t d = 0; d < to.size(); ++d) {
                    if (to[d] == 1) continue;
                    sizes_to.push_back(to[d]);
                    kept.push_back(at[d]);
                }
                for (int64_t size : from)
                    if (size != 1) sizes_from.push_back(size);
                if (sizes_to != sizes_from) kept = indices_of(flat_index(kept, sizes_to), sizes_from);
                TileIndices inner;
                size_t next = 0;
                for (int64_t size : from) inner.push_back(size == 1 ? Expr(0) : kept[next++]);
                return inner;
            };
        case Kind::Permute:
            return [order = i.numbers](const TileIndices& at) {
                TileIndices inner(at.size());
                for (size_t d = 0; d < order.size(); ++d) inner[static_cast<size_t>(order[d])] = at[d];
                return inner;
            };
        case Kind::Flip:
            return [axis = static_cast<size_t>(i.numbers[0]), from](const TileIndices& at) {
                TileIndices inner = at;
                inner[axis] = Expr(from[axis] - 1) - at[axis];
                return inner;
            };
        default: return std::nullopt;
    }
}

}  // namespace

Status TileLowering::lower_view(const Instruction& i) {
    if (i.outputs.empty()) return {};
    const int out = i.outputs[0];
    LoweredTile made{.type = type(out), .at = {}};
    sources_[static_cast<size_t>(out)] = i.inputs;
    const int in = i.inputs.empty() ? -1 : i.inputs[0];
    if (in >= 0) made.base = tile(in).base;
    const std::vector<int64_t> from = in >= 0 ? type(in).shape : std::vector<int64_t>{};
    if (const auto place = element_of_input(i, from, type(out).shape)) {
        if (i.kind == Kind::Broadcast && is_costly(in) && !type(in).pointer) materialise(in);
        made.at = [this, in, place = *place](const TileIndices& at) { return element(in, place(at)); };
        define(out, std::move(made));
        return {};
    }
    const auto number = [&] { return static_cast<size_t>(i.numbers[0]); };
    switch (i.kind) {
        case Kind::Constant: made.at = [e = with_narrow_floats(i.body, {})](const TileIndices&) { return e; }; break;
        case Kind::Arange:
            made.at = [this, begin = i.numbers[0]](const TileIndices& at) {
                return cast(at[0] + Expr(begin) + nothing_, DType::i32);
            };
            break;
        case Kind::ProgramId:
            made.at = [id = ids_[number()]](const TileIndices&) { return cast(id, DType::i32); };
            break;
        case Kind::ProgramCount:
            made.at = [n = grid_[number()]](const TileIndices&) { return cast(n, DType::i32); };
            break;
        case Kind::Offset:
            made.at = [this, in, steps = i.inputs[1]](const TileIndices& at) {
                return element(in, at) + widened(element(steps, at));
            };
            break;
        case Kind::PlaceOf:
            made.base = -1;
            made.at = [this, in](const TileIndices& at) { return element(in, at) + nothing_; };
            break;
        case Kind::Join:
            made.at = [this, in, other = i.inputs[1]](const TileIndices& at) {
                const TileIndices inner(at.begin(), at.end() - 1);
                return select(eq(at.back(), Expr(0)), element(in, inner), element(other, inner));
            };
            break;
        case Kind::Concatenate:
            materialise(in);
            materialise(i.inputs[1]);
            made.at = [this, in, other = i.inputs[1], first = from[0]](const TileIndices& at) {
                TileIndices inner = at;
                inner[0] = at[0] - Expr(first);
                return select(lt(at[0], Expr(first)), element(in, at), element(other, inner));
            };
            break;
        case Kind::Gather:
            materialise(in);
            made.at = [this, in, indices = i.inputs[1], axis = number(),
                       last = from[number()] - 1](const TileIndices& at) {
                TileIndices inner = at;
                inner[axis] = widened(element(indices, at));
                if (bounded_) inner[axis] = clamp(inner[axis] + nothing_, 0, last);
                return element(in, inner);
            };
            made.costly = true;
            break;
        case Kind::Address:
        case Kind::PointerAt:
        case Kind::Choose: TRY(lower_pointer(i, made)); break;
        case Kind::Split: return lower_split(i);
        default: return cannot(i, "not known here");
    }
    define(out, std::move(made));
    return {};
}

Status TileLowering::lower_pointer(const Instruction& i, LoweredTile& made) {
    const int in = i.inputs[0];
    if (i.kind == Kind::Choose) {
        const int a = i.inputs[1], b = i.inputs[2];
        if (tile(a).base != tile(b).base) return need_addresses(i);
        made.base = tile(a).base;
        made.at = [this, in, a, b](const TileIndices& at) {
            return select(widened_condition(element(in, at)), element(a, at), element(b, at));
        };
        return {};
    }
    if (!by_address_) return need_addresses(i);
    const bool points = i.kind == Kind::PointerAt;
    const auto bytes = static_cast<int64_t>(dtype_bytes(type(points ? i.outputs[0] : in).dtype));
    made.base = points ? all_memory(type(i.outputs[0]).dtype) : -1;
    made.at = [this, in, points, bytes](const TileIndices& at) {
        return points ? floor_div(element(in, at), bytes) : element(in, at) * Expr(bytes);
    };
    return {};
}

Status TileLowering::lower_split(const Instruction& i) {
    const int in = i.inputs[0];
    if (is_costly(in)) materialise(in);
    for (int64_t which : {0, 1}) {
        const int out = i.outputs[static_cast<size_t>(which)];
        sources_[static_cast<size_t>(out)] = i.inputs;
        define(out, {.type = type(out), .at = [this, in, which](const TileIndices& at) {
                         TileIndices inner = at;
                         inner.emplace_back(which);
                         return element(in, inner);
                     }});
    }
    return {};
}

Status TileLowering::lower_map(const Instruction& i) {
    const int out = i.outputs[0];
    LoweredTile made{.type = type(out), .at = {}};
    sources_[static_cast<size_t>(out)] = i.inputs;
    bool narrow = is_narrow(type(out).dtype);
    for (int input : i.inputs) narrow |= is_narrow(type(input).dtype);
    const bool rounds = has_more_digits(i.body);
    made.at = [this, inputs = i.inputs, body = i.body, narrow, rounds](const TileIndices& at) {
        const auto input = [&](int slot) {
            const int of = inputs[static_cast<size_t>(slot)];
            return uses_.masks[static_cast<size_t>(of)] ? widened_condition(element(of, at)) : element(of, at);
        };
        const Expr value = narrow ? with_narrow_floats(body, input)
                                  : map_loads(body, [&](const Expr& e) { return input(e.node().slot); });
        return rounds ? without_more_digits(value) : value;
    };
    made.costly = is_float(type(out).dtype);
    for (int slot : reads_of(out)) made.costly |= !kernel_.buffers[static_cast<size_t>(slot)].shape.empty();
    for (int input : i.inputs) made.costly |= is_float(type(input).dtype);
    // A quotient of two sizes takes longer than a load.
    made.costly |= type(out).shape.empty() && (i.body.is(ExprKind::Div) || i.body.is(ExprKind::Rem));
    define(out, std::move(made));
    return {};
}

Status TileLowering::lower_bits(const Instruction& i) {
    const int in = i.inputs[0], out = i.outputs[0];
    const DType from = stored_as(type(in).dtype), to = stored_as(type(out).dtype);
    if (!is_float(from) && !is_float(to)) {  // bytes that are bits already
        sources_[static_cast<size_t>(out)] = i.inputs;
        define(out,
               {.type = type(out), .at = [this, in, to](const TileIndices& at) { return cast(element(in, at), to); }});
        return {};
    }
    materialise(in);
    const int slot = local(to, type(out).shape);
    emit(each(type(out).shape, [&](const TileIndices& at) {
        return make_stmt(
            Call{.name = std::string(kBits), .writes = {{slot, at}}, .reads = {{tile(in).buffer, at}}, .args = {}});
    }));
    define_buffer(out, slot);
    return {};
}

Status TileLowering::lower_load(const Instruction& i) {
    const int out = i.outputs[0], pointer = i.inputs[0];
    const int mask = i.inputs.size() > 1 ? i.inputs[1] : -1, other = i.inputs.size() > 2 ? i.inputs[2] : -1;
    LoweredTile made{.type = type(out), .at = {}};
    sources_[static_cast<size_t>(out)] = i.inputs;
    const int base = tile(pointer).base;
    if (base < 0) return need_addresses(i);
    made.at = [this, pointer, mask, other, base, dtype = stored_as(type(out).dtype)](const TileIndices& at) {
        const Expr place = element(pointer, at), loaded = load(base, dtype, {place});
        if (mask < 0 && !bounded_) return loaded;
        Expr otherwise = other < 0 ? constant(0, dtype) : element(other, at);
        if (other >= 0 && bounded_)
            otherwise = select(widened_condition(element(mask, at)), constant(0, dtype), otherwise);
        return select(inside(base, place, mask, at), loaded, otherwise);
    };
    made.costly = true;
    made.reads = {base};
    define(out, std::move(made));
    return {};
}

Status TileLowering::lower_store(const Instruction& i) {
    const int pointer = i.inputs[0], value = i.inputs[1], mask = i.inputs.size() > 2 ? i.inputs[2] : -1;
    const int base = tile(pointer).base;
    if (base < 0) return need_addresses(i);
    TileIndices probe;
    for (int64_t size : type(pointer).shape) probe.push_back(variable(size));
    for (int input : i.inputs)
        if (tile(input).buffer < 0 && reads_of(input).count(base) &&
            (input != value || !reads_only_at(input, base, probe, {element(pointer, probe)})))
            materialise(input);
    before_write(base, value);
    const auto write = [&](const TileIndices& at, const Expr& stored) {
        const Expr place = element(pointer, at);
        Stmt one = store(base, {place}, stored);
        return mask < 0 && !bounded_ ? one : if_then(inside(base, place, mask, at), one);
    };
    if (const auto layout = layout_of_store(i)) {
        const std::vector<int64_t>& shape = type(value).shape;
        const int slot = local(type(value).dtype, shape);
        const size_t along = layout->order[0];
        kernel_.buffers[static_cast<size_t>(slot)].strides = {along == 1 ? shape[1] + kSkew : 1,
                                                              along == 1 ? 1 : shape[0] + kSkew};
        emit(over(shape, [&](const TileIndices& at) { return store(slot, at, element(value, at)); }));
        const TilePlace place = place_in(*layout, names_);
        ++in_threads_;
        Stmt one = write(place.at, at_buffer(slot, place.at));
        --in_threads_;
        emit(in_threads(place, elements_of(place, std::move(one), true)));
        return {};
    }
    emit(over(type(pointer).shape, [&](const TileIndices& at) { return write(at, element(value, at)); }));
    return {};
}

Expr TileLowering::inside(int base, const Expr& place, int mask, const TileIndices& at) {
    Expr holds = mask < 0 ? int_const(1, DType::boolean) : widened_condition(element(mask, at));
    if (!bounded_) return holds;
    const Expr extent = kernel_.buffers[static_cast<size_t>(base)].shape[0];
    // A place that overflows may be below what its parts are not: nothing is concluded from them.
    const Expr computed = place + nothing_;
    return logical_and(holds, logical_and(le(Expr(0), computed), lt(computed, extent)));
}

Status TileLowering::lower_atomic(const Instruction& i) {
    const int pointer = i.inputs[0], out = i.outputs[0], base = tile(pointer).base;
    if (base < 0) return need_addresses(i);
    const size_t values = i.word == "compare" ? 2 : 1;
    const int mask = i.inputs.size() > values + 1 ? i.inputs.back() : -1;
    for (int input : i.inputs)
        if (tile(input).buffer < 0 && reads_of(input).count(base)) materialise(input);
    before_write(base);
    const bool kept = uses_.count[static_cast<size_t>(out)] > 0;
    const int slot = kept ? local(type(out).dtype, type(out).shape) : -1;
    emit(each(type(out).shape, [&](const TileIndices& at) -> Stmt {
        Call call{.name = "atomic_" + i.word, .writes = {{base, {element(pointer, at)}}}, .reads = {}, .args = {}};
        if (kept) call.writes.insert(call.writes.begin(), Access{slot, at});
        for (size_t v = 0; v < values; ++v) call.args.push_back(element(i.inputs[v + 1], at));
        const Expr place = element(pointer, at);
        const Stmt update = make_stmt(std::move(call));
        if (mask < 0 && !bounded_) return update;
        // What was not asked for is 0.
        const Stmt nothing = kept ? store(slot, at, constant(0, type(out).dtype)) : nullptr;
        return if_then(inside(base, place, mask, at), update, nothing);
    }));
    if (kept) define_buffer(out, slot);
    return {};
}

Status TileLowering::lower_report(const Instruction& i) {
    std::vector<int64_t> shape = i.inputs.empty() ? std::vector<int64_t>{} : type(i.inputs[0]).shape;
    Report report{.asserts = i.kind == Kind::Assert, .text = i.word, .sizes = shape, .types = {}, .hex = false};
    if (report.asserts && i.place.line) report.text = fmt::format("{} at {}", i.word, i.place.to_string());
    if (!report.asserts) {
        report.hex = i.numbers[0];
        for (int input : i.inputs) report.types.push_back(type(input).dtype);
    }
    if (is_costly(i.inputs.empty() ? -1 : i.inputs[0])) materialise(i.inputs[0]);
    const int64_t number = add_report(std::move(report));
    emit(each(shape, [&](const TileIndices& at) -> Stmt {
        Call call{.name = std::string(kReport), .writes = {}, .reads = {}, .args = {number, ids_[0], ids_[1], ids_[2]}};
        call.args.insert(call.args.end(), at.begin(), at.end());
        if (i.kind == Kind::Assert)
            return if_then(logical_not(widened_condition(element(i.inputs[0], at))), make_stmt(std::move(call)));
        for (int input : i.inputs) {
            const DType dtype = type(input).dtype;
            call.args.push_back(number_of(element(input, at), dtype, is_narrow(dtype) ? DType::f32 : dtype));
        }
        return make_stmt(std::move(call));
    }));
    return {};
}

Status TileLowering::lower_if(const Instruction& i) {
    const Expr condition = widened_condition(element(i.inputs[0], {}));
    std::vector<int> slots;
    for (int out : i.outputs) slots.push_back(local(type(out).pointer ? DType::i64 : type(out).dtype, type(out).shape));
    compute_waiting();
    Stmt branches[2];
    std::vector<int> bases(slots.size(), -1);
    for (size_t b = 0; b < 2; ++b) {
        branches[b] = TRY(lower_region(i.regions[b], [&]() -> Status {
            for (size_t r = 0; r < slots.size(); ++r) {
                const int result = i.regions[b].results[r];
                if (b == 1 && tile(result).base != bases[r]) return need_addresses(i);
                bases[r] = tile(result).base;
                copy_into(slots[r], result);
            }
            return {};
        }));
    }
    emit(if_then(condition, branches[0], branches[1]));
    for (size_t r = 0; r < slots.size(); ++r) {
        define_buffer(i.outputs[r], slots[r]);
        tile(i.outputs[r]).base = bases[r];
    }
    return {};
}

int TileLowering::step_of_carried(const tile::Region& region, size_t which) const {
    const int argument = region.arguments[which + 1], result = region.results[which];
    for (const Instruction& j : region.instructions) {
        if (j.outputs.empty() || j.outputs[0] != result) continue;
        const bool adds = j.kind == Kind::Offset || (j.kind == Kind::Map && j.body.is(ExprKind::Add) &&
                                                     is_int(type(result).dtype) && j.inputs.size() == 2);
        if (!adds) return -1;
        const int step = j.inputs[0] == argument ? j.inputs[1] : j.inputs[1] == argument ? j.inputs[0] : -1;
        if (step < 0 || region_of_[static_cast<size_t>(step)] < 0) return -1;  // given inside
        return step;
    }
    return -1;
}

Status TileLowering::lower_for(const Instruction& i) {
    const tile::Region& region = i.regions[0];
    const Expr begin = widened(element(i.inputs[0], {})), end = widened(element(i.inputs[1], {}));
    const Expr step = widened(element(i.inputs[2], {}));
    const bool down = step.as_int().value_or(1) < 0;
    const Expr distance = down ? begin - end : end - begin;
    Expr count = max(Expr(0), ceil_div(distance, down ? -step : step));
    if (bounded_) count = unknown(min(count, Expr(tile::kMostTrips)));
    compute_waiting();
    const Expr loop = index_var(fmt::format("i{}", names_++), count.as_int());
    const int known = bounded_ ? local(DType::i64, {}) : -1;  // holds the variable
    const Expr iteration = bounded_ ? at_buffer(known, {}) : loop;
    const int variable_value = region.arguments[0];
    tile(variable_value) = {.type = type(variable_value),
                            .at = [value = cast(begin + iteration * step, type(variable_value).dtype)](
                                      const TileIndices&) { return value; }};
    std::vector<int> slots(i.outputs.size(), -1);
    for (size_t c = 0; c < i.outputs.size(); ++c) {
        const int initial = i.inputs[c + 3], argument = region.arguments[c + 1];
        if (const int grows = step_of_carried(region, c); grows >= 0 && !is_costly(initial)) {
            const auto after = [this, initial, grows](const Expr& times) {
                return [this, initial, grows, times](const TileIndices& at) {
                    const Expr moved = widened(element(initial, at)) + times * widened(element(grows, at));
                    return type(initial).pointer ? moved : cast(moved, type(initial).dtype);
                };
            };
            LoweredTile inside{.type = type(argument), .at = after(iteration), .base = tile(initial).base};
            LoweredTile outside{.type = type(argument), .at = after(count), .base = tile(initial).base};
            sources_[static_cast<size_t>(argument)] = {initial, grows};
            sources_[static_cast<size_t>(i.outputs[c])] = {initial, grows};
            tile(argument) = std::move(inside);
            tile(i.outputs[c]) = std::move(outside);
            continue;
        }
        slots[c] = local(type(argument).pointer ? DType::i64 : type(argument).dtype, type(argument).shape);
        copy_into(slots[c], initial);
        define_buffer(argument, slots[c]);
        tile(argument).base = tile(initial).base;
    }
    const std::vector<int> arguments(region.arguments.begin() + 1, region.arguments.end());
    Stmt body = TRY(lower_region(
        region, [&] { return store_carried(arguments, region.results, slots); },
        [&] {
            if (bounded_) statements_.push_back(store(known, {}, loop));
        }));
    emit(for_loop({.var = loop, .extent = count, .body = std::move(body)}));
    for (size_t c = 0; c < slots.size(); ++c) {
        if (slots[c] < 0) continue;
        define_buffer(i.outputs[c], slots[c]);
        tile(i.outputs[c]).base = tile(region.arguments[c + 1]).base;
    }
    return {};
}

Status TileLowering::lower_while(const Instruction& i) {
    const tile::Region &head = i.regions[0], &body = i.regions[1];
    compute_waiting();
    std::vector<int> slots;
    for (size_t c = 0; c < i.outputs.size(); ++c) {
        const int initial = i.inputs[c], argument = head.arguments[c];
        slots.push_back(local(type(argument).pointer ? DType::i64 : type(argument).dtype, type(argument).shape));
        copy_into(slots[c], initial);
        define_buffer(argument, slots[c]);
        tile(argument).base = tile(initial).base;
    }
    Stmt all = TRY(lower_region(head, [&]() -> Status {
        const Expr over = logical_not(element(head.results[0], {}));
        statements_.push_back(make_stmt(Call{.name = std::string(kLeave), .writes = {}, .reads = {}, .args = {over}}));
        statements_.push_back(
            TRY(lower_region(body, [&] { return store_carried(head.arguments, body.results, slots); })));
        return {};
    }));
    const int64_t most = bounded_ ? tile::kMostTrips : kAllElements;
    const Expr iteration = index_var(fmt::format("i{}", names_++), most);
    emit(for_loop({.var = iteration, .extent = most, .body = std::move(all)}));
    for (size_t c = 0; c < slots.size(); ++c) {
        define_buffer(i.outputs[c], slots[c]);
        tile(i.outputs[c]).base = tile(head.arguments[c]).base;
    }
    return {};
}

Status TileLowering::store_carried(const std::vector<int>& arguments, const std::vector<int>& results,
                                   const std::vector<int>& slots) {
    const auto in_place = [&](size_t c) { return slots[c] < 0 || tile(results[c]).buffer == slots[c]; };
    // A result that reads what another is about to write is computed aside.
    std::vector<std::pair<int, int>> copies;
    for (size_t c = 0; c < slots.size(); ++c) {
        if (in_place(c)) continue;
        if (tile(results[c]).base != tile(arguments[c]).base)
            return need_addresses({.kind = Kind::For, .place = place_});
        bool aside = false;
        for (size_t k = 0; k < slots.size(); ++k)
            aside |= slots[k] >= 0 && k != c &&
                     (reads_of(results[c]).count(slots[k]) || (!in_place(k) && reads_of(results[k]).count(slots[c])));
        TileIndices probe;
        for (int64_t size : type(results[c]).shape) probe.push_back(variable(size));
        aside |= tile(results[c]).buffer < 0 && !reads_only_at(results[c], slots[c], probe, probe);
        if (!aside) {
            copies.emplace_back(slots[c], results[c]);
            continue;
        }
        const tile::Type& of = type(results[c]);
        const int beside = local(of.pointer ? DType::i64 : of.dtype, of.shape);
        copy_into(beside, results[c]);
        copies.emplace_back(slots[c], -1 - beside);
    }
    for (const auto& [slot, from] : copies) {
        if (from >= 0) {
            copy_into(slot, from);
            continue;
        }
        const int beside = -1 - from;
        std::vector<int64_t> shape;
        for (const Expr& size : kernel_.buffers[static_cast<size_t>(slot)].shape) shape.push_back(*size.as_int());
        emit(over(shape, [&](const TileIndices& at) { return store(slot, at, at_buffer(beside, at)); }));
    }
    return {};
}

}  // namespace tessera::from_tile_detail
