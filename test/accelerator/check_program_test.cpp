// The check finds every conflict that tokens leave open: tokens of random programs are removed, and an independent
// account of all pairs of accesses says that none of those programs orders everything.
#include "kernel/accelerator/check_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "accelerator/random_program.h"
#include "accelerator/remove_token.h"
#include "accelerator/token_order.h"
#include "base/random.h"
#include "kernel/accelerator/execute.h"

namespace tessera::accelerator_test {
namespace {

using namespace accelerator;
using testing::HasSubstr;

ProgramCheck check(const std::vector<Instruction>& program, std::span<const uint8_t> memory) {
    auto checked = check_program(Machine{.name = "m"}, program, memory);
    EXPECT_TRUE(checked.ok()) << checked.error().to_string();
    return checked.ok() ? std::move(*checked) : ProgramCheck{};
}

std::string findings(const std::string& text) {
    auto program = parse_program(text, "test");
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    return check(*program, std::vector<uint8_t>(4096)).to_string();
}

const char* const kBegin = "load to=uop x=0 right=1\nload to=wgt x_stride=256\nload to=inp x=4 x_stride=16 push_next\n";

TEST(CheckProgram, SaysWhatIsMissing) {
    const std::string begin = kBegin;
    EXPECT_EQ(findings(begin + "gemm init=always outer=4 acc.outer=1 inp.outer=1 pop_previous push_next\n"
                               "store x=4 x_stride=16 address=1024 pop_previous\nfinish\n"),
              "");
    EXPECT_THAT(
        findings(begin + "gemm init=always outer=4 acc.outer=1 inp.outer=1 pop_previous push_next push_previous\n"
                         "load to=inp row=3\nstore x=4 x_stride=16 address=1024 pop_previous\nfinish\n"),
        testing::AllOf(HasSubstr("inp[3]"), HasSubstr("no token orders one after the other"),
                       HasSubstr("1 token from compute to load nothing takes; instruction 3")));
    EXPECT_THAT(findings(begin + "gemm init=always outer=4 acc.outer=1 inp.outer=1 pop_previous\n"
                                 "store x=4 x_stride=16 address=1024\nfinish\n"),
                HasSubstr("acc[0], which instruction 3"));
    EXPECT_THAT(findings(begin + "gemm pop_previous\nfinish\n"), HasSubstr("reads acc[0], which nothing has written"));
    EXPECT_THAT(findings(begin + "gemm init=always pop_previous pop_next\nfinish\n"),
                HasSubstr("waits for a token from store that never comes"));
    // Memory: the load reads what the store writes, and nothing orders them.
    EXPECT_THAT(findings(begin + "gemm init=always pop_previous push_next\nstore address=1024 pop_previous\n"
                                 "load to=inp row=9 address=1030\nfinish\n"),
                HasSubstr("memory[10"));
}

// Every token orders a conflict that nothing else orders, and the check finds each that is removed.
TEST(CheckProgram, FindsEveryRemovedToken) {
    const char* wanted = std::getenv("TESSERA_ACCELERATOR_PROGRAMS");
    const uint64_t programs = wanted ? std::strtoull(wanted, nullptr, 10) : 40;
    const Machine machine{.name = "m"};
    size_t found = 0;
    for (uint64_t seed = 1; seed <= programs; ++seed) {
        SCOPED_TRACE(seed);
        const RandomProgram made = random_program(machine, seed);
        const ProgramCheck whole = check(made.program, made.memory);
        ASSERT_TRUE(whole.ok()) << whole.to_string();
        const Conflicts conflicts = all_conflicts(machine, made.program, made.memory);
        ASSERT_TRUE(everything_ordered(conflicts, order_without(made.program, whole.tokens, ~size_t(0))));
        for (size_t t = 0; t < whole.tokens.size(); ++t) {
            const TokenPair& token = whole.tokens[t];
            EXPECT_FALSE(everything_ordered(conflicts, order_without(made.program, whole.tokens, t)))
                << "token " << token.push << " to " << token.pop << " is redundant";
            EXPECT_FALSE(check(without(made.program, token), made.memory).ok())
                << "token " << token.push << " to " << token.pop << " is not missed";
            EXPECT_FALSE(check(without_push(made.program, token), made.memory).ok());
            EXPECT_FALSE(check(without_pop(made.program, token), made.memory).ok());
            ++found;
        }
    }
    std::printf("%zu removed tokens found, %llu programs from seed 1\n", found,
                static_cast<unsigned long long>(programs));
    EXPECT_GT(found, programs);
}

// Units that run in any order that tokens allow compute the same.
TEST(CheckProgram, ResultsDoNotDependOnTheOrderOfUnits) {
    const Machine machine{.name = "m"};
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        const RandomProgram made = random_program(machine, seed);
        std::vector<uint8_t> first;
        for (uint64_t order = 0; order < 4; ++order) {
            std::vector<uint8_t> memory = made.memory;
            Executor executor(machine, memory);
            RandomStream random(seed, order);
            std::array<std::vector<size_t>, 3> todo;
            for (size_t i = made.program.size() - 1; i-- > 0;) todo[size_t(made.program[i].unit())].push_back(i);
            std::array<std::array<int, 3>, 3> tokens{};
            uint64_t drawn = 0;
            size_t idle = 0;
            while (!todo[0].empty() || !todo[1].empty() || !todo[2].empty()) {
                ASSERT_LT(++idle, 1000u) << "seed " << seed;
                const size_t u = random.bits(drawn++) % 3;
                if (todo[u].empty()) continue;
                const size_t i = todo[u].back();
                const Tokens& k = made.program[i].tokens;
                if ((k.pop_previous && tokens[u - 1][u] == 0) || (k.pop_next && tokens[u + 1][u] == 0)) continue;
                if (k.pop_previous) --tokens[u - 1][u];
                if (k.pop_next) --tokens[u + 1][u];
                auto done = executor.execute(made.program[i], i);
                ASSERT_TRUE(done.ok()) << done.error().to_string();
                if (k.push_previous) ++tokens[u][u - 1];
                if (k.push_next) ++tokens[u][u + 1];
                todo[u].pop_back();
                idle = 0;
            }
            if (order == 0) first = memory;
            EXPECT_EQ(memory, first) << "seed " << seed << ", order " << order;
        }
    }
}

}  // namespace
}  // namespace tessera::accelerator_test
