// contraction and einsum.
#include "ops/run_op.h"

namespace tessera::test::contraction_test {
namespace {

Tensor einsum(const char* equation, const Given& in) {
    return run_op("einsum", in, {{"equation", Attr(std::string(equation))}})[0];
}
std::string einsum_error(const char* equation, const Given& in) {
    return error_of("einsum", in, {{"equation", Attr(std::string(equation))}});
}

TEST(Matmul, VectorsAndBatches) {
    Tensor m = floats({2, 3}, {1, 2, 3, 4, 5, 6}), v = floats({3}, {1, 0, -1});
    expect_tensor(run_op("matmul", {m, v})[0], {2}, {-2, -2});
    expect_tensor(run_op("matmul", {v, v})[0], {}, {2});
    expect_tensor(run_op("matmul", {floats({2, 1, 1}, {1, 2}), floats({1, 2}, {3, 4})})[0], {2, 1, 2}, {3, 4, 6, 8});
    expect_tensor(run_op("matmul", {floats({2, 0}, {}), floats({0, 1}, {})})[0], {2, 1}, {0, 0});
    EXPECT_EQ(error_of("matmul", {m, m}), "E0210");
    EXPECT_EQ(error_of("matmul", {m, floats({}, {1})}), "E0210");
}

TEST(Gemm, TransposesAndScales) {
    Tensor a = floats({1, 2}, {1, 2}), b = floats({2, 1}, {3, 4});
    expect_tensor(run_op("gemm", {a, b})[0], {1, 1}, {11});
    AttrMap both{
        {"transA", Attr(int64_t{1})}, {"transB", Attr(int64_t{1})}, {"alpha", Attr(0.5f)}, {"beta", Attr(2.f)}};
    expect_tensor(run_op("gemm", {a, b, floats({2}, {1, 10})}, both)[0], {2, 2}, {3.5, 22, 5, 24});
    expect_tensor(run_op("gemm", {longs({1, 1}, {3}), longs({1, 1}, {5})}, {{"alpha", Attr(0.5f)}})[0], {1, 1}, {7});
    EXPECT_EQ(error_of("gemm", {a, a}), "E0210");
    EXPECT_EQ(error_of("gemm", {a, b, floats({2, 1}, {1, 2})}), "E0210");
    EXPECT_EQ(error_of("gemm", {a, floats({2}, {1, 2})}), "E0210");
}

TEST(Einsum, Forms) {
    Tensor m = floats({2, 2}, {1, 2, 3, 4}), v = floats({2}, {10, 1});
    expect_tensor(einsum("ij,j->i", {m, v}), {2}, {12, 34});
    expect_tensor(einsum("ii->i", {m}), {2}, {1, 4});
    expect_tensor(einsum("ii", {m}), {}, {5});
    expect_tensor(einsum("ji", {m}), {2, 2}, {1, 3, 2, 4});
    expect_tensor(einsum("Ba , ab", {m, m}), {2, 2}, {7, 10, 15, 22});
    expect_tensor(einsum("i,j->ij", {v, v}), {2, 2}, {100, 10, 10, 1});
    expect_tensor(einsum("...i,...i->...", {m, v}), {2}, {12, 34});
    expect_tensor(einsum("...i->i...", {floats({1, 2, 2}, {1, 2, 3, 4})}), {2, 1, 2}, {1, 3, 2, 4});
    expect_tensor(einsum("ij->", {m}), {}, {10});
    expect_tensor(einsum("ij,ij->ij", {m, floats({1, 2}, {1, 2})}), {2, 2}, {1, 4, 3, 8});
}

TEST(Einsum, Errors) {
    Tensor m = floats({2, 2}, {1, 2, 3, 4});
    EXPECT_EQ(einsum_error("ijk->i", {m}), "E0210");
    EXPECT_EQ(einsum_error("ij,jk->ik", {m}), "E0212");
    EXPECT_EQ(einsum_error("ij->ik", {m}), "E0212");
    EXPECT_EQ(einsum_error("ij->ii", {m}), "E0212");
    EXPECT_EQ(einsum_error("i1->i", {m}), "E0212");
    EXPECT_EQ(einsum_error("...i...->i", {m}), "E0210");
    EXPECT_EQ(einsum_error("ij,ij->", {m, floats({2, 3}, {1, 2, 3, 4, 5, 6})}), "E0210");
    EXPECT_EQ(einsum_error("i", {}), "E0207");
}

TEST(Det, WithRowExchanges) {
    expect_tensor(run_op("det", {floats({2, 2, 2}, {0, 1, 1, 0, 1, 2, 2, 4})})[0], {2}, {-1, 0});
    expect_tensor(run_op("det", {floats({3, 3}, {0, 2, 0, 3, 0, 0, 0, 0, 4})})[0], {}, {-24});
    expect_tensor(run_op("det", {floats({0, 0}, {})})[0], {}, {1});
    EXPECT_EQ(error_of("det", {floats({2, 1}, {1, 2})}), "E0210");
}

}  // namespace
}  // namespace tessera::test::contraction_test
