#include "ops/run_op.h"

namespace tessera::test::reduce_test {
namespace {

AttrMap ints(std::initializer_list<std::pair<const char*, int64_t>> list) {
    AttrMap attrs;
    for (auto [name, v] : list) attrs[name] = Attr(v);
    return attrs;
}
Tensor y(std::string_view op, const Given& in, const AttrMap& attrs = {}) { return run_op(op, in, attrs)[0]; }

const Tensor kX = floats({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(Reduce, AxesKeptOrDropped) {
    expect_tensor(y("reduce_sum", {kX}), {1, 1}, {21});
    expect_tensor(y("reduce_sum", {kX}, ints({{"keepdims", 0}})), {}, {21});
    expect_tensor(y("reduce_sum", {kX, longs({1}, {-1})}), {2, 1}, {6, 15});
    expect_tensor(y("reduce_mean", {kX, longs({1}, {0})}, ints({{"keepdims", 0}})), {3}, {2.5, 3.5, 4.5});
    expect_tensor(y("reduce_prod", {kX, longs({2}, {1, 0})}), {1, 1}, {720});
    expect_tensor(y("reduce_max", {floats({}, {3})}), {}, {3});
}

TEST(Reduce, NoAxes) {
    expect_tensor(y("reduce_sum", {kX, longs({0}, {})}), {1, 1}, {21});
    expect_tensor(y("reduce_sum", {kX, longs({0}, {})}, ints({{"noop_with_empty_axes", 1}})), {2, 3},
                  {1, 2, 3, 4, 5, 6});
    expect_tensor(y("reduce_sum_square", {kX}, ints({{"noop_with_empty_axes", 1}})), {2, 3}, {1, 4, 9, 16, 25, 36});
    expect_tensor(y("reduce_log_sum_exp", {kX}, ints({{"noop_with_empty_axes", 1}})), {2, 3}, {1, 2, 3, 4, 5, 6});
}

TEST(Reduce, EmptySets) {
    Tensor none = floats({2, 0}, {}), axes = longs({1}, {1});
    expect_tensor(y("reduce_sum", {none, axes}), {2, 1}, {0, 0});
    expect_tensor(y("reduce_prod", {none, axes}), {2, 1}, {1, 1});
    expect_tensor(y("reduce_max", {none, axes}), {2, 1}, {-kInf, -kInf});
    expect_tensor(y("reduce_min", {none, axes}), {2, 1}, {kInf, kInf});
    expect_tensor(y("reduce_mean", {none, axes}), {2, 1}, {kNan, kNan});
    expect_tensor(y("reduce_log_sum", {none, axes}), {2, 1}, {-kInf, -kInf});
    expect_tensor(y("reduce_log_sum_exp", {none, axes}), {2, 1}, {-kInf, -kInf});
    expect_tensor(y("reduce_max", {typed(DType::i8, {0}, {})}), {1}, {-128});
    expect_tensor(y("reduce_min", {Tensor::of<bool>({0}, {})}), {1}, {1});
    expect_tensor(y("reduce_sum", {none, longs({1}, {0})}), {1, 0}, {});
}

TEST(Reduce, LogSumExpDoesNotOverflow) {
    expect_tensor(y("reduce_log_sum_exp", {floats({2}, {1000, 1000})}), {1}, {1000 + std::log(2.0)});
    expect_tensor(y("reduce_log_sum_exp", {floats({2}, {-1000, -1000})}), {1}, {-1000 + std::log(2.0)});
    expect_tensor(y("reduce_log_sum_exp", {floats({2}, {float(kInf), 1})}), {1}, {kInf});
    expect_tensor(y("reduce_log_sum_exp", {floats({2}, {-float(kInf), -float(kInf)})}), {1}, {-kInf});
    expect_tensor(y("reduce_log_sum_exp", {floats({2}, {float(kNan), 1})}), {1}, {kNan});
}

TEST(Reduce, Integers) {
    Tensor x = typed(DType::i32, {3}, {2147483647, 2147483647, -3});
    expect_tensor(y("reduce_mean", {x}), {1}, {1431655763});
    expect_tensor(y("reduce_l2", {typed(DType::i32, {2}, {3, 4})}), {1}, {5});
    expect_tensor(y("reduce_l1", {typed(DType::i32, {2}, {-3, 4})}), {1}, {7});
    expect_tensor(y("reduce_max", {Tensor::of<bool>({2}, {false, true})}), {1}, {1});
}

TEST(Reduce, WrongAxes) {
    EXPECT_EQ(error_of("reduce_sum", {kX, longs({1}, {2})}), "E0212");
    EXPECT_EQ(error_of("reduce_sum", {kX, longs({1}, {-3})}), "E0212");
    EXPECT_EQ(error_of("reduce_sum", {kX, longs({2}, {1, -1})}), "E0212");
    EXPECT_EQ(error_of("reduce_sum", {kX, longs({1, 1}, {1})}), "E0210");
}

TEST(ArgReduce, FirstOrLastAndNan) {
    Tensor x = floats({2, 3}, {1, 3, 3, 2, 0, 0});
    expect_tensor(y("arg_max", {x}, ints({{"axis", 1}})), {2, 1}, {1, 0});
    expect_tensor(y("arg_max", {x}, ints({{"axis", -1}, {"select_last_index", 1}, {"keepdims", 0}})), {2}, {2, 0});
    expect_tensor(y("arg_min", {x}, ints({{"axis", 1}, {"select_last_index", 1}})), {2, 1}, {0, 2});
    expect_tensor(y("arg_min", {x}), {1, 3}, {0, 1, 1});
    expect_tensor(y("arg_max", {floats({3}, {1, float(kNan), 5})}), {1}, {1});
    expect_tensor(y("arg_max", {floats({2, 0}, {})}, ints({{"axis", 0}})), {1, 0}, {});
    EXPECT_EQ(error_of("arg_max", {floats({2, 0}, {})}, ints({{"axis", 1}})), "E0210");
    EXPECT_EQ(error_of("arg_max", {floats({}, {1})}), "E0212");
}

TEST(Running, BothWays) {
    Tensor axis = longs({}, {-1});
    expect_tensor(y("cum_sum", {kX, axis}), {2, 3}, {1, 3, 6, 4, 9, 15});
    expect_tensor(y("cum_sum", {kX, longs({}, {0})}), {2, 3}, {1, 2, 3, 5, 7, 9});
    expect_tensor(y("cum_sum", {kX, axis}, ints({{"exclusive", 1}})), {2, 3}, {0, 1, 3, 0, 4, 9});
    expect_tensor(y("cum_sum", {kX, axis}, ints({{"exclusive", 1}, {"reverse", 1}})), {2, 3}, {5, 3, 0, 11, 6, 0});
    expect_tensor(y("cum_prod", {longs({3}, {1, 2, 3}), longs({1}, {0})}, ints({{"reverse", 1}})), {3}, {6, 6, 3});
    expect_tensor(y("cum_prod", {longs({3}, {1, 2, 3}), axis}, ints({{"exclusive", 1}})), {3}, {1, 1, 2});
    expect_tensor(y("cum_sum", {floats({0, 2}, {}), axis}), {0, 2}, {});
    EXPECT_EQ(error_of("cum_sum", {kX, longs({}, {2})}), "E0212");
    EXPECT_EQ(error_of("cum_sum", {kX, longs({2}, {0, 1})}), "E0210");
    EXPECT_EQ(error_of("cum_sum", {floats({}, {1}), longs({}, {0})}), "E0212");
}

}  // namespace
}  // namespace tessera::test::reduce_test
