#include "kernel/gpu/attention/attention_kernel.h"

#include "kernel/gpu/attention/warp_attention.h"
#include "kernel/gpu/attention/warpgroup_attention.h"

namespace tessera {
namespace {

constexpr int64_t kFewestTeamQueries = 65;  // that are worth tiles of 128
constexpr int64_t kMaxTeamHead = 256;       // elements of a head, by warpgroup instructions
constexpr int64_t kFewQueries = 16;         // that are worth those
constexpr int64_t kMostDynamic = 2;         // dimensions of blocks and rows of dynamic size
constexpr int64_t kHeadPanel = 64;          // elements of a head that are copied together

// By warpgroup instructions, of tiles that TMA copies.
Decision suits_warpgroups(const AttentionForm& a, const Machine& machine) {
    if (!machine.has("wgmma")) return no("the target has no warpgroup instructions");
    if (a.one_query || a.queries.value_or(kFewQueries) < kFewQueries) return no("there are few queries");
    if (a.depth > kMaxTeamHead || a.columns > kMaxTeamHead)
        return no("heads of {} and {} elements", a.depth, a.columns);
    if (!a.q.in_rows || !a.k.in_rows || !a.v.in_rows)
        return no("an operand does not lie in rows that begin at multiples of 16 bytes");
    if (a.depth % kHeadPanel && !(a.q.ends && a.k.ends)) return no("heads of {} elements lie side by side", a.depth);
    if (!a.v.ends) return no("values after the last key");
    return yes("");
}

// By instructions of one warp, of tiles that threads copy.
Decision suits_warps(const AttentionForm& a) {
    if (a.depth > kLongestWarpHead || a.columns > kLongestWarpHead)
        return no("heads of {} and {} elements", a.depth, a.columns);
    if (!a.q.in_vectors || !a.k.in_vectors || !a.v.in_vectors)
        return no("an operand does not lie in vectors of 16 bytes");
    if (a.dynamic_sizes > kMostDynamic) return no("{} dimensions of dynamic size", a.dynamic_sizes);
    return yes("");
}

}  // namespace

Decision suits_attention_kernel(const AttentionForm& form, const Machine& machine) {
    Decision suits = suits_warpgroups(form, machine);
    if (!suits) suits = suits_warps(form);
    return suits ? yes("{:.0f} KB of scores are never kept", form.score_bytes / 1000) : suits;
}

Result<std::optional<Lowered>> attention_kernel(const Compute& compute, const Machine& machine) {
    const auto attention = match_attention(compute, Rounding::Dropped);
    if (!attention) return std::optional<Lowered>();
    const auto extent = attention->query ? attention->product->axes[*attention->query].extent.as_int() : 1;
    std::optional<Lowered> many;
    if (machine.has("wgmma") && extent.value_or(kFewestTeamQueries) >= kFewestTeamQueries)
        many = TRY(warpgroup_attention(compute, *attention));
    if (!many) many = TRY(warp_attention(compute, *attention, machine));
    if (!many || extent) return many;
    auto few = TRY(warp_attention_of_few(compute, *attention, machine));
    if (!few) return many;
    return std::optional(join_variants({std::move(*few)}, std::move(*many)));
}

}  // namespace tessera
