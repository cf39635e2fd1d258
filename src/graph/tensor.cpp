#include "graph/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/hash.h"
#include "base/memory.h"
#include "base/numeric.h"

namespace tessera {
namespace {

using StringList = std::vector<std::string>;
constexpr int64_t kMaxElements = int64_t{1} << 48;  // far over any memory; keeps byte counts from overflowing

}  // namespace

Result<int64_t> element_count(const Sizes& sizes) {
    if (sizes.size() > kMaxRank)
        return Error(Code::E0108, "{} dimensions, more than the maximum of {}", sizes.size(), kMaxRank);
    int64_t n = 1;
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    for (int64_t s : sizes) {
        if (s < 0) return Error(Code::E0108, "a size of {} in {}", s, to_string(sizes));
        if (s == 0 || (!__builtin_mul_overflow(n, s, &n) && n <= kMaxElements)) continue;
        if (empty)
            return Error(Code::E0108, "{}: the product of the sizes other than 0 is above 2^48", to_string(sizes));
        return Error(Code::E0108, "{} has more than 2^48 elements", to_string(sizes));
    }
    return empty ? 0 : n;
}

std::string to_string(const Sizes& sizes) { return fmt::format("[{}]", fmt::join(sizes, ",")); }

Result<Tensor> Tensor::zeros(DType dtype, Sizes sizes) {
    int64_t n = TRY(element_count(sizes));
    if (dtype == DType::string) {
        TRY(allocate_bytes(n * static_cast<int64_t>(sizeof(std::string))));  // held to the limit like any other
        return strings(std::move(sizes), StringList(n));
    }
    Tensor t;
    auto memory = TRY(allocate_bytes(n * static_cast<int64_t>(dtype_bytes(dtype))));
    t.dtype_ = dtype;
    t.sizes_ = std::move(sizes);
    t.elements_ = n;
    t.data_ = memory.get();
    t.owner_ = std::move(memory);
    return t;
}

Tensor Tensor::view(DType dtype, Sizes sizes, const void* data, std::shared_ptr<const void> owner) {
    Tensor t;
    auto n = element_count(sizes);
    CHECK(n.ok() && dtype != DType::string);
    t.dtype_ = dtype;
    t.sizes_ = std::move(sizes);
    t.elements_ = *n;
    t.data_ = data;
    t.owner_ = std::move(owner);
    return t;
}

Tensor Tensor::view_on_gpu(int gpu, DType dtype, Sizes sizes, const void* data, std::shared_ptr<const void> owner) {
    Tensor t = view(dtype, std::move(sizes), data, std::move(owner));
    t.gpu_ = gpu;
    return t;
}

Tensor Tensor::strings(Sizes sizes, StringList values) {
    Tensor t;
    auto n = element_count(sizes);
    CHECK(n.ok() && *n == static_cast<int64_t>(values.size()), "{} strings for {}", values.size(), to_string(sizes));
    auto list = std::make_shared<StringList>(std::move(values));
    t.dtype_ = DType::string;
    t.sizes_ = std::move(sizes);
    t.elements_ = *n;
    t.data_ = list.get();
    t.owner_ = std::move(list);
    return t;
}

Result<Tensor> Tensor::filled(DType dtype, Sizes sizes, double value) {
    Tensor t = TRY(zeros(dtype, std::move(sizes)));
    for (int64_t i = 0; i < t.elements_; ++i) t.set_real(i, value);
    return t;
}

void Tensor::require(bool fits) { CHECK(fits, "a tensor is read or made as what it is not"); }

const StringList& Tensor::as_strings() const {
    CHECK(dtype_ == DType::string);
    return *static_cast<const StringList*>(data_);
}
StringList& Tensor::mutable_strings() { return const_cast<StringList&>(as_strings()); }

int64_t Tensor::int_at(int64_t i) const { return read_int(dtype_, data_, i); }
double Tensor::real_at(int64_t i) const { return read_real(dtype_, data_, i); }
void Tensor::set_int(int64_t i, int64_t value) { write_int(dtype_, mutable_data(), i, value); }
void Tensor::set_real(int64_t i, double value) { write_real(dtype_, mutable_data(), i, value); }

std::vector<int64_t> Tensor::to_ints() const {
    std::vector<int64_t> values(elements_);
    for (int64_t i = 0; i < elements_; ++i) values[i] = int_at(i);
    return values;
}

Tensor Tensor::reshaped(Sizes sizes) const {
    auto n = element_count(sizes);
    CHECK(n.ok() && *n == elements_, "{} elements as {}", elements_, to_string(sizes));
    Tensor t = *this;
    t.sizes_ = std::move(sizes);
    return t;
}

bool Tensor::same_bits(const Tensor& other) const {
    if (dtype_ != other.dtype_ || sizes_ != other.sizes_) return false;
    if (data_ == other.data_) return true;
    if (dtype_ == DType::string) return as_strings() == other.as_strings();
    return bytes() == 0 || std::memcmp(data_, other.data_, bytes()) == 0;
}

uint64_t Tensor::content_hash() const {
    uint64_t h = mix(static_cast<uint64_t>(dtype_), sizes_.size());
    for (int64_t s : sizes_) h = mix(h, s);
    if (dtype_ != DType::string) return elements_ ? mix(h, hash_bytes(data_, bytes())) : h;
    for (const std::string& s : as_strings()) h = mix(h, hash_bytes(s.data(), s.size()));
    return h;
}

}  // namespace tessera
