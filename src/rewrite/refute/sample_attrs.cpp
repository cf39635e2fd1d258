#include <cmath>
#include <limits>
#include <map>

#include "base/numeric.h"
#include "onnx/dtypes.h"
#include "rewrite/refute/sample_proposal.h"

namespace tessera {
namespace {

using proposal::ProposeAttr;

constexpr int kAnyOfKind = 10;  // percent of attributes that are drawn by their definition though their name is known

// The rank of the first input, or of what the op is wanted to give.
std::optional<int64_t> rank_of(const Draft& d) {
    if (auto x = d.sizes(0)) return static_cast<int64_t>(x->size());
    return std::nullopt;
}

std::optional<int64_t> spatial_of(const Draft& d) {
    if (auto rank = rank_of(d)) return *rank - 2;
    if (auto w = d.sizes(1)) return static_cast<int64_t>(w->size()) - 2;
    return std::nullopt;
}

std::optional<Attr> permutation(const Draft& d, SizePool& pool) {
    auto rank = rank_of(d);
    if (!rank && d.want) rank = static_cast<int64_t>(d.want->sizes.size());
    return rank ? std::optional(Attr(proposal::some_permutation(*rank, pool.draw()))) : std::nullopt;
}

std::optional<Attr> axis(const Draft& d, SizePool& pool) {
    Draw& draw = pool.draw();
    auto rank = rank_of(d);
    if (!rank) return std::nullopt;
    if (*rank == 0) return Attr(int64_t{0});
    if (draw.chance(25)) return Attr(int64_t{-1});
    int64_t a = draw.below(*rank);
    return Attr(draw.chance(35) ? a - *rank : a);
}

// One number a spatial dimension.
ProposeAttr per_dimension(std::initializer_list<int64_t> from, int64_t times = 1) {
    std::vector<int64_t> list(from);
    return [list, times](const Draft& d, SizePool& pool) -> std::optional<Attr> {
        auto spatial = spatial_of(d);
        if (!spatial) return std::nullopt;
        std::vector<int64_t> out;
        for (int64_t k = 0; k < *spatial * times; ++k) out.push_back(pool.draw().pick(list));
        if (times == 2 && pool.draw().chance(40))  // the same on both sides
            for (int64_t k = 0; k < *spatial; ++k) out[*spatial + k] = out[k];
        return Attr(out);
    };
}

std::optional<Attr> kernel_shape(const Draft& d, SizePool& pool) {
    if (auto w = d.sizes(1); w && w->size() > 2) return Attr(std::vector<int64_t>(w->begin() + 2, w->end()));
    if (d.op->inputs.size() > 1) return std::nullopt;
    auto x = d.sizes(0);
    if (!x) return std::nullopt;
    std::vector<int64_t> out;
    for (size_t k = 2; k < x->size(); ++k)
        out.push_back(pool.draw().chance(10) ? (*x)[k] : pool.draw().between(1, std::min<int64_t>((*x)[k], 4)));
    return Attr(out);
}

std::optional<Attr> divisor_of_channels(const Draft& d, SizePool& pool) {
    auto x = d.sizes(0);
    if (!x || x->size() < 2) return std::nullopt;
    std::vector<int64_t> fits;
    for (int64_t g = 1; g <= (*x)[1]; ++g)
        if ((*x)[1] % g == 0) fits.push_back(g);
    if (fits.empty()) return std::nullopt;
    return Attr(pool.draw().pick(fits));
}

ProposeAttr one_of(std::initializer_list<int64_t> from) {
    std::vector<int64_t> list(from);
    return [list](const Draft&, SizePool& pool) -> std::optional<Attr> { return Attr(pool.draw().pick(list)); };
}
ProposeAttr one_of(std::initializer_list<float> from) {
    std::vector<float> list(from);
    return [list](const Draft&, SizePool& pool) -> std::optional<Attr> { return Attr(pool.draw().pick(list)); };
}

std::optional<Attr> element_type(const Draft& d, SizePool& pool) {
    // Often one that is there already: back to where it came from.
    if (d.has(0) && pool.draw().chance(35)) {
        std::vector<DType> seen;
        const Graph& g = d.inputs[0]->graph();
        for (const auto* values : {&g.inputs(), &g.constants()})
            for (const auto& v : *values)
                if (v->type().is_tensor()) seen.push_back(v->type().tensor().dtype);
        if (!seen.empty()) return Attr(int64_t{onnx::dtype_to_onnx(pool.draw().pick(seen))});
    }
    if (!d.has(0)) return std::nullopt;
    if (d.want_dtype && pool.draw().chance(80)) return Attr(int64_t{onnx::dtype_to_onnx(*d.want_dtype)});
    DType t = pool.draw().pick({DType::f64, DType::f64, DType::f32, DType::f32, DType::f16, DType::bf16, DType::i64,
                                DType::i32, DType::i8, DType::u8, DType::boolean, DType::i16, DType::u16,
                                DType::f8e4m3fn, DType::f8e5m2, DType::f8e8m0});
    return Attr(int64_t{onnx::dtype_to_onnx(t)});
}

std::optional<Attr> equation(const Draft& d, SizePool& pool) {
    size_t count = std::max<size_t>(d.inputs.size(), 1);
    if (count == 1)
        return Attr(pool.draw().pick<std::string>({"ij->ji", "ij->i", "ij->j", "ii->i", "bij->bji", "ij->"}));
    if (count > 2) return Attr(std::string("ij,jk,kl->il"));
    return Attr(pool.draw().pick<std::string>({"ij,jk->ik", "bij,bjk->bik", "ij,kj->ik", "ji,jk->ik", "bhid,bhjd->bhij",
                                               "bhij,bhjd->bhid", "i,j->ij", "ij,ij->ij", "ij,ij->i", "bij,jk->bik",
                                               "bik,bkj->bji", "abc,cd->abd", "bid,bjd->bij", "bthd,bshd->bhts",
                                               "i,i->", "ij,j->i"}));
}

// As many as a recurrent op takes at most: what is left over is not read.
std::optional<Attr> activations(const Draft&, SizePool& pool) {
    std::vector<std::string> names;
    for (int i = 0; i < 6; ++i)
        names.push_back(
            pool.draw().pick<std::string>({"Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu",
                                           "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"}));
    return Attr(names);
}

const std::map<std::string_view, ProposeAttr>& by_name() {
    static const std::map<std::string_view, ProposeAttr> table{
        {"perm", permutation},
        {"axis", axis},
        {"allowzero", one_of({int64_t{0}, int64_t{0}, int64_t{1}})},
        {"strides", per_dimension({1, 1, 2, 3})},
        {"dilations", per_dimension({1, 1, 1, 2})},
        {"pads", per_dimension({0, 0, 1, 1, 2}, 2)},
        {"output_shape", per_dimension({1, 2, 3, 5, 6})},
        {"output_padding", per_dimension({0, 0, 0, 1})},
        {"kernel_shape", kernel_shape},
        {"group", divisor_of_channels},
        {"num_groups", one_of({int64_t{1}, int64_t{2}, int64_t{3}})},
        {"blocksize", one_of({int64_t{1}, int64_t{2}, int64_t{2}})},
        {"p", one_of({int64_t{1}, int64_t{2}, int64_t{3}})},
        {"size", one_of({int64_t{1}, int64_t{3}})},
        {"num_heads", one_of({int64_t{1}, int64_t{2}})},
        {"q_num_heads", one_of({int64_t{2}, int64_t{4}})},
        {"kv_num_heads", one_of({int64_t{1}, int64_t{2}})},
        {"start", one_of({int64_t{0}, int64_t{0}, int64_t{1}, int64_t{-1}})},
        {"end", one_of({int64_t{1}, int64_t{2}, int64_t{-1}})},
        {"alpha", one_of({1.0f, 0.0f, 0.5f, 2.0f, -1.5f, 0.25f, 1.75f})},
        {"beta", one_of({1.0f, 0.0f, 0.5f, 2.0f, -1.5f})},
        {"epsilon", one_of({1e-5f, 1e-3f, 0.125f})},
        {"scale", one_of({1.0f, 0.5f, 0.125f, 0.3f})},
        {"to", element_type},
        {"dtype", element_type},
        {"equation", equation},
        {"activations", activations},
    };
    return table;
}

// What the definition of an attribute says of it: its kind, its default, its choices.

Attr whole(const AttrDef& def, Draw& draw) {
    const int64_t usual = def.fallback ? std::get<int64_t>(*def.fallback) : 0;
    if (usual == 0 || usual == 1) {  // most often a flag
        if (draw.chance(60)) return 1 - usual;
    }
    if (draw.chance(12))
        return int64_t{onnx::dtype_to_onnx(draw.pick({DType::f32, DType::f16, DType::f64, DType::i64}))};
    return draw.chance(30) ? usual + draw.pick<int64_t>({-1, 1}) : draw.pick<int64_t>({0, 1, 2, 2, 3, 4, -1, -2});
}

Attr real_number(const AttrDef& def, Draw& draw) {
    const float usual = def.fallback ? std::get<float>(*def.fallback) : 1.0f;
    if (draw.chance(15)) return static_cast<float>(draw.between(-400, 400)) / 16;  // whose products are exact
    return draw.pick({0.0f, 1.0f, -1.0f, 0.5f, 2.0f, 0.25f, -1.5f, 3.0f, 0.125f, 2 * usual, usual + 0.5f, -usual});
}

Attr text(const AttrDef& def, Draw& draw) {
    if (def.fallback && draw.chance(30)) return *def.fallback;
    return draw.pick(def.choices.empty() ? std::vector<std::string>{"", "a", "b", ".*", "LOWER"} : def.choices);
}

// As many as there are dimensions, spatial dimensions, ends of those, or any few.
std::optional<size_t> list_length(const Draft& d, Draw& draw) {
    auto rank = rank_of(d);
    if (!rank && !d.op->inputs.empty() && !d.op->inputs[0].optional) return std::nullopt;
    std::vector<int64_t> lengths{0, 1, 2, 3};
    if (rank) lengths.insert(lengths.end(), {*rank, *rank, 2 * *rank});
    if (rank && *rank > 2) lengths.insert(lengths.end(), {*rank - 2, *rank - 2, 2 * (*rank - 2)});
    return static_cast<size_t>(draw.pick(lengths));
}

std::optional<Attr> list(const Draft& d, const AttrDef& def, SizePool& pool) {
    Draw& draw = pool.draw();
    auto count = list_length(d, draw);
    if (!count) return std::nullopt;
    if (def.kind == AttrKind::Floats) {
        std::vector<float> out;
        for (size_t k = 0; k < *count; ++k) out.push_back(draw.pick({0.0f, 1.0f, 0.5f, -1.0f, 2.0f}));
        return Attr(out);
    }
    if (def.kind == AttrKind::Strings)
        return Attr(std::vector<std::string>(*count, draw.pick<std::string>({"a", "b", ""})));
    std::vector<int64_t> out;
    const int64_t style = draw.below(4);
    if (auto rank = rank_of(d); style == 0 && rank) {  // axes
        out = draw.subset(*rank, static_cast<int64_t>(*count));
        for (int64_t& a : out) a = proposal::spelt(a, *rank, draw);
        return Attr(out);
    }
    if (style == 1) return Attr(draw.permutation(static_cast<int64_t>(*count)));
    for (size_t k = 0; k < *count; ++k) out.push_back(style == 2 ? draw.between(1, 3) : draw.between(0, 2));
    return Attr(out);
}

std::optional<Attr> by_definition(const Draft& d, const AttrDef& def, SizePool& pool) {
    Draw& draw = pool.draw();
    switch (def.kind) {
        case AttrKind::Int: return whole(def, draw);
        case AttrKind::Float: return real_number(def, draw);
        case AttrKind::String: return text(def, draw);
        case AttrKind::Ints:
        case AttrKind::Floats:
        case AttrKind::Strings: return list(d, def, pool);
        case AttrKind::Tensor: {
            const DType dtype = draw.pick({DType::f32, DType::f64, DType::i64, DType::i32, DType::f16});
            return Attr(random_constant(dtype, {draw.pick<int64_t>({1, 1, 2, 3})}, false, draw, {}));
        }
        case AttrKind::Type: return Attr(Type(DType::f32, Shape(pool.shape(draw.between(0, 2)))));
        case AttrKind::Graph: return std::nullopt;
    }
    return std::nullopt;
}

double ordinary(Draw& draw, int style) {
    switch (style) {
        case 0: return static_cast<double>(draw.between(-3, 3));
        case 1: return static_cast<double>(draw.between(-16, 16)) / 8;
        default: return static_cast<double>(draw.between(1, 4));
    }
}

// The last ones have squares and multiples that f64, f32 or f16 do not have.
int64_t extreme_integer(DType dtype, Draw& draw) {
    const int64_t least = int_min(dtype), most = int_max(dtype);
    return int_wrap(dtype, draw.pick<int64_t>({least, most, least + 1, most - 1, most / 2 + 1, (int64_t{1} << 53) - 1,
                                               94906267, (int64_t{1} << 24) + 1, 46341, 4099, 181, 100}));
}

}  // namespace

std::vector<int64_t> proposal::some_permutation(int64_t rank, Draw& draw) {
    std::vector<int64_t> p;
    for (int64_t k = 0; k < rank; ++k) p.push_back(k);
    const int64_t style = draw.below(10);
    if (style < 1) return p;
    if (style < 3 && rank >= 2) {
        std::swap(p[rank - 1], p[rank - 2]);
    } else if (style < 4) {
        std::reverse(p.begin(), p.end());
    } else if (style < 5 && rank >= 3) {  // channels last, and back
        std::rotate(p.begin() + 1, p.begin() + 2, p.end());
    } else if (style < 6 && rank >= 3) {
        std::rotate(p.begin() + 1, p.end() - 1, p.end());
    } else {
        p = draw.permutation(rank);
    }
    return p;
}

std::optional<Sizes> Draft::sizes(size_t i) const {
    if (!has(i) || !inputs[i]->type().is_tensor()) return std::nullopt;
    return inputs[i]->type().tensor().shape.sizes();
}

const Tensor* Draft::contents(size_t i) const {
    return has(i) && inputs[i]->tensor() ? &*inputs[i]->tensor() : nullptr;
}

namespace {

template <typename T>
const T* attr_of(const Draft& d, const std::string& name) {
    if (d.open.contains(name)) return nullptr;
    if (auto it = d.attrs.find(name); it != d.attrs.end()) return std::get_if<T>(&it->second);
    const AttrDef* def = d.op->attr(name);
    return def && def->fallback ? std::get_if<T>(&*def->fallback) : nullptr;
}

}  // namespace

std::optional<int64_t> Draft::integer(const std::string& name) const {
    auto* value = attr_of<int64_t>(*this, name);
    return value ? std::optional(*value) : std::nullopt;
}
const std::vector<int64_t>* Draft::ints(const std::string& name) const {
    return attr_of<std::vector<int64_t>>(*this, name);
}
const std::string* Draft::string(const std::string& name) const { return attr_of<std::string>(*this, name); }

std::optional<Attr> propose_attr(const Draft& draft, const std::string& name, SizePool& pool) {
    const AttrDef* def = draft.op->attr(name);
    if (!def) return std::nullopt;
    const ProposeAttr* propose = nullptr;
    if (auto it = by_name().find(name); it != by_name().end()) propose = &it->second;
    if (const proposal::OpSampling* special = proposal::sampling_of(*draft.op))
        if (auto it = special->attrs.find(name); it != special->attrs.end()) propose = &it->second;
    // A name says what is likely to fit; any value of the kind may.
    if (!propose || !def->choices.empty() || pool.draw().chance(kAnyOfKind)) return by_definition(draft, *def, pool);
    std::optional<Attr> value = (*propose)(draft, pool);
    return value && attr_kind(*value) == def->kind ? value : std::nullopt;
}

std::string random_string(Draw& draw) { return draw.pick<std::string>({"", "a", "b", "ab", "ba", "abc", "B c", "10"}); }

Tensor random_constant(DType dtype, const Sizes& sizes, bool positive, Draw& draw, const SampleOptions& options) {
    auto made = Tensor::zeros(dtype, sizes);
    CHECK(made.ok());
    Tensor t = std::move(*made);
    const bool uniform = draw.chance(25);
    const int style = static_cast<int>(draw.below(3));
    double all = positive ? draw.pick({1.0, 2.0, 0.5}) : draw.pick({0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -0.0, 6.0});
    for (int64_t i = 0; i < t.elements(); ++i) {
        if (dtype == DType::boolean) {
            t.set_int(i, uniform ? all > 0 : draw.chance(50));
        } else if (is_int(dtype)) {
            int64_t low = is_unsigned_int(dtype) || positive ? (positive ? 1 : 0) : -3;
            int64_t v = uniform ? std::max<int64_t>(static_cast<int64_t>(all), low) : draw.between(low, 3);
            if (dtype_bits(dtype) < 4) v &= 1;
            if (options.extremes && draw.chance(25)) v = extreme_integer(dtype, draw);
            if (positive) v = std::max<int64_t>(v, 1);
            t.set_int(i, v);
        } else if (is_float(dtype)) {
            double v = uniform ? all : ordinary(draw, style);
            if (positive) v = std::max(std::fabs(v), 0.125);
            if (options.special && !positive && draw.chance(20))
                v = draw.pick(
                    {0.0, -0.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()});
            t.set_real(i, v);
        } else if (dtype == DType::string) {
            t.mutable_strings()[static_cast<size_t>(i)] = random_string(draw);
        }
    }
    return t;
}

}  // namespace tessera
