// Enumeration and pruning on sets of ops that are small enough to know the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "discover/check/verify_rule.h"
#include "discover/discover.h"
#include "discover/enumerate/prune.h"
#include "discover/enumerate/siblings.h"
#include "graph/text/parse.h"
#include "rewrite/refute/field.h"

namespace tessera::enumerate_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr const char* kSmall = R"(
world matrices
sizes m=2 k=3 n=4; m=3 k=2 n=1
var x y z: [m, k]
var w v: [k, n]
op x, y: add(x, y) if same_dims(x, y)
op x: relu(x)
op x, y: matmul(x, y)
op x: transpose(x, perm=[1, 0])
op x, y: concat(x, y, axis=1)
op x: split.0(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: split.1(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
)";

OpSet small_set(const std::string& text = kSmall) {
    auto set = read_op_set("small", text);
    EXPECT_TRUE(set.ok()) << set.error().to_string();
    return std::move(*set);
}

std::vector<std::string> texts(Enumeration& terms) {
    std::vector<std::string> all;
    for (const TermPair& p : terms.pairs()) all.push_back(to_string(terms, p));
    return all;
}

// What the straight-line program computes is what the walk over the graph does.
void expect_same_as_walk(const std::string& text, const std::vector<Sizes>& sizes) {
    auto graph = parse(text);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    auto program = FieldProgram::compile(**graph);
    ASSERT_TRUE(program) << text;
    std::vector<FieldTensor> inputs;
    const uint64_t* at[8] = {};
    for (size_t i = 0; i < sizes.size(); ++i) {
        FieldTensor t{DType::f32, sizes[i], {}, {}};
        int64_t count = 1;
        for (int64_t n : sizes[i]) count *= n;
        for (int64_t k = 0; k < count; ++k)
            t.elements.push_back(field_power(7 + i, static_cast<uint64_t>(1000 + 37 * k)));
        inputs.push_back(std::move(t));
    }
    for (size_t i = 0; i < inputs.size(); ++i) at[i] = inputs[i].elements.data();
    FieldRun run = evaluate_in_field(**graph, inputs, 5);
    ASSERT_EQ(run.outcome, FieldRun::Outcome::Values) << run.reason;
    std::vector<uint64_t> out(program->size()), scratch;
    ASSERT_TRUE(program->run(at, out.data(), 5, scratch));
    EXPECT_EQ(out, run.outputs[0].elements) << text;
}

TEST(FieldProgram, AgreesWithTheWalk) {
    expect_same_as_walk("graph g(a: f32[2,3], b: f32[3,4]) { return matmul(a, b) }", {{2, 3}, {3, 4}});
    expect_same_as_walk("graph g(a: f32[2,3]) { return softmax(a, axis=1) }", {{2, 3}});
    expect_same_as_walk(
        "graph g(a: f32[1,4,5,3], b: f32[6,2,3,3]) { return conv(a, b, group=2, pads=[1,1,1,1], strides=[2,1]) }",
        {{1, 4, 5, 3}, {6, 2, 3, 3}});
    expect_same_as_walk("graph g(a: f32[1,2,4,3]) { return max_pool(a, kernel_shape=[3,3], pads=[1,1,1,1]) }",
                        {{1, 2, 4, 3}});
    expect_same_as_walk("graph g(a: f32[2,3], b: f32[1,3]) { return div(a, exp(b)) }", {{2, 3}, {1, 3}});
    expect_same_as_walk("graph g(a: f32[5,1]) { return transpose(relu(a), perm=[1,0]) }", {{5, 1}});
}

TEST(OpSet, SaysWhatIsWrong) {
    EXPECT_THAT(find_op_set("reluu").error().to_string(), HasSubstr("relu"));
    EXPECT_THAT(find_op_set("add,nothing_like_it").error().to_string(), HasSubstr("E0501"));
    EXPECT_FALSE(read_op_set("t", "op x: relu(x, y)").ok());
    EXPECT_FALSE(read_op_set("t", "world a\nvar x: [m]").ok());  // no sizes
    EXPECT_FALSE(read_op_set("t", "world a\nsizes k=1\nvar x: [m]").ok());
    EXPECT_FALSE(read_op_set("t", "var x: [m]").ok());                       // no world
    EXPECT_THAT(find_op_set("if").error().to_string(), HasSubstr("E0501"));  // no body
}

TEST(OpSet, TakesOpsByName) {
    auto set = find_op_set("add,relu,transpose,reduce_sum");
    ASSERT_TRUE(set.ok()) << set.error().to_string();
    EXPECT_GT(set->templates.size(), 4u);
    EXPECT_GE(set->worlds.size(), 2u);
}

TEST(Enumerate, FindsTheLawsOfTwoOps) {
    OpSet set = small_set();
    EnumerateOptions options;
    options.max_ops = 2;
    Enumeration terms(set, set.worlds[0], options);
    ASSERT_TRUE(terms.run().ok());
    std::vector<std::string> all = texts(terms);
    EXPECT_THAT(all, Contains("relu(relu(x)) => relu(x)"));
    EXPECT_THAT(all, Contains("transpose(transpose(x, perm=[1, 0]), perm=[1, 0]) => x"));
    EXPECT_THAT(all, Contains("relu(transpose(x, perm=[1, 0])) => transpose(relu(x), perm=[1, 0])"));
    for (const std::string& text : all) EXPECT_EQ(text.find("add(x, y) => add(y, x)"), std::string::npos);
    EXPECT_GT(terms.counts().graphs, 500);
    EXPECT_EQ(terms.counts().raw_pairs, terms.counts().renamed + terms.counts().common + int64_t(terms.pairs().size()));
}

TEST(Enumerate, IsTheSameForAnyThreads) {
    OpSet set = small_set();
    std::vector<std::vector<std::string>> runs;
    for (int threads : {1, 2}) {
        EnumerateOptions options;
        options.max_ops = 3;
        options.threads = threads;
        Enumeration terms(set, set.worlds[0], options);
        ASSERT_TRUE(terms.run().ok());
        runs.push_back(texts(terms));
    }
    EXPECT_EQ(runs[0], runs[1]);
}

TEST(Enumerate, GoesOnAfterAnInterruption) {
    OpSet set = small_set(R"(
world matrices
sizes m=2 k=3; m=3 k=1
var x y: [m, k]
op x, y: add(x, y)
op x: relu(x)
op x: neg(x)
op x, y: mul(x, y)
)");
    const std::string folder = (std::filesystem::temp_directory_path() / "tessera-enumerate-test").string();
    std::filesystem::remove_all(folder);
    auto run = [&](std::atomic<bool>* cancel, bool stop) {
        EnumerateOptions options;
        options.max_ops = 4;
        options.work_dir = folder;
        options.cancel = cancel;
        if (stop)
            options.progress = [cancel](const EnumerateOptions::Progress& p) {
                if (p.phase == "terms") *cancel = true;
            };
        auto terms = std::make_unique<Enumeration>(set, set.worlds[0], options);
        Status status = terms->run();
        return std::make_pair(std::move(terms), status);
    };
    std::atomic<bool> cancel{false};
    auto [stopped, failed] = run(&cancel, true);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), Code::E0410);
    EXPECT_FALSE(std::filesystem::is_empty(folder));
    cancel = false;
    auto [resumed, went_on] = run(&cancel, false);
    ASSERT_TRUE(went_on.ok());
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    auto [fresh, done] = run(&cancel, false);
    ASSERT_TRUE(done.ok());
    EXPECT_EQ(texts(*resumed), texts(*fresh));
    EXPECT_EQ(resumed->counts().raw_pairs, fresh->counts().raw_pairs);
    EXPECT_EQ(resumed->counts().terms, fresh->counts().terms);
    EXPECT_GT(fresh->pairs().size(), 20u);
    std::filesystem::remove_all(folder);
}

TEST(Prune, DropsInstancesOfACommonSubgraph) {
    OpSet set = small_set();
    EnumerateOptions options;
    options.max_ops = 3;
    Enumeration terms(set, set.worlds[0], options);
    ASSERT_TRUE(terms.run().ok());
    for (const std::string& text : texts(terms))
        EXPECT_NE(text, "relu(transpose(matmul(x, w), perm=[1, 0])) => transpose(relu(matmul(x, w)), perm=[1, 0])");
}

// What TASO is known for, on two worlds of its own ops, from nothing but their bodies.
TEST(Discover, FindsWhatTasoFound) {
    DiscoverOptions options;
    options.ops = "taso";
    options.enumerate.max_ops = 3;
    options.prove = false;
    auto found = discover(options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    std::vector<std::string> rules;
    for (const FoundRule& r : found->rules) {
        std::string text = to_string(r.claim.rule);
        rules.push_back(text.substr(text.find(": ") + 2));
    }
    // Siblings that share an input.
    EXPECT_THAT(
        rules,
        Contains("(matmul(x, v), matmul(x, w)) => split(matmul(x, concat(v, w, axis=1)), axis=1, num_outputs=2)"));
    EXPECT_THAT(rules,
                Contains("(conv(x, q), conv(x, p)) => split(conv(x, concat(q, p, axis=0)), axis=1, num_outputs=2)"));
    // Distribution, enlargement, transposed products, groups.
    EXPECT_THAT(rules, Contains("add(matmul(x, w), matmul(x, v)) => matmul(x, add(w, v))"));
    EXPECT_THAT(rules, Contains("conv(x, pad(p, [0, 0, 1, 1, 0, 0, 1, 1]), pads=[1, 1, 1, 1]) => conv(x, p)"));
    EXPECT_THAT(
        rules,
        Contains(
            "matmul(transpose(w, perm=[1, 0]), transpose(x, perm=[1, 0])) => transpose(matmul(x, w), perm=[1, 0])"));
    EXPECT_THAT(
        rules,
        Contains(
            "conv(concat(y, x, axis=1), concat(q, p, axis=0), group=2) => concat(conv(y, q), conv(x, p), axis=1)"));
}

TEST(Discover, ProvesAndWrites) {
    DiscoverOptions options;
    options.ops = "add,relu,transpose";
    options.enumerate.max_ops = 2;
    auto found = discover(options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_GT(found->counts.proved, 5);
    const std::string text = rules_text(*found, Proof::Verdict::Proved);
    auto rules = read_rules(text, "found");
    ASSERT_TRUE(rules.ok()) << rules.error().to_string();
    for (const Rule& r : *rules) EXPECT_EQ(r.evidence, Evidence::Proved);
    auto certificates = read_certificates(certificates_text(*found), "found");
    ASSERT_TRUE(certificates.ok()) << certificates.error().to_string();
    for (const Rule& r : *rules) {
        Status verified = verify_rule(r, *certificates);
        EXPECT_TRUE(verified.ok()) << to_string(r) << "\n" << (verified.ok() ? "" : verified.error().to_string());
    }
}

TEST(Discover, IsCancelled) {
    std::atomic<bool> cancel{true};
    DiscoverOptions options;
    options.enumerate.cancel = &cancel;
    auto found = discover(options);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code(), Code::E0410);
}

}  // namespace
}  // namespace tessera::enumerate_test
