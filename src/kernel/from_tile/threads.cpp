// Tiles spread over the threads of a block: loops over their elements, and reductions.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "kernel/from_tile/lowering.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/intrinsic.h"
#include "kernel/ir/narrow_floats.h"

namespace tessera::from_tile_detail {

using tile::Instruction;
using tile::Kind;

namespace {

constexpr int64_t kVectorBytes = 16, kMostLanes = 8, kUsualLanes = 4;
constexpr int64_t kMostHeld = 64;  // elements of a tile that a thread computes before it reduces them

constexpr const char *kNumberMax = "max of numbers", *kNumberMin = "min of numbers";

// The other where one is NaN.
Expr number_extreme(bool largest, const Expr& a, const Expr& b) {
    const Expr other = largest ? lt(a, b) : lt(b, a);
    return select(logical_or(other, call(Fn::IsNan, {a})), b, a);
}

bool are_powers_of_two(const std::vector<int64_t>& shape) {
    return std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n > 0 && (n & (n - 1)) == 0; });
}

size_t innermost_of(const std::vector<int64_t>& shape) {
    size_t innermost = shape.size() - 1;
    while (innermost > 0 && shape[innermost] == 1) --innermost;
    return innermost;
}

// How far neighbours along each dimension of an integer or pointer are apart, where that is known.
struct Steps {
    const tile::ProgramData& program;
    struct Known {
        std::vector<std::optional<int64_t>> steps;
        std::optional<int64_t> value;  // of all elements
    };
    std::map<int, Known> known = {};

    const tile::Type& type(int value) const { return program.types[static_cast<size_t>(value)]; }
    Known of(int value) const {
        auto found = known.find(value);
        if (found != known.end()) return found->second;
        const auto& shape = type(value).shape;
        return {
            std::vector<std::optional<int64_t>>(shape.size(), shape.empty() ? std::optional<int64_t>(0) : std::nullopt),
            {}};
    }
    static Known of_rank(size_t rank) { return {std::vector<std::optional<int64_t>>(rank), {}}; }
    bool is_one(const Known& k) const {
        return std::all_of(k.steps.begin(), k.steps.end(), [](const auto& s) { return s == 0; });
    }
    std::optional<size_t> neighbours(int value) const {
        const Known k = of(value);
        for (size_t d = k.steps.size(); d-- > 0;)
            if (k.steps[d] == 1 && type(value).shape[d] > 1) return d;
        return {};
    }
    Known sum(const Known& a, const Known& b, int64_t sign) const {
        Known made = a;
        if (a.steps.size() != b.steps.size()) return of_rank(std::max(a.steps.size(), b.steps.size()));
        for (size_t d = 0; d < made.steps.size(); ++d)
            made.steps[d] = a.steps[d] && b.steps[d] ? std::optional(*a.steps[d] + sign * *b.steps[d]) : std::nullopt;
        made.value = a.value && b.value ? std::optional(*a.value + sign * *b.value) : std::nullopt;
        return made;
    }
    Known product(const Known& a, const Known& b) const {
        const Known &many = is_one(b) ? a : b, &one = is_one(b) ? b : a;
        Known made = many;
        for (auto& s : made.steps)
            s = s == 0 ? s : s && one.value && is_one(one) ? std::optional(*s * *one.value) : std::nullopt;
        made.value = a.value && b.value ? std::optional(*a.value * *b.value) : std::nullopt;
        return made;
    }
    void walk(const tile::Region& region) {
        for (const Instruction& i : region.instructions) {
            if (i.kind == Kind::For)
                for (size_t c = 0; c + 3 < i.inputs.size(); ++c)
                    known.emplace(i.regions[0].arguments[c + 1], of(i.inputs[c + 3]));
            for (const tile::Region& inner : i.regions) walk(inner);
            if (i.outputs.size() == 1) look(i, i.outputs[0]);
        }
    }
    void look(const Instruction& i, int out) {
        const size_t rank = type(out).shape.size();
        switch (i.kind) {
            case Kind::Constant:
                if (is_int(i.body.dtype()))
                    known[out] = {std::vector<std::optional<int64_t>>(rank, 0), i.body.node().integer};
                break;
            case Kind::Arange: known[out] = {{1}, {}}; break;
            case Kind::Offset: known[out] = sum(of(i.inputs[0]), of(i.inputs[1]), 1); break;
            case Kind::PlaceOf: known[out] = of(i.inputs[0]); break;
            case Kind::Broadcast: {
                Known made = of(i.inputs[0]);
                const std::vector<int64_t>& from = type(i.inputs[0]).shape;
                made.steps.resize(rank, 0);
                for (size_t d = 0; d < from.size(); ++d)
                    if (from[d] == 1) made.steps[d] = 0;
                known[out] = made;
                break;
            }
            case Kind::Reshape: {
                const Known in = of(i.inputs[0]);
                const auto &from = type(i.inputs[0]).shape, &to = type(out).shape;
                std::vector<int64_t> left, right;
                for (int64_t n : from)
                    if (n > 1) left.push_back(n);
                for (int64_t n : to)
                    if (n > 1) right.push_back(n);
                if (left != right && !left.empty()) break;
                Known made{std::vector<std::optional<int64_t>>(rank, 0), in.value};
                if (left == right)
                    for (size_t d = 0, at = 0; d < rank; ++d) {
                        if (to[d] == 1) continue;
                        while (from[at] == 1) ++at;
                        made.steps[d] = in.steps[at++];
                    }
                known[out] = made;
                break;
            }
            case Kind::Map: look_at_map(i, out); break;
            default: break;
        }
    }
    void look_at_map(const Instruction& i, int out) {
        if (!is_int(type(out).dtype)) return;
        if (i.body.is(ExprKind::Cast) && i.inputs.size() == 1 && is_int(type(i.inputs[0]).dtype))
            known[out] = of(i.inputs[0]);
        if (i.inputs.size() != 2) return;
        const Known a = of(i.inputs[0]), b = of(i.inputs[1]);
        if (a.steps.size() != b.steps.size()) return;
        if (i.body.is(ExprKind::Add)) known[out] = sum(a, b, 1);
        if (i.body.is(ExprKind::Sub)) known[out] = sum(a, b, -1);
        if (i.body.is(ExprKind::Mul)) known[out] = product(a, b);
        // Mostly within one turn.
        if (i.body.is(ExprKind::Rem) && is_one(b)) known[out] = {a.steps, {}};
    }
};

}  // namespace

// Who gives each value, and along which dimension what is loaded and stored lies together.
Status TileLowering::look_at_memory() {
    made_by_.clear();
    fastest_.clear();
    stored_along_.clear();
    Steps steps{program_};
    steps.walk(program_.body);
    Status status;
    each_instruction(program_.body, [&](const Instruction& i) {
        for (int out : i.outputs) {
            if (!are_powers_of_two(type(out).shape)) status = cannot(i, "a size that is no power of two, on a GPU");
            made_by_[out] = &i;
        }
        if (i.kind != Kind::Load && i.kind != Kind::Store) return;
        const auto along = steps.neighbours(i.inputs[0]);
        if (along && i.kind == Kind::Load) fastest_.emplace(i.outputs[0], *along);
        if (along && i.kind == Kind::Store) stored_along_.emplace(&i, *along);
    });
    return status;
}

Status TileLowering::choose_layouts() {
    std::map<std::vector<int64_t>, int64_t> lanes;
    std::set<std::vector<int64_t>> rows, cut;
    std::map<std::vector<int64_t>, Matrices> products;
    std::map<std::vector<int64_t>, size_t> fastest;
    TRY(look_at_memory());
    each_instruction(program_.body, [&](const Instruction& i) {
        if (i.kind == Kind::Load || i.kind == Kind::Store) {
            const tile::Type& of = type(i.inputs[0]);
            const auto bytes = static_cast<int64_t>(dtype_bytes(stored_as(of.dtype)));
            int64_t& most = lanes.try_emplace(of.shape, 1).first->second;
            most = std::max(most, std::clamp<int64_t>(kVectorBytes / bytes, 1, kMostLanes));
            // Loads count more than stores, the first more than others.
            auto along = i.kind == Kind::Load ? fastest_.find(i.outputs[0]) : fastest_.end();
            if (along != fastest_.end()) fastest.try_emplace(of.shape, along->second);
        }
        if (i.kind == Kind::Reduce && i.numbers[0] == 1) rows.insert(type(i.inputs[0]).shape);
        if (i.kind == Kind::Reduce || i.kind == Kind::Scan) cut.insert(type(i.inputs[0]).shape);
    });
    // All products of one shape are of the same instructions, and one may need another's.
    for (bool changed = true; changed;) {
        changed = false;
        products.clear();
        each_instruction(program_.body, [&](const Instruction& i) {
            if (i.kind != Kind::Dot || !multiplies_matrices(i)) return;
            const Matrices by = matrices_of(i);
            const auto& shape = type(i.outputs[0]).shape;
            Matrices& of_all = products.try_emplace(shape, by).first->second;
            of_all = std::min(of_all, by);
            if (of_all != Matrices::OfFour) changed |= of_warps_.insert(shape).second;
        });
    }
    Status status;
    each_instruction(program_.body, [&](const Instruction& i) {
        if (i.kind != Kind::Dot || !of_bytes_.contains(i.outputs[0]) || matrices_of(i) == Matrices::OfFour) return;
        needs_other_products_ = true;
        status = cannot(i, "its bytes do not lie as instructions of four warps take them");
    });
    TRY(std::move(status));
    for (const tile::Type& each : program_.types) {
        if (each.shape.empty() || layouts_.contains(each.shape) || !are_powers_of_two(each.shape)) continue;
        std::optional<TileLayout> made;
        if (auto by = products.find(each.shape); by != products.end())
            made = by->second == Matrices::OfFour ? wide_layout(each.shape, warps_)
                                                  : product_layout(each.shape, warps_, rows.contains(each.shape));
        const auto found = lanes.find(each.shape);
        if (!made)
            made = spread_tile(each.shape, warps_, found == lanes.end() ? kUsualLanes : found->second,
                               fastest.contains(each.shape) ? fastest[each.shape] : innermost_of(each.shape));
        layouts_.emplace(each.shape, *made);
    }
    // What products are reduced to, row by row, stays with the threads that have the rows.
    std::map<int64_t, std::optional<TileLayout>> with_rows;
    for (const auto& shape : rows) {
        const TileLayout& of = layouts_.at(shape);
        if (!of.of_products || of.across > 1) continue;
        auto [known, added] = with_rows.try_emplace(shape[0], of);
        if (!added && known->second && (known->second->down != of.down || known->second->wide != of.wide))
            known->second.reset();
    }
    for (const auto& [size, product] : with_rows)
        for (const bool with_column : {false, true}) {
            if (!product) continue;
            const TileLayout made = row_layout(*product, with_column);
            if (!cut.contains(made.shape)) layouts_.insert_or_assign(made.shape, made);
        }
    return {};
}

const TileLayout& TileLowering::layout_of(const std::vector<int64_t>& shape) {
    auto found = layouts_.find(shape);
    if (found == layouts_.end())
        found = layouts_.emplace(shape, spread_tile(shape, warps_, kUsualLanes, innermost_of(shape))).first;
    return found->second;
}

std::optional<TileLayout> TileLowering::layout_of_load(int value) {
    auto fastest = fastest_.find(value);
    const Instruction* user = fastest == fastest_.end() ? nullptr : uses_.last[static_cast<size_t>(value)];
    if (!user || uses_.count[static_cast<size_t>(value)] != 1) return {};
    if (user->kind != Kind::Dot && user->kind != Kind::Permute) return {};
    const tile::Type& of = type(value);
    const TileLayout& usual = layout_of(of.shape);
    const auto bytes = static_cast<int64_t>(dtype_bytes(stored_as(of.dtype)));
    const int64_t most = kVectorBytes / bytes;
    const bool enough = most <= kMostLanes || !is_operand_of_bytes(value);
    if (enough && !usual.of_products && usual.order[0] == fastest->second) return {};
    return spread_tile(of.shape, warps_, enough ? std::clamp<int64_t>(most, 1, kMostLanes) : most, fastest->second);
}

// Threads that have sums have two elements of a row each: too few to store at a time. Such a tile goes through shared
// memory to threads that have more.
std::optional<TileLayout> TileLowering::layout_of_store(const Instruction& i) {
    const tile::Type& of = type(i.inputs[1]);
    const auto bytes = static_cast<int64_t>(dtype_bytes(stored_as(of.dtype)));
    auto along = stored_along_.find(&i);
    if (!warps_ || bytes != 2 || along == stored_along_.end() || !layout_of(of.shape).of_products) return {};
    return spread_tile(of.shape, warps_, kVectorBytes / bytes, along->second);
}

TilePlace TileLowering::new_place(const std::vector<int64_t>& shape) {
    TilePlace place = place_in(layout_of(shape), names_);
    places_.emplace(place.warp.node().name, place);
    return place;
}

Stmt TileLowering::over_threads(const std::vector<int64_t>& shape, const std::function<Stmt(const TileIndices&)>& body,
                                bool vector) {
    if (shape.empty()) return body({});
    const TilePlace place = new_place(shape);
    ++in_threads_;
    Stmt one = body(place.at);
    --in_threads_;
    return in_threads(place, elements_of(place, std::move(one), vector));
}

int TileLowering::of_each_thread(DType dtype, int64_t elements) {
    const int slot = local(dtype, {warps_, kGroupsOfWarp, kPairsOfGroup, elements});
    kernel_.buffers[static_cast<size_t>(slot)].name = fmt::format("own{}", slot);
    return slot;
}

// Writes to `to` what a function makes of two.
Result<Stmt> TileLowering::combined(const Instruction& i, const std::vector<Access>& to, const std::vector<Expr>& a,
                                    const std::vector<Expr>& b) {
    const size_t n = to.size();
    if (i.regions.empty()) {
        const bool is_bool = a[0].dtype() == DType::boolean;
        if (i.word == kNumberMax || i.word == kNumberMin)
            return store(to[0].buffer, to[0].indices, number_extreme(i.word == kNumberMax, a[0], b[0]));
        Expr made = i.word == "sum"   ? (is_bool ? ne(a[0], b[0]) : a[0] + b[0])
                    : i.word == "min" ? min(a[0], b[0])
                    : i.word == "max" ? max(a[0], b[0])
                    : is_bool         ? ne(a[0], b[0])
                                      : bit(ExprKind::BitXor, a[0], b[0]);
        return store(to[0].buffer, to[0].indices, made);
    }
    const tile::Region& region = i.regions[0];
    ++in_threads_;
    for (size_t r = 0; r < n; ++r) {
        tile(region.arguments[r]) = {.type = type(region.arguments[r]),
                                     .at = [value = a[r]](const TileIndices&) { return value; }};
        tile(region.arguments[r + n]) = {.type = type(region.arguments[r + n]),
                                         .at = [value = b[r]](const TileIndices&) { return value; }};
        memo_[static_cast<size_t>(region.arguments[r])].reset();
        memo_[static_cast<size_t>(region.arguments[r + n])].reset();
    }
    Result<Stmt> made = lower_region(region, [&]() -> Status {
        std::vector<int> next;
        for (size_t r = 0; r < n; ++r) next.push_back(local(type(i.outputs[r]).dtype, {}));
        for (size_t r = 0; r < n; ++r) statements_.push_back(store(next[r], {}, element(region.results[r], {})));
        for (size_t r = 0; r < n; ++r)
            statements_.push_back(store(to[r].buffer, to[r].indices, at_buffer(next[r], {})));
        return {};
    });
    --in_threads_;
    return made;
}

// The largest or least of what is computed from x by passing over NaN: of x itself, by instructions that do that.
std::optional<Instruction> TileLowering::passing_over_nan(const Instruction& i) const {
    const bool largest = i.word == "max";
    if ((!largest && i.word != "min") || !i.regions.empty() || tiles_[static_cast<size_t>(i.inputs[0])].buffer >= 0)
        return {};
    const auto map_of = [&](int value) -> const Instruction* {
        auto made = made_by_.find(value);
        return made != made_by_.end() && made->second->kind == Kind::Map ? made->second : nullptr;
    };
    const Instruction* chosen = map_of(i.inputs[0]);
    if (!chosen || !chosen->body.is(ExprKind::Select) || chosen->inputs.size() != 3) return {};
    const Instruction* condition = map_of(chosen->inputs[0]);
    const int x = chosen->inputs[2];
    if (!condition || !condition->body.is(ExprKind::Ne) || condition->inputs != std::vector<int>{x, x}) return {};
    Instruction made = i;
    made.inputs = {x};
    made.word = largest ? kNumberMax : kNumberMin;
    return made;
}

// Each thread reduces what it has, then the lanes of a warp exchange what they got, then warps meet in shared memory.
Status TileLowering::reduce_in_threads(const Instruction& given) {
    const std::optional<Instruction> numbers = passing_over_nan(given);
    const Instruction& i = numbers ? *numbers : given;
    const std::vector<int64_t> shape = type(i.inputs[0]).shape;
    const auto axis = static_cast<size_t>(i.numbers[0]);
    const size_t n = i.inputs.size();
    const TileLayout layout = layout_of(shape);
    for (int input : i.inputs)
        if (is_costly(input) && layout.per_thread() <= kMostHeld) materialise(input);
    TilePlace place = new_place(shape);
    std::vector<TilePlace::Loop> along, outer;
    for (const TilePlace::Loop& loop : place.loops) (loop.axis == axis ? along : outer).push_back(loop);
    int64_t held = 1, results = 1;
    Expr number = 0;  // of a result among the thread's
    for (const auto& loop : along) held *= loop.extent;
    for (const auto& loop : outer) {
        results *= loop.extent;
        number = number * Expr(loop.extent) + loop.var;
    }
    std::vector<int> part, other;
    for (size_t r = 0; r < n; ++r) part.push_back(of_each_thread(type(i.outputs[r]).dtype, results));
    const auto kind = [&](int64_t extent) { return extent <= kMostUnrolled ? LoopKind::Unrolled : LoopKind::Serial; };
    const auto around = [&](Stmt body) {
        for (size_t l = outer.size(); l-- > 0;)
            body = for_loop({.var = outer[l].var, .extent = outer[l].extent, .kind = kind(results), .body = body});
        return body;
    };
    const auto to_part = [&](const TilePlace& at, const Expr& e) {
        std::vector<Access> all;
        for (int slot : part) all.push_back({slot, at.of_thread(e)});
        return all;
    };
    const auto of_part = [&](const std::vector<int>& slots, const TilePlace& at, const Expr& e) {
        std::vector<Expr> all;
        for (int slot : slots) all.push_back(at_buffer(slot, at.of_thread(e)));
        return all;
    };
    {  // What a thread has.
        const auto at = [&](const Expr& which) {
            Bindings digits;
            int64_t unit = held;
            for (const auto& loop : along) {
                unit /= loop.extent;
                digits.emplace(loop.var.node().name, mod(floor_div(which, unit), loop.extent));
            }
            TileIndices made;
            for (const Expr& index : place.at) made.push_back(substitute(index, digits));
            place.also.emplace_back(made, substitute(place.own, digits));
            return made;
        };
        std::vector<Stmt> list;
        const auto first = at(0);
        for (size_t r = 0; r < n; ++r)
            list.push_back(store(part[r], place.of_thread(number), element(i.inputs[r], first)));
        if (held > 1) {
            const bool few = held * results <= kMostUnrolled;
            const auto step = [&](const Expr& which) -> Result<Stmt> {
                std::vector<Expr> next;
                for (int input : i.inputs) next.push_back(element(input, at(which)));
                return combined(i, to_part(place, number), of_part(part, place, number), next);
            };
            if (few) {
                for (int64_t k = 1; k < held; ++k) list.push_back(TRY(step(k)));
            } else {
                const Expr k = variable(held - 1);
                list.push_back(for_loop({.var = k, .extent = held - 1, .body = TRY(step(k + Expr(1)))}));
            }
        }
        emit(in_threads(place, around(seq(std::move(list)))));
        places_.insert_or_assign(place.warp.node().name, place);
    }
    const std::vector<int> bits = layout.bits_of(axis);
    std::vector<int> in_warp, in_block;
    for (int b : bits) (b < 5 ? in_warp : in_block).push_back(b);
    for (int b : in_warp) {
        if (other.empty())
            for (size_t r = 0; r < n; ++r) other.push_back(of_each_thread(type(i.outputs[r]).dtype, results));
        for (size_t r = 0; r < n; ++r)
            emit(make_stmt(Call{.name = kSwapLanes,
                                .writes = {{other[r], {0, 0, 0, 0}}},
                                .reads = {{part[r], {0, 0, 0, 0}}},
                                .args = {Expr(int64_t{1} << b)}}));
        const TilePlace each = threads_alone(warps_, names_);
        const Expr e = variable(results);
        std::vector<Expr> low = of_part(part, each, e), high = of_part(other, each, e);
        if (!i.regions.empty()) {
            // In the order of the tile.
            const Expr digit = b < 2 ? mod(floor_div(each.pair, int64_t{1} << b), 2)
                                     : mod(floor_div(each.group, int64_t{1} << (b - 2)), 2);
            for (size_t r = 0; r < n; ++r) {
                const Expr mine = low[r], theirs = high[r];
                low[r] = select(eq(digit, Expr(0)), mine, theirs);
                high[r] = select(eq(digit, Expr(0)), theirs, mine);
            }
        }
        Stmt body = TRY(combined(i, to_part(each, e), low, high));
        emit(in_threads(each, for_loop({.var = e, .extent = results, .kind = kind(results), .body = body})));
    }
    return meet_in_block(i, place, number, part, in_warp, in_block, around);
}

Status TileLowering::meet_in_block(const Instruction& i, const TilePlace& place, const Expr& number,
                                   const std::vector<int>& part, const std::vector<int>& in_warp,
                                   const std::vector<int>& in_block, const std::function<Stmt(Stmt)>& around) {
    const auto axis = static_cast<size_t>(i.numbers[0]);
    const size_t n = part.size();
    std::vector<int64_t> outer = place.shape;
    outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(axis));
    TileIndices at = place.at;
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
    // One of the lanes that have the same writes it.
    Expr writes = int_const(1, DType::boolean);
    int64_t pairs = 1, groups = 1, first_pair = 0, first_group = 0;
    for (int b : in_warp) {
        if (b < 2)
            pairs *= 2, first_pair = pairs == 2 ? b : first_pair;
        else
            groups *= 2, first_group = groups == 2 ? b - 2 : first_group;
    }
    if (pairs > 1)
        writes = logical_and(writes, eq(mod(floor_div(place.pair, int64_t{1} << first_pair), pairs), Expr(0)));
    if (groups > 1)
        writes = logical_and(writes, eq(mod(floor_div(place.group, int64_t{1} << first_group), groups), Expr(0)));
    const int64_t warps = int64_t{1} << in_block.size();
    std::vector<int> slots;
    for (size_t r = 0; r < n; ++r) slots.push_back(local(type(i.outputs[r]).dtype, outer));
    if (!outer.empty() && axis == 1 && layout_of(outer).of_rows && layout_of(place.shape).of_products) {
        // Each thread has the result of its rows.
        const TilePlace rows = new_place(outer);
        std::vector<Stmt> each;
        for (size_t r = 0; r < n; ++r)
            each.push_back(store(slots[r], rows.at, at_buffer(part[r], rows.of_thread(rows.own))));
        emit(in_threads(rows, elements_of(rows, seq(std::move(each)), false)));
        for (size_t r = 0; r < n; ++r) define_buffer(i.outputs[r], slots[r]);
        return {};
    }
    std::vector<int> meet = slots;
    if (warps > 1) {
        std::vector<int64_t> all = outer;
        all.push_back(warps);
        for (size_t r = 0; r < n; ++r) meet[r] = local(type(i.outputs[r]).dtype, all);
        at.push_back(mod(floor_div(place.warp, int64_t{1} << (in_block[0] - 5)), warps));
    }
    std::vector<Stmt> list;
    for (size_t r = 0; r < n; ++r) list.push_back(store(meet[r], at, at_buffer(part[r], place.of_thread(number))));
    Stmt body = seq(std::move(list));
    if (!writes.is(ExprKind::Const)) body = if_then(writes, body);
    // These loops run over the tile too: they have variables of their own.
    const TilePlace again = place_in(layout_of(place.shape), names_);
    Bindings renamed{{place.warp.node().name, again.warp},
                     {place.group.node().name, again.group},
                     {place.pair.node().name, again.pair}};
    for (size_t l = 0; l < place.loops.size(); ++l) renamed.emplace(place.loops[l].var.node().name, again.loops[l].var);
    emit(in_threads(again, substitute(around(body), renamed)));
    if (warps > 1) {
        Status status;
        emit(over_threads(
            outer,
            [&](const TileIndices& place_of) -> Stmt {
                std::vector<Access> to;
                std::vector<Expr> have, next;
                const Expr k = variable(warps - 1);
                std::vector<Stmt> begin;
                for (size_t r = 0; r < n; ++r) {
                    TileIndices from = place_of;
                    from.emplace_back(0);
                    to.push_back({slots[r], place_of});
                    have.push_back(at_buffer(slots[r], place_of));
                    begin.push_back(store(slots[r], place_of, at_buffer(meet[r], from)));
                    from.back() = k + Expr(1);
                    next.push_back(at_buffer(meet[r], from));
                }
                Result<Stmt> step = combined(i, to, have, next);
                if (!step.ok()) {
                    status = std::move(step).error();
                    return nullptr;
                }
                begin.push_back(
                    for_loop({.var = k, .extent = warps - 1, .kind = LoopKind::Unrolled, .body = std::move(*step)}));
                return seq(std::move(begin));
            },
            false));
        TRY(std::move(status));
    }
    for (size_t r = 0; r < n; ++r) define_buffer(i.outputs[r], slots[r]);
    return {};
}

}  // namespace tessera::from_tile_detail
