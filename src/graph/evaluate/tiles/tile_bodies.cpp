#include "graph/evaluate/tiles/tile_bodies.h"

#include <fmt/format.h>

#include "base/check.h"
#include "tile/verify.h"

namespace tessera {
namespace {

using tile::Instruction;
using tile::Kind;
using Places = std::vector<Expr>;

Places places_in(const Sizes& sizes) {
    Places all;
    for (size_t d = 0; d < sizes.size(); ++d) all.push_back(index_var(fmt::format("i{}", d), sizes[d]));
    return all;
}

Expr element(const TileInputs& inputs, size_t n, Places places) {
    if (inputs[n]->rank() == 0) places.clear();
    return load(static_cast<int>(n), inputs[n]->dtype(), std::move(places));
}

Expr xor_of(const Expr& a, const Expr& b) {
    return a.dtype() == DType::boolean ? ne(a, b) : bit(ExprKind::BitXor, a, b);
}

Expr product_body(DType dtype, const TileInputs& inputs, const Places& at) {
    const size_t rank = at.size();
    const int64_t depth = inputs[0]->size(-1);
    const ReduceAxis k{index_var("k", depth), depth};
    Places left = at, right = at;
    left[rank - 1] = k.var;
    right[rank - 2] = k.var;
    const DType in = is_float(dtype) && dtype != DType::f64 ? DType::f32 : dtype;
    Expr all = sum({k}, cast(element(inputs, 0, left), in) * cast(element(inputs, 1, right), in));
    if (inputs.size() > 2) all = all + cast(element(inputs, 2, at), in);
    return cast(all, dtype);
}

Expr reduction_body(const Instruction& i, const TileInputs& inputs, Places at) {
    const auto axis = static_cast<std::ptrdiff_t>(i.numbers[0]);
    const int64_t extent = inputs[0]->size(axis);
    const ReduceAxis k{index_var("k", extent), extent};
    at.insert(at.begin() + axis, k.var);
    const Expr x = element(inputs, 0, at);
    const DType dtype = x.dtype();
    if (i.word == "sum" && dtype == DType::boolean) return ne(sum({k}, cast(x, DType::i32)), int_const(0, DType::i32));
    if (i.word == "sum") return sum({k}, x);
    return i.word == "min" ? reduce_min({k}, x) : reduce_max({k}, x);
}

Expr gathered_body(const Instruction& i, const TileInputs& inputs, const Places& at) {
    const auto axis = static_cast<size_t>(i.numbers[0]);
    Places from = at;
    const Expr place = cast(element(inputs, 1, at), DType::i64);
    from[axis] = clamp(place, 0, inputs[0]->sizes()[axis] - 1);
    return element(inputs, 0, from);
}

}  // namespace

std::vector<std::string> tile_index_names(size_t rank) {
    std::vector<std::string> names;
    for (size_t d = 0; d < rank; ++d) names.push_back(fmt::format("i{}", d));
    return names;
}

Sizes tile_sizes(const Instruction& i, const tile::Type& type, const TileInputs& inputs) {
    if (!type.shape.empty() || (i.kind != Kind::Map && i.kind != Kind::Broadcast)) return type.shape;
    for (const Tensor* x : inputs)
        if (x->rank() > 0) return x->sizes();
    return {};
}

Expr tile_body(const Instruction& i, size_t output, DType dtype, const Sizes& sizes, const TileInputs& inputs) {
    const Places at = places_in(sizes);
    switch (i.kind) {
        case Kind::Constant: return i.body;
        case Kind::Arange: return cast(at[0] + Expr(i.numbers[0]), DType::i32);
        case Kind::Map:
            return map_loads(i.body, [&](const Expr& e) { return element(inputs, size_t(e.node().slot), at); });
        case Kind::Offset: return element(inputs, 0, at) + cast(element(inputs, 1, at), DType::i64);
        case Kind::PlaceOf: return element(inputs, 0, at);
        case Kind::Choose: return select(element(inputs, 0, at), element(inputs, 1, at), element(inputs, 2, at));
        case Kind::Broadcast: {
            Places from = at;
            for (size_t d = 0; d < from.size() && inputs[0]->rank() > 0; ++d)
                if (inputs[0]->sizes()[d] == 1) from[d] = 0;
            return element(inputs, 0, from);
        }
        case Kind::Permute: {
            Places from(at.size());
            for (size_t d = 0; d < at.size(); ++d) from[static_cast<size_t>(i.numbers[d])] = at[d];
            return element(inputs, 0, from);
        }
        case Kind::Flip: {
            Places from = at;
            const auto axis = static_cast<size_t>(i.numbers[0]);
            from[axis] = Expr(sizes[axis] - 1) - at[axis];
            return element(inputs, 0, from);
        }
        case Kind::Join: {
            const Places from(at.begin(), at.end() - 1);
            return select(eq(at.back(), 0), element(inputs, 0, from), element(inputs, 1, from));
        }
        case Kind::Split: {
            Places from = at;
            from.emplace_back(static_cast<int64_t>(output));
            return element(inputs, 0, from);
        }
        case Kind::Concatenate: return append_body(*inputs[0], 0, sizes);
        case Kind::Gather: return gathered_body(i, inputs, at);
        case Kind::Dot: return product_body(dtype, inputs, at);
        case Kind::Reduce: return reduction_body(i, inputs, at);
        default: CHECK(false, "{} has no body", tile::kind_name(i.kind));
    }
}

Expr load_body(DType dtype, int64_t extent, const Sizes& sizes, const TileInputs& inputs) {
    const Places at = places_in(sizes);
    const Expr place = element(inputs, 0, at);
    Expr inside = logical_and(ge(place, 0), lt(place, extent));
    if (inputs.size() > 2) inside = logical_and(element(inputs, 1, at), inside);
    // What the program says instead is for its own mask.
    Expr outside = constant(0, dtype);
    if (inputs.size() > 3) outside = select(element(inputs, 1, at), outside, element(inputs, 2, at));
    const auto array = static_cast<int>(inputs.size()) - 1;
    return select(inside, load(array, dtype, {place}), outside);
}

Expr update_body(std::string_view how, DType dtype) {
    const Expr was = load(0, dtype, {}), first = load(1, dtype, {}), last = load(2, dtype, {});
    if (how == "add") return was + first;
    if (how == "min") return select(lt(first, was), first, was);
    if (how == "max") return select(lt(was, first), first, was);
    if (how == "and") return bit(ExprKind::BitAnd, was, first);
    if (how == "or") return bit(ExprKind::BitOr, was, first);
    if (how == "xor") return bit(ExprKind::BitXor, was, first);
    if (how == "compare") return select(eq(was, first), last, was);
    return first;
}

Expr choice_body(DType dtype, const Sizes& sizes, const TileInputs& inputs) {
    const Places at = places_in(sizes);
    return cast(select(element(inputs, 0, at), element(inputs, 1, at), element(inputs, 2, at)), dtype);
}

Expr xor_body(DType dtype, const Sizes& sizes, const TileInputs& inputs) {
    const Places at = places_in(sizes);
    return cast(xor_of(element(inputs, 0, at), element(inputs, 1, at)), dtype);
}

Expr slice_body(const Tensor& x, size_t axis, int64_t first, int64_t step, const Sizes& sizes) {
    Places at = places_in(sizes);
    at[axis] = at[axis] * Expr(step) + Expr(first);
    return load(0, x.dtype(), std::move(at));
}

Expr append_body(const Tensor& first, size_t axis, const Sizes& sizes) {
    const Places at = places_in(sizes);
    Places behind = at;
    const int64_t before = first.sizes()[axis];
    behind[axis] = at[axis] - Expr(before);
    return select(lt(at[axis], before), load(0, first.dtype(), at), load(1, first.dtype(), behind));
}

int64_t tile_trips(int64_t begin, int64_t end, int64_t step) {
    if (step == 0) return 0;
    const __int128 distance = step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
    const __int128 size = step > 0 ? step : -static_cast<__int128>(step);
    if (distance <= 0) return 0;
    return static_cast<int64_t>(std::min<__int128>((distance + size - 1) / size, tile::kMostTrips));
}

}  // namespace tessera
