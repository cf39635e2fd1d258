// The check finds every conflict that tokens leave open: tokens of random programs are removed, and an independent
// account of all pairs of accesses says which of those programs still order everything.
#include "kernel/accelerator/check_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "accelerator/random_program.h"
#include "base/random.h"
#include "kernel/accelerator/accesses.h"
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

// ---- The account of all pairs

using Access = std::pair<size_t, bool>;  // instruction, whether it writes
using Places = std::map<std::pair<int, int64_t>, std::vector<Access>>;

Places all_accesses(const Machine& m, const std::vector<Instruction>& program, const std::vector<uint8_t>& memory) {
    Places places;
    std::vector<Uop> uops(size_t(m.uops));
    for (size_t n = 0; n < program.size(); ++n) {
        const auto touch = [&](int room, int64_t at, bool writes) {
            auto& list = places[{room, at}];
            if (list.empty() || list.back() != Access(n, writes)) list.push_back({n, writes});
        };
        const auto bytes = [&](int64_t at, int count, bool writes) {
            for (int b = 0; b < count; ++b) touch(4, at + b, writes);
        };
        if (const Load* l = std::get_if<Load>(&program[n].op))
            for_each_row(*l, [&](uint32_t row, int64_t at) {
                touch(int(l->to), row, true);
                if (l->to == Scratchpad::Uop) uops[row] = at < 0 ? Uop{} : decode_uop(&memory[size_t(at)]);
                if (at >= 0) bytes(at, m.row_bytes(l->to, l->element), false);
            });
        if (const Store* s = std::get_if<Store>(&program[n].op))
            for_each_row(*s, [&](uint32_t row, int64_t at) {
                touch(int(Scratchpad::Acc), row, false);
                bytes(at, m.row_bytes(Scratchpad::Acc, s->element), true);
            });
        if (const Gemm* g = std::get_if<Gemm>(&program[n].op)) {
            for (int u = 0; u < g->loop.uops; ++u) touch(int(Scratchpad::Uop), g->loop.uop + u, false);
            for_each_row(*g, uops.data(), [&](const GemmRows& r) {
                touch(int(Scratchpad::Inp), r.inp, false);
                touch(int(Scratchpad::Wgt), r.wgt, false);
                if (r.starts && g->from_bias) touch(int(Scratchpad::Acc), g->bias, false);
                touch(int(Scratchpad::Acc), r.acc, true);
            });
        }
        if (const Alu* a = std::get_if<Alu>(&program[n].op)) {
            for (int u = 0; u < a->loop.uops; ++u) touch(int(Scratchpad::Uop), a->loop.uop + u, false);
            for_each_row(*a, uops.data(), [&](const AluRows& r) {
                touch(int(Scratchpad::Acc), r.a, false);
                if (a->b == SecondOperand::Row) touch(int(Scratchpad::Acc), r.b, false);
                touch(int(Scratchpad::Acc), r.dst, true);
            });
        }
    }
    return places;
}

// Which instructions come before which: by their units, and by the tokens but for one.
std::vector<std::vector<bool>> order_without(const std::vector<Instruction>& program,
                                             const std::vector<TokenPair>& tokens, size_t removed) {
    const size_t n = program.size();
    std::vector<std::vector<size_t>> after(n);
    std::array<size_t, 3> last{n, n, n};
    for (size_t i = 0; i < n; ++i) {
        size_t& l = last[size_t(program[i].unit())];
        if (l < n) after[l].push_back(i);
        l = i;
    }
    for (size_t t = 0; t < tokens.size(); ++t)
        if (t != removed) after[tokens[t].push].push_back(tokens[t].pop);
    std::vector<std::vector<bool>> reached(n, std::vector<bool>(n));
    for (size_t from = 0; from < n; ++from) {
        std::vector<size_t> todo{from};
        while (!todo.empty()) {
            const size_t i = todo.back();
            todo.pop_back();
            for (size_t next : after[i])
                if (!reached[from][next]) {
                    reached[from][next] = true;
                    todo.push_back(next);
                }
        }
    }
    return reached;
}

bool everything_ordered(const std::vector<Instruction>& program, const Places& places,
                        const std::vector<std::vector<bool>>& before) {
    for (const auto& [place, list] : places)
        for (size_t a = 0; a < list.size(); ++a)
            for (size_t b = a + 1; b < list.size(); ++b) {
                const auto [i, i_writes] = list[a];
                const auto [j, j_writes] = list[b];
                if (i == j || program[i].unit() == program[j].unit() || !(i_writes || j_writes)) continue;
                if (!before[i][j] && !before[j][i]) return false;
            }
    return true;
}

void drop(std::vector<Instruction>& program, const TokenPair& t) {
    Tokens &push = program[t.push].tokens, &pop = program[t.pop].tokens;
    (t.to > t.from ? push.push_next : push.push_previous) = false;
    (t.to > t.from ? pop.pop_previous : pop.pop_next) = false;
}

TEST(CheckProgram, EveryRemovedTokenIsFoundOrRedundant) {
    const char* wanted = std::getenv("TESSERA_ACCELERATOR_PROGRAMS");
    const uint64_t programs = wanted ? std::strtoull(wanted, nullptr, 10) : 40;
    const Machine machine{.name = "m"};
    size_t found = 0, redundant = 0;
    for (uint64_t seed = 1; seed <= programs; ++seed) {
        SCOPED_TRACE(seed);
        const RandomProgram made = random_program(machine, seed);
        const ProgramCheck whole = check(made.program, made.memory);
        ASSERT_TRUE(whole.ok()) << whole.to_string();
        const Places places = all_accesses(machine, made.program, made.memory);
        ASSERT_TRUE(everything_ordered(made.program, places, order_without(made.program, whole.tokens, ~size_t(0))));
        for (size_t t = 0; t < whole.tokens.size(); ++t) {
            std::vector<Instruction> fewer = made.program;
            drop(fewer, whole.tokens[t]);
            const bool ordered = everything_ordered(made.program, places, order_without(made.program, whole.tokens, t));
            EXPECT_EQ(check(fewer, made.memory).ok(), ordered)
                << "token " << whole.tokens[t].push << " to " << whole.tokens[t].pop;
            ++(ordered ? redundant : found);
            // Only one end of it removed: a deadlock, or a token that nothing takes.
            fewer = made.program;
            Tokens& push = fewer[whole.tokens[t].push].tokens;
            (whole.tokens[t].to > whole.tokens[t].from ? push.push_next : push.push_previous) = false;
            EXPECT_FALSE(check(fewer, made.memory).ok());
        }
    }
    std::printf("%zu removed tokens found, %zu redundant, %llu programs from seed 1\n", found, redundant,
                static_cast<unsigned long long>(programs));
    EXPECT_GT(found, redundant);
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
