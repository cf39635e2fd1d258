#include "kernel/schedule/free_offsets.h"

#include <map>
#include <tuple>

namespace tessera {
namespace {

// An index as what moves along axes and a constant, where all of it stays inside a part of the dimension.
struct Offset {
    Expr moves;
    int64_t from;
};
std::optional<Offset> offset_of(const Expr& index, const Expr& size) {
    if (index.node().reads) return std::nullopt;
    if (auto from = index.as_int()) {
        if (*from < 0 || size.is_int(1)) return std::nullopt;
        return Offset{0, *from};
    }
    const Bounds all = bounds(index);
    const auto length = size.as_int();
    if (!length || !all.low || !all.high || *all.low < 0 || *all.high - *all.low + 1 >= *length) return std::nullopt;
    int64_t from = 0;
    if (index.is(ExprKind::Add))
        for (const Expr& term : index.args()) from += term.as_int().value_or(0);
    if (from < 0 || !free_symbols(index).size()) return std::nullopt;
    return Offset{index - from, from};
}

}  // namespace

std::vector<int64_t> free_offsets(Compute& c) {
    std::vector<int64_t> constants;
    std::map<std::tuple<int, size_t, int64_t>, Expr> freed;  // by parameter, dimension and constant
    for (Stage& stage : c.stages)
        stage.value = map_loads(stage.value, [&](const Expr& e) -> Expr {
            const size_t slot = size_t(e.node().slot);
            if (slot >= c.params || (slot < c.known.size() && c.known[slot])) return e;
            std::vector<Expr> at = e.args();
            for (size_t d = 0; d < at.size(); ++d) {
                const auto offset = offset_of(at[d], c.buffers[slot].shape[d]);
                if (!offset) continue;
                auto [known, fresh] = freed.try_emplace({int(slot), d, offset->from});
                if (fresh) {
                    known->second = symbol(fmt::format("n{}", c.symbols.size()));
                    c.symbols.push_back(known->second.node().name);
                    constants.push_back(offset->from);
                }
                at[d] = offset->moves + known->second;
            }
            return load(int(slot), e.dtype(), std::move(at));
        });
    return constants;
}

}  // namespace tessera
