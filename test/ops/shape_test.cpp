#include "graph/builder.h"
#include "ops/run_op.h"

namespace tessera::test::shape_test {
namespace {

Attr ints_of(std::vector<int64_t> v) { return Attr(std::move(v)); }
Attr number(int64_t v) { return Attr(v); }
Attr text(const char* v) { return Attr(std::string(v)); }

TEST(Reshape, CopiesInfersAndRefuses) {
    Tensor x = floats({2, 3}, {0, 1, 2, 3, 4, 5});
    EXPECT_EQ(run_op("reshape", {x, Tensor::ints({0, -1, 1})})[0].sizes(), (Sizes{2, 3, 1}));
    EXPECT_EQ(run_op("reshape", {floats({0, 3}, {}), Tensor::ints({3, 0})}, {{"allowzero", number(1)}})[0].sizes(),
              (Sizes{3, 0}));
    EXPECT_EQ(error_of("reshape", {x, Tensor::ints({4, -1})}), "E0210");
    EXPECT_EQ(error_of("reshape", {x, Tensor::ints({-1, -1})}), "E0212");
    EXPECT_EQ(error_of("reshape", {x, Tensor::ints({-2})}), "E0212");
    EXPECT_EQ(error_of("reshape", {x, Tensor::ints({2, 2, 0})}), "E0210");
    EXPECT_EQ(error_of("reshape", {floats({1}, {0}), Tensor::ints(std::vector<int64_t>(50000, 1))}), "E0108");
    EXPECT_EQ(error_of("reshape", {x, Tensor::ints({int64_t{1} << 62, 4, 4, -1})}), "E0108");
}

TEST(Flatten, EveryAxis) {
    Tensor x = floats({2, 3, 4}, std::vector<float>(24));
    Sizes rows{1, 2, 6, 24};
    for (int64_t axis = 0; axis <= 3; ++axis)
        EXPECT_EQ(run_op("flatten", {x}, {{"axis", number(axis)}})[0].sizes(), (Sizes{rows[axis], 24 / rows[axis]}));
    EXPECT_EQ(run_op("flatten", {x}, {{"axis", number(-1)}})[0].sizes(), (Sizes{6, 4}));
    EXPECT_EQ(error_of("flatten", {x}, {{"axis", number(4)}}), "E0212");
    EXPECT_EQ(run_op("flatten", {floats({}, {7})}, {{"axis", number(0)}})[0].sizes(), (Sizes{1, 1}));
}

TEST(Squeeze, GivenAxesOrAllOfSizeOne) {
    Tensor x = floats({1, 2, 1}, {3, 4});
    EXPECT_EQ(run_op("squeeze", {x})[0].sizes(), (Sizes{2}));
    EXPECT_EQ(run_op("squeeze", {x, Tensor::ints({-1})})[0].sizes(), (Sizes{1, 2}));
    EXPECT_EQ(error_of("squeeze", {x, Tensor::ints({1})}), "E0210");
    EXPECT_EQ(error_of("squeeze", {x, Tensor::ints({3})}), "E0212");
    EXPECT_EQ(error_of("squeeze", {x, Tensor::ints({0, -3})}), "E0212");
}

TEST(Unsqueeze, PlacesAxesInTheResult) {
    Tensor x = floats({2}, {3, 4});
    EXPECT_EQ(run_op("unsqueeze", {x, Tensor::ints({2, 0})})[0].sizes(), (Sizes{1, 2, 1}));
    EXPECT_EQ(run_op("unsqueeze", {x, Tensor::ints({-1})})[0].sizes(), (Sizes{2, 1}));
    EXPECT_EQ(error_of("unsqueeze", {x, Tensor::ints({0, 0})}), "E0212");
    EXPECT_EQ(error_of("unsqueeze", {x, Tensor::ints({5})}), "E0212");
}

TEST(ShapeOp, ClampsItsRange) {
    Tensor x = floats({2, 3, 0}, {});
    EXPECT_EQ(run_op("shape", {x})[0].to_ints(), (std::vector<int64_t>{2, 3, 0}));
    EXPECT_EQ(run_op("shape", {x}, {{"start", number(-2)}, {"end", number(-1)}})[0].to_ints(),
              (std::vector<int64_t>{3}));
    EXPECT_EQ(run_op("shape", {x}, {{"start", number(9)}})[0].elements(), 0);
    EXPECT_EQ(run_op("shape", {x}, {{"end", number(-9)}})[0].elements(), 0);
    EXPECT_EQ(run_op("size", {x})[0].int_at(0), 0);
    EXPECT_EQ(run_op("size", {floats({}, {1})})[0].int_at(0), 1);
}

// x.reshape(x.shape[0], -1) and the like keep their symbols.
TEST(ShapeOp, ArithmeticStaysSymbolic) {
    Graph g;
    Builder b(g);
    Dim n = symbol("N");
    Value* x = g.add_input("x", Type(DType::f32, {n, 3, 4}));
    Value* first = b.op("gather", {b.op("shape", {x}), b.ints({0})});
    Value* y = b.op("reshape", {x, b.concat({first, b.ints({-1})}, 0)});
    Value* half = b.op("reshape", {x, b.concat({b.ints({-1}), b.mul(first, b.ints({2}))}, 0)});
    Value* wide = b.op("reshape", {x, b.concat({b.mul(first, b.ints({2})), b.ints({6})}, 0)});
    ASSERT_TRUE(b.status().ok()) << b.status().error().to_string();
    EXPECT_EQ(to_string(y->type()), "f32[N,12]");
    EXPECT_EQ(to_string(half->type().tensor().shape[0]), "6");
    EXPECT_EQ(wide->type().tensor().shape[0], n * 2);
}

TEST(Identity, PassesSequencesAndOptionals) {
    EXPECT_EQ(run_op("identity", {Tensor::strings({2}, {"a", ""})})[0].as_strings()[0], "a");
    auto seq = try_op("identity", {Datum::sequence({Datum(floats({1}, {1}))})});
    ASSERT_TRUE(seq.ok());
    EXPECT_TRUE((*seq)[0].is_sequence());
    EXPECT_FALSE((*try_op("identity", {Datum::none()}))[0].has_value());
}

TEST(Transpose, PermutesAnyType) {
    Tensor x = Tensor::strings({2, 2}, {"a", "b", "c", "d"});
    EXPECT_EQ(run_op("transpose", {x})[0].as_strings(), (std::vector<std::string>{"a", "c", "b", "d"}));
    expect_tensor(run_op("transpose", {floats({1, 3, 2}, {0, 1, 2, 3, 4, 5})}, {{"perm", ints_of({2, 0, 1})}})[0],
                  {2, 1, 3}, {0, 2, 4, 1, 3, 5});
    EXPECT_EQ(error_of("transpose", {x}, {{"perm", ints_of({0})}}), "E0210");
    EXPECT_EQ(error_of("transpose", {x}, {{"perm", ints_of({0, 0})}}), "E0212");
}

TEST(Concat, ManyPartsAlsoEmptyOnes) {
    Given parts;
    std::vector<double> want;
    for (int i = 0; i < 37; ++i) {
        std::vector<float> values(i % 3, float(i));
        want.insert(want.end(), values.begin(), values.end());
        parts.push_back(floats({i % 3}, values));
    }
    expect_tensor(run_op("concat", parts, {{"axis", number(0)}})[0], {int64_t(want.size())}, want);
    Tensor x = floats({1, 2}, {1, 2});
    expect_tensor(run_op("concat", {x, x}, {{"axis", number(-1)}})[0], {1, 4}, {1, 2, 1, 2});
    EXPECT_EQ(error_of("concat", {x, floats({2, 1}, {1, 2})}, {{"axis", number(1)}}), "E0210");
    EXPECT_EQ(error_of("concat", {x, floats({2}, {1, 2})}, {{"axis", number(0)}}), "E0210");
    EXPECT_EQ(error_of("concat", {x}, {{"axis", number(2)}}), "E0212");
    EXPECT_EQ(error_of("concat", {floats({}, {1})}, {{"axis", number(0)}}), "E0212");
}

TEST(Split, EvenUnevenAndGiven) {
    Tensor x = floats({7}, {0, 1, 2, 3, 4, 5, 6});
    auto parts = run_op("split", {x}, {{"num_outputs", number(3)}}, 3);
    EXPECT_EQ(parts[0].sizes(), (Sizes{3}));
    expect_tensor(parts[2], {1}, {6});
    EXPECT_EQ(run_op("split", {floats({2}, {1, 2})}, {}, 4)[3].sizes(), (Sizes{0}));
    expect_tensor(run_op("split", {x, Tensor::ints({0, 5, 2})}, {}, 3)[2], {2}, {5, 6});
    EXPECT_EQ(error_of("split", {x, Tensor::ints({5, 1})}, {}, 2), "E0210");
    EXPECT_EQ(error_of("split", {x, Tensor::ints({8, -1})}, {}, 2), "E0212");
    EXPECT_EQ(error_of("split", {x, Tensor::ints({7})}, {}, 2), "E0207");
    EXPECT_EQ(error_of("split", {x}, {{"num_outputs", number(3)}}, 2), "E0207");
}

TEST(Expand, BroadcastsBothWays) {
    expect_tensor(run_op("expand", {floats({2, 1}, {1, 2}), Tensor::ints({3})})[0], {2, 3}, {1, 1, 1, 2, 2, 2});
    EXPECT_EQ(run_op("expand", {floats({}, {1}), Tensor::ints({0, 2})})[0].sizes(), (Sizes{0, 2}));
    EXPECT_EQ(error_of("expand", {floats({2}, {1, 2}), Tensor::ints({3})}), "E0210");
    EXPECT_EQ(error_of("expand", {floats({2}, {1, 2}), Tensor::ints({-1})}), "E0212");
}

TEST(Tile, RepeatsAndRefuses) {
    expect_tensor(run_op("tile", {floats({1, 2}, {1, 2}), Tensor::ints({2, 2})})[0], {2, 4}, {1, 2, 1, 2, 1, 2, 1, 2});
    EXPECT_EQ(run_op("tile", {floats({2}, {1, 2}), Tensor::ints({0})})[0].sizes(), (Sizes{0}));
    EXPECT_EQ(error_of("tile", {floats({2}, {1, 2}), Tensor::ints({1, 1})}), "E0210");
    EXPECT_EQ(error_of("tile", {floats({2}, {1, 2}), Tensor::ints({-1})}), "E0212");
    EXPECT_EQ(error_of("tile", {floats({2}, {1, 2}), Tensor::ints({INT64_MAX / 2})}), "E0108");
}

TEST(DepthToSpace, UndoesSpaceToDepth) {
    std::vector<float> values(2 * 3 * 4 * 6);
    for (size_t i = 0; i < values.size(); ++i) values[i] = float(i);
    Tensor x = floats({2, 3, 4, 6}, values);
    for (const char* mode : {"DCR", "CRD"}) {
        AttrMap attrs{{"blocksize", number(2)}, {"mode", text(mode)}};
        Tensor deep = run_op("space_to_depth", {x}, attrs)[0];
        EXPECT_EQ(deep.sizes(), (Sizes{2, 12, 2, 3}));
        EXPECT_EQ(run_op("depth_to_space", {deep}, attrs)[0], x) << mode;
    }
    EXPECT_EQ(error_of("depth_to_space", {x}, {{"blocksize", number(2)}}), "E0210");
    EXPECT_EQ(error_of("depth_to_space", {x}, {{"blocksize", number(0)}}), "E0212");
    EXPECT_EQ(error_of("space_to_depth", {x}, {{"blocksize", number(4)}}), "E0210");
    EXPECT_EQ(error_of("space_to_depth", {x}, {{"blocksize", number(2)}, {"mode", text("RCD")}}), "E0212");
}

TEST(Reverse, TurnsOneAxisAround) {
    Tensor x = floats({2, 3}, {0, 1, 2, 3, 4, 5});
    expect_tensor(run_op("reverse", {x}, {{"axis", number(1)}})[0], {2, 3}, {2, 1, 0, 5, 4, 3});
    expect_tensor(run_op("reverse", {x}, {{"axis", number(-2)}})[0], {2, 3}, {3, 4, 5, 0, 1, 2});
    expect_tensor(run_op("reverse", {floats({1, 0}, {})}, {{"axis", number(1)}})[0], {1, 0}, {});
    EXPECT_EQ(error_of("reverse", {x}, {{"axis", number(2)}}), "E0212");
    EXPECT_EQ(error_of("reverse", {x}), "E0206");
}

TEST(ReverseSequence, BeyondTheEndIsRefused) {
    Tensor x = floats({3, 2}, {0, 1, 2, 3, 4, 5});
    expect_tensor(run_op("reverse_sequence", {x, Tensor::ints({0, 3})})[0], {3, 2}, {0, 5, 2, 3, 4, 1});
    EXPECT_EQ(error_of("reverse_sequence", {x, Tensor::ints({0, 4})}), "E0406");
    EXPECT_EQ(error_of("reverse_sequence", {x, Tensor::ints({0})}), "E0210");
    EXPECT_EQ(error_of("reverse_sequence", {x, Tensor::ints({0, 1})}, {{"time_axis", number(1)}}), "E0212");
}

}  // namespace
}  // namespace tessera::test::shape_test
