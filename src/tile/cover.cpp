#include "tile/cover.h"

#include <algorithm>

#include "tile/verify.h"

namespace tessera::tile {
namespace {

// Whether blocks are as many as it takes: ceil(n / b) * b is n or more.
bool reaches(const Expr& extent, const Expr& end, const std::array<Expr, 3>& grid) {
    return std::any_of(grid.begin(), grid.end(), [&](const Expr& blocks) {
        for (int64_t each = 1; each <= kMostElements; each *= 2)
            if (extent == blocks * Expr(each) && blocks == ceil_div(end, Expr(each))) return true;
        return false;
    });
}

// Digit by digit, from the innermost on: each runner goes as far as the next one's step, or a mask ends what runs
// together.
std::optional<Expr> stores_all(const Expr& place, std::vector<Expr> masks, std::vector<Runner> left, const Given& given,
                               const Expr& elements) {
    Bindings zeros;
    for (const Runner& r : left) zeros.emplace(r.var.node().name, Expr(0));
    if (!substitute(place, zeros).is_int(0)) return {};
    Expr holds = int_const(1, DType::boolean), reached = 1;
    while (!left.empty()) {
        Expr digit = 0, extent = 1;
        for (bool ended = false; !ended && !left.empty();) {
            auto next = std::find_if(left.begin(), left.end(), [&](const Runner& r) {
                const auto step = step_of(place, r.var);
                return step && *step == reached * extent;
            });
            if (next == left.end()) return {};
            digit = digit + next->var * extent;
            extent = extent * next->extent;
            left.erase(next);
            auto mask = std::find_if(masks.begin(), masks.end(), [&](const Expr& m) { return m.arg(0) == digit; });
            ended = mask != masks.end();
            if (!ended) continue;
            const Expr end = mask->arg(1);
            if (!reaches(extent, end, given.grid)) holds = logical_and(holds, le(end, extent));
            extent = end;
            masks.erase(mask);
        }
        reached = reached * extent;
    }
    if (!masks.empty()) return {};
    return reached == elements ? holds : logical_and(holds, le(elements, reached));
}

bool reads_in(const Region& region, const std::vector<int>& arrays, int parameter) {
    return std::any_of(region.instructions.begin(), region.instructions.end(), [&](const Instruction& i) {
        if ((i.kind == Kind::Load || i.kind == Kind::Atomic) && arrays[static_cast<size_t>(i.inputs[0])] == parameter)
            return true;
        return std::any_of(i.regions.begin(), i.regions.end(),
                           [&](const Region& inner) { return reads_in(inner, arrays, parameter); });
    });
}

}  // namespace

bool reads(const ProgramData& program, size_t parameter) {
    const auto arrays = arrays_of_pointers(program);
    return !arrays.ok() || reads_in(program.body, *arrays, static_cast<int>(parameter));
}

std::optional<Expr> covers(const ProgramData& program, size_t parameter, const Given& given, const Expr& elements) {
    const auto arrays = arrays_of_pointers(program);
    if (!arrays.ok() || reads_in(program.body, *arrays, static_cast<int>(parameter))) return {};
    Places places(program, given);
    std::optional<Expr> any;
    for (const Instruction& i : program.body.instructions) {
        places.learn(i);
        if (i.kind != Kind::Store || (*arrays)[static_cast<size_t>(i.inputs[0])] != static_cast<int>(parameter))
            continue;
        const auto place = places.known(i.inputs[0]);
        const auto mask = i.inputs.size() > 2 ? places.known(i.inputs[2]) : int_const(1, DType::boolean);
        const auto masks = mask ? Places::comparisons(*mask) : std::nullopt;
        if (!place || !masks) continue;
        const std::vector<int64_t>& shape = program.types[static_cast<size_t>(i.inputs[0])].shape;
        if (const auto all = stores_all(*place, *masks, places.runners(shape), given, elements))
            any = any ? logical_or(*any, *all) : *all;
    }
    return any;
}

}  // namespace tessera::tile
