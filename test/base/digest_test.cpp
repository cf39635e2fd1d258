#include "base/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tessera::digest_test {
namespace {

// As the reference implementation gives it: caches and checksums are the same wherever they are made.
TEST(Digest, IsXxh3Of128Bits) { EXPECT_EQ(to_string(digest_bytes("", 0)), "99aa06d3014798d86001c324468d497f"); }

TEST(Digest, EveryBitCounts) {
    std::vector<unsigned char> bytes(300);
    std::set<std::string> seen;
    for (size_t size : {1, 15, 16, 17, 128, 129, 240, 241, 300}) {
        seen.insert(to_string(digest_bytes(bytes.data(), size)));
        for (size_t bit = 0; bit < size * 8; bit += 7) {
            bytes[bit / 8] ^= 1 << bit % 8;
            EXPECT_TRUE(seen.insert(to_string(digest_bytes(bytes.data(), size))).second) << size << " " << bit;
            bytes[bit / 8] ^= 1 << bit % 8;
        }
    }
    EXPECT_EQ(to_string({1, 2}), "00000000000000010000000000000002");
}

}  // namespace
}  // namespace tessera::digest_test
