#include "ops/run_op.h"

namespace tessera::test::gather_test {
namespace {

Attr number(int64_t v) { return Attr(v); }
Attr text(const char* v) { return Attr(std::string(v)); }
const Tensor kGrid = floats({2, 3}, {0, 1, 2, 3, 4, 5});

TEST(ConstantOfShape, FillsAnyType) {
    EXPECT_EQ(run_op("constant_of_shape", {Tensor::ints({2, 0})})[0].sizes(), (Sizes{2, 0}));
    Tensor y = run_op("constant_of_shape", {Tensor::ints({})}, {{"value", Attr(typed(DType::i8, {1}, {-3}))}})[0];
    EXPECT_EQ(y.dtype(), DType::i8);
    expect_tensor(y, {}, {-3});
    EXPECT_EQ(error_of("constant_of_shape", {Tensor::ints({-1})}), "E0212");
    EXPECT_EQ(error_of("constant_of_shape", {Tensor::ints({int64_t{1} << 40})}), "E0408");
    EXPECT_EQ(error_of("constant_of_shape", {Tensor::ints({1})}, {{"value", Attr(floats({2}, {1, 2}))}}), "E0212");
}

TEST(EyeLike, OffDiagonal) {
    expect_tensor(run_op("eye_like", {kGrid}, {{"k", number(1)}})[0], {2, 3}, {0, 1, 0, 0, 0, 1});
    EXPECT_EQ(run_op("eye_like", {kGrid}, {{"dtype", number(9)}})[0].dtype(), DType::boolean);
    EXPECT_EQ(error_of("eye_like", {kGrid}, {{"dtype", number(8)}}), "E0213");
    EXPECT_EQ(error_of("eye_like", {floats({2}, {1, 2})}), "E0210");
}

TEST(Range, CountsBothWays) {
    auto range = [](int64_t a, int64_t b, int64_t c) {
        return run_op("range", {Tensor::scalar(a), Tensor::scalar(b), Tensor::scalar(c)})[0].to_ints();
    };
    EXPECT_EQ(range(10, 4, -2), (std::vector<int64_t>{10, 8, 6}));
    EXPECT_EQ(range(3, 9, 4), (std::vector<int64_t>{3, 7}));
    EXPECT_EQ(range(3, 3, 1).size(), 0u);
    EXPECT_EQ(range(INT64_MIN, INT64_MAX, INT64_MAX), (std::vector<int64_t>{INT64_MIN, -1, INT64_MAX - 1}));
    expect_tensor(run_op("range", {Tensor::scalar(1.f), Tensor::scalar(2.f), Tensor::scalar(.25f)})[0], {4},
                  {1, 1.25, 1.5, 1.75});
    auto refused = [](float a, float b, float c) {
        return error_of("range", {Tensor::scalar(a), Tensor::scalar(b), Tensor::scalar(c)});
    };
    EXPECT_EQ(refused(0, 1, 0), "E0407");
    EXPECT_EQ(refused(0, INFINITY, 1), "E0407");
    EXPECT_EQ(refused(0, 1, NAN), "E0407");
    EXPECT_EQ(error_of("range", {Tensor::scalar<int64_t>(0), Tensor::scalar<int64_t>(1), Tensor::scalar<int64_t>(0)}),
              "E0407");
    EXPECT_EQ(error_of("range", {Tensor::scalar<int64_t>(0), Tensor::scalar(INT64_MAX), Tensor::scalar<int64_t>(1)}),
              "E0108");
}

TEST(OneHot, OutOfRangeIsOff) {
    Tensor y = run_op("one_hot", {Tensor::ints({0, -1, 5}), Tensor::ints({2}), Tensor::ints({7, 9})})[0];
    expect_tensor(y, {3, 2}, {9, 7, 7, 9, 7, 7});
    EXPECT_EQ(
        run_op("one_hot", {Tensor::ints({0, 1}), Tensor::scalar(3.f), Tensor::ints({0, 1})}, {{"axis", number(0)}})[0]
            .sizes(),
        (Sizes{3, 2}));
    EXPECT_EQ(error_of("one_hot", {Tensor::ints({0}), Tensor::ints({-1}), Tensor::ints({0, 1})}), "E0407");
    EXPECT_EQ(error_of("one_hot", {Tensor::ints({0}), Tensor::ints({2}), Tensor::ints({0})}), "E0210");
    EXPECT_EQ(error_of("one_hot", {Tensor::ints({0}), Tensor::ints({2}), Tensor::ints({0, 1})}, {{"axis", number(2)}}),
              "E0212");
}

TEST(Gather, NegativeAndOutOfRange) {
    expect_tensor(run_op("gather", {kGrid, longs({1, 2}, {-1, 0})}, {{"axis", number(1)}})[0], {2, 1, 2}, {2, 0, 5, 3});
    EXPECT_EQ(run_op("gather", {kGrid, longs({0}, {})})[0].sizes(), (Sizes{0, 3}));
    EXPECT_EQ(run_op("gather", {Tensor::strings({2}, {"a", "b"}), Tensor::scalar<int64_t>(1)})[0].as_strings()[0], "b");
    EXPECT_EQ(error_of("gather", {kGrid, Tensor::ints({2})}), "E0406");
    EXPECT_EQ(error_of("gather", {kGrid, Tensor::ints({-3})}), "E0406");
    EXPECT_EQ(error_of("gather", {Tensor::scalar(1.f), Tensor::ints({0})}), "E0212");
}

TEST(GatherElements, Checks) {
    expect_tensor(run_op("gather_elements", {kGrid, longs({1, 2}, {-1, 0})})[0], {1, 2}, {3, 1});
    EXPECT_EQ(error_of("gather_elements", {kGrid, longs({1, 1}, {2})}), "E0406");
    EXPECT_EQ(error_of("gather_elements", {kGrid, Tensor::ints({0})}), "E0210");
    EXPECT_EQ(error_of("gather_elements", {kGrid, longs({3, 1}, {0, 0, 0})}, {{"axis", number(1)}}), "E0210");
}

TEST(GatherNd, RowsElementsAndBatches) {
    expect_tensor(run_op("gather_nd", {kGrid, longs({2, 2}, {0, -1, 1, 0})})[0], {2}, {2, 3});
    expect_tensor(run_op("gather_nd", {kGrid, longs({1, 1}, {1})})[0], {1, 3}, {3, 4, 5});
    expect_tensor(run_op("gather_nd", {kGrid, longs({2, 1}, {2, 0})}, {{"batch_dims", number(1)}})[0], {2}, {2, 3});
    EXPECT_EQ(error_of("gather_nd", {kGrid, longs({1, 3}, {0, 0, 0})}), "E0210");
    EXPECT_EQ(error_of("gather_nd", {kGrid, longs({1, 1}, {2})}), "E0406");
    EXPECT_EQ(error_of("gather_nd", {kGrid, longs({1, 1}, {0})}, {{"batch_dims", number(2)}}), "E0212");
}

TEST(Compress, FlatAndAlongAnAxis) {
    Tensor pick = typed(DType::boolean, {3}, {0, 1, 1});
    expect_tensor(run_op("compress", {kGrid, pick})[0], {2}, {1, 2});
    expect_tensor(run_op("compress", {kGrid, pick}, {{"axis", number(-1)}})[0], {2, 2}, {1, 2, 4, 5});
    EXPECT_EQ(error_of("compress", {kGrid, pick}, {{"axis", number(0)}}), "E0406");
    EXPECT_EQ(error_of("compress", {kGrid, pick}, {{"axis", number(2)}}), "E0212");
}

TEST(ScatterElements, Reductions) {
    Tensor x = floats({3}, {1, 2, 3}), at = Tensor::ints({0, -1, 0}), updates = floats({3}, {10, NAN, 4});
    auto scatter = [&](const char* how) {
        return reals(run_op("scatter_elements", {x, at, updates}, {{"reduction", text(how)}})[0]);
    };
    EXPECT_EQ(scatter("none")[0], 4);
    EXPECT_EQ(scatter("add")[0], 15);
    EXPECT_EQ(scatter("mul")[0], 40);
    EXPECT_EQ(scatter("max")[0], 10);
    EXPECT_EQ(scatter("min")[0], 1);
    EXPECT_TRUE(std::isnan(scatter("max")[2]));
    EXPECT_EQ(error_of("scatter_elements", {x, Tensor::ints({3}), floats({1}, {0})}), "E0406");
    EXPECT_EQ(error_of("scatter_elements", {x, at, floats({1}, {0})}), "E0210");
    EXPECT_EQ(error_of("scatter_elements", {x, at, updates}, {{"reduction", text("sub")}}), "E0212");
    EXPECT_EQ(
        error_of("scatter_elements", {Tensor::strings({1}, {"a"}), Tensor::ints({0}), Tensor::strings({1}, {"b"})},
                 {{"reduction", text("add")}}),
        "E0208");
}

TEST(ScatterElements, SumsAreRoundedOnce) {
    Tensor x = typed(DType::f16, {1}, {2048}), ones = typed(DType::f16, {4}, {1, 1, 1, 1});
    expect_tensor(run_op("scatter_elements", {x, Tensor::ints({0, 0, 0, 0}), ones}, {{"reduction", text("add")}})[0],
                  {1}, {2052});
    Tensor small = typed(DType::i8, {1}, {127}), one = typed(DType::i8, {1}, {1});
    expect_tensor(run_op("scatter_elements", {small, Tensor::ints({0}), one}, {{"reduction", text("add")}})[0], {1},
                  {-128});
}

TEST(ScatterNd, RowsAndElements) {
    expect_tensor(run_op("scatter_nd", {kGrid, longs({1, 1}, {-1}), floats({1, 3}, {7, 8, 9})})[0], {2, 3},
                  {0, 1, 2, 7, 8, 9});
    expect_tensor(run_op("scatter_nd", {kGrid, longs({2, 2}, {0, 0, 0, 0}), floats({2}, {1, 2})},
                         {{"reduction", text("add")}})[0],
                  {2, 3}, {3, 1, 2, 3, 4, 5});
    EXPECT_EQ(error_of("scatter_nd", {kGrid, longs({1, 1}, {2}), floats({1, 3}, {7, 8, 9})}), "E0406");
    EXPECT_EQ(error_of("scatter_nd", {kGrid, longs({1, 1}, {0}), floats({3}, {7, 8, 9})}), "E0210");
    EXPECT_EQ(error_of("scatter_nd", {kGrid, longs({1, 3}, {0, 0, 0}), floats({1}, {7})}), "E0210");
}

TEST(TensorScatter, LinearAndCircular) {
    Tensor past = floats({1, 3, 1}, {0, 1, 2}), update = floats({1, 2, 1}, {8, 9});
    expect_tensor(run_op("tensor_scatter", {past, update})[0], {1, 3, 1}, {8, 9, 2});
    expect_tensor(run_op("tensor_scatter", {past, update, Tensor::ints({1})})[0], {1, 3, 1}, {0, 8, 9});
    expect_tensor(run_op("tensor_scatter", {past, update, Tensor::ints({2})}, {{"mode", text("circular")}})[0],
                  {1, 3, 1}, {9, 1, 8});
    EXPECT_EQ(error_of("tensor_scatter", {past, update, Tensor::ints({2})}), "E0406");
    EXPECT_EQ(error_of("tensor_scatter", {past, update, Tensor::ints({0, 0})}), "E0210");
    EXPECT_EQ(error_of("tensor_scatter", {past, update}, {{"axis", number(0)}}), "E0212");
}

}  // namespace
}  // namespace tessera::test::gather_test
