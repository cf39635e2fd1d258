// Outputs in memory of the caller's, and inputs that lie elsewhere.
#include <gtest/gtest.h>

#include "tessera/compile.h"

namespace tessera::place_test {
namespace {

Executable compiled(const char* text) {
    auto model = Model::parse(text);
    EXPECT_TRUE(model.ok()) << model.error().to_string();
    auto executable = compile(*model, {.threads = 1, .cache = ""});
    EXPECT_TRUE(executable.ok()) << executable.error().to_string();
    return *executable;
}

using Memory = std::vector<float>;

Tensor over(Memory& memory, size_t from = 0, int64_t count = -1) {
    const int64_t n = count < 0 ? static_cast<int64_t>(memory.size()) : count;
    return Tensor::view(DType::f32, {n}, memory.data() + from, nullptr);
}

// The run with the outputs in these tensors; one of no elements: nothing is said.
Result<std::vector<Datum>> run_into(const Executable& e, const NamedData& inputs, const std::vector<Tensor>& into) {
    RunOptions options;
    options.place = [&](size_t k, DType, const Sizes&) -> Result<std::optional<Tensor>> {
        return into[k].data() ? std::optional(into[k]) : std::nullopt;
    };
    return e.run(inputs, options);
}

constexpr const char* kTwo = R"(graph g(x: f32[N]) {
  y = mul(x, x)
  z = neg(y)
  return y, z
})";

TEST(Place, OutputsAreWrittenWhereTheyShallLie) {
    const Executable e = compiled(kTwo);
    Memory x = {1, 2, 3}, y(3), z(4);
    for (int r = 0; r < 3; ++r) {
        auto found = run_into(e, {{"x", over(x)}}, {over(y), over(z, 1, 3)});
        ASSERT_TRUE(found.ok()) << found.error().to_string();
        EXPECT_EQ((*found)[0].tensor().data(), y.data());
        EXPECT_EQ((*found)[1].tensor().data(), z.data() + 1);
        EXPECT_EQ(y, (Memory{1, 4, 9}));
        EXPECT_EQ(z, (Memory{0, -1, -4, -9}));
        std::fill(y.begin(), y.end(), 0.0f);
    }
    auto found = run_into(e, {{"x", over(x)}}, {Tensor(), over(z, 1, 3)});
    ASSERT_TRUE(found.ok());
    EXPECT_EQ((*found)[0].tensor().real_at(2), 9);
    EXPECT_EQ(y, (Memory{0, 0, 0}));  // of the run before, and not its own any more
}

TEST(Place, AnOutputMayTakeTheMemoryOfAnInput) {
    const Executable e = compiled(R"(graph g(a: f32[N], b: f32[N]) {
  s = add(a, b)
  d = sub(a, b)
  return s, d
})");
    Memory a = {1, 2, 3}, b = {10, 20, 30};
    auto found = run_into(e, {{"a", over(a)}, {"b", over(b)}}, {over(b), over(a)});
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(b, (Memory{11, 22, 33}));
    EXPECT_EQ(a, (Memory{-9, -18, -27}));
}

TEST(Place, InputsThatAreOutputsAreReadBeforeTheyAreWrittenOver) {
    const Executable e = compiled("graph g(a: f32[N], b: f32[N]) {\n  return b, a\n}");
    Memory a = {1, 2}, b = {3, 4};
    auto found = run_into(e, {{"a", over(a)}, {"b", over(b)}}, {over(a), over(b)});
    ASSERT_TRUE(found.ok()) << found.error().to_string();
    EXPECT_EQ(a, (Memory{3, 4}));
    EXPECT_EQ(b, (Memory{1, 2}));
}

TEST(Place, MemoryThatDoesNotFitIsRefused) {
    const Executable e = compiled(kTwo);
    Memory x = {1, 2, 3}, y(3), z(4);
    const NamedData inputs{{"x", over(x)}};
    EXPECT_EQ(run_into(e, inputs, {over(y), over(z)}).error().code(), Code::E0405);
    EXPECT_EQ(run_into(e, inputs, {over(y), Tensor::view(DType::i32, {3}, z.data(), nullptr)}).error().code(),
              Code::E0403);
    auto both = run_into(e, inputs, {over(z, 0, 3), over(z, 1, 3)});
    ASSERT_FALSE(both.ok());
    EXPECT_EQ(both.error().message(), "the memory for outputs \"y\" and \"z\" overlaps");
}

TEST(Place, ErrorsNameTheModelsOutputs) {
    const Executable e = compiled("graph g(x: f32[N]) -> (first, second) { return add(x, x), neg(x) }");
    Memory x = {1, 2, 3}, y(3), z(4);
    const NamedData inputs{{"x", over(x)}};
    EXPECT_EQ(run_into(e, inputs, {over(z), over(y)}).error().message(),
              "output \"first\" is f32[3], the memory for it is f32[4]");
    EXPECT_EQ(run_into(e, inputs, {over(z, 0, 3), over(z, 1, 3)}).error().message(),
              "the memory for outputs \"first\" and \"second\" overlaps");
}

TEST(Place, TensorsOfAGpuAreItsOwn) {
    const Executable e = compiled(kTwo);
    auto model = Model::parse(kTwo);
    Memory x = {1, 2, 3};
    const NamedData inputs{{"x", Tensor::view_on_gpu(1, DType::f32, {3}, x.data(), nullptr)}};
    EXPECT_EQ(e.gpu(), kNoGpu);
    for (const auto& found : {e.run(inputs), model->run(inputs)}) {
        ASSERT_FALSE(found.ok());
        EXPECT_EQ(found.error().code(), Code::E0701);
        EXPECT_NE(found.error().to_string().find("input \"x\" is on GPU 1"), std::string::npos);
    }
    EXPECT_EQ(e.profile(inputs).error().code(), Code::E0701);
    auto found = run_into(e, {{"x", over(x)}}, {Tensor::view_on_gpu(0, DType::f32, {3}, x.data(), nullptr), Tensor()});
    EXPECT_EQ(found.error().code(), Code::E0701);
}

// Inputs like those of the run before are not checked again; all others are.
TEST(Place, InputsInOrderAreCheckedWhenTheirTypesAreNew) {
    const Executable e = compiled(R"(graph g(a: f32[N], b: f32[N]) {
  return sub(a, b)
})");
    for (int64_t n : {3, 3, 5, 3, 1, 0, 5}) {
        Memory a(static_cast<size_t>(n), 7), b(static_cast<size_t>(n), 2);
        for (int r = 0; r < 2; ++r) {
            auto found = e.run_in_order({over(a), over(b)});
            ASSERT_TRUE(found.ok()) << found.error().to_string();
            ASSERT_EQ((*found)[0].tensor().sizes(), Sizes{n});
            for (int64_t i = 0; i < n; ++i) EXPECT_EQ((*found)[0].tensor().real_at(i), 5);
        }
    }
    Memory a(5), b(6);
    const Tensor wide = Tensor::of<double>({5}, std::vector<double>(5));
    EXPECT_EQ(e.run_in_order({over(a), over(b)}).error().code(), Code::E0405);
    EXPECT_EQ(e.run_in_order({over(a), wide}).error().code(), Code::E0403);
    EXPECT_EQ(e.run_in_order({over(a)}).error().code(), Code::E0402);
    const Tensor elsewhere = Tensor::view_on_gpu(0, DType::f32, {5}, a.data(), nullptr);
    EXPECT_EQ(e.run_in_order({over(a), elsewhere}).error().code(), Code::E0701);
    EXPECT_TRUE(e.run_in_order({over(a), over(a)}).ok());
}

}  // namespace
}  // namespace tessera::place_test
