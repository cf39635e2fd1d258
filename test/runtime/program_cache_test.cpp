// Whole programs in the cache: what is found is what was compiled, and what is not whole is made again.
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/output_file.h"
#include "graph/graph.h"
#include "runtime/code_cache.h"
#include "runtime/model_key.h"
#include "runtime/stored_program.h"
#include "runtime/target_key.h"
#include "tessera/compile.h"

namespace tessera::program_cache_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string numbers(int count, int modulus) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) text += fmt::format("{}{}", i ? "," : "", double(i * 7 % modulus) / modulus - 0.4);
    return text + "]";
}

std::string nested(std::vector<int> sizes, int modulus) {
    if (sizes.size() == 1) return numbers(sizes[0], modulus);
    std::string text = "[";
    const int count = sizes[0];
    sizes.erase(sizes.begin());
    for (int i = 0; i < count; ++i) text += (i ? "," : "") + nested(sizes, modulus + 3 * i);
    return text + "]";
}

Model parsed(const std::string& text) {
    auto model = Model::parse(text);
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    return *model;
}

// Convolutions, one of them of a kind that has its weights transformed, and a matrix.
Model network(int modulus = 31) {
    return parsed("graph net(x: f32[1,16,12,12]) {\n  const w1: f32[16,16,3,3] = " + nested({16, 16, 3, 3}, modulus) +
                  "\n  const w2: f32[8,16,1,1] = " + nested({8, 16, 1, 1}, 23) +
                  "\n  const w3: f32[1152,10] = " + nested({1152, 10}, 37) +
                  R"(
  a = conv(x, w1, pads=[1,1,1,1])
  b = relu(a)
  c = conv(b, w2)
  d = reshape(c, [1,1152])
  e = matmul(d, w3)
  return e, b
})");
}

// A table that is looked up in, whose indices are checked, with symbolic sizes.
Model lookup() {
    return parsed("graph lookup(i: i64[N,M]) {\n  const t: f32[50,24] = " + nested({50, 24}, 41) +
                  "\n  const w: f32[24,40] = " + nested({24, 40}, 29) + R"(
  a = gather(t, i, axis=0)
  b = matmul(a, w)
  c = softmax(b, axis=2)
  return c
})");
}

class ProgramCacheTest : public testing::Test {
  protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / fmt::format("tessera-programs-{}-{}", getpid(), counter_++);
        fs::remove_all(folder_);
        options_.cache = folder_.string();
    }
    void TearDown() override { fs::remove_all(folder_); }

    Executable make(const Model& model) {
        auto executable = compile(model, options_);
        EXPECT_TRUE(executable.ok()) << executable.error().to_string();
        return *executable;
    }

    std::vector<fs::path> entries() const {
        std::vector<fs::path> found;
        for (const auto& file : fs::directory_iterator(folder_))
            if (file.path().extension() == ".tsrp") found.push_back(file.path());
        return found;
    }

    static void expect_same(const Executable& a, const Executable& b, const NamedData& inputs) {
        auto one = a.run(inputs), two = b.run(inputs);
        ASSERT_TRUE(one.ok()) << one.error().to_string();
        ASSERT_TRUE(two.ok()) << two.error().to_string();
        ASSERT_EQ(one->size(), two->size());
        for (size_t i = 0; i < one->size(); ++i) EXPECT_EQ((*one)[i].tensor(), (*two)[i].tensor());
    }

    static void expect_as_evaluated(const Model& model, const Executable& executable, const NamedData& inputs) {
        auto want = model.run(inputs), got = executable.run(inputs);
        ASSERT_TRUE(want.ok()) << want.error().to_string();
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        for (size_t i = 0; i < want->size(); ++i) {
            const Tensor &g = (*got)[i].tensor(), &w = (*want)[i].tensor();
            ASSERT_EQ(g.sizes(), w.sizes());
            for (int64_t k = 0; k < g.elements(); ++k)
                ASSERT_NEAR(g.real_at(k), w.real_at(k), 1e-5 * (1 + std::abs(w.real_at(k))));
        }
    }

    fs::path folder_;
    CompileOptions options_;
    static inline int counter_ = 0;
};

TEST_F(ProgramCacheTest, FindsTheWholeProgram) {
    const Model model = network();
    const NamedData inputs = *model.random_inputs(3);
    const Executable plain = *compile(model, {.cache = ""});
    const Executable first = make(model);
    EXPECT_FALSE(first.report().from_cache);
    ASSERT_EQ(entries().size(), 1u);
    const Executable second = make(model);
    EXPECT_TRUE(second.report().from_cache);
    EXPECT_EQ(second.report().kernels, plain.report().kernels);
    EXPECT_EQ(second.report().steps, plain.report().steps);
    EXPECT_EQ(second.report().decisions, plain.report().decisions);
    EXPECT_EQ(second.weight_bytes() > 0, true);
    EXPECT_EQ(second.arena_bytes(), plain.arena_bytes());
    EXPECT_EQ(*second.emit("kernel"), *plain.emit("kernel"));
    expect_same(plain, first, inputs);
    expect_same(plain, second, inputs);
    expect_as_evaluated(model, second, inputs);
    auto profile = second.profile(inputs, 1), expected = plain.profile(inputs, 1);
    ASSERT_TRUE(profile.ok());
    for (size_t i = 0; i < profile->size(); ++i) {
        EXPECT_EQ((*profile)[i].label, (*expected)[i].label);
        EXPECT_EQ((*profile)[i].nodes, (*expected)[i].nodes);
        EXPECT_EQ((*profile)[i].flops, (*expected)[i].flops);
    }
    EXPECT_EQ(second.check(inputs).error().code(), Code::E0501);
}

TEST_F(ProgramCacheTest, SymbolicSizesAndChecksOfIndicesStay) {
    const Model model = lookup();
    make(model);
    const Executable again = make(model);
    EXPECT_TRUE(again.report().from_cache);
    for (int64_t n : {1, 2, 7})
        for (int64_t m : {1, 5}) expect_as_evaluated(model, again, *model.random_inputs(1, {{"N", n}, {"M", m}}));
    NamedData wrong{{"i", Datum(Tensor::of<int64_t>({1, 2}, {3, 50}))}};
    EXPECT_EQ(again.run(wrong).error().to_string(), compile(model, {.cache = ""})->run(wrong).error().to_string());
    NamedData shapeless{{"i", Datum(Tensor::of<int64_t>({2}, {3, 5}))}};
    EXPECT_EQ(again.run(shapeless).error().code(), Code::E0404);
}

// Larger constants are not in the text of a stored program; what inference asks of them was asked before.
TEST_F(ProgramCacheTest, ConstantsThatInferenceAsksFor) {
    constexpr int kStumps = 200;  // trees of one node
    std::vector<int> trees, features, leaves;
    std::vector<double> weights;
    for (int i = 0; i < kStumps; ++i) {
        trees.push_back(i);
        features.push_back(i % 4);
        for (int side : {0, 1}) {
            leaves.push_back(2 * i + side);
            weights.push_back(0.25 * side - 0.01 * i);
        }
    }
    auto every_second = [&](size_t first) {
        std::vector<int> some;
        for (size_t i = first; i < leaves.size(); i += 2) some.push_back(leaves[i]);
        return some;
    };
    const std::vector<int> zeros(2 * kStumps), ones(kStumps, 1), less_equal(kStumps);
    const std::vector<double> splits(kStumps, 0.5);
    const Model model = parsed(fmt::format(
        "graph g(x: f32[N,4]) {{ %y = tree_ensemble(x, n_targets=1, tree_roots={}, nodes_featureids={}, "
        "nodes_modes={}:u8[{}], nodes_splits={}:f32[{}], nodes_truenodeids={}, nodes_trueleafs={}, "
        "nodes_falsenodeids={}, nodes_falseleafs={}, leaf_targetids={}, leaf_weights={}:f32[{}]) return %y }}",
        trees, features, less_equal, kStumps, splits, kStumps, every_second(0), ones, every_second(1), ones, zeros,
        weights, 2 * kStumps));
    make(model);
    const Executable again = make(model);
    EXPECT_TRUE(again.report().from_cache);
    for (int64_t n : {1, 50}) expect_as_evaluated(model, again, *model.random_inputs(1, {{"N", n}}));
}

TEST_F(ProgramCacheTest, OutputsThatAreConstantsOrInputs) {
    const Model model = parsed(R"(graph g(x: f32[3]) {
  const c: f32[2,2] = [[1,2],[3,4]]
  y = add(x, x)
  return c, x, y
})");
    make(model);
    const Executable again = make(model);
    EXPECT_TRUE(again.report().from_cache);
    expect_as_evaluated(model, again, *model.random_inputs(1));
}

TEST_F(ProgramCacheTest, OtherWeightsAndOptionsAreOtherPrograms) {
    EXPECT_NE(model_key(network(31).graph()), model_key(network(32).graph()));
    EXPECT_EQ(model_key(network().graph()), model_key(network().graph()));
    make(network(31));
    EXPECT_FALSE(compile(network(33), options_)->report().decisions.empty());
    EXPECT_EQ(entries().size(), 2u);
    options_.fuse = false;
    make(network(31));
    EXPECT_EQ(entries().size(), 3u);
    options_.precision = "strict";
    make(network(31));
    EXPECT_EQ(entries().size(), 4u);
    const Model model = network(33);
    options_ = {.cache = folder_.string()};
    expect_as_evaluated(model, make(model), *model.random_inputs(1));
}

TEST_F(ProgramCacheTest, WhatTheEvaluatorComputesIsStoredToo) {
    const Model model = parsed("graph g(x: f32[8]) {\n  y = random_uniform_like(x, seed=1.0)\n  return y\n}");
    EXPECT_EQ(make(model).report().host_steps, 1u);
    EXPECT_EQ(entries().size(), 1u);
    const Executable again = make(model);
    EXPECT_TRUE(again.report().from_cache);
    EXPECT_EQ(again.report().host_steps, 1u);
    EXPECT_EQ(again.report().host_reasons.size(), 1u);
    expect_as_evaluated(model, again, *model.random_inputs(1));
}

// A loop's body has constants too large for the text, of its own and from around it. With no iteration, and where a
// state grows, the evaluator asks for them.
TEST_F(ProgramCacheTest, NestedGraphsAndTheirConstants) {
    const std::string weights = nested({30, 30}, 31), bias = nested({30, 30}, 17);
    const Model model = parsed("graph g(m: i64[], x: f32[30,30], z: f32[1,30]) {\n  const w: f32[30,30] = " + weights +
                               R"(
  y, all = loop(m, _, x, body=graph b(i: i64[], go: bool[], s: f32[30,30]) {
    const v: f32[30,30] = )" + bias +
                               R"(
    p = matmul(s, w)
    q = add(p, v)
    r = tanh(q)
    t = loop(m, _, r, body=graph c(j: i64[], on: bool[], u: f32[30,30]) {
      o = mul(u, v)
      return on, o
    })
    return go, t, p
  })
  grown = loop(m, _, z, body=graph d(k: i64[], more: bool[], part: f32[K,30]) {
    e = gather(w, [0], axis=0)
    f = concat(part, e, axis=0)
    return more, f
  })
  return y, all, grown
})");
    make(model);
    ASSERT_EQ(entries().size(), 1u);
    const Executable again = make(model);
    EXPECT_TRUE(again.report().from_cache);
    const auto saved = folder_ / "saved";
    ASSERT_TRUE(again.save(saved.string()).ok());
    auto loaded = Executable::load(saved.string());
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    for (int64_t trips : {0, 1, 3}) {
        NamedData inputs = *model.random_inputs(uint64_t(trips));
        inputs.insert_or_assign("m", Datum(Tensor::scalar(trips)));
        expect_as_evaluated(model, again, inputs);
        expect_as_evaluated(model, *loaded, inputs);
    }
    EXPECT_EQ(entries().size(), 1u);  // it was good: nothing was made again
}

TEST_F(ProgramCacheTest, SizesThatARunTells) {
    const Model model = parsed(
        "graph g(x: f32[N,4], e: i64[1]) {\n  \"a/b c\" = slice(x, [-3], e)\n  i = non_zero(\"a/b c\")\n"
        "  f = cast(i, to=1)\n  y = relu(f)\n  return \"a/b c\", y\n}");
    make(model);
    ASSERT_EQ(entries().size(), 1u);
    for (int64_t end : {-2, 0, 2, 9}) {
        NamedData inputs{{"x", Tensor::of<float>({3, 4}, {0, 1, 0, 2, 3, 0, 0, 4, 0, 0, 5, 0})},
                         {"e", Tensor::of<int64_t>({1}, {end})}};
        expect_as_evaluated(model, make(model), inputs);
    }
    EXPECT_TRUE(make(model).report().from_cache);
}

// A saved executable says what it is for. Where that is not here, it is compiled again, from the same model's file.
TEST_F(ProgramCacheTest, SavedForAnotherBuildOrProcessor) {
    fs::create_directories(folder_);
    const fs::path source = folder_ / "model.tsr", saved = folder_ / "saved";
    ASSERT_TRUE(network().save(source.string()).ok());
    const Model model = *Model::load(source.string());
    const NamedData inputs = *model.random_inputs(3);
    ASSERT_TRUE(make(model).save(saved.string()).ok());
    const auto [key, entry] = *read_program(saved);
    std::string elsewhere(entry.program);
    const std::string cpu = target_parts({})[1];
    const size_t at = elsewhere.rfind(cpu);
    ASSERT_NE(at, std::string::npos);
    elsewhere[at] = 'Z';
    const fs::path build = folder_ / "build", processor = folder_ / "processor";
    ASSERT_TRUE(write_program(build, std::string(32, '0'), entry.program, entry.code, {entry.weights}).ok());
    ASSERT_TRUE(write_program(processor, key, elsewhere, entry.code, {entry.weights}).ok());
    for (const fs::path& path : {build, processor}) {
        auto again = Executable::load(path.string());
        ASSERT_TRUE(again.ok()) << again.error().to_string();
        expect_as_evaluated(model, *again, inputs);
    }
    ASSERT_TRUE(parsed("graph g(x: f32[N,4]) -> (y) { return relu(x) }").save(source.string()).ok());  // another model
    auto of_build = Executable::load(build.string()), of_processor = Executable::load(processor.string());
    ASSERT_FALSE(of_build.ok() || of_processor.ok());
    EXPECT_EQ(of_build.error().code(), Code::E0605);
    EXPECT_THAT(of_build.error().to_string(),
                AllOf(HasSubstr("made by Tessera " + std::string(version())), HasSubstr(cpu), HasSubstr("model.tsr")));
    EXPECT_THAT(of_processor.error().to_string(), HasSubstr("compiled for the processor Z" + cpu.substr(1)));
    EXPECT_TRUE(Executable::load(saved.string()).ok());
}

TEST_F(ProgramCacheTest, DamagedEntriesAreMadeAgain) {
    const Model model = network();
    const NamedData inputs = *model.random_inputs(3);
    make(model);
    ASSERT_EQ(entries().size(), 1u);
    const fs::path entry = entries()[0];
    std::ifstream file(entry, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(file)), {});
    auto damaged = [&](const std::function<void(std::string&)>& f) {
        std::string text = whole;
        f(text);
        ASSERT_TRUE(write_file(entry, text).ok());
        const Executable again = make(model);
        expect_as_evaluated(model, again, inputs);
        EXPECT_TRUE(fs::exists(entry));
        EXPECT_EQ(fs::file_size(entry), whole.size());
    };
    damaged([](std::string& t) { t.clear(); });
    damaged([](std::string& t) { t.resize(17); });
    damaged([](std::string& t) { t.resize(t.size() / 2); });
    damaged([](std::string& t) { t.resize(t.size() - 1); });
    damaged([](std::string& t) { t += "more"; });
    damaged([](std::string& t) { t[3] ^= 1; });                   // the magic
    damaged([](std::string& t) { t[20] ^= 1; });                  // the key
    damaged([](std::string& t) { t[45] ^= 64; });                 // a size
    damaged([](std::string& t) { t[300] ^= 1; });                 // the program
    damaged([&](std::string& t) { t[whole.size() - 10] ^= 1; });  // a weight that is looked at
    damaged([](std::string& t) { t = "#!/bin/sh\n"; });
    fs::remove(entry);
    fs::create_directory(entry);  // cannot be an entry, nor be replaced by one
    expect_as_evaluated(model, make(model), inputs);
}

TEST_F(ProgramCacheTest, ProcessesMayShareAFolder) {
    const Model model = network();
    const NamedData inputs = *model.random_inputs(3);
    const Executable plain = *compile(model, {.cache = ""});
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            const Executable one = make(model);
            std::error_code ignored;
            fs::remove_all(folder_, ignored);  // what is mapped stays
            expect_same(plain, one, inputs);
        });
    for (std::thread& t : threads) t.join();
}

TEST_F(ProgramCacheTest, AnEntryGoneWhileItIsUsedStaysMapped) {
    const Model model = network();
    const NamedData inputs = *model.random_inputs(3);
    make(model);
    const Executable again = make(model);
    fs::remove_all(folder_);
    expect_as_evaluated(model, again, inputs);
}

TEST(StoredProgram, ForeignBytesAreRefused) {
    for (std::string bytes :
         {std::string(), std::string("hello"), std::string(1, '\xa0'), std::string("\xa1\x65graph", 7)})
        EXPECT_EQ(unpack_program(bytes, "").error().code(), Code::E0605);
}

}  // namespace
}  // namespace tessera::program_cache_test
