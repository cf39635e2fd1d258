// Compiled programs: their tokens order every conflict, and the check finds every one that is removed. Only the barrier
// between two layers can be redundant, where the second layer reads nothing that the first one stored last: then the
// account of all pairs says that every conflict is still ordered, and no result can differ.
#include <gtest/gtest.h>

#include <cstdlib>

#include "accelerator/random_layers.h"
#include "accelerator/remove_token.h"
#include "accelerator/token_order.h"

namespace tessera::accelerator_test {
namespace {

using namespace accelerator;

struct Removed {
    size_t found = 0, redundant = 0;
};

// The token from the first layer's last store through a barrier to the second layer's first load.
bool of_barrier(const Program& program, const TokenPair& t) {
    const auto is_barrier = [&](size_t i) {
        const Tokens& k = program[i].tokens;
        return program[i].unit() == Unit::Compute && k.pop_next && k.push_previous && !k.pop_previous && !k.push_next;
    };
    return is_barrier(t.push) || is_barrier(t.pop);
}

void check_tokens(const Machine& machine, RandomGraph& r, int contexts, Removed& removed) {
    EXPECT_TRUE(r.builder().status().ok());
    auto network = network_of(r.graph(), machine);
    EXPECT_TRUE(network.ok()) << network.error().to_string();
    auto compiled = compile_network(std::move(*network), machine, {.contexts = contexts});
    EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
    const Program& program = compiled->instructions;
    const auto whole = check_program(machine, program, compiled->image);
    EXPECT_TRUE(whole.ok() && whole->ok()) << (whole.ok() ? whole->to_string() : whole.error().to_string());
    if (testing::Test::HasFailure()) return;
    const auto found = [&](const Program& fewer) {
        auto checked = check_program(machine, fewer, compiled->image);
        EXPECT_TRUE(checked.ok()) << checked.error().to_string();
        return !checked->ok();
    };
    for (size_t n = 0; n < whole->tokens.size(); ++n) {
        const TokenPair& t = whole->tokens[n];
        EXPECT_TRUE(found(without_push(program, t)));
        EXPECT_TRUE(found(without_pop(program, t)));
        if (found(without(program, t))) {
            ++removed.found;
            continue;
        }
        ++removed.redundant;
        EXPECT_TRUE(of_barrier(program, t) && everything_ordered(all_conflicts(machine, program, compiled->image),
                                                                 order_without(program, whole->tokens, n)))
            << "token " << t.push << " (" << to_string(program[t.push]) << ") to " << t.pop << " ("
            << to_string(program[t.pop]) << ") of " << program.size() << " instructions";
    }
}

void check_seeds(uint64_t programs, const std::function<bool(RandomGraph&)>& make) {
    Machine small{.name = "small"};
    small.inp_rows = 512;
    small.wgt_tiles = 128;
    small.acc_rows = 256;
    small.uops = 256;
    const std::array<Machine, 3> machines{Machine{.name = "usual"}, small,
                                          Machine{.name = "wide", .inputs = 8, .outputs = 32}};
    if (const char* wanted = std::getenv("TESSERA_ACCELERATOR_PROGRAMS")) programs = std::strtoull(wanted, nullptr, 10);
    Removed removed;
    for (uint64_t seed = 1; seed <= programs && !testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        if (make(r)) check_tokens(machines[seed % machines.size()], r, r.chance(75) ? 2 : 1, removed);
    }
    std::printf("%zu removed tokens found, %zu redundant, %llu programs from seed 1\n", removed.found,
                removed.redundant, static_cast<unsigned long long>(programs));
    EXPECT_GT(removed.found, std::max<size_t>(programs, 50 * removed.redundant));
}

TEST(CompiledTokens, Convolutions) {
    check_seeds(30, [](RandomGraph& r) { return random_convolution(r), true; });
}

TEST(CompiledTokens, Pools) {
    check_seeds(10, [](RandomGraph& r) { return random_pool(r), true; });
}

TEST(CompiledTokens, Products) {
    check_seeds(10, [](RandomGraph& r) { return random_product(r), true; });
}

TEST(CompiledTokens, Networks) { check_seeds(20, random_network); }

}  // namespace
}  // namespace tessera::accelerator_test
