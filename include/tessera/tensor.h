// A tensor's value: element type, sizes, and contiguous elements in row-major order. Copies share the elements, which
// are in host memory or in a GPU's memory. Only runs on that GPU can use the latter. Datum is the run-time value of a
// graph value: a tensor, a sequence, or an optional.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/dtype.h"
#include "tessera/error.h"

namespace tessera {

using Sizes = std::vector<int64_t>;
inline constexpr size_t kMaxRank = 64;  // the largest rank of a tensor, as in NumPy
inline constexpr int kNoGpu = -1;

// The product of the sizes; E0108 if it overflows or a size is negative.
Result<int64_t> element_count(const Sizes& sizes);
std::string to_string(const Sizes& sizes);  // [2,3]

template <typename T>
constexpr DType dtype_of() {
    if constexpr (std::is_same_v<T, float>) return DType::f32;
    else if constexpr (std::is_same_v<T, double>) return DType::f64;
    else if constexpr (std::is_same_v<T, int64_t>) return DType::i64;
    else if constexpr (std::is_same_v<T, int32_t>) return DType::i32;
    else if constexpr (std::is_same_v<T, int16_t>) return DType::i16;
    else if constexpr (std::is_same_v<T, int8_t>) return DType::i8;
    else if constexpr (std::is_same_v<T, uint64_t>) return DType::u64;
    else if constexpr (std::is_same_v<T, uint32_t>) return DType::u32;
    else if constexpr (std::is_same_v<T, uint16_t>) return DType::u16;
    else if constexpr (std::is_same_v<T, uint8_t>) return DType::u8;
    else {
        static_assert(std::is_same_v<T, bool>, "no element type for T");
        return DType::boolean;
    }
}

class Tensor {
   public:
    Tensor() = default;  // f32[0]

    static Result<Tensor> zeros(DType dtype, Sizes sizes);  // E0408 beyond the memory limit; strings are empty
    // Aliases memory that `owner` keeps alive, and never writes to it.
    static Tensor view(DType dtype, Sizes sizes, const void* data, std::shared_ptr<const void> owner);
    // The same for memory of a GPU.
    static Tensor view_on_gpu(int gpu, DType dtype, Sizes sizes, const void* data, std::shared_ptr<const void> owner);
    static Tensor strings(Sizes sizes, std::vector<std::string> values);
    template <typename T>
    static Tensor of(Sizes sizes, const std::vector<T>& values);
    template <typename T>
    static Tensor scalar(T value) {
        return of<T>({}, {value});
    }
    static Tensor ints(const std::vector<int64_t>& values) { return of<int64_t>({int64_t(values.size())}, values); }
    static Result<Tensor> filled(DType dtype, Sizes sizes, double value);

    DType dtype() const { return dtype_; }
    const Sizes& sizes() const { return sizes_; }
    int64_t rank() const { return static_cast<int64_t>(sizes_.size()); }
    int64_t size(int64_t axis) const { return sizes_[axis < 0 ? axis + rank() : axis]; }
    int64_t elements() const { return elements_; }
    int64_t bytes() const { return elements_ * static_cast<int64_t>(dtype_bytes(dtype_)); }
    int gpu() const { return gpu_; }  // number of the GPU that owns the memory; kNoGpu: host memory

    const void* data() const { return data_; }
    // For initializing a new tensor before it is shared.
    void* mutable_data() { return const_cast<void*>(data_); }
    template <typename T>
    std::span<const T> as() const {
        require(sizeof(T) == dtype_bytes(dtype_) && gpu_ == kNoGpu);
        return {static_cast<const T*>(data_), static_cast<size_t>(elements_)};
    }
    template <typename T>
    std::span<T> mutable_as() {
        require(sizeof(T) == dtype_bytes(dtype_) && gpu_ == kNoGpu);
        return {static_cast<T*>(mutable_data()), static_cast<size_t>(elements_)};
    }
    const std::vector<std::string>& as_strings() const;
    std::vector<std::string>& mutable_strings();

    // Element i in row-major order, converted from or to the numeric element type.
    int64_t int_at(int64_t i) const;
    double real_at(int64_t i) const;
    void set_int(int64_t i, int64_t value);
    void set_real(int64_t i, double value);
    std::vector<int64_t> to_ints() const;

    Tensor reshaped(Sizes sizes) const;            // shares the elements
    bool same_bits(const Tensor& other) const;     // compares type, sizes and the bits of every element
    friend bool operator==(const Tensor& a, const Tensor& b) { return a.same_bits(b); }
    uint64_t content_hash() const;
    const std::shared_ptr<const void>& owner() const { return owner_; }

    static void require(bool fits);  // aborts with a message unless `fits`; for checks of types

   private:
    DType dtype_ = DType::f32;
    Sizes sizes_ = {0};
    int64_t elements_ = 0;
    const void* data_ = nullptr;
    int gpu_ = kNoGpu;
    std::shared_ptr<const void> owner_;
};

template <typename T>
Tensor Tensor::of(Sizes sizes, const std::vector<T>& values) {
    auto made = zeros(dtype_of<T>(), std::move(sizes));
    require(made.ok() && made->elements() == static_cast<int64_t>(values.size()));
    T* out = static_cast<T*>(made->mutable_data());
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return std::move(*made);
}

class Datum {
   public:
    enum class Kind { Tensor, Sequence, Optional };
    Datum() : Datum(Tensor()) {}
    Datum(Tensor t) : kind_(Kind::Tensor), tensor_(std::move(t)) {}
    static Datum sequence(std::vector<Datum> items) { return Datum(Kind::Sequence, std::move(items)); }
    static Datum none() { return Datum(Kind::Optional, {}); }
    static Datum some(Datum item) {
        std::vector<Datum> items;
        items.push_back(std::move(item));
        return Datum(Kind::Optional, std::move(items));
    }

    Kind kind() const { return kind_; }
    bool is_tensor() const { return kind_ == Kind::Tensor; }
    bool is_sequence() const { return kind_ == Kind::Sequence; }
    bool is_optional() const { return kind_ == Kind::Optional; }
    const Tensor& tensor() const {
        Tensor::require(is_tensor());
        return tensor_;
    }
    const std::vector<Datum>& items() const { return items_; }  // of a sequence; of an optional, at most one
    bool has_value() const { return !items_.empty(); }          // for optionals

   private:
    Datum(Kind kind, std::vector<Datum> items) : kind_(kind), items_(std::move(items)) {}
    Kind kind_;
    Tensor tensor_;
    std::vector<Datum> items_;
};

}  // namespace tessera
