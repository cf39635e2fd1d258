#include "rewrite/refute/sample_proposal.h"

namespace tessera::proposal {
namespace {

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

std::optional<Proposal> reduction(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    if (i == 0) {
        int64_t least = 0;
        if (const Tensor* axes = d.contents(1))
            for (int64_t a : axes->to_ints()) least = std::max(least, least_rank(a));
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
    if (d.param(i).name == "roi") {  // where it begins along each axis, and where it ends
        std::vector<float> ends(2 * x->size(), 0.0f);
        for (size_t k = 0; k < ends.size(); ++k)
            ends[k] = k < x->size() ? draw.pick({0.0f, 0.25f, -0.25f}) : draw.pick({1.0f, 0.75f, 1.5f});
        return Proposal{{int64_t(ends.size())}, Tensor::of<float>({int64_t(ends.size())}, ends), false};
    }
    if (d.param(i).name != "scales") return std::nullopt;
    std::vector<float> scales(x->size(), 1.0f);
    for (size_t k = 2; k < scales.size(); ++k) {
        // The last two keep a size of n.
        const auto n = static_cast<float>(std::max<int64_t>((*x)[k], 1));
        scales[k] = draw.pick({1.0f, 2.0f, 0.5f, 1.5f, (n + 0.25f) / n, (n + 0.75f) / n});
    }
    return Proposal{{int64_t(scales.size())}, Tensor::of<float>({int64_t(scales.size())}, scales), false};
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

// [N, C, H, W] of which the channels, or height and width, are whole blocks.
Propose blocks(bool of_channels) {
    return [of_channels](Draft& d, size_t, SizePool& pool) -> std::optional<Proposal> {
        int64_t block = std::clamp<int64_t>(d.integer("blocksize").value_or(2), 1, 100);
        Sizes sizes{pool.draw().between(1, 2), pool.nonzero(), pool.draw().between(1, 3), pool.draw().between(1, 3)};
        if (of_channels)
            sizes[1] *= block * block;
        else
            sizes[2] *= block, sizes[3] *= block;
        return plain(sizes);
    };
}

std::optional<Proposal> clip(Draft& d, size_t i, SizePool& pool) {
    return plain(i == 0 ? wanted_or_any(d, pool) : pool.draw().chance(85) ? Sizes{} : Sizes{1});
}

std::optional<Proposal> prelu(Draft& d, size_t i, SizePool& pool) {
    if (i == 0) return plain(wanted_or_any(d, pool));
    auto x = d.sizes(0);
    return x ? std::optional(plain(pool.broadcastable(*x, false))) : std::nullopt;
}

// A tensor of some rank at least, and a number that suits it.
using ScalarFor = std::optional<Proposal> (*)(const Draft& d, const Sizes& x, Draw& draw);
Propose with_scalar(ScalarFor scalar, int64_t least_rank) {
    return [=](Draft& d, size_t i, SizePool& pool) -> std::optional<Proposal> {
        if (i == 0) return plain(d.want && !d.want->sizes.empty() ? d.want->sizes : pool.shape(pool.rank(least_rank)));
        auto x = d.sizes(0);
        if (!x || x->empty()) return std::nullopt;
        return scalar(d, *x, pool.draw());
    };
}

std::optional<Proposal> a_diagonal(const Draft&, const Sizes&, Draw& draw) { return scalar_of(draw.between(-2, 2)); }

std::optional<Proposal> a_count(const Draft& d, const Sizes& x, Draw& draw) {
    auto axis = axis_of(d, "axis", int64_t(x.size()));
    return scalar_of(draw.between(0, axis && *axis >= 0 && *axis < int64_t(x.size()) ? x[*axis] : 1), true);
}

std::optional<Proposal> an_axis(const Draft&, const Sizes& x, Draw& draw) {
    return scalar_of(spelt(draw.below(int64_t(x.size())), int64_t(x.size()), draw));
}

std::optional<Proposal> sizes_only(Draft& d, size_t, SizePool& pool) { return holding(wanted_or_any(d, pool)); }

std::optional<Proposal> range(Draft&, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    const int64_t value = i == 0 ? draw.between(-2, 2) : i == 1 ? draw.between(-3, 6) : draw.pick({1, 2, -1});
    const double part = draw.pick({0.0, 0.0, 0.1, 0.25});  // which integers leave off
    return Proposal{{}, Tensor::of<double>({}, {static_cast<double>(value) + (value < 0 ? -part : part)}), false};
}

}  // namespace

std::vector<OpSampling> other_samplings() {
    return {
        {"resize", resize},
        {"one_hot", one_hot},
        {"depth_to_space", blocks(true)},
        {"space_to_depth", blocks(false)},
        {"clip", clip},
        {"dropout", clip},
        {"prelu", prelu},
        {"trilu", with_scalar(a_diagonal, 2)},
        {"top_k", with_scalar(a_count, 1)},
        {"cum_sum", with_scalar(an_axis, 1)},
        {"cum_prod", with_scalar(an_axis, 1)},
        {"constant_of_shape", sizes_only},
        {"range", range},
    };
}

const OpSampling* sampling_of(const OpDef& op) {
    static const auto kAll = [] {
        std::map<std::string_view, OpSampling> all;
        for (auto* list : {movement_samplings, product_samplings, other_samplings})
            for (OpSampling& s : list()) all.emplace(s.op, std::move(s));
        return all;
    }();
    auto found = kAll.find(op.name);
    return found == kAll.end() ? nullptr : &found->second;
}

namespace {

bool takes_integers_only(const OpDef& op, const ParamDef& param) {
    if (auto fixed = dtype_from_name(param.type)) return is_int(*fixed);
    for (const TypeVar& v : op.types)
        if (v.name == param.type) return !v.allowed.has(DType::f32) && v.allowed.has(DType::i64);
    return false;
}

// For an op of which no more is known than its definition says: sizes of the first input, in part or whole, or any, and
// small numbers where integers are taken.
std::optional<Proposal> any_shape(Draft& d, size_t i, SizePool& pool) {
    Draw& draw = pool.draw();
    std::optional<Sizes> x = i == 0 ? std::nullopt : d.sizes(0);
    if (i > 0 && !x) return std::nullopt;
    Sizes sizes = x ? *x : d.want ? d.want->sizes : pool.shape(draw.between(0, 4));
    if (x) switch (draw.below(9)) {
            case 0:
            case 1: break;
            case 2: sizes = head(sizes, 1); break;
            case 3: sizes = tail(sizes, 1); break;
            case 4: sizes = {}; break;
            case 5: sizes = {sizes.empty() ? 1 : draw.pick(sizes)}; break;
            case 6: sizes = pool.shape(static_cast<int64_t>(sizes.size())); break;
            case 7:
                if (sizes.size() > 1) sizes.erase(sizes.begin() + 1);
                break;
            default: sizes = pool.shape(draw.between(1, 4));
        }
    if (i == 0 || !takes_integers_only(*d.op, d.param(i))) return plain(sizes);
    std::vector<int64_t> at;
    for (int64_t n = std::min<int64_t>(product(sizes), 1000); n-- > 0;) at.push_back(draw.between(0, 2));
    if (int64_t(at.size()) != product(sizes)) return std::nullopt;
    return Proposal{sizes, Tensor::ints(at).reshaped(sizes), false};
}

std::optional<Proposal> usual(Draft& d, size_t i, SizePool& pool) {
    const OpDef& op = *d.op;
    if (op.attr("noop_with_empty_axes")) return reduction(d, i, pool);
    if (op.inputs.empty()) return std::nullopt;
    const bool several = op.inputs.size() > 1 || op.inputs[0].variadic;
    if (several && !op.has(Trait::Elementwise) && pool.draw().chance(70)) return any_shape(d, i, pool);
    return several ? elementwise(d, i, pool) : same_shape(d, i, pool);
}

}  // namespace

std::optional<Proposal> propose(Draft& draft, size_t i, SizePool& pool) {
    const OpSampling* special = sampling_of(*draft.op);
    return special && special->input ? special->input(draft, i, pool) : usual(draft, i, pool);
}

}  // namespace tessera::proposal

namespace tessera {

namespace {
constexpr int64_t kMaxElements = 500, kMaxOfLength = 6000;  // where an axis has a length that the rule names
constexpr int64_t kLong = 2000, kLongest = 67000;           // above the first, twice the length
constexpr size_t kMostDimensions = 8;
int64_t most_elements(const Sizes& sizes) {
    const bool is_long = std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > kMaxElements / 8; });
    const int64_t longest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
    return longest > kLong ? 2 * std::min(longest, kLongest) : is_long ? kMaxOfLength : kMaxElements;
}
}  // namespace

std::optional<Proposal> propose_input(Draft& draft, size_t i, SizePool& pool) {
    std::optional<Proposal> p = proposal::propose(draft, i, pool);
    if (!p || p->sizes.size() > kMostDimensions || proposal::product(p->sizes) > most_elements(p->sizes))
        return std::nullopt;
    if (std::any_of(p->sizes.begin(), p->sizes.end(), [](int64_t n) { return n < 0; })) return std::nullopt;
    return p;
}

bool needs_shape(const OpDef& op) {
    const proposal::OpSampling* special = proposal::sampling_of(op);
    return special && special->needs_shape;
}

// One size for all hides an exchange of axes from the types; several show it there.
SizePool::SizePool(Draw& draw, const SampleOptions& options) : draw_(&draw), tiny_(options.tiny) {
    if (options.tiny) {
        sizes_ = draw.pick<std::vector<int64_t>>({{1}, {2}, {1, 2}, {1, 2}, {2, 3}});
        return;
    }
    sizes_ = draw.pick<std::vector<int64_t>>(
        {{1, 2, 3, 5}, {2, 3}, {1, 2, 3}, {2, 3, 4}, {1, 3, 4}, {1, 1, 2}, {2, 4, 6}, {2}, {3}, {4}});
    if (draw.chance(12))  // nothing at all, and one of everything: where sums, means and maxima have least to go by
        sizes_ = draw.pick<std::vector<int64_t>>({{0}, {1}, {0, 1}, {0, 2}, {0, 1, 3}, {1, 2}});
    else if (draw.chance(6))  // one that is longer than others
        sizes_ = {1, 2, draw.between(7, 40)};
}

int64_t SizePool::rank(int64_t least) {
    int64_t drawn = draw_->pick<int64_t>({0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5});
    if (tiny_) drawn = draw_->pick<int64_t>({0, 1, 1, 2, 2, 3, 4});
    return std::max(drawn, least + (drawn < least ? draw_->below(2) : 0));
}

void SizePool::offer(int64_t length) {
    sizes_ = {1, 2};
    length_ = length;
}

Sizes SizePool::shape(int64_t rank) {
    Sizes out;
    int64_t elements = 1;
    if (length_ && rank > 0 && draw_->chance(80)) {
        out.push_back(*length_);
        while (int64_t(out.size()) < rank) out.push_back(out.size() < 3 ? size() : 1);
        // Conditions and lists of axes mean the first or the last axis most often.
        std::swap(out[0], out[static_cast<size_t>(draw_->below(rank))]);
        return out;
    }
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
