#include "kernel/from_tile/tiles.h"

#include <algorithm>

namespace tessera::from_tile_detail {
namespace {

bool is_known_positive(const Expr& e) { return bounds(e).low.value_or(-1) >= 0; }

void count_in(const tile::Region& region, TileUses& uses, std::map<int, int>& depths, int depth) {
    for (int a : region.arguments) depths[a] = depth;
    const auto use = [&](int value, const tile::Instruction* user) {
        const auto v = static_cast<size_t>(value);
        ++uses.count[v];
        uses.last[v] = user;
        auto given = depths.find(value);
        if (given == depths.end() || given->second < depth) uses.inside[v] = true;
    };
    for (const tile::Instruction& i : region.instructions) {
        for (int input : i.inputs) use(input, &i);
        const size_t mask = i.kind == tile::Kind::Load ? 1 : i.kind == tile::Kind::Store ? 2 : i.inputs.size();
        if (mask < i.inputs.size()) uses.masks[static_cast<size_t>(i.inputs[mask])] = true;
        for (const tile::Region& inner : i.regions) count_in(inner, uses, depths, depth + 1);
        for (int output : i.outputs) depths[output] = depth;
    }
    for (int result : region.results) use(result, nullptr);
}

void add_in_dots_of(tile::Region& region, const TileUses& uses, const std::vector<tile::Type>& types) {
    using tile::Kind;
    std::map<int, size_t> dots;  // by output: where
    std::vector<tile::Instruction>& list = region.instructions;
    for (size_t n = 0; n < list.size(); ++n) {
        for (tile::Region& inner : list[n].regions) add_in_dots_of(inner, uses, types);
        if (list[n].kind == Kind::Dot && list[n].inputs.size() == 2) dots.emplace(list[n].outputs[0], n);
        if (list[n].kind != Kind::Map || !list[n].body.is(ExprKind::Add) || list[n].inputs.size() != 2) continue;
        for (size_t side = 0; side < 2; ++side) {
            const int product = list[n].inputs[side], other = list[n].inputs[1 - side];
            auto dot = dots.find(product);
            if (dot == dots.end() || uses.count[static_cast<size_t>(product)] != 1) continue;
            if (types[static_cast<size_t>(product)] != types[static_cast<size_t>(list[n].outputs[0])]) continue;
            tile::Instruction& moved = list[dot->second];
            list[n] = {.kind = Kind::Dot,
                       .inputs = {moved.inputs[0], moved.inputs[1], other},
                       .outputs = list[n].outputs,
                       .place = moved.place};
            moved.kind = Kind::Constant;  // of nothing: it has no outputs
            moved.inputs.clear();
            moved.outputs.clear();
            break;
        }
    }
}

void divide_once_in(tile::Region& region, std::vector<tile::Type>& types) {
    using tile::Kind;
    std::map<int, int> broadcasts;  // by output: what of
    std::vector<tile::Instruction> made;
    const auto add = [&](tile::Instruction i, tile::Type type) {
        types.push_back(std::move(type));
        i.outputs = {static_cast<int>(types.size()) - 1};
        made.push_back(std::move(i));
        return static_cast<int>(types.size()) - 1;
    };
    for (tile::Instruction& i : region.instructions) {
        for (tile::Region& inner : i.regions) divide_once_in(inner, types);
        if (i.kind == Kind::Broadcast) broadcasts.emplace(i.outputs[0], i.inputs[0]);
        const bool divides = i.kind == Kind::Map && i.body.is(ExprKind::Div) && i.word.empty() &&
                             i.inputs.size() == 2 && i.body.dtype() == DType::f32;
        auto whole = divides ? broadcasts.find(i.inputs[1]) : broadcasts.end();
        if (whole != broadcasts.end()) {
            const tile::Type few = types[static_cast<size_t>(whole->second)];
            const tile::Type all = types[static_cast<size_t>(i.outputs[0])];
            const Expr x = load(0, DType::f32, {}), y = load(1, DType::f32, {});
            const int inverse =
                add({.kind = Kind::Map, .inputs = {whole->second}, .body = constant(1, DType::f32) / x}, few);
            i.inputs[1] = add({.kind = Kind::Broadcast, .inputs = {inverse}}, all);
            i.body = x * y;
        }
        made.push_back(std::move(i));
    }
    region.instructions = std::move(made);
}

}  // namespace

void by_powers_of_two(tile::ProgramData& program) {
    constexpr double kLog2OfE = 1.44269504088896341;
    std::function<void(tile::Region&)> walk = [&](tile::Region& region) {
        for (tile::Instruction& i : region.instructions) {
            for (tile::Region& inner : i.regions) walk(inner);
            if (i.kind != tile::Kind::Map) continue;
            i.body = rewrite(i.body, [&](const Expr& x) {
                if (!x.is(ExprKind::Call) || x.node().fn != Fn::Exp || x.dtype() != DType::f32) return x;
                return pow(constant(2, DType::f32), x.arg(0) * constant(kLog2OfE, DType::f32));
            });
        }
    };
    walk(program.body);
}

void divide_once(tile::ProgramData& program) { divide_once_in(program.body, program.types); }

Expr widened(const Expr& e) {
    if (e.dtype() == DType::i64) {
        if (e.is(ExprKind::Cast) && is_int(e.arg(0).dtype()) && e.arg(0).dtype() != DType::u64)
            return widened(e.arg(0));
        return e;
    }
    constexpr int kWrapAround = 16;  // bits of numbers that may
    if (!is_int(e.dtype()) || dtype_bits(e.dtype()) <= kWrapAround) return cast(e, DType::i64);
    const auto all = [&] {
        std::vector<Expr> args;
        for (const Expr& a : e.args()) args.push_back(widened(a));
        return args;
    };
    switch (e.kind()) {
        case ExprKind::Const: return e.node().integer;
        case ExprKind::Cast: return is_int(e.arg(0).dtype()) ? widened(e.arg(0)) : cast(e, DType::i64);
        case ExprKind::Add: return widened(e.arg(0)) + widened(e.arg(1));
        case ExprKind::Sub: return widened(e.arg(0)) - widened(e.arg(1));
        case ExprKind::Mul: return widened(e.arg(0)) * widened(e.arg(1));
        case ExprKind::Neg: return -widened(e.arg(0));
        case ExprKind::Min: return min(widened(e.arg(0)), widened(e.arg(1)));
        case ExprKind::Max: return max(widened(e.arg(0)), widened(e.arg(1)));
        case ExprKind::Select: return select(widened_condition(e.arg(0)), widened(e.arg(1)), widened(e.arg(2)));
        case ExprKind::Div: {
            const std::vector<Expr> args = all();
            const bool positive = is_known_positive(args[0]) && is_known_positive(args[1]);
            return positive ? floor_div(args[0], args[1]) : args[0] / args[1];
        }
        case ExprKind::Rem: {
            const std::vector<Expr> args = all();
            const bool positive = is_known_positive(args[0]) && is_known_positive(args[1]);
            return positive ? mod(args[0], args[1]) : rem(args[0], args[1]);
        }
        default: break;
    }
    return cast(e, DType::i64);
}

Expr widened_condition(const Expr& e) {
    const auto of_ints = [&] { return is_int(e.arg(0).dtype()) && e.arg(0).dtype() != DType::u64; };
    switch (e.kind()) {
        case ExprKind::And: return logical_and(widened_condition(e.arg(0)), widened_condition(e.arg(1)));
        case ExprKind::Or: return logical_or(widened_condition(e.arg(0)), widened_condition(e.arg(1)));
        case ExprKind::Not: return logical_not(widened_condition(e.arg(0)));
        case ExprKind::Lt: return of_ints() ? lt(widened(e.arg(0)), widened(e.arg(1))) : e;
        case ExprKind::Le: return of_ints() ? le(widened(e.arg(0)), widened(e.arg(1))) : e;
        case ExprKind::Eq: return of_ints() ? eq(widened(e.arg(0)), widened(e.arg(1))) : e;
        case ExprKind::Ne: return of_ints() ? ne(widened(e.arg(0)), widened(e.arg(1))) : e;
        default: return e;
    }
}

bool same_indices(const TileIndices& a, const TileIndices& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Expr& x, const Expr& y) { return x.same(y); });
}

Expr flat_index(const TileIndices& indices, const std::vector<int64_t>& shape) {
    Expr flat = 0;
    for (size_t i = 0; i < shape.size(); ++i) flat = flat * Expr(shape[i]) + indices[i];
    return flat;
}

TileIndices indices_of(const Expr& flat, const std::vector<int64_t>& shape) {
    TileIndices indices(shape.size());
    int64_t after = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        const Expr above = floor_div(flat, Expr(after));
        indices[i] = i == 0 ? above : mod(above, Expr(shape[i]));
        after *= shape[i];
    }
    return indices;
}

void each_instruction(const tile::Region& region, const std::function<void(const tile::Instruction&)>& f) {
    for (const tile::Instruction& i : region.instructions) {
        f(i);
        for (const tile::Region& inner : i.regions) each_instruction(inner, f);
    }
}

TileUses count_uses(const tile::ProgramData& program) {
    TileUses uses{.count = std::vector<int>(program.types.size()),
                  .last = std::vector<const tile::Instruction*>(program.types.size()),
                  .inside = std::vector<bool>(program.types.size()),
                  .masks = std::vector<bool>(program.types.size())};
    std::map<int, int> depths;
    for (const tile::Parameter& p : program.parameters) depths[p.value] = 0;
    count_in(program.body, uses, depths, 0);
    return uses;
}

void add_in_dots(tile::ProgramData& program) {
    const TileUses uses = count_uses(program);
    add_in_dots_of(program.body, uses, program.types);
}

}  // namespace tessera::from_tile_detail
