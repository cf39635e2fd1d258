// Chakra execution traces, read back field by field.
#include "shard/simulate/chakra.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tessera/simulate.h"

namespace tessera::test::chakra_test {

using namespace shard;

namespace {

// Fields of a protobuf message: by number, what is a varint as text, everything else as bytes.
std::vector<std::pair<int, std::string>> fields_of(std::string_view message) {
    std::vector<std::pair<int, std::string>> fields;
    auto varint = [&] {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            if (message.empty()) return ADD_FAILURE() << "cut off", value;
            const auto byte = uint8_t(message[0]);
            message.remove_prefix(1);
            value |= uint64_t(byte & 127) << shift;
            if (byte < 128) return value;
        }
    };
    while (!message.empty()) {
        const uint64_t key = varint(), value = varint();
        if ((key & 7) == 0) {
            fields.emplace_back(int(key >> 3), std::to_string(value));
            continue;
        }
        EXPECT_EQ(key & 7, 2u);
        if (value > message.size()) return ADD_FAILURE() << "cut off", fields;
        fields.emplace_back(int(key >> 3), std::string(message.substr(0, value)));
        message.remove_prefix(value);
    }
    return fields;
}

struct DecodedNode {
    uint64_t id = 0;
    int type = 0;
    std::string name;
    std::vector<uint64_t> after;
    std::map<std::string, std::string> attributes;
};

std::vector<DecodedNode> decoded(std::string_view file) {
    std::vector<DecodedNode> nodes;
    bool metadata = true;
    while (!file.empty()) {
        size_t length = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = uint8_t(file[0]);
            file.remove_prefix(1);
            length |= size_t(byte & 127) << shift;
            if (byte < 128) break;
        }
        const auto fields = fields_of(file.substr(0, length));
        file.remove_prefix(length);
        if (std::exchange(metadata, false)) {
            EXPECT_EQ(fields[0], (std::pair<int, std::string>{1, "0.0.4"}));
            continue;
        }
        DecodedNode& n = nodes.emplace_back();
        for (const auto& [field, value] : fields) {
            if (field == 1) n.id = std::stoull(value);
            if (field == 2) n.name = value;
            if (field == 3) n.type = std::stoi(value);
            if (field == 5)
                for (char c : value) n.after.push_back(uint8_t(c));  // small numbers
            if (field == 10) {
                const auto attribute = fields_of(value);
                n.attributes[attribute[0].second] = attribute[1].second;
            }
        }
    }
    return nodes;
}

TEST(Chakra, TracesAreWhatRanksDo) {
    TracedMesh traced{*Mesh::parse("pipeline=2,data=2,model=2"), 0, {}};
    traced.stages.push_back({{.name = "F",
                              .seconds = 0.5,
                              .flops = 1e9,
                              .bytes = 1e6,
                              .collectives = {{CollectiveKind::AllReduce, 4096, {2}}},
                              .sends = TracedPass::Message{1, 7, 512}}});
    traced.stages.push_back(
        {{.name = "F", .seconds = 0.25, .flops = 1e8, .bytes = 1e5, .receives = TracedPass::Message{0, 7, 512}}});
    const auto first = decoded(chakra_trace(traced, 1)), second = decoded(chakra_trace(traced, 5));
    ASSERT_EQ(first.size(), 3u);
    EXPECT_EQ(first[0].type, 4);
    EXPECT_EQ(first[0].attributes.at("num_ops"), "1000000000");
    EXPECT_EQ(first[1].type, 7);
    EXPECT_EQ(first[1].attributes.at("comm_type"), "0");
    EXPECT_EQ(first[1].attributes.at("comm_size"), "4096");
    EXPECT_EQ(first[1].attributes.at("involved_dim"), std::string("\x0a\x03\x01\x00\x00", 5)) << "innermost first";
    EXPECT_EQ(first[1].after, (std::vector<uint64_t>{first[0].id}));
    EXPECT_EQ(first[2].type, 5);
    EXPECT_EQ(first[2].attributes.at("comm_src"), "1");
    EXPECT_EQ(first[2].attributes.at("comm_dst"), "5");
    EXPECT_EQ(first[2].attributes.at("comm_tag"), "7");
    ASSERT_EQ(second.size(), 2u);
    EXPECT_EQ(second[0].type, 6);
    EXPECT_EQ(second[0].attributes.at("comm_src"), "1");
    EXPECT_EQ(second[0].attributes.at("comm_dst"), "5");
    EXPECT_EQ(second[1].after, (std::vector<uint64_t>{second[0].id}));
}

// Each message that one rank sends is received by another, with the same tag and size.
TEST(Chakra, RanksOfAGptReceiveWhatIsSent) {
    SimulateOptions options{.mesh = "pipeline=2,model=2"};
    options.microbatches = 4;
    options.schedule = "interleaved";
    options.chunks = 2;
    const auto made =
        simulate_gpt({.layers = 8, .hidden = 512, .heads = 8, .sequence = 256, .vocabulary = 4096}, options);
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    const Simulation& s = *made;
    const std::string name = std::filesystem::temp_directory_path() / fmt::format("tessera_chakra_{}", getpid());
    ASSERT_TRUE(s.write_chakra(name).ok());
    std::multiset<std::string> sent, received;
    for (int rank = 0; rank < 4; ++rank) {
        const std::string path = fmt::format("{}.{}.et", name, rank);
        std::ifstream file(path, std::ios::binary);
        const std::string bytes((std::istreambuf_iterator<char>(file)), {});
        std::filesystem::remove(path);
        EXPECT_GT(bytes.size(), 100u);
        for (const DecodedNode& n : decoded(bytes)) {
            if (n.type != 5 && n.type != 6) continue;
            const std::string text =
                fmt::format("{} {} {} {}", n.attributes.at("comm_src"), n.attributes.at("comm_dst"),
                            n.attributes.at("comm_tag"), n.attributes.at("comm_size"));
            EXPECT_EQ(n.attributes.at(n.type == 5 ? "comm_src" : "comm_dst"), std::to_string(rank));
            (n.type == 5 ? sent : received).insert(text);
        }
    }
    EXPECT_EQ(sent, received);
    EXPECT_EQ(sent.size(), 2u * 4 * 3 * 2) << "of 2 ranks and 4 microbatches, over 3 boundaries, both ways";
    EXPECT_EQ(std::set<std::string>(sent.begin(), sent.end()).size(), sent.size()) << "tags tell messages apart";
}

}  // namespace
}  // namespace tessera::test::chakra_test
