#include <functional>
#include <map>
#include <numeric>

#include "rewrite/sample_op.h"

namespace tessera {
namespace {

constexpr int64_t kMaxElements = 500;

int64_t product(const Sizes& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<int64_t>());
}

Sizes tail(const Sizes& sizes, size_t from) {
    return Sizes(sizes.begin() + static_cast<ptrdiff_t>(std::min(from, sizes.size())), sizes.end());
}

Sizes head(const Sizes& sizes, size_t without) {
    return Sizes(sizes.begin(), sizes.end() - static_cast<ptrdiff_t>(std::min(without, sizes.size())));
}

Sizes joined(Sizes a, const Sizes& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

Proposal plain(Sizes sizes) { return {std::move(sizes), {}, false}; }
Proposal positive(Sizes sizes) { return {std::move(sizes), {}, true}; }
Proposal holding(const std::vector<int64_t>& values) {
    return {{static_cast<int64_t>(values.size())}, Tensor::ints(values), false};
}
Proposal scalar_of(int64_t value, bool one_dimension = false) {
    Tensor t = Tensor::ints({value});
    if (one_dimension) return {{1}, t, false};
    return {{}, t.reshaped({}), false};
}

// An axis as a model may write it.
int64_t spelt(int64_t axis, int64_t rank, Draw& draw) { return draw.chance(35) ? axis - rank : axis; }

std::optional<int64_t> axis_of(const Draft& d, const std::string& name, int64_t rank) {
    auto axis = d.integer(name);
    if (!axis) return std::nullopt;
    return *axis < 0 ? *axis + rank : *axis;
}

using Propose = std::function<std::optional<Proposal>(Draft&, size_t, SizePool&)>;

Sizes wanted_or_any(const Draft& d, SizePool& pool) { return d.want ? d.want->sizes : pool.shape(); }

std::optional<Sizes> broadcast_sizes(const Sizes& a, const Sizes& b) {
    auto shape = broadcast(Shape(a), Shape(b));
    return shape ? shape->sizes() : std::nullopt;
}

// All inputs broadcast together.
std::optional<Proposal> elementwise(Draft& d, size_t, SizePool& pool) {
    std::optional<Sizes> others;
    for (size_t j = 0; j < d.inputs.size(); ++j) {
        if (!d.has(j)) continue;
        auto s = d.sizes(j);
        if (!s) return std::nullopt;
        others = others ? broadcast_sizes(*others, *s) : s;
        if (!others) return std::nullopt;
    }
    if (d.want && (!others || pool.draw().chance(80))) return plain(pool.broadcastable(d.want->sizes, false));
    if (!others) return plain(pool.shape());
    return plain(pool.broadcastable(*others));
}

std::optional<Proposal> same_shape(Draft& d, size_t, SizePool& pool) {
    for (size_t j = 0; j < d.inputs.size(); ++j)
        if (d.has(j)) {
            auto s = d.sizes(j);
            return s ? std::optional(plain(*s)) : std::nullopt;
        }
    return plain(wanted_or_any(d, pool));
}

std::optional<Proposal> matmul(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    const size_t other = 1 - i;
    Sizes batch;
    int64_t own = pool.size();  // m of the left, n of the right
    if (d.want && d.want->sizes.size() >= 2) {
        batch = pool.broadcastable(head(d.want->sizes, 2), false);
        own = d.want->sizes[d.want->sizes.size() - (i == 0 ? 2 : 1)];
    }
    if (!d.has(other)) {
        if (!d.want) {
            if (draw.chance(8)) return plain({pool.nonzero()});
            batch = draw.chance(50) ? Sizes{} : pool.shape(draw.between(1, 2));
        }
        Sizes last = i == 0 ? Sizes{own, pool.nonzero()} : Sizes{pool.nonzero(), own};
        return plain(joined(batch, last));
    }
    auto s = d.sizes(other);
    if (!s || s->empty()) return std::nullopt;
    int64_t inner = s->size() == 1 ? (*s)[0] : (*s)[s->size() - (i == 0 ? 2 : 1)];
    if (!d.want) {
        if (draw.chance(8)) return plain({inner});
        if (draw.chance(40))
            batch = {};
        else
            batch = pool.broadcastable(head(*s, 2));
    }
    return plain(joined(batch, i == 0 ? Sizes{own, inner} : Sizes{inner, own}));
}

std::optional<Proposal> gemm(Draft& d, size_t i, SizePool& pool) {
    const bool across_a = d.integer("transA").value_or(0), across_b = d.integer("transB").value_or(0);
    auto a = d.sizes(0), b = d.sizes(1);
    auto oriented = [](int64_t rows, int64_t columns, bool across) {
        return plain(across ? Sizes{columns, rows} : Sizes{rows, columns});
    };
    int64_t m = pool.size(), n = pool.size(), k = pool.nonzero();
    if (d.want && d.want->sizes.size() == 2) m = d.want->sizes[0], n = d.want->sizes[1];
    if (a && a->size() == 2) m = (*a)[across_a], k = (*a)[!across_a];
    if (b && b->size() == 2) n = (*b)[!across_b], k = (*b)[across_b];
    if (i == 0) return oriented(m, k, across_a);
    if (i == 1) return oriented(k, n, across_b);
    return plain(pool.broadcastable({m, n}, false));
}

Sizes image(SizePool& pool, int64_t batch, int64_t channels, int64_t spatial) {
    Sizes out{batch, channels};
    for (int64_t d = 0; d < spatial; ++d) out.push_back(pool.draw().between(spatial > 1 ? 2 : 3, spatial > 1 ? 6 : 8));
    return out;
}

// Spatial dimensions from whatever says how many there are.
int64_t spatial_rank(const Draft& d, SizePool& pool) {
    if (auto x = d.sizes(0)) return static_cast<int64_t>(x->size()) - 2;
    if (auto w = d.sizes(1)) return static_cast<int64_t>(w->size()) - 2;
    if (auto* k = d.ints("kernel_shape")) return static_cast<int64_t>(k->size());
    if (auto* k = d.ints("strides")) return static_cast<int64_t>(k->size());
    if (auto* k = d.ints("dilations")) return static_cast<int64_t>(k->size());
    if (auto* k = d.ints("pads")) return static_cast<int64_t>(k->size()) / 2;
    if (d.want && d.want->sizes.size() >= 3) return static_cast<int64_t>(d.want->sizes.size()) - 2;
    return pool.draw().pick({1, 1, 2, 2, 2, 3});
}

// A size that `n` divides.
int64_t multiple_of(int64_t n, SizePool& pool) { return n * pool.draw().between(1, n > 2 ? 2 : 3); }

int64_t group_for(Draft& d, std::optional<int64_t> channels, SizePool& pool) {
    if (auto given = d.integer("group")) return std::max<int64_t>(*given, 1);
    std::vector<int64_t> fits;
    for (int64_t g = 1; g <= channels.value_or(4); ++g)
        if (!channels || *channels % g == 0) fits.push_back(g);
    if (fits.empty()) fits = {1};
    int64_t group = pool.draw().chance(35) ? 1 : pool.draw().pick(fits);
    d.attrs["group"] = group;
    d.open.erase("group");
    return group;
}

// w is [M, C/group, kernel...]; of a transposed convolution [C, M/group, kernel...].
Propose convolution(bool transposed) {
    return [transposed](Draft& d, size_t i, SizePool& pool) -> std::optional<Proposal> {
        Draw& draw = pool.draw();
        auto x = d.sizes(0), w = d.sizes(1);
        const int64_t spatial = spatial_rank(d, pool);
        if (spatial < 1) return std::nullopt;
        if (i == 0) {
            int64_t group = w ? d.integer("group").value_or(1) : 1;
            if (!w) group = d.open.contains("group") ? 1 : d.integer("group").value_or(1);
            int64_t channels = w && w->size() > 1 ? (transposed ? (*w)[0] : (*w)[1] * group) : multiple_of(group, pool);
            if (!w && d.open.contains("group")) channels = draw.pick({2, 3, 4, 4, 6});
            int64_t batch = d.want && !d.want->sizes.empty() ? d.want->sizes[0] : draw.between(1, 2);
            return plain(image(pool, batch, channels, spatial));
        }
        std::optional<int64_t> channels;
        if (x && x->size() > 1) channels = (*x)[1];
        if (i == 1) {
            int64_t group = group_for(d, channels, pool);
            int64_t in = channels.value_or(multiple_of(group, pool));
            int64_t out = multiple_of(group, pool);
            if (d.want && d.want->sizes.size() > 1 && d.want->sizes[1] % group == 0) out = d.want->sizes[1];
            if (in % group != 0) return std::nullopt;
            Sizes sizes = transposed ? Sizes{in, out / group} : Sizes{out, in / group};
            auto* kernel = d.ints("kernel_shape");
            for (int64_t s = 0; s < spatial; ++s) {
                int64_t room = x && static_cast<int64_t>(x->size()) > s + 2 ? (*x)[s + 2] : 3;
                sizes.push_back(kernel && s < int64_t(kernel->size())
                                    ? (*kernel)[s]
                                    : draw.between(1, std::clamp<int64_t>(room, 1, 3)));
            }
            return plain(std::move(sizes));
        }
        if (!w || w->size() < 2) return std::nullopt;
        return plain({transposed ? (*w)[1] * d.integer("group").value_or(1) : (*w)[0]});
    };
}

std::optional<Proposal> pool_input(Draft& d, size_t, SizePool& pool) {
    int64_t spatial = std::max<int64_t>(spatial_rank(d, pool), 1);
    return plain(image(pool, pool.draw().between(1, 2), pool.nonzero(), spatial));
}

std::optional<Proposal> channelwise(Draft& d, size_t i, SizePool& pool) {
    if (i == 0) {
        if (d.want && d.want->sizes.size() >= 2) return plain(d.want->sizes);
        return plain(pool.draw().chance(30)
                         ? pool.shape(2)
                         : image(pool, pool.draw().between(1, 3), pool.nonzero(), pool.draw().between(1, 2)));
    }
    auto x = d.sizes(0);
    if (!x || x->size() < 2) return std::nullopt;
    Sizes sizes{(*x)[1]};
    return d.param(i).name == "variance" ? positive(sizes) : plain(sizes);
}

// Scale and bias over the dimensions from an axis on.
std::optional<Proposal> from_axis(Draft& d, size_t i, SizePool& pool) {
    if (i == 0) return plain(d.want && !d.want->sizes.empty() ? d.want->sizes : pool.shape(pool.rank(1)));
    auto x = d.sizes(0);
    if (!x || x->empty()) return std::nullopt;
    if (d.open.contains("axis")) {
        d.attrs["axis"] = pool.draw().chance(60)
                              ? int64_t{-1}
                              : spelt(pool.draw().below(int64_t(x->size())), int64_t(x->size()), pool.draw());
        d.open.erase("axis");
    }
    auto axis = axis_of(d, "axis", static_cast<int64_t>(x->size()));
    if (!axis || *axis < 0 || *axis >= int64_t(x->size())) return std::nullopt;
    Sizes sizes = tail(*x, static_cast<size_t>(*axis));
    if (pool.draw().chance(15)) sizes = pool.broadcastable(sizes, false);
    return plain(sizes);
}

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
        if (auto axis = d.integer("axis")) least = *axis < 0 ? -*axis : *axis + 1;
        Sizes sizes = d.want && !d.want->sizes.empty() ? d.want->sizes : pool.shape(pool.rank(least));
        if (d.want && !sizes.empty())
            if (auto axis = axis_of(d, "axis", int64_t(sizes.size()));
                axis && *axis >= 0 && *axis < int64_t(sizes.size()))
                sizes[*axis] = std::max<int64_t>(1, sizes[*axis] / 2);
        return plain(sizes);
    }
    const auto rank = static_cast<int64_t>(other->size());
    if (rank == 0) return std::nullopt;
    if (d.open.contains("axis")) {
        d.attrs["axis"] = spelt(draw.below(rank), rank, draw);
        d.open.erase("axis");
    }
    auto axis = axis_of(d, "axis", rank);
    if (!axis || *axis < 0 || *axis >= rank) return std::nullopt;
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

std::optional<Proposal> reshape(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
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
    if (d.want && product(d.want->sizes) == product(*x)) {
        shape = d.want->sizes;
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
    if (i == 0) return plain(d.want ? pool.broadcastable(d.want->sizes, false) : pool.shape());
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    if (d.want && pool.draw().chance(80)) return holding(d.want->sizes);
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
            std::vector<int64_t> p = std::get<std::vector<int64_t>>(*propose_attr(d, "perm", pool));
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
    int64_t count = draw.between(1, 2), rank = int64_t(x->size()) + count;
    std::vector<int64_t> axes = draw.subset(rank, count);
    for (int64_t& a : axes) a = spelt(a, rank, draw);
    if (draw.chance(30)) draw.shuffle(axes);
    return holding(axes);
}

std::optional<Proposal> slice(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        Sizes sizes = d.want ? d.want->sizes : pool.shape(pool.rank(1));
        if (d.want)
            for (int64_t& n : sizes) n += draw.chance(40) ? draw.between(1, 2) : 0;
        else
            for (int64_t& n : sizes)
                if (draw.chance(50)) n += draw.between(0, 3);
        return plain(sizes);
    }
    auto x = d.sizes(0);
    if (!x || x->empty()) return std::nullopt;
    const auto rank = static_cast<int64_t>(x->size());
    std::optional<int64_t> count;
    for (size_t j = 1; j < d.inputs.size(); ++j)
        if (d.has(j))
            if (auto s = d.sizes(j); s && s->size() == 1) count = (*s)[0];
    if (!count) count = draw.chance(70) ? 1 : draw.between(1, std::min<int64_t>(rank, 3));
    if (*count > rank) return std::nullopt;
    auto axis_at = [&](int64_t k) {
        const Tensor* axes = d.contents(3);
        int64_t a = axes && k < axes->elements() ? axes->int_at(k) : k;
        return a < 0 ? a + rank : a;
    };
    auto step_at = [&](int64_t k) {
        const Tensor* steps = d.contents(4);
        return steps && k < steps->elements() ? steps->int_at(k) : 1;
    };
    std::vector<int64_t> values;
    if (d.param(i).name == "axes") {
        values = draw.subset(rank, *count);
        if (draw.chance(30)) draw.shuffle(values);
        for (int64_t& a : values) a = spelt(a, rank, draw);
        return holding(values);
    }
    for (int64_t k = 0; k < *count; ++k) {
        int64_t axis = axis_at(k);
        if (axis < 0 || axis >= rank) return std::nullopt;
        const int64_t n = (*x)[axis];
        const bool back = step_at(k) < 0;
        if (d.param(i).name == "steps") {
            const Tensor *starts = d.contents(1), *ends = d.contents(2);
            bool falls =
                starts && ends && k < starts->elements() && k < ends->elements() && starts->int_at(k) > ends->int_at(k);
            values.push_back(falls && draw.chance(80) ? draw.pick({-1, -1, -2}) : draw.pick({1, 1, 1, 2, 3, -1}));
        } else if (d.param(i).name == "starts") {
            values.push_back(draw.pick<int64_t>({0, back ? n - 1 : 0, draw.between(0, n), draw.between(-n, n), -1}));
        } else {
            values.push_back(draw.pick<int64_t>(
                {back ? -n - 1 : n, back ? INT64_MIN : INT64_MAX, draw.between(0, n), draw.between(-n, n), -1, n}));
        }
    }
    return holding(values);
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
        if (draw.chance(85))
            for (int64_t k = 0; k < 2 * count; ++k)
                if (!spatial_only || k % count >= 2) pads[k] = negative ? draw.between(-1, 1) : draw.between(0, 2);
        return holding(pads);
    }
    if (d.param(i).name == "axes") {
        const Tensor* pads = d.contents(1);
        std::vector<int64_t> axes =
            draw.subset(rank, pads ? pads->elements() / 2 : draw.between(1, std::max<int64_t>(rank, 1)));
        if (pads && int64_t(axes.size()) != pads->elements() / 2) return std::nullopt;
        for (int64_t& a : axes) a = spelt(a, rank, draw);
        return holding(axes);
    }
    return plain({});
}

std::optional<Proposal> reduction(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        int64_t least = 0;
        if (const Tensor* axes = d.contents(1))
            for (int64_t a : axes->to_ints()) least = std::max(least, a < 0 ? -a : a + 1);
        if (d.want && d.integer("keepdims").value_or(1)) {
            Sizes sizes = d.want->sizes;
            for (int64_t& n : sizes)
                if (n == 1 && draw.chance(70)) n = pool.nonzero();
            if (int64_t(sizes.size()) >= least) return plain(sizes);
        }
        return plain(pool.shape(pool.rank(std::max<int64_t>(least, draw.chance(95) ? 1 : 0))));
    }
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    const auto rank = static_cast<int64_t>(x->size());
    std::vector<int64_t> axes;
    if (rank && draw.chance(40)) {
        axes = {rank - 1};
    } else if (rank >= 3 && draw.chance(20)) {
        for (int64_t k = 2; k < rank; ++k) axes.push_back(k);
    } else if (draw.chance(97)) {
        axes = draw.subset(rank, draw.between(1, std::max<int64_t>(rank, 1)));
    }
    for (int64_t& a : axes) a = spelt(a, rank, draw);
    return holding(axes);
}

std::optional<Proposal> split(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    auto parts = static_cast<int64_t>(d.outputs);
    if (i == 0) {
        int64_t least = 1;
        if (auto axis = d.integer("axis")) least = *axis < 0 ? -*axis : *axis + 1;
        Sizes sizes = pool.shape(pool.rank(least));
        auto axis = axis_of(d, "axis", int64_t(sizes.size()));
        if (const Tensor* split = d.contents(1); split && axis) {
            std::vector<int64_t> each = split->to_ints();
            sizes[*axis] = std::accumulate(each.begin(), each.end(), int64_t{0});
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
    if (d.open.contains("axis")) {
        d.attrs["axis"] = spelt(draw.below(rank), rank, draw);
        d.open.erase("axis");
    }
    auto axis = axis_of(d, "axis", rank);
    if (!axis || *axis < 0 || *axis >= rank) return std::nullopt;
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

std::optional<Proposal> gather(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) return plain(pool.shape(pool.rank(1)));
    auto x = d.sizes(0);
    if (!x || x->empty()) return std::nullopt;
    const auto rank = static_cast<int64_t>(x->size());
    if (d.open.contains("axis")) {
        d.attrs["axis"] = spelt(draw.below(rank), rank, draw);
        d.open.erase("axis");
    }
    auto axis = axis_of(d, "axis", rank);
    if (!axis || *axis < 0 || *axis >= rank) return std::nullopt;
    const int64_t n = (*x)[*axis];
    if (n == 0) return std::nullopt;
    Sizes sizes;
    if (d.op->name == "gather_elements") {
        sizes = *x;
        for (int64_t k = 0; k < rank; ++k)
            if (k != *axis && draw.chance(30)) sizes[k] = draw.between(1, std::max<int64_t>(1, sizes[k]));
        sizes[*axis] = pool.nonzero();
    } else {
        sizes = draw.chance(40) ? Sizes{} : pool.shape(draw.between(1, 2));
    }
    std::vector<int64_t> at;
    const bool run = d.op->name == "gather" && sizes.size() == 1 && draw.chance(50);
    if (run) {
        sizes[0] = draw.between(1, n);
        int64_t from = draw.between(0, n - sizes[0]);
        for (int64_t k = 0; k < sizes[0]; ++k) at.push_back(from + k);
    } else {
        for (int64_t k = product(sizes); k-- > 0;) at.push_back(draw.between(draw.chance(30) ? -n : 0, n - 1));
    }
    return Proposal{sizes, Tensor::ints(at).reshaped(sizes), false};
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

std::optional<Proposal> tile(Draft& d, size_t i, SizePool& pool) {
    if (i == 0) return plain(wanted_or_any(d, pool));
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    std::vector<int64_t> repeats;
    for (size_t k = 0; k < x->size(); ++k) repeats.push_back(pool.draw().chance(60) ? 1 : pool.draw().between(1, 3));
    return holding(repeats);
}

std::optional<Proposal> resize(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) return plain(image(pool, 1, pool.nonzero(), draw.between(1, 2)));
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    if (d.param(i).name == "sizes") {
        std::vector<int64_t> sizes = *x;
        for (size_t k = 2; k < sizes.size(); ++k)
            sizes[k] = draw.pick({sizes[k], sizes[k] * 2, sizes[k] + 1, int64_t{2}});
        return holding(sizes);
    }
    if (d.param(i).name != "scales") return std::nullopt;
    std::vector<float> scales(x->size(), 1.0f);
    for (size_t k = 2; k < scales.size(); ++k) scales[k] = draw.pick({1.0f, 2.0f, 0.5f, 1.5f});
    return Proposal{{int64_t(scales.size())}, Tensor::of<float>({int64_t(scales.size())}, scales), false};
}

std::optional<Proposal> quantized(Draft& d, size_t i, SizePool& pool) {
    if (i == 0) return plain(wanted_or_any(d, pool));
    if (i == 2) {
        auto scale = d.sizes(1);
        return scale ? std::optional(plain(*scale)) : std::nullopt;
    }
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    auto axis = axis_of(d, "axis", int64_t(x->size()));
    if (axis && *axis >= 0 && *axis < int64_t(x->size()) && pool.draw().chance(40)) return positive({(*x)[*axis]});
    return positive({});
}

std::optional<Proposal> attention(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    auto q = d.sizes(0), k = d.sizes(1);
    auto heads = d.integer("q_num_heads"), shared = d.integer("kv_num_heads");
    if (i == 0) {
        if (d.want && (d.want->sizes.size() == 4 || d.want->sizes.size() == 3)) return plain(d.want->sizes);
        if (heads) return plain({draw.between(1, 2), pool.nonzero(), *heads * draw.between(1, 3)});
        return plain({draw.between(1, 2), draw.between(1, 3), pool.nonzero(), pool.nonzero()});
    }
    if (!q) return std::nullopt;
    if (i == 1) {
        Sizes sizes = *q;
        sizes[sizes.size() - 2] = pool.nonzero();
        if (heads && shared && sizes.size() == 3) sizes[2] = (*q)[2] / *heads * *shared;
        return plain(sizes);
    }
    if (!k) return std::nullopt;
    if (i == 2) {
        Sizes sizes = *k;
        if (draw.chance(40)) sizes.back() = shared && sizes.size() == 3 ? *shared * draw.between(1, 3) : pool.nonzero();
        return plain(sizes);
    }
    if (i == 3) {
        int64_t rows = (*q)[q->size() - 2], columns = (*k)[k->size() - 2];
        if (q->size() == 4 && draw.chance(50))
            return plain(pool.broadcastable({(*q)[0], (*q)[1], rows, columns}, false));
        return plain({rows, columns});
    }
    return std::nullopt;
}

std::optional<Proposal> rotary(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        if (auto heads = d.integer("num_heads"); heads && *heads > 0)
            return plain({draw.between(1, 2), pool.nonzero(), *heads * 2 * draw.between(1, 2)});
        return plain({draw.between(1, 2), draw.between(1, 3), pool.nonzero(), 2 * draw.between(1, 3)});
    }
    auto x = d.sizes(0);
    if (!x || x->size() < 3) return std::nullopt;
    const bool packed = x->size() == 3;
    int64_t batch = (*x)[0], length = (*x)[packed ? 1 : 2];
    int64_t size = packed ? x->back() / std::max<int64_t>(d.integer("num_heads").value_or(1), 1) : x->back();
    if (int64_t partial = d.integer("rotary_embedding_dim").value_or(0)) size = partial;
    if (i == 1) return plain(draw.chance(50) ? Sizes{batch, length, size / 2} : Sizes{length + 2, size / 2});
    auto cos = d.sizes(1);
    if (i == 2) return cos ? std::optional(plain(*cos)) : std::nullopt;
    if (!cos || cos->size() != 2) return std::nullopt;
    std::vector<int64_t> at;
    for (int64_t n = batch * length; n-- > 0;) at.push_back(draw.below((*cos)[0]));
    return Proposal{{batch, length}, Tensor::ints(at).reshaped({batch, length}), false};
}

std::optional<Proposal> einsum(Draft& d, size_t i, SizePool& pool) {
    auto* equation = d.string("equation");
    if (!equation) return std::nullopt;
    std::string left = equation->substr(0, equation->find("->"));
    std::erase(left, ' ');
    std::vector<std::string> terms(1);
    for (char c : left) {
        if (c == ',')
            terms.emplace_back();
        else
            terms.back() += c;
    }
    if (i >= terms.size() || left.find('.') != std::string::npos) return std::nullopt;
    std::map<char, int64_t> known;
    for (size_t j = 0; j < terms.size(); ++j)
        if (auto s = d.has(j) ? d.sizes(j) : std::nullopt; s && s->size() == terms[j].size())
            for (size_t k = 0; k < s->size(); ++k) known.emplace(terms[j][k], (*s)[k]);
    Sizes sizes;
    for (char c : terms[i]) sizes.push_back(known.emplace(c, pool.nonzero()).first->second);
    return plain(sizes);
}

std::optional<Proposal> one_hot(Draft& d, size_t i, SizePool& pool) {
    (void)d;
    Draw& draw = pool.draw();
    if (i == 1) return scalar_of(draw.between(1, 5));
    if (i == 2) return plain({2});
    Sizes sizes = pool.shape(draw.between(0, 2));
    std::vector<int64_t> at;
    for (int64_t n = product(sizes); n-- > 0;) at.push_back(draw.between(-1, 4));
    return Proposal{sizes, Tensor::ints(at).reshaped(sizes), false};
}

std::optional<Proposal> blocks(Draft& d, size_t, SizePool& pool) {
    int64_t block = d.integer("blocksize").value_or(2);
    Sizes sizes{pool.draw().between(1, 2), pool.nonzero(), pool.draw().between(1, 3), pool.draw().between(1, 3)};
    if (d.op->name == "depth_to_space")
        sizes[1] *= block * block;
    else
        sizes[2] *= block, sizes[3] *= block;
    return plain(sizes);
}

std::optional<Proposal> clip(Draft& d, size_t i, SizePool& pool) {
    return plain(i == 0 ? wanted_or_any(d, pool) : pool.draw().chance(85) ? Sizes{} : Sizes{1});
}

std::optional<Proposal> prelu(Draft& d, size_t i, SizePool& pool) {
    if (i == 0) return plain(wanted_or_any(d, pool));
    auto x = d.sizes(0);
    return x ? std::optional(plain(pool.broadcastable(*x, false))) : std::nullopt;
}

std::optional<Proposal> grouped(Draft& d, size_t i, SizePool& pool) {
    int64_t groups = std::max<int64_t>(d.integer("num_groups").value_or(1), 1);
    if (i == 0)
        return plain(
            image(pool, pool.draw().between(1, 2), groups * pool.draw().between(1, 2), pool.draw().between(1, 2)));
    auto x = d.sizes(0);
    return x && x->size() > 1 ? std::optional(plain({(*x)[1]})) : std::nullopt;
}

std::optional<Proposal> with_scalar(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0)
        return plain(d.want && !d.want->sizes.empty() ? d.want->sizes
                                                      : pool.shape(pool.rank(d.op->name == "trilu" ? 2 : 1)));
    auto x = d.sizes(0);
    if (!x || x->empty()) return std::nullopt;
    if (d.op->name == "trilu") return scalar_of(draw.between(-2, 2));
    if (d.op->name == "top_k") {
        auto axis = axis_of(d, "axis", int64_t(x->size()));
        return scalar_of(draw.between(0, axis && *axis >= 0 && *axis < int64_t(x->size()) ? (*x)[*axis] : 1), true);
    }
    return scalar_of(spelt(draw.below(int64_t(x->size())), int64_t(x->size()), draw));  // cum_sum
}

std::optional<Proposal> sizes_only(Draft& d, size_t, SizePool& pool) { return holding(wanted_or_any(d, pool)); }

std::optional<Proposal> all_scalars(Draft& d, size_t i, SizePool& pool) {
    if (d.op->name == "range") {
        int64_t value = i == 0   ? pool.draw().between(-2, 2)
                        : i == 1 ? pool.draw().between(-3, 6)
                                 : pool.draw().pick({1, 2, -1});
        return scalar_of(value);
    }
    return plain({});
}

const std::map<std::string_view, Propose>& proposals() {
    static const std::map<std::string_view, Propose> table{
        {"matmul", matmul},
        {"gemm", gemm},
        {"conv", convolution(false)},
        {"conv_integer", convolution(false)},
        {"conv_transpose", convolution(true)},
        {"average_pool", pool_input},
        {"max_pool", pool_input},
        {"lp_pool", pool_input},
        {"global_average_pool", pool_input},
        {"global_max_pool", pool_input},
        {"global_lp_pool", pool_input},
        {"lrn", pool_input},
        {"batch_normalization", channelwise},
        {"instance_normalization", channelwise},
        {"group_normalization", grouped},
        {"layer_normalization", from_axis},
        {"rms_normalization", from_axis},
        {"concat", concat},
        {"reshape", reshape},
        {"expand", expand},
        {"transpose", transpose},
        {"squeeze", squeeze},
        {"unsqueeze", unsqueeze},
        {"slice", slice},
        {"pad", pad},
        {"split", split},
        {"gather", gather},
        {"gather_elements", gather},
        {"gather_nd", gather_nd},
        {"tile", tile},
        {"resize", resize},
        {"quantize_linear", quantized},
        {"dequantize_linear", quantized},
        {"attention", attention},
        {"rotary_embedding", rotary},
        {"einsum", einsum},
        {"one_hot", one_hot},
        {"depth_to_space", blocks},
        {"space_to_depth", blocks},
        {"clip", clip},
        {"dropout", clip},
        {"prelu", prelu},
        {"trilu", with_scalar},
        {"top_k", with_scalar},
        {"cum_sum", with_scalar},
        {"cum_prod", with_scalar},
        {"constant_of_shape", sizes_only},
        {"range", all_scalars},
    };
    return table;
}

}  // namespace

std::optional<Proposal> propose_input(Draft& draft, size_t i, SizePool& pool) {
    const std::string& op = draft.op->name;
    std::optional<Proposal> p;
    if (auto it = proposals().find(op); it != proposals().end())
        p = it->second(draft, i, pool);
    else if (op.starts_with("reduce_"))
        p = reduction(draft, i, pool);
    else if (draft.op->inputs.size() > 1 || draft.op->inputs[0].variadic)
        p = elementwise(draft, i, pool);
    else
        p = same_shape(draft, i, pool);
    if (p && product(p->sizes) > kMaxElements) return std::nullopt;
    return p;
}

SizePool::SizePool(Draw& draw, const SampleOptions& options) : draw_(&draw), tiny_(options.tiny) {
    if (options.tiny) {
        sizes_ = draw.pick<std::vector<int64_t>>({{1}, {2}, {1, 2}, {1, 2}, {2, 3}});
        return;
    }
    sizes_ =
        draw.pick<std::vector<int64_t>>({{1, 2, 3, 5}, {2, 3}, {1, 2, 3}, {2, 3, 4}, {1, 3, 4}, {1, 1, 2}, {2, 4, 6}});
    if (draw.chance(3)) sizes_.push_back(0);
}

int64_t SizePool::rank(int64_t least) {
    int64_t drawn = draw_->pick<int64_t>({0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5});
    if (tiny_) drawn = draw_->pick<int64_t>({0, 1, 1, 2, 2, 3, 4});
    return std::max(drawn, least + (drawn < least ? draw_->below(2) : 0));
}

Sizes SizePool::shape(int64_t rank) {
    Sizes out;
    int64_t elements = 1;
    for (int64_t d = 0; d < rank; ++d) {
        int64_t n = size();
        if (elements * n > 200) n = 1;
        out.push_back(n);
        elements *= std::max<int64_t>(n, 1);
    }
    draw_->shuffle(out);
    return out;
}

Sizes SizePool::broadcastable(const Sizes& other, bool may_grow) {
    if (draw_->chance(40)) return other;
    if (draw_->chance(12)) return {};
    Sizes out = other;
    const int style = static_cast<int>(draw_->below(3));
    if (style == 0) {  // one dimension only, as a bias has it
        if (out.empty()) return out;
        auto keep = static_cast<size_t>(draw_->below(int64_t(out.size())));
        for (size_t d = 0; d < out.size(); ++d)
            if (d != keep) out[d] = 1;
        if (draw_->chance(50)) out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(keep));
        return out;
    }
    if (style == 1 && !out.empty()) out.erase(out.begin(), out.begin() + draw_->below(int64_t(out.size()) + 1));
    for (int64_t& n : out)
        if (draw_->chance(30)) n = 1;
    if (may_grow && draw_->chance(20)) {
        for (size_t d = 0; d < out.size(); ++d)
            if (out[d] == 1 && other[other.size() - out.size() + d] == 1) out[d] = size();
        if (out.size() == other.size() && out.size() < 4 && draw_->chance(50)) out.insert(out.begin(), size());
    }
    return out;
}

}  // namespace tessera
