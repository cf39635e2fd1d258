// Search and discovery as a user of the library has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tessera/tessera.h"

namespace {

namespace fs = std::filesystem;
using tessera::Code;
using tessera::Model;
using testing::HasSubstr;

struct TemporaryFolder {
    explicit TemporaryFolder(const char* name) : path(fs::temp_directory_path() / name) {
        fs::remove_all(path);
        fs::create_directories(path);
    }
    ~TemporaryFolder() { fs::remove_all(path); }
    std::string file(const char* name) const { return (path / name).string(); }
    fs::path path;
};

Model products() {
    auto model = Model::parse(R"(graph g(x: f32[3,7], a: f32[7,5], b: f32[7,2]) -> (y, z) {
  %y = matmul(x, a)
  %z = matmul(x, b)
  return %y, %z
})");
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return *model;
}

void expect_same(const Model& a, const Model& b, uint64_t seed) {
    auto inputs = a.random_inputs(seed);
    ASSERT_TRUE(inputs.ok());
    auto x = a.run(*inputs), y = b.run(*inputs);
    ASSERT_TRUE(x.ok() && y.ok());
    for (size_t i = 0; i < x->size(); ++i) {
        const auto &s = (*x)[i].tensor(), &t = (*y)[i].tensor();
        ASSERT_EQ(s.sizes(), t.sizes());
        for (int64_t k = 0; k < s.elements(); ++k) ASSERT_NEAR(s.real_at(k), t.real_at(k), 1e-5) << "seed " << seed;
    }
}

TEST(SearchModel, GivesTheSameModelAndAReport) {
    for (const char* strategy : {"egraph", "backtrack"}) {
        const Model model = products();
        std::vector<std::string> told;
        tessera::ModelSearchOptions options;
        options.strategy = strategy;
        options.cost = "estimate";
        options.seconds = 5;
        options.time_candidates = false;
        options.progress = [&](std::string_view what, size_t, size_t) { told.emplace_back(what); };
        auto found = tessera::search(model, options);
        ASSERT_TRUE(found.ok()) << found.error().to_string();
        for (uint64_t seed : {1, 2, 3}) expect_same(model, found->model, seed);
        EXPECT_EQ(found->report.strategy, strategy);
        EXPECT_EQ(found->report.candidates[0].what, "input");
        EXPECT_THAT(found->report.to_text(), HasSubstr("* "));
        EXPECT_THAT(told, testing::Contains("search"));
    }
}

// Mutants join a search that was made without them, and what that chose stays known.
TEST(SearchModel, SearchesAgainWithMutants) {
    auto model = Model::parse(R"(graph g(x: f32[1,8,12,12], w: f32[8,8,3,3]) -> (y) {
  %y = conv(x, w, dilations=[2, 2], pads=[2, 2, 2, 2])
  return %y
})");
    ASSERT_TRUE(model.ok());
    const TemporaryFolder folder("tessera-mutants-test");
    tessera::ModelSearchOptions options;
    options.cost = "estimate";
    options.seconds = 5;
    options.cache = folder.path.string();
    options.mutate = 600;  // more than the slowest machine needs: nothing here depends on its speed
    options.keep_without_mutants = true;
    for (bool remembered : {false, true}) {
        auto found = tessera::search(*model, options);
        ASSERT_TRUE(found.ok()) << found.error().to_string();
        ASSERT_TRUE(found->without_mutants);
        expect_same(*model, found->model, 1);
        expect_same(*model, *found->without_mutants, 1);
        EXPECT_FALSE(found->report.mutants.empty());
        EXPECT_GE(found->report.mutate_whole_seconds, found->report.mutate_seconds);
        EXPECT_EQ(found->report.mutate_remembered, remembered ? found->report.mutate_targets : 0u);
        EXPECT_GE(found->report.mutate_gain, 1);
        EXPECT_THAT(found->report.to_text(), HasSubstr("beyond the search without mutants"));
    }
    options.mutate = 1e-9;
    options.cache = "";
    auto none = tessera::search(*model, options);
    ASSERT_TRUE(none.ok());
    EXPECT_TRUE(none->report.mutants.empty());
    EXPECT_THAT(none->report.to_text(), HasSubstr("give --mutate more seconds"));
    auto product = Model::parse("graph g(x: f32[3,7]) -> (y) {\n  %y = relu(x)\n  return %y\n}");
    ASSERT_TRUE(product.ok());
    options.mutate = 5;
    none = tessera::search(*product, options);
    ASSERT_TRUE(none.ok());
    EXPECT_THAT(none->report.to_text(), HasSubstr("no product of two tensors"));
}

TEST(SearchModel, SaysWhatThereIsNot) {
    tessera::ModelSearchOptions options;
    options.strategy = "luck";
    EXPECT_EQ(tessera::search(products(), options).error().code(), Code::E0501);
    options = {.cost = "free"};
    EXPECT_THAT(tessera::search(products(), options).error().to_string(), HasSubstr("measured, estimate, sum"));
    options = {.cost = "estimate", .rules = {"/does/not/exist.rules"}};
    EXPECT_EQ(tessera::search(products(), options).error().code(), Code::E0101);
}

// Rules without end: the limits hold, and what there is so far is the result.
TEST(SearchModel, KeepsItsLimits) {
    TemporaryFolder folder("tessera-api-growing");
    std::ofstream(folder.file("growing.rules"))
        << "assoc [reassociates]: add(add(x:float, y:float), z:float) => add(x, add(y, z)) if same_dims(x, y)\n"
           "back [reassociates]: add(x:float, add(y:float, z:float)) => add(add(x, y), z) if same_dims(x, y)\n"
           "zero [reassociates]: add(x:float, y:float) => add(add(x, 1.0), add(y, -1.0))\n";
    std::string text = "graph g(", sum;
    for (int i = 0; i < 10; ++i) text += fmt::format("{}x{}: f32[5,3]", i ? ", " : "", i);
    text += ") -> (y) {\n  %s0 = add(x0, x1)\n";
    for (int i = 1; i < 9; ++i) text += fmt::format("  %s{} = add(%s{}, x{})\n", i, i - 1, i + 1);
    auto model = Model::parse(text + "  return %s8\n}");
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    for (const char* strategy : {"egraph", "backtrack"}) {
        tessera::ModelSearchOptions options;
        options.strategy = strategy;
        options.cost = "estimate";
        options.rules = {folder.file("growing.rules")};
        options.max_nodes = 500;
        options.budget = 100;
        options.seconds = 20;
        options.time_candidates = false;
        auto found = tessera::search(*model, options);
        ASSERT_TRUE(found.ok()) << found.error().to_string();
        EXPECT_FALSE(found->report.complete);
        EXPECT_NE(found->report.stopped_by, "");
        EXPECT_LT(found->report.nodes, 1000u);
        EXPECT_THAT(found->report.to_text(), HasSubstr("stopped by its limit of " + found->report.stopped_by));
        EXPECT_THAT(found->report.to_text(), HasSubstr("the best so far"));
        expect_same(*model, found->model, 4);
    }
}

TEST(SearchModel, TakesAProofOnlyWithItsCertificate) {
    TemporaryFolder folder("tessera-api-proofs");
    auto made = tessera::discover_rules({.ops = "add,relu,transpose", .max_ops = 2, .out = folder.file("a.rules")});
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    tessera::ModelSearchOptions options;
    options.cost = "estimate";
    options.seconds = 5;
    options.rules = {folder.file("a.rules")};
    auto found = tessera::search(products(), options);
    EXPECT_TRUE(found.ok()) << found.error().to_string();
    // Something else under the name of a proved rule, and a lie without a certificate.
    std::stringstream all;
    all << std::ifstream(folder.file("a.cert")).rdbuf();
    std::string text = all.str();
    const size_t at = text.find("root 0\n");
    ASSERT_NE(at, std::string::npos);
    std::ofstream(folder.file("a.cert")) << text.insert(at + 7, "drop 1\n");
    auto damaged = tessera::search(products(), options);
    ASSERT_FALSE(damaged.ok());
    EXPECT_EQ(damaged.error().code(), Code::E0305);
    std::ofstream(folder.file("lie.rules")) << "lie [reassociates, proved]: relu(x:float) => x\n";
    options.rules = {folder.file("lie.rules")};
    auto lie = tessera::search(products(), options);
    ASSERT_FALSE(lie.ok());
    EXPECT_EQ(lie.error().code(), Code::E0305);
    EXPECT_THAT(lie.error().to_string(), HasSubstr("lie"));
}

TEST(SearchModel, IsCancelled) {
    std::atomic<bool> cancel{true};
    tessera::ModelSearchOptions options;
    options.cost = "estimate";
    options.cancel = &cancel;
    EXPECT_EQ(tessera::search(products(), options).error().code(), Code::E0410);
}

TEST(DiscoverRules, FindsProvesAndWrites) {
    TemporaryFolder folder("tessera-api-discover");
    int64_t told = 0;
    tessera::DiscoverRulesOptions options{.ops = "add,relu", .max_ops = 2, .out = folder.file("found.rules")};
    options.progress = [&](const tessera::DiscoverProgress& p) {
        EXPECT_LE(p.done, p.total);
        ++told;
    };
    auto found = tessera::discover_rules(options);
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_GT(told, 0);
    EXPECT_GT(found->counts.proved, 0);
    ASSERT_GE(found->files.size(), 2u);
    EXPECT_EQ(found->files[0], folder.file("found.rules"));
    EXPECT_TRUE(fs::exists(folder.file("found.cert")));
    bool twice = false;
    for (const auto& rule : found->rules)
        twice |= rule.verdict == "proved" && !rule.certificate.empty() &&
                 rule.text.find("relu(relu(x:float)) => relu(x)") != std::string::npos;
    EXPECT_TRUE(twice);
}

TEST(DiscoverRules, SaysWhatIsWrongBeforeItBegins) {
    TemporaryFolder folder("tessera-api-discover-wrong");
    bool began = false;
    tessera::DiscoverRulesOptions options{.ops = "add", .max_ops = 2, .out = folder.file("no/such/folder/a.rules")};
    options.progress = [&](const tessera::DiscoverProgress&) { began = true; };
    EXPECT_EQ(tessera::discover_rules(options).error().code(), Code::E0105);
    options.out = "";
    for (int max_ops : {0, 5, -1}) {
        options.max_ops = max_ops;
        EXPECT_EQ(tessera::discover_rules(options).error().code(), Code::E0501);
    }
    options.max_ops = 2;
    for (const char* ops : {"", ",", "addd", "top_k", "add,random_normal"}) {
        options.ops = ops;
        EXPECT_EQ(tessera::discover_rules(options).error().code(), Code::E0501) << ops;
    }
    std::ofstream(folder.file("file")) << "";
    options.ops = "add";
    options.work_dir = folder.file("file");
    EXPECT_EQ(tessera::discover_rules(options).error().code(), Code::E0105);
    EXPECT_FALSE(began);
}

}  // namespace
