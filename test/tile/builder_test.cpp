// Types, broadcasting and text of tile programs, built in C++.
#include <gtest/gtest.h>

#include <bit>

#include "backends/backend.h"
#include "base/error.h"
#include "tessera/tile.h"
#include "tile/program.h"

namespace tessera::tile::builder_test {
namespace {

Value of(Builder& b, DType dtype, std::vector<int64_t> shape) { return *b.full(std::move(shape), int64_t{1}, dtype); }

TEST(TileTypes, TwoOperandsHaveACommonType) {
    struct Case {
        DType a, b, common;
    };
    for (const Case& c : std::vector<Case>{{DType::i8, DType::i32, DType::i32},
                                           {DType::u32, DType::i32, DType::u32},
                                           {DType::u8, DType::i32, DType::i32},
                                           {DType::boolean, DType::i8, DType::i8},
                                           {DType::f16, DType::i64, DType::f16},
                                           {DType::bf16, DType::f16, DType::f16},
                                           {DType::bf16, DType::i32, DType::f32},
                                           {DType::f32, DType::f64, DType::f64},
                                           {DType::f8e5m2, DType::f8e4m3fn, DType::f16}}) {
        EXPECT_EQ(*common_type(c.a, false, c.b, false), c.common) << dtype_name(c.a) << " " << dtype_name(c.b);
        EXPECT_EQ(*common_type(c.b, false, c.a, false), c.common) << dtype_name(c.b) << " " << dtype_name(c.a);
    }
}

TEST(TileTypes, ANumberTakesTheTypeOfWhatItMeets) {
    Builder b("g");
    EXPECT_EQ(b.binary("+", of(b, DType::f16, {4}), int64_t{1})->type.dtype, DType::f16);
    EXPECT_EQ(b.binary("+", of(b, DType::i8, {4}), int64_t{1})->type.dtype, DType::i8);
    EXPECT_EQ(b.binary("+", of(b, DType::i8, {4}), 1.5)->type.dtype, DType::f32);
    EXPECT_EQ(b.binary("/", of(b, DType::f16, {4}), 2.0)->type.dtype, DType::f32);
    EXPECT_EQ(b.binary("/", of(b, DType::i32, {4}), of(b, DType::i32, {4}))->type.dtype, DType::f32);
    EXPECT_EQ(b.binary("<", of(b, DType::i32, {4}), int64_t{2})->type.dtype, DType::boolean);
}

TEST(TileTypes, ShapesBroadcast) {
    Builder b("g");
    EXPECT_EQ(b.binary("+", of(b, DType::f32, {8, 1}), of(b, DType::f32, {1, 4}))->type.shape,
              (std::vector<int64_t>{8, 4}));
    EXPECT_EQ(b.binary("+", of(b, DType::f32, {4}), of(b, DType::f32, {8, 1}))->type.shape,
              (std::vector<int64_t>{8, 4}));
    EXPECT_EQ(b.binary("+", of(b, DType::f32, {8, 2}), of(b, DType::f32, {8, 4})).error().code(), Code::E0210);
    EXPECT_EQ(b.dot(of(b, DType::f32, {8, 2}), of(b, DType::f32, {4, 8})).error().code(), Code::E0210);
    EXPECT_EQ(b.dot(of(b, DType::f32, {8, 2}), of(b, DType::f16, {2, 8})).error().code(), Code::E0208);
}

TEST(TileTypes, WhatIsWrongIsSaid) {
    Builder b("g");
    Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true});
    EXPECT_EQ(b.arange(0, 24).error().code(), Code::E0212);
    EXPECT_EQ(b.arange(4, 4).error().code(), Code::E0212);
    EXPECT_EQ(b.program_id(3).error().code(), Code::E0212);
    EXPECT_EQ(b.binary("*", x, int64_t{2}).error().code(), Code::E0208);
    EXPECT_EQ(b.binary("+", x, 1.5).error().code(), Code::E0208);
    EXPECT_EQ(b.load(of(b, DType::f32, {4})).error().code(), Code::E0208);
    EXPECT_EQ(b.unary("exp", of(b, DType::i32, {4})).error().code(), Code::E0208);
    EXPECT_EQ(b.binary("&", of(b, DType::f32, {4}), of(b, DType::f32, {4})).error().code(), Code::E0208);
    EXPECT_EQ(b.begin_if(of(b, DType::boolean, {4})).error().code(), Code::E0210);
    EXPECT_EQ(b.end_if({}, {}).error().code(), Code::E0501);
    ASSERT_TRUE(b.begin_if(true).ok());
    EXPECT_EQ(b.finish().error().code(), Code::E0501);
}

TEST(TileProgram, PrintsAndRuns) {
    Builder b("twice");
    Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true});
    Value y = b.parameter("y", {.dtype = DType::f32, .pointer = true});
    Value n = b.parameter("n", {.dtype = DType::i32});
    Value at = *b.binary("+", *b.binary("*", *b.program_id(0), int64_t{8}), *b.arange(0, 8));
    Value inside = *b.binary("<", at, n);
    Value v = *b.load(*b.binary("+", x, at), inside);
    ASSERT_TRUE(b.store(*b.binary("+", y, at), *b.binary("*", v, 2.0), inside).ok());
    Program program = *b.finish();
    EXPECT_NE(program.to_string().find("tile twice(x: ptr<f32>, y: ptr<f32>, n: i32)"), std::string::npos);
    EXPECT_NE(program.to_string().find("load("), std::string::npos);

    using As = Argument::As;
    Result<Function> twice = Function::compile(program, {{As::Array}, {As::Array}, {As::Size}}, 1, 1);
    ASSERT_TRUE(twice.ok()) << twice.error().to_string();
    std::vector<float> in(19), out(19, -1);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
    ASSERT_TRUE(twice->launch({3, 1, 1}, {in.data(), out.data()}, {19, 19, 18}).ok());
    for (size_t i = 0; i < 18; ++i) EXPECT_EQ(out[i], 2 * in[i]);
    EXPECT_EQ(out[18], -1);
    std::vector<float> again(19, -1);
    ASSERT_TRUE(twice->interpret({3, 1, 1}, {in.data(), again.data()}, {19, 19, 18}).ok());
    EXPECT_EQ(out, again);
    // One element more than there is.
    Status beyond = twice->interpret({3, 1, 1}, {in.data(), out.data()}, {19, 19, 20});
    ASSERT_FALSE(beyond.ok());
    EXPECT_EQ(beyond.error().code(), Code::E0406);
    EXPECT_EQ(twice->launch({3, 1, 1}, {in.data()}, {19, 19, 18}).error().code(), Code::E0402);
    EXPECT_EQ(twice->launch({3, 1, 1}, {in.data(), out.data()}, {19, 19, -1}).error().code(), Code::E0405);
}

// A device that takes parts of graphs runs no tile programs.
TEST(TileProgram, RefusesDevicesThatTakePartsOfGraphs) {
    Builder b("copy");
    Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true});
    ASSERT_TRUE(b.store(x, *b.load(x)).ok());
    const Program program = *b.finish();
    for (const Backend* backend : backends()) {
        const std::string target = backend->targets().front();
        if (auto parts = backend->offloading(target); !parts.ok() || !*parts) continue;
        auto made = Function::compile(program, {{Argument::As::Array}}, 1, 1, {.name = target});
        ASSERT_FALSE(made.ok()) << target;
        EXPECT_EQ(made.error().code(), Code::E0604) << made.error().to_string();
    }
    EXPECT_EQ(Function::compile(program, {{Argument::As::Array}}, 1, 1, {.name = "abacus"}).error().code(),
              Code::E0603);
}

// z[0] = the bits of x[0], z[1] = how often it is halved until it is below 1.
Result<Program> halvings() {
    Builder b("halvings");
    Value x = b.parameter("x", {.dtype = DType::f32, .pointer = true});
    Value z = b.parameter("z", {.dtype = DType::i32, .pointer = true});
    Value first = TRY(b.load(x));
    TRY(b.store(z, TRY(b.bitcast(first, DType::i32))));
    std::vector<Value> carried = TRY(b.begin_while({first, TRY(b.constant(int64_t{0}))}));
    TRY(b.begin_do(TRY(b.binary(">=", carried[0], 1.0))));
    Value half = TRY(b.binary("*", carried[0], 0.5)), count = TRY(b.binary("+", carried[1], int64_t{1}));
    TRY(b.check(TRY(b.binary("<", count, int64_t{20})), "too often"));
    std::vector<Value> done = TRY(b.end_while({half, count}));
    TRY(b.store(TRY(b.binary("+", z, int64_t{1})), done[1]));
    return b.finish();
}

TEST(TileFlow, LoopsByAConditionAndBits) {
    const Program program = *halvings();
    auto f = Function::compile(program, {{Argument::As::Array}, {Argument::As::Array}}, 1, 1);
    ASSERT_TRUE(f.ok()) << f.error().message();
    for (bool interpreted : {false, true})
        for (float value : {0.5f, 1.0f, 100.0f, 1e9f}) {
            std::array<int32_t, 2> z{-1, -1};
            const std::vector<void*> memory{&value, z.data()};
            const Status status =
                interpreted ? f->interpret({1, 1, 1}, memory, {1, 2}) : f->launch({1, 1, 1}, memory, {1, 2});
            if (value == 1e9f) {
                EXPECT_EQ(status.error().code(), Code::E0407);
                continue;
            }
            ASSERT_TRUE(status.ok()) << status.error().message();
            EXPECT_EQ(z[0], std::bit_cast<int32_t>(value));
            EXPECT_EQ(z[1], value < 1 ? 0 : value == 1 ? 1 : 7);
        }
}

}  // namespace
}  // namespace tessera::tile::builder_test
