#include "rewrite/refute/sample_proposal.h"

namespace tessera::proposal {
namespace {

// For a result of rank 0 or 1, of which an operand is a vector.
std::optional<Proposal> with_vectors(const Draft& d, size_t i, SizePool& pool) {
    if (!d.want || d.want->sizes.size() > 1) return std::nullopt;
    const auto other = d.has(1 - i) ? d.sizes(1 - i) : std::nullopt;
    const bool scalar = d.want->sizes.empty();
    // Of a vector and a matrix, either may be first.
    const bool vector = scalar || (other ? other->size() >= 2 : pool.draw().chance(50));
    if (other && (other->empty() || other->size() > 2 || (other->size() == 2 && scalar))) return std::nullopt;
    const int64_t inner = !other ? pool.nonzero() : other->size() == 1 ? (*other)[0] : (*other)[i == 0 ? 0 : 1];
    if (vector) return plain({inner});
    return plain(i == 0 ? Sizes{d.want->sizes[0], inner} : Sizes{inner, d.want->sizes[0]});
}

std::optional<Proposal> matmul(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    const size_t other = 1 - i;
    if (auto vectors = with_vectors(d, i, pool)) return vectors;
    Sizes batch;
    int64_t own = pool.size();  // m of the left, n of the right
    if (d.want && d.want->sizes.size() >= 2) {
        batch = pool.broadcastable(head(d.want->sizes, 2), false);
        own = d.want->sizes[d.want->sizes.size() - (i == 0 ? 2 : 1)];
    }
    if (!d.has(other)) {
        if (!d.want) {
            if (draw.chance(15)) return plain({pool.nonzero()});
            batch = draw.chance(50) ? Sizes{} : pool.shape(draw.between(1, 2));
        }
        Sizes last = i == 0 ? Sizes{own, pool.nonzero()} : Sizes{pool.nonzero(), own};
        return plain(joined(batch, last));
    }
    auto s = d.sizes(other);
    if (!s || s->empty()) return std::nullopt;
    int64_t inner = s->size() == 1 ? (*s)[0] : (*s)[s->size() - (i == 0 ? 2 : 1)];
    if (!d.want) {
        if (draw.chance(15)) return plain({inner});
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
    if (auto given = d.integer("group")) return std::clamp<int64_t>(*given, 1, 100);
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
            int64_t group = d.open.contains("group") ? 1 : std::clamp<int64_t>(d.integer("group").value_or(1), 1, 100);
            int64_t channels = w && w->size() > 1 ? (transposed ? (*w)[0] : (*w)[1] * group) : multiple_of(group, pool);
            if (!w && d.open.contains("group")) channels = draw.pick({2, 3, 4, 4, 6});
            int64_t batch = d.want && !d.want->sizes.empty() ? d.want->sizes[0] : draw.between(1, 2);
            Sizes sizes = image(pool, batch, channels, spatial);
            // Small ones, for strides and pads to make up for one another.
            if (transposed && draw.chance(70))
                for (size_t k = 2; k < sizes.size(); ++k) sizes[k] = draw.between(1, 3);
            return plain(std::move(sizes));
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
        return plain({transposed ? (*w)[1] * std::clamp<int64_t>(d.integer("group").value_or(1), 1, 100) : (*w)[0]});
    };
}

// x [S, B, I], w [directions, gates * H, I], r [directions, gates * H, H], b, lengths [B], states, peepholes.
Propose recurrent(int64_t gates) {
    return [gates](Draft& d, size_t i, SizePool& pool) -> std::optional<Proposal> {
        Draw& draw = pool.draw();
        auto* direction = d.string("direction");
        const int64_t both = direction && *direction == "bidirectional" ? 2 : 1;
        if (i == 0) return plain({draw.between(1, 3), draw.between(1, 3), draw.between(1, 3)});
        auto x = d.sizes(0), w = d.sizes(1);
        if (!x || x->size() != 3) return std::nullopt;
        if (i == 1) return plain({both, gates * draw.between(1, 3), (*x)[2]});
        if (!w || w->size() != 3) return std::nullopt;
        const int64_t hidden = (*w)[1] / gates;
        const bool batch_first = d.integer("layout").value_or(0) == 1;
        const int64_t steps = (*x)[batch_first], batch = (*x)[!batch_first];
        switch (i) {
            case 2: return plain({both, gates * hidden, hidden});
            case 3: return plain({both, 2 * gates * hidden});
            case 4: {
                std::vector<int64_t> lengths;
                for (int64_t k = 0; k < batch; ++k) lengths.push_back(draw.between(0, steps));
                return holding(lengths);
            }
            case 7: return plain({both, 3 * hidden});
            default: return plain(batch_first ? Sizes{batch, both, hidden} : Sizes{both, batch, hidden});
        }
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

std::optional<Proposal> attention(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    auto q = d.sizes(0), k = d.sizes(1);
    auto heads_of = [&](const char* name) -> std::optional<int64_t> {
        auto n = d.integer(name);
        return n ? std::optional(std::clamp<int64_t>(*n, 1, 100)) : std::nullopt;
    };
    auto heads = heads_of("q_num_heads"), shared = heads_of("kv_num_heads");
    if (i == 0) {
        if (d.want && (d.want->sizes.size() == 4 || d.want->sizes.size() == 3)) return plain(d.want->sizes);
        if (heads) return plain({draw.between(1, 2), pool.nonzero(), *heads * draw.between(1, 3)});
        if (k && k->size() == 4 && draw.chance(80))
            return plain({(*k)[0], (*k)[1] * draw.pick({1, 1, 2, 3}), pool.nonzero(), (*k)[3]});
        return plain({draw.between(1, 2), draw.between(1, 3), pool.nonzero(), pool.nonzero()});
    }
    if (q && (q->size() < 3 || q->size() > 4)) return std::nullopt;
    if (k && (k->size() < 3 || k->size() > 4)) return std::nullopt;
    if (i == 1 && !q) return plain({draw.between(1, 2), draw.pick({1, 2, 2, 4}), pool.nonzero(), pool.nonzero()});
    if (i == 2 && !q && k) return plain(*k);
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
        if (auto heads = d.integer("num_heads"); heads && *heads > 0 && *heads <= 100)
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

std::optional<Proposal> grouped(Draft& d, size_t i, SizePool& pool) {
    int64_t groups = std::clamp<int64_t>(d.integer("num_groups").value_or(1), 1, 100);
    if (i == 0)
        return plain(
            image(pool, pool.draw().between(1, 2), groups * pool.draw().between(1, 2), pool.draw().between(1, 2)));
    auto x = d.sizes(0);
    return x && x->size() > 1 ? std::optional(plain({(*x)[1]})) : std::nullopt;
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

}  // namespace

std::vector<OpSampling> product_samplings() {
    std::vector<OpSampling> all = {
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
        {"quantize_linear", quantized},
        {"dequantize_linear", quantized},
        {"attention", attention},
        {"rotary_embedding", rotary},
        {"einsum", einsum},
        {"rnn", recurrent(1)},
        {"gru", recurrent(3)},
        {"lstm", recurrent(4)},
    };
    for (OpSampling& s : all) s.needs_shape = true;
    return all;
}

}  // namespace tessera::proposal
