// The one table of how ops are sampled, by op, in a list for each family; and what its proposals are made of.
#pragma once

#include <functional>
#include <map>
#include <numeric>

#include "rewrite/refute/sample_op.h"

namespace tessera::proposal {

using Propose = std::function<std::optional<Proposal>(Draft&, size_t, SizePool&)>;
using ProposeAttr = std::function<std::optional<Attr>(const Draft&, SizePool&)>;

struct OpSampling {
    std::string_view op;
    Propose input = {};                                  // none: as most ops of as many inputs
    std::map<std::string_view, ProposeAttr> attrs = {};  // that mean something else than others of the name
    bool needs_shape = false;  // most shapes do not fit the op's inputs: one is better proposed than met by chance
};

const OpSampling* sampling_of(const OpDef& op);  // null: nothing is special about it

std::vector<OpSampling> movement_samplings();  // ops that move elements: reshape, slice, gather, ...
std::vector<OpSampling> product_samplings();   // matmul, convolutions, pools, norms, ...
std::vector<OpSampling> other_samplings();

// One that models have, most often.
std::vector<int64_t> some_permutation(int64_t rank, Draw& draw);

constexpr int64_t kHuge = int64_t{1} << 40;

// At most kHuge: numbers from rules may be arbitrarily large.
inline int64_t product(const Sizes& sizes) {
    int64_t n = 1;
    for (int64_t s : sizes) n = std::min(n * std::clamp<int64_t>(s, 0, 1 << 20), kHuge);
    return n;
}

// The least rank that has the axis; 0 where none that is drawn has it.
inline int64_t least_rank(int64_t axis) { return axis < -8 || axis > 7 ? 0 : axis < 0 ? -axis : axis + 1; }

inline Sizes tail(const Sizes& sizes, size_t from) {
    return Sizes(sizes.begin() + static_cast<ptrdiff_t>(std::min(from, sizes.size())), sizes.end());
}

inline Sizes head(const Sizes& sizes, size_t without) {
    return Sizes(sizes.begin(), sizes.end() - static_cast<ptrdiff_t>(std::min(without, sizes.size())));
}

inline Sizes joined(Sizes a, const Sizes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline Proposal plain(Sizes sizes) { return {std::move(sizes), {}, false}; }
inline Proposal positive(Sizes sizes) { return {std::move(sizes), {}, true}; }
inline Proposal holding(const std::vector<int64_t>& values) {
    return {{static_cast<int64_t>(values.size())}, Tensor::ints(values), false};
}
inline Proposal scalar_of(int64_t value, bool one_dimension = false) {
    Tensor t = Tensor::ints({value});
    if (one_dimension) return {{1}, t, false};
    return {{}, t.reshaped({}), false};
}

// An axis as a model may write it.
inline int64_t spelt(int64_t axis, int64_t rank, Draw& draw) { return draw.chance(35) ? axis - rank : axis; }

inline std::optional<int64_t> axis_of(const Draft& d, const std::string& name, int64_t rank) {
    auto axis = d.integer(name);
    if (!axis || *axis < -rank || *axis >= rank) return std::nullopt;
    return *axis < 0 ? *axis + rank : *axis;
}

inline Sizes wanted_or_any(const Draft& d, SizePool& pool) { return d.want ? d.want->sizes : pool.shape(); }

// A batch of images: their spatial sizes are larger than the pool has them.
inline Sizes image(SizePool& pool, int64_t batch, int64_t channels, int64_t spatial) {
    Sizes out{batch, channels};
    for (int64_t d = 0; d < spatial; ++d) out.push_back(pool.draw().between(spatial > 1 ? 2 : 3, spatial > 1 ? 6 : 8));
    if (pool.offered() && spatial > 0 && pool.draw().chance(80))
        out[static_cast<size_t>(2 + pool.draw().below(spatial))] = *pool.offered();
    return out;
}

// The op's axis, sampled now if still undecided; nothing if it does not fit the rank.
std::optional<int64_t> decide_axis(Draft& d, int64_t rank, Draw& draw);

}  // namespace tessera::proposal
