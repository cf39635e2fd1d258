#include "runtime/loaded_program.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/memory.h"
#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"
#include "kernel/from_graph/from_graph.h"
#include "runtime/interpreted_module.h"

namespace tessera::loaded_program_test {
namespace {

std::unique_ptr<LoadedProgram> load(std::string_view text, bool fuse = true, const char* target = "host") {
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    LowerOptions lower;
    lower.fuse = fuse;
    if (std::string_view(target) != "host") lower.machine = *describe_target(target);
    auto program = from_graph(std::shared_ptr<const Graph>(std::move(*graph)), lower);
    EXPECT_TRUE(program.ok()) << program.error().to_string();
    auto module = std::make_shared<test::InterpretedModule>(program->kernels);
    auto loaded = LoadedProgram::load(std::move(*program), module, {.threads = 2, .keep_constants = true});
    EXPECT_TRUE(loaded.ok()) << loaded.error().to_string();
    return std::move(*loaded);
}

Tensor counting(Sizes sizes) {
    Tensor t = *Tensor::zeros(DType::f32, std::move(sizes));
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, double(i % 13) - 6);
    return t;
}

// As the evaluator computes it, for these inputs.
void expect_same(const LoadedProgram& loaded, const NamedData& inputs) {
    auto got = loaded.run(inputs);
    auto want = evaluate(*loaded.program().graph, inputs);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < got->size(); ++i) {
        const Tensor &g = (*got)[i].tensor(), &w = (*want)[i].tensor();
        ASSERT_EQ(to_string(g.sizes()), to_string(w.sizes()));
        for (int64_t k = 0; k < g.elements(); ++k) ASSERT_NEAR(g.real_at(k), w.real_at(k), 1e-4) << k;
    }
}

constexpr const char* kChain = R"(graph main(x: f32[N,4]) {
  a = relu(x)
  b = exp(a)
  c = softmax(b, axis=1)
  y = add(c, x)
  return y
})";

TEST(LoadedProgram, RunsForEverySize) {
    auto loaded = load(kChain, false);
    for (int64_t n : {3, 1, 17, 3, 0}) expect_same(*loaded, {{"x", counting({n, 4})}});
}

TEST(LoadedProgram, InputsThatAreNotAligned) {
    auto loaded = load(kChain);
    auto memory = *allocate_bytes(1024);
    const Tensor x = counting({3, 4});
    for (int offset : {4, 3, 0}) {
        char* at = static_cast<char*>(memory.get()) + offset;
        std::memcpy(at, x.data(), size_t(x.bytes()));
        EXPECT_EQ(loaded->run({{"x", Tensor::view(DType::f32, {3, 4}, at, memory)}})->at(0).tensor(),
                  loaded->run({{"x", x}})->at(0).tensor());
    }
}

TEST(LoadedProgram, SizesThatAHostStepDefines) {
    auto loaded = load(R"(graph main(x: f32[N]) {
  a = relu(x)
  i = non_zero(a)
  f = cast(i, to=1)
  y = mul(f, f)
  z = exp(a)
  return y, z
})");
    expect_same(*loaded, {{"x", counting({13})}});
    expect_same(*loaded, {{"x", counting({40})}});
    expect_same(*loaded, {{"x", counting({3})}});  // none is positive
}

TEST(LoadedProgram, OutputsThatAreInputsConstantsOrTheSame) {
    auto loaded = load(R"(graph main(x: f32[N]) -> (o0, o1, o2, o3, o4) {
  const c: f32[2] = [1, 2]
  y = relu(x)
  r = unsqueeze(y, [0])
  return x, c, y, y, r
})");
    expect_same(*loaded, {{"x", counting({5})}});
}

TEST(LoadedProgram, MemoryIsReused) {
    std::string text = "graph main(x: f32[1000]) {\n  v0 = exp(x)\n";
    for (int i = 1; i < 20; ++i) text += fmt::format("  v{} = {}(v{})\n", i, i % 2 ? "relu" : "tanh", i - 1);
    text += "  y = neg(v19)\n  return y\n}";
    auto loaded = load(text, false);
    EXPECT_LE(*loaded->arena_bytes({}), 2 * 4096 + 64);
    expect_same(*loaded, {{"x", counting({1000})}});
}

// The same program goes on with weights from elsewhere; its own memory, and that of its graph's constants, goes.
TEST(LoadedProgram, ReadsItsWeightsFromElsewhere) {
    constexpr const char* kTable = R"(graph main(x: f32[2,3]) {
  const w: f32[3,2] = [[1,2],[3,4],[5,6]]
  const b: f32[2] = [7, 8]
  m = matmul(x, w)
  y = add(m, b)
  r = reshape(b, [2,1])
  return y, r
})";
    auto loaded = load(kTable), plain = load(kTable);
    const NamedData inputs = {{"x", counting({2, 3})}};
    std::string weights;
    const std::vector<std::string_view> pieces = *loaded->weight_pieces();
    for (std::string_view piece : pieces) {
        weights += piece;
        weights.resize(size_t(aligned(int64_t(weights.size()))));
    }
    auto owner = *allocate_bytes(int64_t(weights.size()));
    std::memcpy(owner.get(), weights.data(), weights.size());
    const std::string_view there(static_cast<const char*>(owner.get()), weights.size());
    EXPECT_EQ(loaded->read_weights(there.substr(1), owner).error().code(), Code::E0605);
    ASSERT_TRUE(loaded->read_weights(there, owner).ok());
    EXPECT_FALSE(loaded->complete());
    EXPECT_EQ(loaded->weight_bytes(), int64_t(weights.size()));
    for (const auto& v : loaded->program().graph->constants()) {
        const char* data = static_cast<const char*>(v->tensor()->data());
        if (v->type() == Type(DType::f32, Shape{2})) {
            EXPECT_TRUE(data >= there.data() && data < there.data() + there.size()) << v->name();
        }
    }
    auto got = loaded->run(inputs), want = plain->run(inputs);
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    for (size_t i = 0; i < want->size(); ++i) EXPECT_EQ((*got)[i].tensor(), (*want)[i].tensor());
}

TEST(LoadedProgram, Cancellation) {
    auto loaded = load(kChain, false);
    std::atomic<bool> cancel{true};
    auto result = loaded->run({{"x", counting({2, 4})}}, {.cancel = &cancel});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), Code::E0410);
    cancel = false;
    size_t seen = 0;
    RunOptions options{.cancel = &cancel, .progress = [&](std::string_view, size_t done, size_t total) {
                           seen = done;
                           if (done + 1 == total) cancel = true;
                       }};
    EXPECT_FALSE(loaded->run({{"x", counting({2, 4})}}, options).ok());
    EXPECT_GT(seen, 0u);
    expect_same(*loaded, {{"x", counting({2, 4})}});
}

TEST(LoadedProgram, WrongInputs) {
    auto loaded = load(kChain);
    auto code = [&](const NamedData& inputs) { return loaded->run(inputs).error().code(); };
    EXPECT_EQ(code({{"z", counting({2, 4})}}), Code::E0401);
    EXPECT_EQ(code({}), Code::E0402);
    EXPECT_EQ(code({{"x", Tensor::ints({1, 2})}}), Code::E0403);
    EXPECT_EQ(code({{"x", counting({4})}}), Code::E0404);
    EXPECT_EQ(code({{"x", counting({2, 5})}}), Code::E0405);
}

// Many indices are looked at where kernels run; what is said of one that is outside is what the evaluator says.
TEST(LoadedProgram, ManyIndices) {
    for (const char* target : {"host", "sm_90a"})
        for (const char* body : {"gather(x, i, axis=0)", "gather_elements(x, i, axis=1)",
                                 "scatter_elements(x, i, u, axis=1, reduction=\"add\")", "gather_nd(x, i)",
                                 "scatter_nd(x, i, v, reduction=\"max\")"}) {
            SCOPED_TRACE(fmt::format("{} for {}", body, target));
            auto loaded = load(fmt::format("graph g(x: f32[3000,2], i: i64[M,2], u: f32[M,2], v: f32[M]) {{\n"
                                           "  return {}, reduce_max(u, [0]), reduce_max(v, [0])\n}}\n",
                                           body),
                               true, target);
            bool by_kernel = false;
            for (const Step& step : loaded->program().steps)
                if (const auto* check = std::get_if<CheckStep>(&step))
                    by_kernel |= check->inputs.size() > check->node->inputs().size();
            EXPECT_EQ(by_kernel, std::string_view(target) != "host");
            Tensor indices = *Tensor::zeros(DType::i64, {2500, 2});
            for (int64_t k = 0; k < indices.elements(); ++k) indices.set_int(k, (k * 7) % 4 - 2);
            const NamedData inside{
                {"x", counting({3000, 2})}, {"i", indices}, {"u", counting({2500, 2})}, {"v", counting({2500})}};
            expect_same(*loaded, inside);
            for (int64_t wrong : {int64_t(3000), int64_t(-3001)}) {
                NamedData outside = inside;
                Tensor changed = *Tensor::zeros(DType::i64, {2500, 2});
                for (int64_t k = 0; k < indices.elements(); ++k) changed.set_int(k, k == 4321 ? wrong : 0);
                outside.insert_or_assign("i", changed);
                auto got = loaded->run(outside);
                auto want = evaluate(*loaded->program().graph, outside);
                ASSERT_FALSE(want.ok());
                ASSERT_FALSE(got.ok());
                EXPECT_EQ(got.error().code(), Code::E0406);
                EXPECT_EQ(got.error().message(), want.error().message());
            }
        }
    // Whether they reach outside along another axis follows from sizes.
    auto loaded =
        load("graph g(x: f32[N,2], i: i64[M,2], u: f32[M,2]) {\n  return scatter_elements(x, i, u, axis=1)\n}\n", true,
             "sm_90a");
    EXPECT_FALSE(
        loaded->run({{"x", counting({3, 2})}, {"i", *Tensor::zeros(DType::i64, {4, 2})}, {"u", counting({4, 2})}})
            .ok());
}

TEST(LoadedProgram, SizesThatDoNotFitEachOther) {
    auto loaded = load(R"(graph main(x: f32[N], y: f32[M]) {
  z = add(x, y)
  return z
})");
    expect_same(*loaded, {{"x", counting({3})}, {"y", counting({3})}});
    expect_same(*loaded, {{"x", counting({3})}, {"y", counting({1})}});
    expect_same(*loaded, {{"x", counting({1})}, {"y", counting({4})}});
    auto result = loaded->run({{"x", counting({3})}, {"y", counting({4})}});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), Code::E0210);
}

TEST(LoadedProgram, SizesThatAreExpressions) {
    auto loaded = load(R"(graph main(x: f32[2*N + 1], y: f32[N], z: f32[3*M]) {
  a = slice(x, [0], [1])
  b = mul(a, y)
  c = neg(z)
  return b, c
})");
    expect_same(*loaded, {{"x", counting({7})}, {"y", counting({3})}, {"z", counting({6})}});
    expect_same(*loaded, {{"x", counting({1})}, {"y", counting({0})}, {"z", counting({0})}});
    auto code = [&](int64_t x, int64_t y, int64_t z) {
        return loaded->run({{"x", counting({x})}, {"y", counting({y})}, {"z", counting({z})}}).error().code();
    };
    EXPECT_EQ(code(6, 3, 6), Code::E0405);  // not 2*3 + 1
    EXPECT_EQ(code(7, 3, 7), Code::E0405);  // no multiple of 3
}

TEST(LoadedProgram, ProfileAndCheck) {
    auto loaded = load(kChain, false);
    auto profile = loaded->profile({{"x", counting({3, 4})}}, 3);
    ASSERT_TRUE(profile.ok());
    EXPECT_EQ(profile->size(), loaded->program().steps.size());
    auto check = loaded->check({{"x", counting({3, 4})}});
    ASSERT_TRUE(check.ok()) << check.error().to_string();
    for (const auto& [label, difference] : *check) EXPECT_LT(difference, 1e-5) << label;
    EXPECT_FALSE(check->empty());
}

TEST(LoadedProgram, ManyThreadsShareOne) {
    auto loaded = load(kChain, false);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 20; ++i) expect_same(*loaded, {{"x", counting({1 + (t + i) % 5, 4})}});
        });
    for (auto& t : threads) t.join();
}

TEST(LoadedProgram, OutputsStayWhatTheyWere) {
    auto loaded = load(kChain);
    auto first = *loaded->run({{"x", counting({3, 4})}});
    const std::vector<float> before(first[0].tensor().as<float>().begin(), first[0].tensor().as<float>().end());
    Tensor other = *Tensor::filled(DType::f32, {3, 4}, 7);
    auto second = *loaded->run({{"x", other}});
    EXPECT_NE(first[0].tensor().data(), second[0].tensor().data());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), first[0].tensor().as<float>().begin()));
    loaded.reset();  // outputs outlive the program
    EXPECT_TRUE(std::equal(before.begin(), before.end(), first[0].tensor().as<float>().begin()));
}

TEST(LoadedProgram, AThousandRunsLeaveNothing) {
    auto loaded = load(kChain, false);
    const NamedData inputs = {{"x", counting({64, 4})}};
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(loaded->run(inputs).ok());
    const int64_t before = memory_in_use();
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(loaded->run(inputs).ok());
    EXPECT_EQ(memory_in_use(), before);
}

}  // namespace
}  // namespace tessera::loaded_program_test
