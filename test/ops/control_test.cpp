#include "graph/builder.h"
#include "ops/run_op.h"

namespace tessera::test::control_test {
namespace {

const Type kScalar(DType::f32, Shape{}), kVector(DType::f32, {symbol("K")});
Tensor number(float v) { return Tensor::scalar(v); }

// while (trip < trips && total < 100) { total += x; collect(total); }
struct LoopModel {
    Graph g;
    Builder b{g};
    Value *trips = g.add_input("trips", Type(DType::i64, Shape{})), *x = g.add_input("x", kScalar);
    std::vector<Value*> out;
    LoopModel() {
        GraphPtr body = g.nested("body");
        Builder inner(*body);
        body->add_input("trip", Type(DType::i64, Shape{}));
        body->add_input("go", Type(DType::boolean, Shape{}));
        Value* sum = inner.add(body->add_input("total", kScalar), x);
        body->add_output(inner.op("less", {sum, inner.scalar(100, DType::f32)}));
        body->add_output(sum);
        body->add_output(sum);
        Value* go = b.constant(Tensor::scalar(true));
        out = b.ops("loop", {trips, go, b.scalar(0, DType::f32)}, {{"body", Attr(body)}}, 2);
        for (Value* v : out)
            if (v) g.add_output(v);
    }
    Result<std::vector<Datum>> run(int64_t n, float step, int64_t work = int64_t{1} << 50) {
        EvaluateOptions options;
        options.max_work = work;
        return evaluate(g, {{"trips", Tensor::scalar(n)}, {"x", number(step)}}, options);
    }
};

TEST(Loop, EndsByCountByConditionOrByTheWorkLimit) {
    LoopModel m;
    ASSERT_TRUE(m.b.status().ok()) << m.b.status().error().to_string();
    EXPECT_EQ(to_string(m.out[0]->type()), "f32[]");
    auto counted = m.run(3, 2);
    ASSERT_TRUE(counted.ok()) << counted.error().to_string();
    expect_tensor((*counted)[0].tensor(), {}, {6});
    expect_tensor((*counted)[1].tensor(), {3}, {2, 4, 6});
    EXPECT_EQ((*m.run(9, 60))[1].tensor().sizes(), (Sizes{2}));
    EXPECT_EQ((*m.run(0, 1))[1].tensor().sizes(), (Sizes{0}));
    auto endless = m.run(INT64_MAX, 0, int64_t{1} << 24);
    ASSERT_FALSE(endless.ok());
    EXPECT_EQ(endless.error().code(), Code::E0408);
}

TEST(Loop, SizesOfWhatItCollectsAreApartFromItsCount) {
    Graph g;
    Builder b(g);
    Value *trips = g.add_input("trips", Type(DType::i64, Shape{})), *x = g.add_input("x", kVector);
    GraphPtr body = g.nested("body");
    Builder inner(*body);
    body->add_input("trip", Type(DType::i64, Shape{}));
    body->add_output(body->add_input("go", Type(DType::boolean, Shape{})));
    Value* carried = body->add_input("carried", Type(DType::f32, {symbol("inside")}));
    body->add_output(carried);
    body->add_output(inner.op("neg", {carried}));
    auto out = b.ops("loop", {trips, b.constant(Tensor::scalar(true)), x}, {{"body", Attr(body)}}, 2);
    ASSERT_TRUE(b.status().ok()) << b.status().error().to_string();
    const Shape& shape = out[1]->type().tensor().shape;
    ASSERT_EQ(shape.rank(), 2);
    EXPECT_NE(shape[0], shape[1]);
}

TEST(If, JoinsItsBranches) {
    Graph g;
    Builder b(g);
    Value *c = g.add_input("c", Type(DType::boolean, Shape{})), *x = g.add_input("x", kVector);
    GraphPtr then = g.nested("then"), otherwise = g.nested("else");
    Builder in_then(*then), in_else(*otherwise);
    then->add_output(in_then.concat({x, x}, 0));
    otherwise->add_output(in_else.op("neg", {x}));
    Value* y = b.op("if", {c}, {{"then_branch", Attr(then)}, {"else_branch", Attr(otherwise)}});
    ASSERT_TRUE(b.status().ok()) << b.status().error().to_string();
    g.add_output(y);
    EXPECT_EQ(y->type().tensor().rank(), 1);
    EXPECT_FALSE(y->type().tensor().shape[0] == symbol("K"));
    Tensor v = floats({2}, {1, 2});
    expect_tensor((*evaluate(g, {{"c", Tensor::scalar(true)}, {"x", v}}))[0].tensor(), {4}, {1, 2, 1, 2});
    expect_tensor((*evaluate(g, {{"c", Tensor::scalar(false)}, {"x", v}}))[0].tensor(), {2}, {-1, -2});
}

TEST(If, RefusesBranchesOfTwoTypes) {
    Graph g;
    Builder b(g);
    GraphPtr then = g.nested("then"), otherwise = g.nested("else");
    then->add_output(then->constant(number(1)));
    otherwise->add_output(otherwise->constant(Tensor::scalar<int64_t>(1)));
    b.op("if", {b.constant(Tensor::scalar(true))}, {{"then_branch", Attr(then)}, {"else_branch", Attr(otherwise)}});
    ASSERT_FALSE(b.status().ok());
    EXPECT_EQ(b.status().error().code(), Code::E0208);
}

// Running sums of x along an axis, in one or the other direction, collected along another axis.
Result<std::vector<Datum>> running_sums(const Tensor& x, AttrMap attrs, const Type& slice, const Tensor& start) {
    Graph g;
    Builder b(g);
    Value *s = g.add_input("s", type_of(Datum(start))), *in = g.add_input("x", type_of(Datum(x)));
    GraphPtr body = g.nested("body");
    Builder inner(*body);
    Value* state = body->add_input("state", slice);
    Value* sum = inner.add(state, body->add_input("slice", slice));
    body->add_output(sum);
    body->add_output(sum);
    attrs["body"] = body;
    attrs["num_scan_inputs"] = int64_t{1};
    auto out = b.ops("scan", {s, in}, attrs, 2);
    if (!b.status().ok()) return b.status().error();
    for (Value* v : out) g.add_output(v);
    return evaluate(g, {{"s", start}, {"x", x}});
}

TEST(Scan, AxesAndDirections) {
    Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}), start = floats({2}, {0, 0});
    std::vector<int64_t> one{1};
    AttrMap columns{{"scan_input_axes", Attr(one)}};
    auto forward = running_sums(x, columns, Type(DType::f32, {2}), start);
    ASSERT_TRUE(forward.ok()) << forward.error().to_string();
    expect_tensor((*forward)[0].tensor(), {2}, {6, 15});
    expect_tensor((*forward)[1].tensor(), {3, 2}, {1, 4, 3, 9, 6, 15});
    AttrMap back{{"scan_input_axes", Attr(std::vector<int64_t>{-1})},
                 {"scan_input_directions", Attr(one)},
                 {"scan_output_axes", Attr(std::vector<int64_t>{-1})},
                 {"scan_output_directions", Attr(one)}};
    auto reversed = running_sums(x, back, Type(DType::f32, {2}), start);
    ASSERT_TRUE(reversed.ok()) << reversed.error().to_string();
    expect_tensor((*reversed)[1].tensor(), {2, 3}, {6, 5, 3, 15, 11, 6});
    auto none = running_sums(floats({0, 2}, {}), {}, Type(DType::f32, {2}), start);
    ASSERT_TRUE(none.ok()) << none.error().to_string();
    EXPECT_EQ((*none)[1].tensor().sizes(), (Sizes{0, 2}));
}

TEST(Scan, BatchesOfOpset8) {
    Tensor x = floats({2, 2, 1}, {1, 2, 10, 20}), start = floats({2, 1}, {0, 100});
    auto y = running_sums(x, {{"batched", Attr(int64_t{1})}}, Type(DType::f32, {1}), start);
    ASSERT_TRUE(y.ok()) << y.error().to_string();
    expect_tensor((*y)[0].tensor(), {2, 1}, {3, 130});
    expect_tensor((*y)[1].tensor(), {2, 2, 1}, {1, 3, 110, 130});
}

TEST(Scan, Refuses) {
    Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6}), start = floats({2}, {0, 0});
    auto code = [&](const char* name, std::vector<int64_t> v) {
        auto r = running_sums(x, {{name, Attr(v)}}, Type(DType::f32, {2}), start);
        return r.ok() ? "ok" : std::string(code_name(r.error().code()));
    };
    EXPECT_EQ(code("scan_input_axes", {2}), "E0212");
    EXPECT_EQ(code("scan_output_axes", {5}), "E0212");
    EXPECT_EQ(code("scan_input_directions", {2}), "E0212");
    EXPECT_EQ(code("scan_input_directions", {0, 0}), "E0212");
}

TEST(SequenceMap, MapsItemsAndSharesTensors) {
    Graph g;
    Builder b(g);
    Type items = Type::sequence(kVector);
    Value *s = g.add_input("s", items), *k = g.add_input("k", kScalar);
    GraphPtr body = g.nested("body");
    Builder inner(*body);
    Value* item = body->add_input("item", kVector);
    body->add_output(inner.mul(item, body->add_input("factor", kScalar)));
    Value* y = b.op("sequence_map", {s, k}, {{"body", Attr(body)}});
    ASSERT_TRUE(b.status().ok()) << b.status().error().to_string();
    g.add_output(y);
    Datum in = Datum::sequence({Datum(floats({1}, {1})), Datum(floats({2}, {2, 3}))});
    auto out = evaluate(g, {{"s", in}, {"k", number(2)}});
    ASSERT_TRUE(out.ok()) << out.error().to_string();
    expect_tensor((*out)[0].items()[1].tensor(), {2}, {4, 6});
}

}  // namespace
}  // namespace tessera::test::control_test
