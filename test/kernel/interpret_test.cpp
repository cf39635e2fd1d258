#include <gtest/gtest.h>

#include "graph/evaluate/evaluate.h"
#include "graph/naive_body.h"
#include "graph/op_def.h"
#include "kernel/random_kernel.h"

namespace tessera::interpret_test {
namespace {

Kernel read(const std::string& text) {
    auto kernels = parse_kernels(text);
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    return kernels.ok() ? (*kernels)[0] : Kernel{};
}

std::string outcome(const Kernel& kernel, std::vector<Tensor>& tensors, const SymbolValues& symbols = {}) {
    Status status = interpret(kernel, tensors, symbols);
    if (status.ok()) return "fine";
    return fmt::format("{}: {}", code_name(status.error().code()), status.error().message());
}

Tensor numbered(Sizes sizes, float scale) {
    Tensor t = std::move(Tensor::zeros(DType::f32, std::move(sizes)).value());
    for (int64_t i = 0; i < t.elements(); ++i) t.set_real(i, scale * static_cast<float>((i * 7) % 11 - 5));
    return t;
}

TEST(Interpret, MultipliesMatrices) {
    const int64_t m = 13, n = 29, k = 17;
    Kernel kernel = read(R"(
        kernel matmul(M, N) (a: f32[M, 17], b: f32[17, N], c: f32[M, N]) {
          parallel i < floordiv(M + 3, 4) {
            for j < floordiv(N + 7, 8) {
              alloc acc: f32[4, 8] register
              unrolled i1 < 4 { vector j1 < 8 { acc[i1, j1] = 0.0 } }
              for k < 17 {
                unrolled i2 < 4 {
                  vector j2 < 8 {
                    acc[i2, j2] += select(4*i + i2 < M && 8*j + j2 < N, a[4*i + i2, k] * b[k, 8*j + j2], 0.0)
                  }
                }
              }
              unrolled i3 < 4 {
                if 4*i + i3 < M {
                  vector j3 < 8 { if 8*j + j3 < N { c[4*i + i3, 8*j + j3] = acc[i3, j3] } }
                }
              }
            }
          }
        })");
    std::vector<Tensor> tensors{numbered({m, k}, 0.1f), numbered({k, n}, 0.3f), numbered({m, n}, 0)};
    ASSERT_EQ(outcome(kernel, tensors, {{"M", m}, {"N", n}}), "fine");
    auto a = tensors[0].as<float>(), b = tensors[1].as<float>(), c = tensors[2].as<float>();
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * b[p * n + j];
            ASSERT_EQ(c[i * n + j], sum) << i << ", " << j;
        }
}

TEST(Interpret, RoundsEachOperationToItsType) {
    Kernel kernel = read(R"(
        kernel k() (x: f32[3], h: f16[3], y: f32[3], z: f64[3], g: f16[3]) {
          for i < 3 {
            y[i] = (x[i] + 1.0) - 1.0
            z[i] = (f64(x[i]) + 1.0_f64) - 1.0_f64
            g[i] = h[i] * h[i] + 1.0_f16
            g[i] += f16(x[i])
          }
        })");
    std::vector<Tensor> tensors{Tensor::of<float>({3}, {1e-9f, 0.3f, 1e10f}), *Tensor::filled(DType::f16, {3}, 1.001),
                                numbered({3}, 0), *Tensor::zeros(DType::f64, {3}), *Tensor::zeros(DType::f16, {3})};
    double h = tensors[1].real_at(0);
    ASSERT_EQ(outcome(kernel, tensors), "fine");
    for (int64_t i = 0; i < 3; ++i) {
        float x = tensors[0].as<float>()[i];
        EXPECT_EQ(tensors[2].as<float>()[i], (x + 1.0f) - 1.0f);
        EXPECT_EQ(tensors[3].as<double>()[i], (static_cast<double>(x) + 1.0) - 1.0);
        auto half = [](double v) { return float_from_bits(DType::f16, float_to_bits(DType::f16, v)); };
        float product = static_cast<float>(h) * static_cast<float>(h) + 1.0f;
        double stored = half(product);
        EXPECT_EQ(tensors[4].real_at(i), half(static_cast<float>(stored) + static_cast<float>(half(x))));
    }
}

TEST(Interpret, ChecksEveryAccess) {
    std::vector<Tensor> tensors{numbered({4}, 1), numbered({2, 3}, 1)};
    const std::string head = "kernel k() (x: f32[4], y: f32[2, 3]) { ";
    EXPECT_EQ(outcome(read(head + "for i < 5 { x[i] = 0.0 } }"), tensors),
              "E0406: element [4] of x is out of bounds: its sizes are [4]");
    EXPECT_EQ(outcome(read(head + "for i < 4 { x[i] = x[i - 1] } }"), tensors),
              "E0406: element [-1] of x is out of bounds: its sizes are [4]");
    EXPECT_EQ(outcome(read(head + "for i < 4 { x[i] = y[0, i] } }"), tensors),
              "E0406: element [0,3] of y is out of bounds: its sizes are [2,3]");
    EXPECT_EQ(outcome(read(head + "for i < 4 { x[i] = select(i < 3, y[0, i], 0.0) } }"), tensors), "fine");
    EXPECT_EQ(outcome(read(head + "for i < 4 { if i < 3 { x[i] = y[0, i] } } }"), tensors), "fine");
    EXPECT_EQ(outcome(read(head + "for i < 4 { x[i] = select(x[i] < 1.0 && y[0, i] < 1.0, 1.0, 0.0) } }"), tensors),
              "E0406: element [0,3] of y is out of bounds: its sizes are [2,3]");
    EXPECT_EQ(outcome(read(head + "for i < 0 { x[7] = 0.0 } }"), tensors), "fine");
    EXPECT_EQ(outcome(read(head + "alloc t: f32[2] local for i < 3 { t[i] = 0.0 } }"), tensors),
              "E0406: element [2] of t is out of bounds: its sizes are [2]");
}

TEST(Interpret, ChecksWhatItIsGiven) {
    Kernel k = read("kernel k(N) (x: f32[N], y: f32[N] strides [2]) { for i < N { y[i] = x[i] } }");
    std::vector<Tensor> good{numbered({3}, 1), numbered({5}, 0)};
    EXPECT_EQ(outcome(k, good, {{"N", 3}}), "fine");
    EXPECT_EQ(good[1], Tensor::of<float>({5}, {-5, 0, 2, 0, -2}));
    EXPECT_EQ(outcome(k, good), "E0402: no value for the size N");
    EXPECT_EQ(outcome(k, good, {{"N", 4}}), "E0405: 3 elements for x, whose sizes are [4]");
    std::vector<Tensor> few{numbered({3}, 1)};
    EXPECT_EQ(outcome(k, few, {{"N", 3}}), "E0402: 1 tensors for 2 parameters");
    std::vector<Tensor> small{numbered({3}, 1), numbered({4}, 0)};
    EXPECT_EQ(outcome(k, small, {{"N", 3}}), "E0405: 4 elements for y, whose sizes are [3]");
    EXPECT_EQ(outcome(read("kernel k(N) (x: f32[N] strides [N - 9], y: f32[5]) { }"), good, {{"N", 3}}),
              "E0405: invalid sizes [3] and strides [-6] of x");
    EXPECT_EQ(outcome(read("kernel k(N) (x: f32[3], y: f32[5]) { alloc t: f32[N, N] local }"), good,
                      {{"N", int64_t{1} << 40}})
                  .substr(0, 5),
              "E0108");
    std::vector<Tensor> ints{Tensor::of<int32_t>({3}, {1, 2, 3}), numbered({5}, 0)};
    EXPECT_EQ(outcome(k, ints, {{"N", 3}}), "E0403: x takes elements of type f32, not i32");
    std::vector<Tensor> none;
    EXPECT_EQ(outcome(read("kernel k() () { call fly(; ; ) }"), none), "E0601: there is no intrinsic fly");
    EXPECT_EQ(outcome(read("kernel k() () { call prefetch(; ; ) }"), none), "fine");
}

TEST(Interpret, FreshMemoryIsNoZero) {
    Kernel k =
        read("kernel k() (x: f32[2]) { for i < 2 { alloc t: f32[1] local if i == 0 { t[0] = 1.0 } x[i] = t[0] } }");
    std::vector<Tensor> tensors{numbered({2}, 0)};
    ASSERT_EQ(outcome(k, tensors), "fine");
    EXPECT_EQ(tensors[0].as<float>()[0], 1);
    EXPECT_TRUE(std::isnan(tensors[0].as<float>()[1]));
}

// Straight from the meaning of statements, expressions by the naive body.
class NaiveKernel {
  public:
    NaiveKernel(const Kernel& kernel, std::vector<Tensor>& params, const SymbolValues& symbols)
        : kernel_(kernel), tensors_(params), vars_(symbols.begin(), symbols.end()) {
        tensors_.resize(kernel.buffers.size());
        for (Tensor& t : tensors_) pointers_.push_back(&t);
    }

    void run(const Stmt& s) {
        if (!s) return;
        if (const Seq* list = s->as<Seq>())
            for (const Stmt& each : list->stmts) run(each);
        if (const For* loop = s->as<For>()) {
            int64_t extent = value(loop->extent).integer;
            for (int64_t i = 0; i < extent; ++i) {
                vars_[loop->var.node().name] = i;
                run(loop->body);
            }
        }
        if (const If* branch = s->as<If>()) run(value(branch->condition).integer ? branch->then : branch->otherwise);
        if (const Alloc* a = s->as<Alloc>()) {
            const Buffer& b = kernel_.buffers[static_cast<size_t>(a->buffer)];
            Sizes sizes;
            for (const Expr& e : b.shape) sizes.push_back(value(e).integer);
            tensors_[static_cast<size_t>(a->buffer)] = std::move(Tensor::zeros(b.dtype, sizes).value());
            run(a->body);
        }
        if (const Store* to = s->as<Store>()) write(*to);
    }

    std::vector<Tensor> params() const {
        return {tensors_.begin(), tensors_.begin() + static_cast<ptrdiff_t>(kernel_.params)};
    }

  private:
    const Kernel& kernel_;
    std::vector<Tensor> tensors_;
    std::vector<const Tensor*> pointers_;
    std::map<std::string, int64_t> vars_;

    NaiveValue value(const Expr& e) { return NaiveBody(pointers_).value(e, vars_); }

    void write(const Store& s) {
        Tensor& t = tensors_[static_cast<size_t>(s.to.buffer)];
        int64_t offset = 0;
        for (size_t d = 0; d < s.to.indices.size(); ++d)
            offset = offset * t.sizes()[d] + value(s.to.indices[d]).integer;
        Expr result = s.value;
        if (s.combine) {
            Expr old = load(s.to.buffer, t.dtype(), s.to.indices);
            Expr all[] = {old + s.value, old * s.value, min(old, s.value), max(old, s.value)};
            result = all[static_cast<int>(*s.combine)];
        }
        NaiveValue v = value(result);
        is_float(t.dtype()) ? t.set_real(offset, v.real) : t.set_int(offset, v.integer);
    }
};

TEST(Interpret, AgreesWithTheNaiveKernel) {
    for (uint64_t seed = 1000; seed < 1060; ++seed) {
        RandomKernel r = random_kernel(seed, {.nests = 2});
        SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + to_string(r.kernel));
        std::vector<Tensor> got = copies(r.buffers), want = copies(r.buffers);
        ASSERT_EQ(outcome(r.kernel, got, r.symbols), "fine");
        NaiveKernel naive(r.kernel, want, r.symbols);
        naive.run(r.kernel.body);
        ASSERT_EQ(first_difference(got, naive.params()), "");
    }
}

// Plain nests of a body against the evaluator.
const OpDef kTestOp{.name = "test", .inputs = {"x...: *"}, .outputs = {"y: *"}};
const AttrMap kNoAttrs;

void check_body(const std::vector<Tensor>& inputs, Sizes sizes, const std::vector<ReduceAxis>& reduce, ReduceOp op,
                const Expr& value) {
    std::vector<Type> types;
    std::vector<const Tensor*> pointers;
    for (const Tensor& t : inputs) {
        types.push_back(type_of(Datum(t)));
        pointers.push_back(&t);
    }
    OpView view(kTestOp, kNoAttrs, types, 1);
    view.with_outputs({Type(value.dtype(), Shape(sizes))}).made_concrete();
    auto want = evaluate_body(view, tessera::reduce(op, reduce, value), pointers);
    ASSERT_TRUE(want.ok()) << want.error().to_string();

    Compute c;
    Stage stage{.name = "s",
                .buffer = static_cast<int>(inputs.size()),
                .axes = {},
                .reduce = reduce,
                .combine = op,
                .store = {},
                .value = value};
    for (size_t i = 0; i < inputs.size(); ++i) {
        c.buffers.push_back({"x" + std::to_string(i), inputs[i].dtype(), {}});
        for (int64_t size : inputs[i].sizes()) c.buffers.back().shape.push_back(size);
    }
    c.buffers.push_back({"y", value.dtype(), {}});
    Indices o = output_indices(Shape(sizes));
    for (size_t d = 0; d < sizes.size(); ++d) {
        c.buffers.back().shape.push_back(sizes[d]);
        stage.axes.push_back({o[static_cast<int64_t>(d)], sizes[d]});
        stage.store.push_back(o[static_cast<int64_t>(d)]);
    }
    c.params = c.buffers.size();
    c.stages = {stage};
    ASSERT_TRUE(verify(c).ok()) << verify(c).error().to_string();
    std::vector<Tensor> tensors = copies(inputs);
    tensors.push_back(std::move(Tensor::zeros(value.dtype(), sizes).value()));
    ASSERT_EQ(outcome(plain_nests(c), tensors), "fine");
    EXPECT_EQ(first_difference({tensors.back()}, {*want}, 1e-5), "") << to_string(c);
}

TEST(Interpret, AgreesWithTheEvaluator) {
    Expr i = index_var("i0", 6), j = index_var("i1", 5), c = index_var("i2", 3);
    Expr k = index_var("k", 4), p = index_var("p", 3), q = index_var("q", 3);
    std::vector<Tensor> inputs{numbered({6, 4}, 0.25f), numbered({4, 5}, 0.5f)};
    auto a = [](Expr x, Expr y) { return load(0, DType::f32, {x, y}); };
    auto b = [](Expr x, Expr y) { return load(1, DType::f32, {x, y}); };
    check_body(inputs, {6, 5}, {{k, 4}}, ReduceOp::Sum, a(i, k) * b(k, j));
    check_body(inputs, {6, 5}, {{k, 4}}, ReduceOp::Max, call(Fn::Exp, {a(i, k)}) / b(k, j));
    check_body(inputs, {6, 5}, {{k, 4}}, ReduceOp::Min, select(lt(k, i), a(k, k), b(k, j)));
    check_body(inputs, {6, 5}, {{k, 4}}, ReduceOp::Prod, a(i, k) + constant(0.5, DType::f32));
    check_body(inputs, {6, 5}, {}, ReduceOp::Sum, cast(call(Fn::Round, {a(i, mod(j, 4))}), DType::f32));
    check_body(inputs, {6}, {{k, 4}}, ReduceOp::Sum, cast(a(i, k) * constant(100, DType::f32), DType::i8));
    // A convolution with padding.
    Expr y = i + p - 1, x = j + q - 1;
    Expr inside = logical_and(logical_and(le(0, y), lt(y, 6)), logical_and(le(0, x), lt(x, 4)));
    check_body({inputs[0], numbered({3, 3, 3}, 0.125f)}, {6, 5, 3}, {{p, 3}, {q, 3}}, ReduceOp::Sum,
               select(inside, a(y, x), constant(0, DType::f32)) * load(1, DType::f32, {p, q, c}));
}

}  // namespace
}  // namespace tessera::interpret_test
