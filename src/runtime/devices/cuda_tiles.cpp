#include "runtime/devices/cuda_tiles.h"

namespace tessera {
namespace {

constexpr int kExchangedPieces = 3, kPromoteAll = 3;  // rows of 128 bytes, and 256 bytes to the cache

}  // namespace

Status describe_tiles(const cuda::Driver& driver, const BoundMap& map, void* base, TileDescription& to) {
    constexpr size_t kMostDims = 5;
    std::array<uint64_t, kMostDims> sizes{}, strides{};
    std::array<unsigned, kMostDims> box{}, every{};
    for (size_t d = 0; d < map.sizes.size(); ++d) {
        sizes[d] = static_cast<uint64_t>(map.sizes[d]);
        if (map.every.empty()) box[d] = static_cast<unsigned>(map.box[d]);
        every[d] = 1;
        if (d < map.strides.size()) strides[d] = static_cast<uint64_t>(map.strides[d]);
    }
    // Floats of 32 bits are rounded to tf32 on the way: tiles of them are multiplied as that.
    const int type = map.dtype == DType::bf16 ? 9 : map.dtype == DType::f32 ? 11 : dtype_bytes(map.dtype) == 1 ? 0 : 6;
    if (!map.every.empty()) {
        std::array<int, kMostDims> first{}, last{};
        for (size_t d = 0; d < map.every.size(); ++d) {
            first[d] = static_cast<int>(map.from[d]);
            last[d] = static_cast<int>(map.to[d]);
            every[d + 1] = static_cast<unsigned>(map.every[d]);
        }
        return driver.check(driver.cuTensorMapEncodeIm2col(
                                &to, type, static_cast<unsigned>(map.sizes.size()), base, sizes.data(), strides.data(),
                                first.data(), last.data(), static_cast<unsigned>(map.box[0]),
                                static_cast<unsigned>(map.box[1]), every.data(), 0, kExchangedPieces, kPromoteAll, 0),
                            "describing places");
    }
    return driver.check(
        driver.cuTensorMapEncodeTiled(&to, type, static_cast<unsigned>(map.sizes.size()), base, sizes.data(),
                                      strides.data(), box.data(), every.data(), 0, kExchangedPieces, kPromoteAll, 0),
        "describing tiles");
}

}  // namespace tessera
