#include "runtime/kernel_access.h"

#include <gtest/gtest.h>

namespace tessera::kernel_access_test {
namespace {

// A kernel of one input and one output, both f32[shape].
Kernel map_kernel(const Expr& extent, const std::function<Stmt(const Expr& i)>& body, std::vector<Expr> shape) {
    Kernel k;
    k.symbols = {"N"};
    k.buffers = {{"x", DType::f32, shape, Scope::Global, {}}, {"y", DType::f32, shape, Scope::Global, {}}};
    k.params = 2;
    Expr i = index_var("i", extent.as_int());
    k.body = for_loop({.var = i, .extent = extent, .kind = LoopKind::Parallel, .body = body(i)});
    return k;
}

Expr x_at(std::vector<Expr> indices) { return load(0, DType::f32, std::move(indices)); }

TEST(KernelAccess, ReadsAndWrites) {
    Kernel k = map_kernel(8, [](const Expr& i) { return store(1, {i}, x_at({i}) + x_at({i})); }, {8});
    KernelAccess access = kernel_access(k);
    EXPECT_EQ(access.reads, (std::vector<bool>{true, false}));
    EXPECT_EQ(access.writes, (std::vector<bool>{false, true}));
}

TEST(KernelAccess, ACombiningStoreReads) {
    Kernel k = map_kernel(8, [](const Expr& i) { return store(1, {i}, x_at({i}), ReduceOp::Sum); }, {8});
    EXPECT_TRUE(kernel_access(k).reads[1]);
    EXPECT_FALSE(may_overwrite(k, 0, 1, {}));
}

TEST(KernelAccess, AMapMayOverwriteItsInput) {
    Kernel k =
        map_kernel(symbol("N"), [](const Expr& i) { return store(1, {i}, x_at({i}) * x_at({i})); }, {symbol("N")});
    EXPECT_TRUE(may_overwrite(k, 0, 1, {{"N", 5}}));
    EXPECT_TRUE(may_overwrite(k, 0, 1, {{"N", 0}}));
    EXPECT_FALSE(may_overwrite(k, 0, 1, {}));  // a size that is not known
}

TEST(KernelAccess, NotWhereAnotherElementIsRead) {
    Kernel k = map_kernel(8, [](const Expr& i) { return store(1, {i}, x_at({7 - i})); }, {8});
    EXPECT_FALSE(may_overwrite(k, 0, 1, {}));
}

TEST(KernelAccess, NotWhereAnElementIsStoredTwice) {
    auto twice = [](const Expr& i) {
        return seq({store(1, {i}, x_at({i})), store(1, {i}, x_at({i}) + constant(1, DType::f32))});
    };
    EXPECT_FALSE(may_overwrite(map_kernel(8, twice, {8}), 0, 1, {}));
    // An overlapping tail computes some elements again.
    auto overlapping = [](const Expr& i) {
        Expr j = index_var("j", 4);
        Expr at = min(i * 4, 2) + j;
        return for_loop({.var = j, .extent = 4, .body = store(1, {at}, x_at({at}))});
    };
    EXPECT_FALSE(may_overwrite(map_kernel(2, overlapping, {6}), 0, 1, {}));
}

TEST(KernelAccess, NotWhereAStoreIsGuarded) {
    auto guarded = [](const Expr& i) { return if_then(lt(i, 6), store(1, {i}, x_at({i}))); };
    EXPECT_FALSE(may_overwrite(map_kernel(8, guarded, {8}), 0, 1, {}));
    auto by_data = [](const Expr& i) {
        return if_then(lt(x_at({i}), constant(6, DType::f32)), store(1, {i}, x_at({i})));
    };
    EXPECT_FALSE(may_overwrite(map_kernel(8, by_data, {8}), 0, 1, {}));
}

TEST(KernelAccess, WhereBranchesDivideTheIterations) {
    auto divided = [](int64_t first, int64_t second) {
        return [=](const Expr& i) {
            return if_then(lt(i, first), store(1, {i}, x_at({i})), store(1, {i - second}, x_at({i - second})));
        };
    };
    auto guarded = [](const Expr& i) { return if_then(lt(i, 6), store(1, {i}, x_at({i}))); };
    EXPECT_TRUE(may_overwrite(map_kernel(8, guarded, {6}), 0, 1, {}));
    EXPECT_TRUE(may_overwrite(map_kernel(8, divided(6, 0), {8}), 0, 1, {}));
    EXPECT_FALSE(may_overwrite(map_kernel(8, divided(6, 2), {6}), 0, 1, {}));  // some are stored twice
}

TEST(KernelAccess, NotWhereTheInputIsAlsoReadElsewhere) {
    Kernel k = map_kernel(8, [](const Expr& i) { return store(1, {i}, x_at({i}) + x_at({0})); }, {8});
    EXPECT_FALSE(may_overwrite(k, 0, 1, {}));
}

TEST(KernelAccess, WhatIsReadBeforeItsElementIsWritten) {
    // Two outputs of what is read at the same element: y, in the place of x, must come last.
    auto both = [](bool first) {
        return [first](const Expr& i) {
            Stmt y = store(1, {i}, x_at({i})), z = store(2, {i}, x_at({i}) + x_at({i}));
            return first ? seq({y, z}) : seq({z, y});
        };
    };
    for (bool first : {true, false}) {
        Kernel k = map_kernel(8, both(first), {8});
        k.buffers.push_back({"z", DType::f32, {8}, Scope::Global, {}});
        k.params = 3;
        EXPECT_EQ(may_overwrite(k, 0, 1, {}), !first);
        EXPECT_EQ(may_overwrite(k, 0, 2, {}), first);
    }
    // At another element than the one that is written.
    Kernel k = map_kernel(8,
                          [](const Expr& i) {
                              return seq({store(2, {i}, x_at({7 - i})), store(1, {i}, x_at({i}))});
                          },
                          {8});
    k.buffers.push_back({"z", DType::f32, {8}, Scope::Global, {}});
    k.params = 3;
    EXPECT_FALSE(may_overwrite(k, 0, 1, {}));
}

TEST(KernelAccess, APartOfTheOutputIsNotEnough) {
    Kernel k = map_kernel(4, [](const Expr& i) { return store(1, {i}, x_at({i})); }, {8});
    EXPECT_FALSE(may_overwrite(k, 0, 1, {}));
}

}  // namespace
}  // namespace tessera::kernel_access_test
