#include "graph/builder.h"
#include "ops/run_op.h"

namespace tessera::test::gradient_test {
namespace {

struct Example {
    Graph graph;
    Builder build{graph};

    // d target / d xs, as importing a Gradient node makes it.
    Result<std::vector<Value*>> gradient(std::vector<std::string> xs, const std::string& y, std::vector<Value*> fed) {
        OnnxCall call{"Gradient", 1, std::move(fed), {{"xs", Attr(xs)}, {"y", Attr(y)}}, xs.size(), build, {}};
        Status done = find_op("gradient")->onnx.changes.at(0).up(call);
        if (!done.ok()) return std::move(done).error();
        return call.result;
    }
    Value* input(const char* name, Shape shape) { return graph.add_input(name, Type(DType::f64, std::move(shape))); }
    double total(const Tensor& t) {
        double sum = 0;
        for (double v : reals(t)) sum += v;
        return sum;
    }
};

// Compares with differences of the summed output, element by element of x.
void check(std::function<Value*(Builder&, Value* x, Value* w)> f, Sizes x_sizes, Sizes w_sizes) {
    Example e;
    Value *x = e.input("x", Shape(x_sizes)), *w = e.input("w", Shape(w_sizes));
    Value* y = f(e.build, x, w);
    ASSERT_FALSE(e.build.failed()) << e.build.status().error().to_string();
    auto d = e.gradient({"x", "w"}, y->name(), {x, w});
    ASSERT_TRUE(d.ok()) << d.error().to_string();
    for (Value* v : {y, (*d)[0], (*d)[1]}) e.graph.add_output(v);
    auto values = [](const Sizes& sizes, double start) {
        std::vector<double> v(*element_count(sizes));
        for (size_t i = 0; i < v.size(); ++i) v[i] = start + 0.37 * double(i % 5) - 0.11 * double(i);
        return v;
    };
    std::map<std::string, std::vector<double>> at = {{"x", values(x_sizes, 1.3)}, {"w", values(w_sizes, 0.9)}};
    std::map<std::string, Sizes> sizes = {{"x", x_sizes}, {"w", w_sizes}};
    auto run = [&](const std::map<std::string, std::vector<double>>& point) {
        Inputs in;
        for (const auto& [name, v] : point) in[name] = typed(DType::f64, sizes[name], v);
        auto out = evaluate(e.graph, in);
        EXPECT_TRUE(out.ok()) << out.error().to_string();
        return *out;
    };
    std::vector<Datum> base = run(at);
    size_t which = 1;
    for (const char* name : {"x", "w"}) {
        Tensor g = base[which++].tensor();
        ASSERT_EQ(g.sizes(), sizes[name]);
        for (size_t i = 0; i < at[name].size(); ++i) {
            auto up = at, down = at;
            up[name][i] += 1e-5;
            down[name][i] -= 1e-5;
            double slope = (e.total(run(up)[0].tensor()) - e.total(run(down)[0].tensor())) / 2e-5;
            EXPECT_NEAR(g.real_at(int64_t(i)), slope, 1e-5) << name << " element " << i;
        }
    }
}

TEST(Gradient, BroadcastArithmetic) {
    check([](Builder& b, Value* x,
             Value* w) { return b.div(b.mul(b.sub(x, w), x), b.add(b.mul(w, w), b.op("exp", {x}))); },
          {2, 3}, {3});
    check([](Builder& b, Value* x, Value* w) { return b.op("pow", {b.op("abs", {x}), w}); }, {2, 1}, {1, 2});
}

TEST(Gradient, ProductsAndReductions) {
    check(
        [](Builder& b, Value* x, Value* w) {
            Value* h = b.op("tanh", {b.matmul(x, b.transpose(w, {1, 0}))});
            return b.mul(b.reduce("reduce_mean", h, {1}, false),
                         b.reduce("reduce_sum", b.op("sigmoid", {h}), {1}, false));
        },
        {2, 3}, {4, 3});
}

TEST(Gradient, ThroughWhatAnOpStandsFor) {
    AttrMap in_double = {{"stash_type", Attr(int64_t{11})}};
    check([&](Builder& b, Value* x, Value* w) { return b.op("rms_normalization", {x, w}, in_double); }, {2, 3}, {3});
    check([](Builder& b, Value* x, Value* w) { return b.mul(b.op("softmax", {x}), w); }, {2, 3}, {3});
}

TEST(Gradient, OfValuesFedInsteadAndOfNothing) {
    Example e;
    Value *x = e.input("x", {2}), *z = e.input("z", {2});
    Value* y = e.build.mul(x, x);
    auto d = e.gradient({"x"}, y->name(), {z});
    ASSERT_TRUE(d.ok()) << d.error().to_string();
    auto unrelated = e.gradient({"z"}, y->name(), {z});
    ASSERT_TRUE(unrelated.ok()) << unrelated.error().to_string();
    e.graph.add_output((*d)[0]);
    e.graph.add_output((*unrelated)[0]);
    auto out = evaluate(e.graph, {{"x", typed(DType::f64, {2}, {1, 2})}, {"z", typed(DType::f64, {2}, {5, 6})}});
    ASSERT_TRUE(out.ok()) << out.error().to_string();
    expect_tensor((*out)[0].tensor(), {2}, {10, 12});
    expect_tensor((*out)[1].tensor(), {2}, {0, 0});
}

TEST(Gradient, Errors) {
    Example e;
    Value* x = e.input("x", {2});
    Value* y = e.build.op("unique", {x});
    auto code = [&](std::vector<std::string> xs, const std::string& target, std::vector<Value*> fed) {
        auto d = e.gradient(std::move(xs), target, std::move(fed));
        return d.ok() ? "ok" : std::string(code_name(d.error().code()));
    };
    EXPECT_EQ(code({"x"}, y->name(), {x}), "E0202");
    EXPECT_EQ(code({"x"}, "nowhere", {x}), "E0203");
    EXPECT_EQ(code({"x"}, y->name(), {}), "E0207");
    EXPECT_EQ(code({}, y->name(), {}), "E0206");
    EXPECT_EQ(error_of("gradient", {}, {{"xs", Attr(std::vector<std::string>{"x"})}, {"y", Attr(std::string("y"))}}),
              "E0409");
}

}  // namespace
}  // namespace tessera::test::gradient_test
