#include "graph/ops/tensor_slices.h"

#include "base/error.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tessera {
namespace {

int64_t product(const Sizes& sizes, int64_t from, int64_t to) {
    return std::accumulate(sizes.begin() + from, sizes.begin() + to, int64_t{1}, std::multiplies<>());
}

}  // namespace

void copy_elements(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count) {
    CHECK(from.dtype() == to.dtype() && from_at + count <= from.elements() && to_at + count <= to.elements());
    if (count == 0) return;
    if (from.dtype() == DType::string) {
        std::copy_n(from.as_strings().begin() + from_at, count, to.mutable_strings().begin() + to_at);
        return;
    }
    size_t width = dtype_bytes(from.dtype());
    std::memcpy(static_cast<char*>(to.mutable_data()) + to_at * width,
                static_cast<const char*>(from.data()) + from_at * width, count * width);
}

Result<Tensor> tensor_of_ints(Sizes sizes, const std::vector<int64_t>& values) {
    Tensor out = TRY(Tensor::zeros(DType::i64, std::move(sizes)));
    std::copy(values.begin(), values.end(), out.mutable_as<int64_t>().begin());
    return out;
}

Result<Tensor> pick(const Tensor& t, int64_t axis, const std::vector<int64_t>& positions) {
    Sizes sizes = t.sizes();
    int64_t outer = product(sizes, 0, axis), extent = sizes[axis], inner = product(sizes, axis + 1, t.rank());
    sizes[axis] = positions.size();
    Tensor out = TRY(Tensor::zeros(t.dtype(), sizes));
    int64_t to = 0;
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t p : positions) {
            CHECK(p >= 0 && p < extent);
            copy_elements(t, (i * extent + p) * inner, out, to, inner);
            to += inner;
        }
    return out;
}

Result<Tensor> slice_of(const Tensor& t, int64_t axis, int64_t from, int64_t to) {
    std::vector<int64_t> positions(std::max<int64_t>(to - from, 0));
    std::iota(positions.begin(), positions.end(), from);
    return pick(t, axis, positions);
}

Result<Tensor> take(const Tensor& t, int64_t axis, int64_t position) {
    Sizes sizes = t.sizes();
    sizes.erase(sizes.begin() + axis);
    return TRY(pick(t, axis, {position})).reshaped(sizes);
}

Result<Tensor> concat_tensors(const std::vector<Tensor>& parts, int64_t axis) {
    CHECK(!parts.empty());
    Sizes sizes = parts[0].sizes();
    sizes[axis] = 0;
    for (const Tensor& p : parts) {
        Sizes other = p.sizes();
        if (other.size() == sizes.size()) other[axis] = sizes[axis];
        if (p.dtype() != parts[0].dtype() || other != sizes)
            return Error(Code::E0407, "{}{} and {}{} cannot be concatenated along axis {}",
                         dtype_name(parts[0].dtype()), to_string(parts[0].sizes()), dtype_name(p.dtype()),
                         to_string(p.sizes()), axis);
        sizes[axis] += p.size(axis);
    }
    Tensor out = TRY(Tensor::zeros(parts[0].dtype(), sizes));
    int64_t outer = product(sizes, 0, axis), inner = product(sizes, axis + 1, sizes.size()), to = 0;
    for (int64_t i = 0; i < outer; ++i)
        for (const Tensor& p : parts) {
            int64_t run = p.size(axis) * inner;
            copy_elements(p, i * run, out, to, run);
            to += run;
        }
    return out;
}

Result<Tensor> stack_tensors(const std::vector<Tensor>& parts, int64_t axis) {
    std::vector<Tensor> wider;
    for (const Tensor& p : parts) {
        Sizes sizes = p.sizes();
        if (axis > int64_t(sizes.size()))
            return Error(Code::E0407, "{} cannot be stacked along axis {}", to_string(sizes), axis);
        sizes.insert(sizes.begin() + axis, 1);
        wider.push_back(p.reshaped(sizes));
    }
    return concat_tensors(wider, axis);
}

}  // namespace tessera
