#include "ops/run_op.h"

namespace tessera::test::sequence_test {
namespace {

Attr number(int64_t v) { return Attr(v); }
Datum sequence_of(int64_t n) {
    std::vector<Datum> items;
    for (int64_t i = 0; i < n; ++i) items.push_back(floats({i + 1, 2}, std::vector<float>(2 * (i + 1), float(i))));
    return Datum::sequence(items);
}
Tensor at(int64_t i) { return Tensor::scalar(i); }

TEST(Sequence, PositionsFromBothEnds) {
    Datum s = sequence_of(3);
    EXPECT_EQ(run_op("sequence_at", {s, at(-1)})[0].sizes(), (Sizes{3, 2}));
    EXPECT_EQ(error_of("sequence_at", {s, at(3)}), "E0406");
    EXPECT_EQ(error_of("sequence_at", {s, at(-4)}), "E0406");
    EXPECT_EQ(error_of("sequence_at", {floats({1}, {1}), at(0)}), "E0208");
    EXPECT_EQ(run_op("sequence_length", {s})[0].int_at(0), 3);
    auto longer = try_op("sequence_insert", {s, floats({1}, {9}), at(-1)});
    ASSERT_TRUE(longer.ok());
    EXPECT_EQ((*longer)[0].items()[2].tensor().sizes(), (Sizes{1}));
    EXPECT_TRUE(try_op("sequence_insert", {s, floats({1}, {9}), at(3)}).ok());
    EXPECT_EQ(error_of("sequence_insert", {s, floats({1}, {9}), at(4)}), "E0406");
    auto shorter = try_op("sequence_erase", {s, at(0)});
    ASSERT_TRUE(shorter.ok());
    EXPECT_EQ((*shorter)[0].items()[0].tensor().sizes(), (Sizes{2, 2}));
    EXPECT_EQ(error_of("sequence_erase", {Datum::sequence({})}), "E0407");
}

TEST(Sequence, AnEmptyOneTakesAnything) {
    auto empty = try_op("sequence_empty", {}, {{"dtype", number(7)}});
    ASSERT_TRUE(empty.ok());
    auto one = try_op("sequence_insert", {(*empty)[0], Tensor::ints({5})});
    ASSERT_TRUE(one.ok()) << one.error().to_string();
    EXPECT_EQ(error_of("sequence_insert", {(*one)[0], floats({1}, {1})}), "E0407");
    EXPECT_EQ(error_of("sequence_empty", {}, {{"dtype", number(99)}}), "E0213");
    EXPECT_EQ(error_of("sequence_construct", {Tensor::ints({1}), floats({1}, {1})}), "E0208");
}

TEST(SplitToSequence, ChunksPartsAndDroppedAxis) {
    Tensor x = floats({3, 2}, {0, 1, 2, 3, 4, 5});
    auto items = [&](const Given& in, const AttrMap& attrs = {}) {
        auto r = try_op("split_to_sequence", in, attrs);
        EXPECT_TRUE(r.ok());
        return r.ok() ? (*r)[0].items() : std::vector<Datum>{};
    };
    EXPECT_EQ(items({x, at(2)}).back().tensor().sizes(), (Sizes{1, 2}));
    EXPECT_EQ(items({x, Tensor::ints({0, 3})})[0].tensor().sizes(), (Sizes{0, 2}));
    EXPECT_EQ(items({x}, {{"keepdims", number(0)}, {"axis", number(-1)}})[1].tensor().sizes(), (Sizes{3}));
    EXPECT_EQ(error_of("split_to_sequence", {x, Tensor::ints({1, 1})}), "E0407");
    EXPECT_EQ(error_of("split_to_sequence", {x, at(0)}), "E0212");
    EXPECT_EQ(error_of("split_to_sequence", {x}, {{"axis", number(2)}}), "E0212");
}

TEST(ConcatFromSequence, JoinsAndStacks) {
    EXPECT_EQ(run_op("concat_from_sequence", {sequence_of(2)}, {{"axis", number(0)}})[0].sizes(), (Sizes{3, 2}));
    Datum same = Datum::sequence({Datum(floats({2}, {1, 2})), Datum(floats({2}, {3, 4}))});
    expect_tensor(run_op("concat_from_sequence", {same}, {{"axis", number(-1)}, {"new_axis", number(1)}})[0], {2, 2},
                  {1, 3, 2, 4});
    EXPECT_EQ(error_of("concat_from_sequence", {sequence_of(2)}, {{"axis", number(1)}}), "E0407");
    EXPECT_EQ(error_of("concat_from_sequence", {sequence_of(0)}, {{"axis", number(0)}}), "E0407");
    EXPECT_EQ(error_of("concat_from_sequence", {same}, {{"axis", number(1)}}), "E0212");
}

TEST(Optional, FullAndEmpty) {
    Tensor x = floats({1}, {4});
    auto full = try_op("optional", {x}), empty = try_op("optional", {}, {{"type", Attr(Type(DType::f32, Shape{1}))}});
    ASSERT_TRUE(full.ok() && empty.ok());
    EXPECT_EQ(run_op("optional_has_element", {(*full)[0]})[0].int_at(0), 1);
    EXPECT_EQ(run_op("optional_has_element", {(*empty)[0]})[0].int_at(0), 0);
    EXPECT_EQ(run_op("optional_has_element", {})[0].int_at(0), 0);
    EXPECT_EQ(run_op("optional_get_element", {(*full)[0]})[0], x);
    EXPECT_EQ(error_of("optional_get_element", {(*empty)[0]}), "E0407");
    EXPECT_EQ(error_of("optional", {}), "E0206");
}

}  // namespace
}  // namespace tessera::test::sequence_test
