// Meshes and shardings as text, and the blocks that they give ranks.
#include "shard/drawn.h"

namespace tessera::test::shard_text_test {

using namespace shard;

namespace {

const Mesh kMesh = *Mesh::parse("data=2, model=3");

TEST(ShardText, MeshesAreReadAndPrinted) {
    EXPECT_EQ(to_string(kMesh), "data=2,model=3");
    EXPECT_EQ(kMesh.ranks(), 6);
    EXPECT_EQ(kMesh.coordinate(5, 0), 1);
    EXPECT_EQ(kMesh.coordinate(4, 1), 1);
    EXPECT_EQ(kMesh.group(4, {1}), (std::vector<int64_t>{3, 4, 5}));
    EXPECT_EQ(kMesh.group(4, {0}), (std::vector<int64_t>{1, 4}));
    for (const char* wrong : {"", "data", "data=", "data=0", "data=2,data=3", "2=2", "a=2x", "a=9999999", "a=64,b=65"})
        EXPECT_FALSE(Mesh::parse(wrong).ok()) << wrong;
}

TEST(ShardText, ShardingsAreReadAndPrinted) {
    for (const char* text : {"data,-", "_,model+data", "data?,model", "-,-;sum(data+model)", "_,data;max(model)"}) {
        const auto read = parse_sharding(text, kMesh, 2);
        ASSERT_TRUE(read.ok()) << read.error().to_string();
        EXPECT_EQ(to_string(*read, kMesh), text);
        EXPECT_EQ(*parse_sharding(to_string(*read, kMesh), kMesh, 2), *read);
    }
    EXPECT_EQ(to_string(*parse_sharding("", kMesh, 0), kMesh), "");
    for (const char* wrong : {"data", "data,data", "data,-,-", "data,pipe", "data+data,-", "data,-;sum(data)",
                              "-,-;mean(data)", "-,-;sum data", "data,,", "+,-"})
        EXPECT_FALSE(parse_sharding(wrong, kMesh, 2).ok()) << wrong;
}

TEST(ShardText, BlocksCoverUnevenSizesOnce) {
    for (int64_t extent = 0; extent < 14; ++extent)
        for (const std::vector<size_t>& axes : {std::vector<size_t>{0}, {1}, {0, 1}, {1, 0}}) {
            std::vector<int> covered(size_t(extent), 0);
            for (int64_t rank : kMesh.group(0, axes))
                for (int64_t i = block(extent, axes, kMesh, rank).low; i < block(extent, axes, kMesh, rank).high; ++i)
                    ++covered[size_t(i)];
            EXPECT_EQ(covered, std::vector<int>(size_t(extent), 1)) << extent;
            const Interval coarse = block(extent, {axes[0]}, kMesh, 5), fine = block(extent, axes, kMesh, 5);
            EXPECT_TRUE(coarse.contains(fine)) << extent;
        }
    EXPECT_EQ(block(7, {1}, kMesh, 0), (Interval{0, 3}));
    EXPECT_EQ(block(7, {1}, kMesh, 2), (Interval{6, 7}));
    EXPECT_EQ(block(2, {1}, kMesh, 2).length(), 0);
}

}  // namespace
}  // namespace tessera::test::shard_text_test
