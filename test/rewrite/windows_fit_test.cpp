// Windows of dynamic sizes: a rule is applied only where its windows fit whenever those that it replaces do.
#include <gtest/gtest.h>

#include "graph/text/parse.h"
#include "graph/verify.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera::windows_fit_test {
namespace {

constexpr const char* kMerge =
    "a [reassociates]: max_pool(max_pool(x:float, kernel_shape=[2]), kernel_shape=[2]) => "
    "max_pool(x, kernel_shape=[3])";

int64_t times_applied(const std::string& rule, const std::string& size, const std::string& body) {
    Result<Rules> rules = read_rules(rule, "test.rules");
    EXPECT_TRUE(rules.ok()) << rules.error().to_string();
    auto graph = parse("graph g(x: f32[2,3," + size + "], w: f32[4,3,1], v: f32[4,3,3]) {\n" + body + "\n}");
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    PassContext context;
    EXPECT_TRUE(apply_rules(**graph, RuleSet(*rules), context).ok());
    verify(**graph);
    return context.rewrites;
}

// Two windows of 2 give an empty result for a size of 1, for which a window of 3 is an error.
TEST(windows, of_merged_pools_must_fit) {
    const std::string pools = "%0 = max_pool(x, kernel_shape=[2])\n%1 = max_pool(%0, kernel_shape=[2])\nreturn %1";
    EXPECT_EQ(times_applied(kMerge, "8", pools), 1);
    EXPECT_EQ(times_applied(kMerge, "2", pools), 1);
    EXPECT_EQ(times_applied(kMerge, "1", pools), 0);
    EXPECT_EQ(times_applied(kMerge, "n", pools), 0);
    EXPECT_EQ(times_applied(kMerge, "n+2", pools), 1);
}

TEST(windows, that_are_kept_fit) {
    EXPECT_EQ(times_applied("a: max_pool(neg(x), kernel_shape=k, ..r) => max_pool(relu(x), kernel_shape=k, ..r)", "n",
                            "%0 = neg(x)\n%1 = max_pool(%0, kernel_shape=[5])\nreturn %1"),
              1);
    EXPECT_EQ(times_applied("a: max_pool(pad(x, [0,0,1,0,0,1]), kernel_shape=[3]) => "
                            "max_pool(x, kernel_shape=[3], pads=[1,1])",
                            "n", "%0 = pad(x, [0,0,1,0,0,1])\n%1 = max_pool(%0, kernel_shape=[3])\nreturn %1"),
              1);
    EXPECT_EQ(times_applied("a: conv(neg(x), w) => conv(relu(x), w)", "n", "%0 = neg(x)\n%1 = conv(%0, v)\nreturn %1"),
              1);
}

// A pool whose window is larger than a dynamic size is empty, a convolution an error.
TEST(windows, of_convolutions_must_fit_where_those_of_pools_need_not) {
    const std::string rule =
        "a [reassociates]: mul(average_pool(x, kernel_shape=[3]), slice(v, [0, 0, 0], [1, 3, 1])) => "
        "conv(x, slice(v, [0, 0, 0], [3, 3, 3]))";
    const std::string body =
        "%0 = average_pool(x, kernel_shape=[3])\n%1 = slice(v, [0,0,0], [1,3,1])\n%2 = mul(%0, %1)\nreturn %2";
    EXPECT_EQ(times_applied(rule, "9", body), 1);
    EXPECT_EQ(times_applied(rule, "n", body), 0);
    EXPECT_EQ(times_applied(rule, "n+2", body), 0);
    EXPECT_EQ(times_applied(rule, "n+3", body), 1);
}

}  // namespace
}  // namespace tessera::windows_fit_test
