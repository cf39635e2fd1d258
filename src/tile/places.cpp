#include "tile/places.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::tile {
namespace {

constexpr std::string_view kLane = "lane ", kInstance = "instance ";

std::string lane_name(size_t dimension) { return fmt::format("{}{}", kLane, dimension); }
Expr lane(size_t dimension, int64_t extent) { return index_var(lane_name(dimension), extent); }

bool only_grows(const Expr& body) {
    bool grows = true;
    visit(body, [&](const Expr& e) {
        switch (e.kind()) {
            case ExprKind::Const: grows &= is_int(e.dtype()) && e.node().integer >= 0; break;
            case ExprKind::Cast: grows &= is_int(e.dtype()) && dtype_bits(e.dtype()) >= 32; break;
            case ExprKind::Add:
            case ExprKind::Mul: grows &= is_int(e.dtype()) && dtype_bits(e.dtype()) >= 32; break;
            case ExprKind::Load: grows &= is_int(e.dtype()); break;
            default: grows = false;
        }
    });
    return grows;
}

// In 64 bits.
Expr exact(const Expr& e, const std::vector<Expr>& in) {
    if (e.is(ExprKind::Const)) return e.node().integer;
    if (e.is(ExprKind::Load)) return in[static_cast<size_t>(e.node().slot)];
    Expr made = exact(e.arg(0), in);
    for (size_t a = 1; a < e.args().size(); ++a) {
        const Expr part = exact(e.arg(a), in);
        made = e.is(ExprKind::Add) ? made + part : made * part;
    }
    return made;
}

std::optional<Expr> mapped(const Expr& body, const std::vector<Expr>& in) {
    if (only_grows(body)) return exact(body, in);
    if (body.is(ExprKind::And)) {
        Expr made = int_const(1, DType::boolean);
        for (const Expr& a : body.args()) {
            if (!a.is(ExprKind::Load)) return {};
            made = logical_and(made, in[static_cast<size_t>(a.node().slot)]);
        }
        return made;
    }
    if (!body.is(ExprKind::Lt) && !body.is(ExprKind::Le)) return {};
    if (!only_grows(body.arg(0)) || !only_grows(body.arg(1))) return {};
    const Expr end = exact(body.arg(1), in);
    return lt(exact(body.arg(0), in), body.is(ExprKind::Lt) ? end : end + 1);
}

bool collect(const Expr& mask, std::vector<Expr>& all) {
    if (mask.is(ExprKind::And))
        return std::all_of(mask.args().begin(), mask.args().end(), [&](const Expr& m) { return collect(m, all); });
    if (mask.is(ExprKind::Const) && mask.node().integer) return true;
    if (!mask.is(ExprKind::Lt)) return false;
    for (const std::string& name : free_symbols(mask.arg(1)))
        if (name.starts_with(kLane) || name.starts_with(kInstance)) return false;
    all.push_back(mask);
    return true;
}

}  // namespace

Places::Places(const ProgramData& program, const Given& given) : program_(program) {
    for (size_t axis = 0; axis < 3; ++axis)
        instances_.push_back({index_var(fmt::format("{}{}", kInstance, axis), {}), given.grid[axis]});
    for (size_t p = 0; p < program.parameters.size(); ++p) {
        const Type& t = type(program.parameters[p].value);
        if (t.pointer)
            known_.emplace(program.parameters[p].value, Expr(0));
        else if (given.numbers[p] && is_int(t.dtype) && dtype_bits(t.dtype) >= 32)
            known_.emplace(program.parameters[p].value, *given.numbers[p]);
    }
}

std::optional<Expr> Places::known(int value) const {
    auto found = known_.find(value);
    return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void Places::learn(const Instruction& i) {
    if (i.outputs.size() != 1 || !i.regions.empty()) return;
    std::vector<Expr> in;
    for (int v : i.inputs) {
        const auto e = known(v);
        if (!e) return;
        in.push_back(*e);
    }
    if (auto made = meaning(i, in)) known_.emplace(i.outputs[0], *made);
}

std::optional<Expr> Places::meaning(const Instruction& i, const std::vector<Expr>& in) const {
    const auto axis = [&] { return static_cast<size_t>(i.numbers[0]); };
    switch (i.kind) {
        case Kind::Constant:
            if (!is_int(i.body.dtype()) || i.body.node().integer < 0) return {};
            return Expr(i.body.node().integer);
        case Kind::Arange:
            if (i.numbers[0] < 0) return {};
            return lane(0, i.numbers[1] - i.numbers[0]) + Expr(i.numbers[0]);
        case Kind::ProgramId: return instances_[axis()].var;
        case Kind::ProgramCount: return instances_[axis()].extent;
        case Kind::Offset: return in[0] + in[1];
        case Kind::PlaceOf: return in[0];
        case Kind::Map: return mapped(i.body, in);
        case Kind::Broadcast:
        case Kind::Reshape:
        case Kind::Permute: return moved(i, in[0]);
        default: return {};
    }
}

std::optional<Expr> Places::moved(const Instruction& i, const Expr& e) const {
    const std::vector<int64_t>&from = type(i.inputs[0]).shape, &to = type(i.outputs[0]).shape;
    Bindings at;
    if (i.kind == Kind::Permute) {
        for (size_t d = 0; d < to.size(); ++d) at.emplace(lane_name(static_cast<size_t>(i.numbers[d])), lane(d, to[d]));
        return substitute(e, at);
    }
    if (i.kind == Kind::Broadcast) {
        for (size_t d = 0; d < from.size(); ++d) at.emplace(lane_name(d), from[d] == 1 ? Expr(0) : lane(d, to[d]));
        return substitute(e, at);
    }
    // Dimensions of one element come and go.
    size_t next = 0;
    for (size_t d = 0; d < from.size(); ++d) {
        if (from[d] == 1) {
            at.emplace(lane_name(d), Expr(0));
            continue;
        }
        while (next < to.size() && to[next] == 1) ++next;
        if (next == to.size() || to[next] != from[d]) return {};
        at.emplace(lane_name(d), lane(next, to[next]));
        ++next;
    }
    return substitute(e, at);
}

std::vector<Runner> Places::runners(const std::vector<int64_t>& shape) const {
    std::vector<Runner> all = instances_;
    for (size_t d = 0; d < shape.size(); ++d) all.push_back({lane(d, shape[d]), shape[d]});
    std::erase_if(all, [](const Runner& r) { return r.extent.is_int(1); });
    return all;
}

std::optional<std::vector<Expr>> Places::comparisons(const Expr& mask) {
    std::vector<Expr> all;
    return collect(mask, all) ? std::optional(std::move(all)) : std::nullopt;
}

}  // namespace tessera::tile
