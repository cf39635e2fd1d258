// Encoding, decoding, printing and parsing of instructions, and the descriptions of machines.
#include "kernel/accelerator/instruction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "accelerator/random_program.h"
#include "source_dir.h"

namespace tessera::accelerator_test {
namespace {

using namespace accelerator;
using testing::HasSubstr;

std::string error_of(const std::string& line) {
    auto parsed = parse_program(line, "p.tessel");
    return parsed.ok() ? "" : parsed.error().to_string();
}

TEST(Instruction, RandomProgramsSurviveEncodingAndText) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        const RandomProgram made = random_program(Machine{}, seed);
        for (const Instruction& i : made.program) {
            auto decoded = decode(encode(i));
            ASSERT_TRUE(decoded.ok()) << decoded.error().to_string();
            EXPECT_EQ(*decoded, i) << to_string(i);
        }
        auto parsed = parse_program(to_string(made.program), "p");
        ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
        EXPECT_EQ(*parsed, made.program);
    }
}

TEST(Instruction, FieldsLieWhereTheReferenceSays) {
    const auto program = parse_program(
        "load to=acc element=int8 pad_value=5 address=65538 row=7 x=1 y=2 z=3 x_stride=4 top=1 right=9 push_next\n"
        "alu op=scale b=immediate immediate=1056964608 addend=-1 clip low=-128 high=127 pop_previous\n",
        "p");
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    const Encoded load = encode((*program)[0]), alu = encode((*program)[1]);
    EXPECT_EQ(load[0], 1 | 1 << 6 | 2 << 7 | 1 << 9);
    EXPECT_EQ(load[1], 5);
    EXPECT_EQ(load[2], 2);
    EXPECT_EQ(load[3], 1);
    EXPECT_THAT((std::vector<int>{load[4], load[5], load[6], load[7], load[8]}), testing::ElementsAre(7, 1, 2, 3, 4));
    EXPECT_EQ(load[14], 1);
    EXPECT_EQ(load[15], 9 << 8);
    EXPECT_EQ(alu[0], 4 | 1 << 3 | 1 << 7 | 1 << 9);
    EXPECT_EQ(alu[1], 7 | 0xfff0);
    EXPECT_EQ(alu[13], 0x3f00);
    EXPECT_EQ(alu[14], 0xff80);
}

TEST(Instruction, DecodeRefusesWhatIsNone) {
    EXPECT_FALSE(decode(Encoded{}).ok());
    Encoded finish = encode(Instruction{{}, Finish{}});
    ASSERT_TRUE(decode(finish).ok());
    finish[9] = 1;
    EXPECT_THAT(decode(finish).error().message(), HasSubstr("no field of finish"));
    Encoded alu = encode(Instruction{{}, Alu{}});
    alu[1] |= 15;
    EXPECT_THAT(decode(alu).error().message(), HasSubstr("has only 14 values"));
}

TEST(Instruction, TextErrorsSayWhatIsExpected) {
    EXPECT_THAT(error_of("finish\nlod"),
                HasSubstr("expected load, store, gemm, alu or finish, found \"lod\"\n  at p.tessel:2"));
    EXPECT_THAT(error_of("load x=70000"), HasSubstr("expected x to be an integer from 0 to 65535, found \"70000\""));
    EXPECT_THAT(error_of("alu op=add addend=2048"), HasSubstr("from -2048 to 2047"));
    EXPECT_THAT(error_of("gemm stride=2"), HasSubstr("\"stride\" is not a field"));
    EXPECT_THAT(error_of("load x=1 x=2"), HasSubstr("x is given twice"));
    EXPECT_THAT(error_of("load pop_next=1"), HasSubstr("pop_next takes no value"));
    EXPECT_EQ(error_of("// only a comment\n\n  finish // the end\n"), "");
}

TEST(Machine, TheDescriptionInTheRepositoryIsTheDefault) {
    auto read = load_machine(source_dir() + "/machines/tessel.json");
    ASSERT_TRUE(read.ok()) << read.error().to_string();
    Machine usual;
    usual.name = "tessel";
    EXPECT_EQ(*read, usual);
    auto again = parse_machine(read->to_json(), "again");
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*again, *read);
}

TEST(Machine, ErrorsNameTheField) {
    const std::string good = Machine{.name = "m"}.to_json();
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        auto parsed = parse_machine(text, "m.json");
        return parsed.ok() ? std::string() : parsed.error().to_string();
    };
    EXPECT_EQ(with("\"m\"", "\"n\""), "");
    EXPECT_THAT(with("\"inputs\": 16", "\"inputs\": 12"),
                HasSubstr("array.inputs is 12, expected a power of two from 2 to 128"));
    EXPECT_THAT(with("\"latency\": 40", "\"latency\": 0"),
                HasSubstr("memory.latency is 0, expected an integer from 1 to 1000"));
    EXPECT_THAT(with("\"latency\": 40", "\"latency\": -1"), HasSubstr("E0212"));
    EXPECT_THAT(with("\"latency\"", "\"latancy\""), HasSubstr("no machine has a field memory.latancy"));
    EXPECT_THAT(with("\"uops\": 2048", "\"wide\": 2"), HasSubstr("no machine has a field scratchpads.wide"));
    EXPECT_THAT(with("\"alu\": true", "\"alu\": 1"), HasSubstr("alu is not true or false"));
    EXPECT_THAT(with("accelerator 1", "accelerator 9"), HasSubstr("its format is not"));
    EXPECT_THAT(with("{", "["), HasSubstr("not a JSON object"));
    EXPECT_THAT(with("\"burst\": 4", "\"burst\": 32"), HasSubstr("expected at least fetch.burst"));
    EXPECT_EQ(load_machine("gone.json").error().code(), Code::E0101);
}

}  // namespace
}  // namespace tessera::accelerator_test
