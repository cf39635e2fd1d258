#include "graph/verify.h"

#include <gmock/gmock.h>

#include "graph/text/parse.h"

namespace tessera::verify_test {
namespace {

std::unique_ptr<Graph> graph(const char* text) {
    auto g = parse(text);
    EXPECT_TRUE(g.ok()) << g.error().to_string();
    return std::move(*g);
}

constexpr const char* kText = R"(graph f(x: f32[2,3], c: bool[]) {
    %a = relu(x)
    %b = if(c, then_branch=graph t() { %n = neg(%a)  return %n }, else_branch=graph e() { return %a })
    %d = add(%a, %b)
    return %d
})";

TEST(Verify, AGraphThatIsRightHasNoViolations) {
    auto g = graph(kText);
    EXPECT_THAT(violations(*g), testing::IsEmpty());
    auto copy = g->clone();
    EXPECT_THAT(violations(*copy), testing::IsEmpty());
    EXPECT_TRUE(identical(*g, *copy));
    g->replace_uses(g->find_value("a"), g->find_value("x"));
    EXPECT_THAT(violations(*g), testing::IsEmpty());
    EXPECT_EQ(g->erase_unused(), 1u);
    EXPECT_THAT(violations(*g), testing::IsEmpty());
}

TEST(Verify, FindsATypeThatCannotBe) {
    auto g = graph(kText);
    g->find_value("a")->set_type(Type(DType::f32, {2, 4}));
    EXPECT_THAT(violations(*g), testing::Contains(testing::StartsWith("10: ")));
}

TEST(Verify, FindsAWrongAttribute) {
    auto g = graph("graph f(x: f32[2,3]) { return transpose(x, [1,0]) }");
    g->nodes()[0]->attrs()["perm"] = std::string("no");
    EXPECT_THAT(violations(*g), testing::Contains(testing::StartsWith("9: ")));
}

TEST(Verify, FindsAUseBeforeTheDefinition) {
    auto g = graph("graph f(x: f32[2]) { %a = relu(x) %b = neg(%a) %c = abs(%b) return %b }");
    g->set_input(*g->nodes()[0], 0, g->find_value("c"));
    EXPECT_THAT(violations(*g), testing::Contains(testing::StartsWith("5: ")));
}

TEST(Identical, SaysWhatDiffers) {
    auto a = graph("graph f(x: f32[2]) { %a = leaky_relu(x, alpha=0.5) return %a }");
    auto differs = [&](const char* text) {
        std::string difference;
        EXPECT_FALSE(identical(*a, *graph(text), &difference));
        return difference;
    };
    EXPECT_THAT(differs("graph f(x: f32[2]) { %a = leaky_relu(x, alpha=0.25) return %a }"),
                testing::HasSubstr("attribute alpha"));
    EXPECT_THAT(differs("graph f(x: f32[3]) { %a = leaky_relu(x, alpha=0.5) return %a }"),
                testing::HasSubstr("f32[2] and f32[3]"));
    EXPECT_THAT(differs("graph f(x: f32[2]) { %a = relu(x) return %a }"), testing::HasSubstr("is relu"));
    EXPECT_THAT(differs("graph f(x: f32[2]) { %b = leaky_relu(x, alpha=0.5) return %b }"),
                testing::HasSubstr("\"a\" and \"b\""));
    EXPECT_THAT(differs("graph f(x: f32[2]) { %a = leaky_relu(x, alpha=0.5) return x }"),
                testing::HasSubstr("output 0"));
}

}  // namespace
}  // namespace tessera::verify_test
