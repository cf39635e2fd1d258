#include "rewrite/refute/sample_proposal.h"

namespace tessera::proposal {
namespace {

std::optional<Proposal> concat(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    std::optional<Sizes> other;
    for (size_t j = 0; j < d.inputs.size() && !other; ++j)
        if (d.has(j)) {
            other = d.sizes(j);
            if (!other) return std::nullopt;
        }
    (void)i;
    if (!other) {
        int64_t least = 1;
        if (auto axis = d.integer("axis")) least = std::max<int64_t>(least_rank(*axis), 1);
        Sizes sizes = d.want && !d.want->sizes.empty() ? d.want->sizes : pool.shape(pool.rank(least));
        if (d.want && !sizes.empty())
            if (auto axis = axis_of(d, "axis", int64_t(sizes.size()));
                axis && *axis >= 0 && *axis < int64_t(sizes.size()))
                sizes[*axis] = std::max<int64_t>(1, sizes[*axis] / 2);
        return plain(sizes);
    }
    const auto rank = static_cast<int64_t>(other->size());
    if (rank == 0) return std::nullopt;
    auto axis = decide_axis(d, rank, draw);
    if (!axis) return std::nullopt;
    Sizes sizes = *other;
    if (draw.chance(60)) sizes[*axis] = pool.size();
    if (d.want && d.want->sizes.size() == sizes.size() && d.want->sizes[*axis] > (*other)[*axis])
        sizes[*axis] = d.want->sizes[*axis] - (*other)[*axis];
    return plain(sizes);
}

// Target sizes for a reshape of n elements.
std::vector<int64_t> factored(int64_t n, Draw& draw) {
    std::vector<int64_t> out;
    for (int64_t f : {2, 3, 5, 7})
        while (n > 1 && n % f == 0) {
            out.push_back(f);
            n /= f;
        }
    if (n != 1) out.push_back(n);
    draw.shuffle(out);
    while (out.size() > 1 && (out.size() > 5 || draw.chance(50))) {
        size_t at = static_cast<size_t>(draw.below(static_cast<int64_t>(out.size()) - 1));
        out[at] *= out[at + 1];
        out.erase(out.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    while (out.size() < 5 && draw.chance(25)) out.insert(out.begin() + draw.below(int64_t(out.size()) + 1), 1);
    return out;
}

// [.., n] with the leading sizes of an input of the graph, where x is [m, n] with as many elements: rows back to a
// stack.
std::vector<Sizes> leading_sizes(const Draft& d, const Sizes& x) {
    std::vector<Sizes> found;
    if (x.size() != 2) return found;
    for (const auto& v : d.inputs[0]->graph().inputs()) {
        auto sizes = v->type().tensor().shape.sizes();
        if (!sizes || sizes->size() < 2 || product(head(*sizes, 1)) != x[0]) continue;
        sizes->back() = x[1];
        found.push_back(std::move(*sizes));
    }
    return found;
}

std::optional<Proposal> reshape(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        if (d.want && draw.chance(40) && !d.want->sizes.empty()) {  // the first dimension split, the rest kept
            Sizes sizes = factored(d.want->sizes[0], draw);
            return plain(joined(sizes, tail(d.want->sizes, 1)));
        }
        if (d.want && draw.chance(30) && !d.want->sizes.empty()) {  // one dimension split in two
            Sizes sizes = d.want->sizes;
            auto at = draw.below(int64_t(sizes.size()));
            std::vector<int64_t> divisors;
            for (int64_t n = 1; n <= sizes[at]; ++n)
                if (sizes[at] % n == 0) divisors.push_back(n);
            if (!divisors.empty()) {
                int64_t n = draw.pick(divisors);
                sizes[at] /= n;
                sizes.insert(sizes.begin() + at + 1, n);
                return plain(sizes);
            }
        }
        if (d.want && draw.chance(90)) return plain(factored(product(d.want->sizes), draw));
        if (const Tensor* shape = d.contents(1)) {
            Sizes sizes = shape->to_ints();
            for (int64_t& n : sizes)
                if (n <= 0) n = pool.nonzero();
            return plain(draw.chance(60) ? sizes : factored(product(sizes), draw));
        }
        return plain(pool.shape());
    }
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    std::vector<int64_t> shape;
    std::vector<Sizes> like = leading_sizes(d, *x);
    if (d.want && product(d.want->sizes) == product(*x)) {
        shape = d.want->sizes;
    } else if (!like.empty() && draw.chance(40)) {
        shape = draw.pick(like);
    } else if (draw.chance(20)) {
        shape = *x;
    } else if (x->size() >= 2 && draw.chance(35)) {
        // Neighbours merged, or one split: what models do most.
        shape = *x;
        auto at = static_cast<size_t>(draw.below(int64_t(x->size()) - 1));
        if (draw.chance(60)) {
            shape[at] *= shape[at + 1];
            shape.erase(shape.begin() + static_cast<ptrdiff_t>(at) + 1);
        } else {
            std::vector<int64_t> parts = factored(shape[at], draw);
            shape.erase(shape.begin() + static_cast<ptrdiff_t>(at));
            shape.insert(shape.begin() + static_cast<ptrdiff_t>(at), parts.begin(), parts.end());
        }
    } else {
        shape = factored(product(*x), draw);
    }
    const bool zero_copies = !d.integer("allowzero").value_or(0);
    if (product(*x) != 0 && !shape.empty() && draw.chance(40))
        shape[static_cast<size_t>(draw.below(int64_t(shape.size())))] = -1;
    if (zero_copies && draw.chance(30))
        for (size_t k = 0; k < std::min(shape.size(), x->size()); ++k)
            if (shape[k] == (*x)[k] && draw.chance(60)) shape[k] = 0;
    return holding(shape);
}

std::optional<Proposal> expand(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        if (d.want && !d.want->sizes.empty() && draw.chance(40)) {  // along one dimension
            Sizes sizes = d.want->sizes;
            sizes[draw.below(int64_t(sizes.size()))] = 1;
            return plain(sizes);
        }
        return plain(d.want ? pool.broadcastable(d.want->sizes, false) : pool.shape());
    }
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    if (d.want && draw.chance(80)) return holding(d.want->sizes);
    auto one = std::find(x->begin(), x->end(), 1);
    if (one != x->end() && draw.chance(30)) {
        *one = pool.size();
        return holding(*x);
    }
    return holding(pool.broadcastable(*x));
}

std::optional<Proposal> transpose(Draft& d, size_t, SizePool& pool) {
    auto* perm = d.ints("perm");
    if (d.want) {
        Sizes sizes = d.want->sizes;
        if (perm && perm->size() == sizes.size())
            for (size_t k = 0; k < sizes.size(); ++k)
                if ((*perm)[k] >= 0 && (*perm)[k] < int64_t(sizes.size())) sizes[(*perm)[k]] = d.want->sizes[k];
        if (!perm && !d.open.contains("perm")) std::reverse(sizes.begin(), sizes.end());
        if (d.open.contains("perm")) {
            std::vector<int64_t> p = some_permutation(int64_t(sizes.size()), pool.draw());
            for (size_t k = 0; k < sizes.size(); ++k) sizes[p[k]] = d.want->sizes[k];
            d.attrs["perm"] = p;
            d.open.erase("perm");
        }
        return plain(sizes);
    }
    return plain(perm ? pool.shape(int64_t(perm->size())) : pool.shape());
}

std::optional<Proposal> squeeze(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        Sizes sizes = wanted_or_any(d, pool);
        for (int64_t more = draw.between(d.want ? 0 : 1, 2); more-- > 0 && sizes.size() < 5;)
            sizes.insert(sizes.begin() + draw.below(int64_t(sizes.size()) + 1), 1);
        return plain(sizes);
    }
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    std::vector<int64_t> axes;
    const int64_t keep = d.want ? int64_t(x->size()) - int64_t(d.want->sizes.size()) : INT64_MAX;
    for (size_t k = 0; k < x->size(); ++k)
        if ((*x)[k] == 1 && int64_t(axes.size()) < keep && (d.want || draw.chance(70)))
            axes.push_back(spelt(int64_t(k), int64_t(x->size()), draw));
    if (draw.chance(30)) draw.shuffle(axes);
    return holding(axes);
}

std::optional<Proposal> unsqueeze(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        Sizes sizes = wanted_or_any(d, pool);
        if (d.want) {
            auto one = std::find(sizes.begin(), sizes.end(), 1);
            if (const Tensor* axes = d.contents(1); axes && axes->elements() == 1) {
                int64_t at = axes->int_at(0), rank = int64_t(sizes.size());
                if (at < -rank || at >= rank) return std::nullopt;
                one = sizes.begin() + (at < 0 ? at + rank : at);
            }
            if (one == sizes.end()) return std::nullopt;
            sizes.erase(one);
        } else if (sizes.size() > 3) {
            sizes.resize(3);
        }
        return plain(sizes);
    }
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    if (d.want && d.want->sizes.size() == x->size() + 1) {
        std::vector<int64_t> fits;
        for (size_t k = 0; k < d.want->sizes.size(); ++k) {
            Sizes without = d.want->sizes;
            without.erase(without.begin() + static_cast<ptrdiff_t>(k));
            if (d.want->sizes[k] == 1 && without == *x) fits.push_back(int64_t(k));
        }
        if (!fits.empty()) return holding({spelt(draw.pick(fits), int64_t(x->size()) + 1, draw)});
    }
    int64_t count = draw.chance(4) ? 0 : draw.between(1, 2), rank = int64_t(x->size()) + count;
    std::vector<int64_t> axes = draw.subset(rank, count);
    for (int64_t& a : axes) a = spelt(a, rank, draw);
    if (draw.chance(30)) draw.shuffle(axes);
    return holding(axes);
}

// Starts, ends, axes and steps that go together, with those that are settled already.
std::map<std::string, std::vector<int64_t>> slice_plan(const Draft& d, const Sizes& x, Draw& draw) {
    const auto rank = static_cast<int64_t>(x.size());
    std::optional<int64_t> count;
    for (size_t j = 1; j < d.inputs.size(); ++j)
        if (auto s = d.sizes(j); s && s->size() == 1) count = (*s)[0];
    if (!count) count = draw.chance(60) ? 1 : draw.between(1, std::min<int64_t>(rank, 3));
    if (*count > rank) return {};
    auto settled = [&](size_t i) {
        const Tensor* t = d.contents(i);
        return t && t->elements() == *count ? std::optional(t->to_ints()) : std::nullopt;
    };
    auto absent = [&](size_t i) { return i >= d.inputs.size() || (d.settled[i] && !d.has(i)); };
    std::map<std::string, std::vector<int64_t>> plan;
    std::vector<int64_t> axes = draw.permutation(rank);
    axes.resize(static_cast<size_t>(*count));
    if (draw.chance(50)) std::sort(axes.begin(), axes.end());
    for (int64_t& a : axes) a = spelt(a, rank, draw);
    if (absent(3)) std::iota(axes.begin(), axes.end(), 0);
    if (auto known = settled(3)) axes = *known;
    std::vector<int64_t> starts, ends, steps;
    const int64_t length = draw.chance(40) ? draw.between(1, 3) : 0;  // the same along every axis, or any
    for (int64_t k = 0; k < *count; ++k) {
        int64_t axis = axes[k] < 0 ? axes[k] + rank : axes[k];
        if (axis < 0 || axis >= rank) return {};
        const int64_t n = x[axis];
        auto known_steps = settled(4), known_starts = settled(1);
        int64_t step = absent(4) ? 1 : known_steps ? (*known_steps)[k] : draw.pick({1, 1, 1, 1, 2, 3, -1, -2});
        const bool back = step < 0;
        int64_t start =
            draw.pick<int64_t>({back ? n - 1 : 0, back ? n - 1 : 0, draw.below(n), draw.below(n), draw.between(0, n),
                                draw.between(-n, n), back ? -1 : 0, draw.between(-2 * n - 1, n + 2)});
        if (known_starts) start = std::clamp((*known_starts)[k], -2 * n - 2, 2 * n + 2);
        int64_t from = std::clamp(start < 0 ? start + n : start, int64_t{0}, n);
        int64_t end =
            draw.pick<int64_t>({back ? -n - 1 : n, back ? INT64_MIN : INT64_MAX, back ? -n - 1 : n,
                                back ? draw.between(0, from) : draw.between(from, n), draw.between(-n, n), -1});
        if (length > 0 && length <= n && step == 1 && !known_starts) {
            start = draw.between(0, n - length);
            end = start + length;
        }
        starts.push_back(start);
        ends.push_back(end);
        steps.push_back(step);
    }
    return {{"starts", starts}, {"ends", ends}, {"axes", axes}, {"steps", steps}};
}

std::optional<Proposal> slice(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        Sizes sizes = d.want ? d.want->sizes : pool.shape(pool.rank(1));
        if (d.want)
            for (int64_t& n : sizes) n += draw.chance(40) ? draw.between(1, 2) : 0;
        else if (draw.chance(30))  // the same along all axes, which the types then do not tell apart
            sizes.assign(sizes.size(), draw.between(2, 4));
        else
            for (int64_t& n : sizes)
                if (draw.chance(50)) n += draw.between(0, 3);
        return plain(sizes);
    }
    auto x = d.sizes(0);
    if (!x || x->empty()) return std::nullopt;
    if (d.plan.empty()) d.plan = slice_plan(d, *x, draw);
    auto it = d.plan.find(d.param(i).name);
    return it != d.plan.end() ? std::optional(holding(it->second)) : std::nullopt;
}

std::optional<Proposal> pad(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        if (d.want) {
            Sizes sizes = d.want->sizes;
            return plain(sizes);
        }
        if (const Tensor* pads = d.contents(1); pads && !d.has(3)) return plain(pool.shape(pads->elements() / 2));
        return plain(draw.chance(50) ? image(pool, draw.between(1, 2), pool.nonzero(), draw.between(1, 2))
                                     : pool.shape(pool.rank(1)));
    }
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    const auto rank = static_cast<int64_t>(x->size());
    if (d.param(i).name == "pads") {
        const Tensor* axes = d.contents(3);
        int64_t count = axes ? axes->elements() : rank;
        std::vector<int64_t> pads(static_cast<size_t>(2 * count), 0);
        const bool spatial_only = draw.chance(50), negative = draw.chance(8);
        const bool moves = negative && draw.chance(60);  // as much goes at one end as comes at the other
        if (draw.chance(85))
            for (int64_t k = 0; k < 2 * count; ++k) {
                if (spatial_only && k % count < 2) continue;
                if (moves && k >= count)
                    pads[k] = -pads[k - count];
                else
                    pads[k] = negative ? draw.between(-1, 1) : draw.between(0, 2);
            }
        return holding(pads);
    }
    if (d.param(i).name == "axes") {
        const Tensor* pads = d.contents(1);
        std::vector<int64_t> axes =
            draw.subset(rank, pads ? pads->elements() / 2 : draw.between(1, std::max<int64_t>(rank, 1)));
        if (pads && int64_t(axes.size()) != pads->elements() / 2) return std::nullopt;
        for (int64_t& a : axes) a = spelt(a, rank, draw);
        if (draw.chance(40)) draw.shuffle(axes);
        return holding(axes);
    }
    return plain({});
}

std::optional<Proposal> split(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    auto parts = static_cast<int64_t>(d.outputs);
    if (i == 0) {
        int64_t least = 1;
        if (auto axis = d.integer("axis")) least = std::max<int64_t>(least_rank(*axis), 1);
        Sizes sizes = pool.shape(pool.rank(least));
        auto axis = axis_of(d, "axis", int64_t(sizes.size()));
        if (const Tensor* split = d.contents(1); split && axis) {
            sizes[*axis] = 0;
            for (int64_t n : split->to_ints()) sizes[*axis] += std::clamp<int64_t>(n, 0, 1000);
        } else if (axis && *axis >= 0 && *axis < int64_t(sizes.size())) {
            sizes[*axis] = parts * draw.between(1, 3);
        } else {
            for (int64_t& n : sizes) n *= draw.chance(50) ? parts : 1;
        }
        return plain(sizes);
    }
    auto x = d.sizes(0);
    if (!x || x->empty()) return std::nullopt;
    const auto rank = static_cast<int64_t>(x->size());
    auto axis = decide_axis(d, rank, draw);
    if (!axis) return std::nullopt;
    int64_t left = (*x)[*axis];
    std::vector<int64_t> each;
    for (int64_t p = 0; p + 1 < parts; ++p) {
        each.push_back(draw.chance(40) ? left / (parts - p)
                                       : draw.between(left > 0 ? 1 : 0, std::max<int64_t>(left - 1, left > 0)));
        left = std::max<int64_t>(left - each.back(), 0);
    }
    each.push_back(left);
    return holding(each);
}

// Indices into an axis of the first input, in a shape that `shape_for` draws; with `runs`, sometimes one after the
// other.
using IndexShape = Sizes (*)(const Sizes& x, int64_t axis, SizePool& pool);
Propose indices_into_axis(IndexShape shape_for, bool runs) {
    return [=](Draft& d, size_t i, SizePool& pool) -> std::optional<Proposal> {
        Draw& draw = pool.draw();
        if (i == 0) return plain(pool.shape(pool.rank(1)));
        auto x = d.sizes(0);
        if (!x || x->empty()) return std::nullopt;
        auto axis = decide_axis(d, static_cast<int64_t>(x->size()), draw);
        if (!axis) return std::nullopt;
        const int64_t n = (*x)[*axis];
        if (n == 0) return std::nullopt;
        Sizes sizes = shape_for(*x, *axis, pool);
        std::vector<int64_t> at;
        if (runs && sizes.size() == 1 && draw.chance(50)) {
            sizes[0] = draw.between(1, n);
            int64_t from = draw.between(0, n - sizes[0]);
            for (int64_t k = 0; k < sizes[0]; ++k) at.push_back(from + k);
        } else {
            for (int64_t k = product(sizes); k-- > 0;) at.push_back(draw.between(draw.chance(30) ? -n : 0, n - 1));
        }
        return Proposal{sizes, Tensor::ints(at).reshaped(sizes), false};
    };
}

Sizes any_indices(const Sizes&, int64_t, SizePool& pool) {
    return pool.draw().chance(40) ? Sizes{} : pool.shape(pool.draw().between(1, 2));
}

Sizes an_index_each(const Sizes& x, int64_t axis, SizePool& pool) {
    Draw& draw = pool.draw();
    Sizes sizes = x;
    for (int64_t k = 0; k < int64_t(x.size()); ++k)
        if (k != axis && draw.chance(30)) sizes[k] = draw.between(1, std::max<int64_t>(1, sizes[k]));
    sizes[axis] = pool.nonzero();
    return sizes;
}

std::optional<Proposal> gather_nd(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) return plain(pool.shape(pool.rank(1)));
    auto x = d.sizes(0);
    if (!x || x->empty() || d.integer("batch_dims").value_or(0) != 0) return std::nullopt;
    Sizes sizes = pool.shape(draw.between(0, 1));
    int64_t depth = draw.between(1, int64_t(x->size()));
    std::vector<int64_t> at;
    for (int64_t k = product(sizes); k-- > 0;)
        for (int64_t a = 0; a < depth; ++a) at.push_back(draw.below((*x)[a]));
    sizes.push_back(depth);
    return Proposal{sizes, Tensor::ints(at).reshaped(sizes), false};
}

// past [B, ...], an update that is shorter along an axis, where it begins in each of B.
std::optional<Proposal> scatter_along(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) return plain(pool.shape(draw.between(2, 4)));
    auto x = d.sizes(0);
    if (!x || x->size() < 2) return std::nullopt;
    if (i == 1) {
        Sizes sizes = *x;
        auto axis = axis_of(d, "axis", int64_t(x->size()));
        if (axis && *axis > 0 && draw.chance(60)) sizes[*axis] = draw.between(0, sizes[*axis]);
        return plain(sizes);
    }
    std::vector<int64_t> at;
    for (int64_t k = 0; k < (*x)[0]; ++k) at.push_back(draw.between(0, 2));
    return holding(at);
}

std::optional<Proposal> tile(Draft& d, size_t i, SizePool& pool) {
    if (i == 0) return plain(wanted_or_any(d, pool));
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    std::vector<int64_t> repeats;
    for (size_t k = 0; k < x->size(); ++k) repeats.push_back(pool.draw().chance(60) ? 1 : pool.draw().between(1, 3));
    return holding(repeats);
}

}  // namespace

std::optional<int64_t> decide_axis(Draft& d, int64_t rank, Draw& draw) {
    if (rank > 0 && d.open.contains("axis")) {
        d.attrs["axis"] = spelt(draw.below(rank), rank, draw);
        d.open.erase("axis");
    }
    auto axis = axis_of(d, "axis", rank);
    return axis;
}

std::vector<OpSampling> movement_samplings() {
    // An axis that may be one beyond the last.
    auto cut = [](const Draft& d, SizePool& pool) -> std::optional<Attr> {
        auto x = d.sizes(0);
        if (!x) return std::nullopt;
        const auto rank = static_cast<int64_t>(x->size());
        return Attr(pool.draw().chance(30) ? pool.draw().between(-rank, 0) : pool.draw().between(0, rank));
    };
    return {
        {"concat", concat},
        {"reshape", reshape},
        {"flatten", {}, {{"axis", cut}}},
        {"expand", expand},
        {"transpose", transpose},
        {"squeeze", squeeze},
        {"unsqueeze", unsqueeze},
        {"slice", slice},
        {"pad", pad},
        {"split", split},
        {"gather", indices_into_axis(any_indices, true)},
        {"gather_elements", indices_into_axis(an_index_each, false)},
        {"gather_nd", gather_nd},
        {"tile", tile},
        {"tensor_scatter", scatter_along},
    };
}

}  // namespace tessera::proposal
