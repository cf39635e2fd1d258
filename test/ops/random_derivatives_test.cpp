// Random graphs against differences in f64. TESSERA_RANDOM_GRADIENTS=2000 checks that many.
#include <cstdlib>

#include "ops/derivatives.h"
#include "ops/random_graph_text.h"

namespace tessera::test::random_derivatives_test {
namespace {

TEST(RandomDerivatives, AgreeWithDifferences) {
    const char* given = std::getenv("TESSERA_RANDOM_GRADIENTS");
    const uint64_t count = given ? std::strtoull(given, nullptr, 10) : 40;
    for (uint64_t seed = 1; seed <= count; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        DerivativeCheck(RandomGraphText(seed, "f64").make(int(4 + seed % 27)), seed).run(false);
        if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace tessera::test::random_derivatives_test
