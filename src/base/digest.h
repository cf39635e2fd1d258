// 128 bits that stand for bytes: XXH3, the same on every machine. Two inputs do not share one by chance; one who wants
// them to can make them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera {

struct Digest {
    uint64_t high = 0, low = 0;
    bool operator==(const Digest&) const = default;
};
Digest digest_bytes(const void* data, size_t size);
std::string to_string(const Digest& digest);  // 32 hexadecimal digits

}  // namespace tessera
