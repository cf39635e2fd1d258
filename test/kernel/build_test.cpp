#include <gtest/gtest.h>

#include "kernel/ir/text.h"

namespace tessera::build_test {
namespace {

Kernel read(const std::string& text) {
    auto kernels = parse_kernels("kernel k(N) (x: f32[N], y: f32[N]) { " + text + " }");
    EXPECT_TRUE(kernels.ok()) << kernels.error().to_string();
    return kernels.ok() ? (*kernels)[0] : Kernel{};
}
std::string body(const Kernel& k, const Stmt& s) { return to_string(s, k.buffers); }
std::string body(const std::string& text) {
    Kernel k = read(text);
    return body(k, k.body);
}

const Expr kOne = real_const(1, DType::f32);

TEST(KernelBuild, DropsNullsAndSplicesSequences) {
    Stmt a = store(0, {0}, kOne), b = store(0, {1}, kOne), c = store(0, {2}, kOne);
    EXPECT_EQ(seq({}), nullptr);
    EXPECT_EQ(seq({nullptr, nullptr}), nullptr);
    EXPECT_EQ(seq({nullptr, a}), a);
    Stmt all = seq({a, nullptr, make_stmt(Seq{{nullptr, b, make_stmt(Seq{{c}})}})});
    ASSERT_TRUE(all->as<Seq>());
    EXPECT_EQ(all->as<Seq>()->stmts, (std::vector<Stmt>{a, b, c}));
}

TEST(KernelBuild, KnowsConstantConditions) {
    Stmt a = store(0, {0}, kOne), b = store(0, {1}, kOne);
    EXPECT_EQ(if_then(int_const(1, DType::boolean), a, b), a);
    EXPECT_EQ(if_then(int_const(0, DType::boolean), a, b), b);
    EXPECT_EQ(if_then(int_const(0, DType::boolean), a), nullptr);
    EXPECT_EQ(if_then(lt(symbol("N"), 4), nullptr), nullptr);
    EXPECT_TRUE(if_then(lt(symbol("N"), 4), a)->as<If>());
}

TEST(KernelTraverse, MutatesBottomUpAndSharesTheRest) {
    Kernel k = read("for i < 4 { x[i] = 1.0 y[i] = 2.0 } for j < 4 { y[j] = 3.0 }");
    EXPECT_EQ(mutate(k.body, [](const Stmt& s) { return s; }), k.body);
    Stmt only_y = mutate(k.body, [](const Stmt& s) {
        const Store* to = s->as<Store>();
        return to && to->to.buffer == 0 ? nullptr : s;
    });
    EXPECT_EQ(body(k, only_y), body("for i < 4 { y[i] = 2.0 } for j < 4 { y[j] = 3.0 }"));
    EXPECT_EQ(only_y->as<Seq>()->stmts[1], k.body->as<Seq>()->stmts[1]);
    Stmt nothing = mutate(k.body, [](const Stmt& s) { return s->as<Store>() ? nullptr : s; });
    EXPECT_EQ(body(k, nothing), "for i < 4 {\n}\nfor j < 4 {\n}\n");
}

TEST(KernelTraverse, VisitsOutsideIn) {
    Kernel k = read("for i < 4 { if i < 2 { x[i] = 1.0 } else { call f(x[i]; y[i]; i + 1) } }");
    std::string met;
    visit(k.body, [&](const Stmt& s) { met += std::to_string(s->node.index()); });
    EXPECT_EQ(met, "0235");
    std::string exprs;
    visit_exprs(k.body, [&](const Expr& e) { exprs += to_string(e) + ", "; });
    EXPECT_EQ(exprs, "4, i < 2, i, 1, i, i, i + 1, ");
}

TEST(KernelTraverse, SubstitutesAndRenames) {
    Kernel k = read("for i < N { if i < N - 1 { x[i] = y[i + 1] } }");
    EXPECT_EQ(body(k, substitute(k.body, {{"N", Expr(4)}})), body("for i < 4 { if i < 3 { x[i] = y[i + 1] } }"));
    EXPECT_EQ(body(k, substitute(k.body, {{"i", index_var("j", std::nullopt)}})),
              body("for j < N { if j < N - 1 { x[j] = y[j + 1] } }"));
    EXPECT_EQ(body(k, substitute(k.body, {{"i", Expr(2)}})), body(k, k.body));
    EXPECT_EQ(substitute(k.body, {{"M", Expr(2)}}), k.body);
    Stmt inside = k.body->as<For>()->body;
    EXPECT_EQ(body(k, substitute(inside, {{"i", Expr(2)}, {"N", Expr(4)}})), "x[2] = y[3]\n");
    EXPECT_EQ(substitute(inside, {{"i", Expr(3)}, {"N", Expr(4)}}), nullptr);
}

TEST(KernelTraverse, DoesNothingTwice) {
    Kernel k = read("for i < 4 { x[i] = 1.0 if i < N { y[i] = 2.0 } }");
    Stmt inside = k.body->as<For>()->body;
    Bindings next{{"i", index_var("i", 4) + 1}, {"N", Expr(0)}};  // no y is left, and x alone is no sequence
    EXPECT_EQ(body(k, substitute(inside, next)), "x[i + 1] = 1.0\n");
    int stores = 0;
    mutate(inside, [&](const Stmt& s) {
        if (s->as<If>()) return Stmt();
        stores += s->as<Store>() != nullptr;
        return s;
    });
    EXPECT_EQ(stores, 2);
}

TEST(KernelTraverse, MapsWholeExpressions) {
    Kernel k = read("for i < 4 { x[i] = y[i] call f(x[i]; y[i]; i) }");
    Stmt mapped = map_exprs(k.body, [](const Expr& e) { return e.dtype() == DType::i64 ? e + 1 : -e; });
    Expr i = index_var("i", 4);
    EXPECT_EQ(body(k, mapped), "for i < 5 {\n  x[i + 1] = -y[i]\n  call f(x[i + 1]; y[i + 1]; i + 1)\n}\n");
    EXPECT_EQ(map_exprs(k.body, [](const Expr& e) { return e; }), k.body);
}

}  // namespace
}  // namespace tessera::build_test
