// A counter-based generator: element i of stream s is a function of (seed, s, i), so any part can be made in any order.
// Integers throughout; what becomes a float is exact or rounded once, so that every machine makes the same bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

class RandomStream {
  public:
    RandomStream(uint64_t seed, uint64_t stream) : key_(scramble(seed + scramble(stream + kStep))) {}
    // Streams by name, whatever the machine's hash.
    RandomStream(uint64_t seed, std::string_view stream) : RandomStream(seed, name_hash(stream)) {}

    uint64_t bits(uint64_t i) const { return scramble(key_ + (i + 1) * kStep); }
    double uniform(uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }  // [0, 1)
    // A bell curve around 0 in steps of kBellStep of its standard deviation, within 3.47 of them: the sum of four
    // uniform numbers of 16 bits. An integer of 18 bits, so that its product with a float is exact in double.
    int64_t bell(uint64_t i) const {
        uint64_t b = bits(i);
        auto sum = static_cast<int64_t>((b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48));
        return sum - 2 * 0xffff;
    }
    static constexpr double kBellStep = 1.7320508075688772 / 65536;

  private:
    static constexpr uint64_t kStep = 0x9e3779b97f4a7c15ull;
    static uint64_t scramble(uint64_t x) {
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ x >> 27) * 0x94d049bb133111ebull;
        return x ^ x >> 31;
    }
    static uint64_t name_hash(std::string_view name) {
        uint64_t h = name.size();
        for (unsigned char c : name) h = scramble(h * kStep + c);
        return h;
    }
    uint64_t key_;
};

}  // namespace tessera
