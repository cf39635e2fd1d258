#include "tensor_arrays.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "errors.h"

namespace nb = nanobind;
using namespace tessera;

std::optional<nb::dlpack::dtype> to_dlpack(DType t) {
    using Kind = nb::dlpack::dtype_code;
    auto make = [&](Kind kind) {
        return nb::dlpack::dtype{static_cast<uint8_t>(kind), static_cast<uint8_t>(dtype_bytes(t) * 8), 1};
    };
    switch (t) {
        case DType::f64: case DType::f32: case DType::f16: return make(Kind::Float);
        case DType::bf16: return make(Kind::Bfloat);
        case DType::i64: case DType::i32: case DType::i16: case DType::i8: return make(Kind::Int);
        case DType::u64: case DType::u32: case DType::u16: case DType::u8: return make(Kind::UInt);
        case DType::boolean: return make(Kind::Bool);
        case DType::c64: case DType::c128: return make(Kind::Complex);
        default: return std::nullopt;
    }
}

bool has_numpy(DType t) { return t != DType::bf16 && to_dlpack(t); }

nb::object numpy_of(const Tensor& t) {
    const auto dtype = to_dlpack(t.dtype());
    if (!has_numpy(t.dtype()) || t.gpu() != kNoGpu) return nb::none();
    std::vector<size_t> shape(t.sizes().begin(), t.sizes().end());
    auto* held = new Tensor(t);
    nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
    static double none = 0;
    void* data = t.data() ? const_cast<void*>(t.data()) : &none;
    return nb::cast(nb::ndarray<nb::numpy>(data, shape.size(), shape.data(), owner, nullptr, *dtype));
}

namespace {

// Memory for copies of results: what Python lets go of serves again, since its pages are there already.
class Copies {
  public:
    std::shared_ptr<Tensor> take(int64_t bytes) {
        Tensor block;
        {
            std::lock_guard lock(mutex_);
            auto fits = std::find_if(free_.begin(), free_.end(), [&](const Tensor& t) { return t.bytes() == bytes; });
            if (fits != free_.end()) {
                block = std::move(*fits);
                free_.erase(fits);
            }
        }
        if (block.bytes() != bytes) block = unwrap(Tensor::zeros(DType::u8, {bytes}));
        return {new Tensor(std::move(block)), [this](Tensor* t) {
                    give_back(std::move(*t));
                    delete t;
                }};
    }

  private:
    static constexpr size_t kMostKept = 4;
    static constexpr int64_t kMostBytes = 16 << 20;  // of each
    void give_back(Tensor block) {
        if (block.bytes() > kMostBytes) return;
        std::lock_guard lock(mutex_);
        if (free_.size() == kMostKept) free_.erase(free_.begin());
        free_.push_back(std::move(block));
    }
    std::mutex mutex_;
    std::vector<Tensor> free_;
};

}  // namespace

Datum owned(Datum d) {
    if (!d.is_tensor()) {
        std::vector<Datum> items;
        for (const Datum& item : d.items()) items.push_back(owned(item));
        if (d.is_sequence()) return Datum::sequence(std::move(items));
        return items.empty() ? Datum::none() : Datum::some(std::move(items[0]));
    }
    const Tensor& t = d.tensor();
    if (t.dtype() == DType::string || t.gpu() != kNoGpu || t.bytes() == 0 || t.owner().use_count() == 1) return d;
    static Copies& copies = *new Copies;  // never destroyed: arrays may outlive the module
    std::shared_ptr<Tensor> copy = copies.take(t.bytes());
    std::memcpy(copy->mutable_data(), t.data(), static_cast<size_t>(t.bytes()));
    const void* data = copy->data();
    return Datum(Tensor::view(t.dtype(), t.sizes(), data, std::move(copy)));
}
