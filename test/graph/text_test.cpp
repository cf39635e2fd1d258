// The text form: print, parse, and what both say of every element type.
#include <gmock/gmock.h>

#include <bit>
#include <filesystem>
#include <random>

#include "base/numeric.h"
#include "graph/builder.h"
#include "graph/text/literal.h"
#include "graph/text/parse.h"
#include "graph/text/print.h"
#include "graph/verify.h"

namespace tessera::text_test {
namespace {

using testing::HasSubstr;

std::unique_ptr<Graph> parsed(std::string_view text) {
    auto g = parse(text);
    if (g.ok()) return std::move(*g);
    ADD_FAILURE() << g.error().to_string();
    return nullptr;
}

Error parse_error(std::string_view text) {
    auto g = parse(text);
    if (!g.ok()) return g.error();
    ADD_FAILURE() << "no error for\n" << text;
    return Error(Code::E0501, "none");
}

void expect_same(const Graph& g, const PrintOptions& options = {}) {
    std::string text = print(g, options);
    auto back = parse(text);
    ASSERT_TRUE(back.ok()) << back.error().to_string() << "\n" << text;
    std::string difference;
    EXPECT_TRUE(identical(g, **back, &difference)) << difference << "\n" << text;
    EXPECT_EQ(g.info(), (*back)->info());
    EXPECT_EQ(print(**back, options), text);
    EXPECT_THAT(violations(**back), testing::IsEmpty());
}

TEST(Text, ReadsWhatPeopleWrite) {
    auto g = parsed(R"(
        // a comment
        graph f(x: f32[2,N], b: bool[] = true) {
          %0 = transpose(x, [1,0])        // an attribute by its place
          y = mul(%0, 2)                  // takes x's element type
          %z = add(neg(y), [0.5, 1.5])
          return %z, matmul(x, %z)
        }
    )");
    ASSERT_TRUE(g);
    EXPECT_EQ(to_string(g->find_value("0")->type()), "f32[N,2]");
    EXPECT_EQ(to_string(g->outputs()[1]->type()), "f32[2,2]");
    EXPECT_EQ(g->output_names()[0], "z");
    EXPECT_TRUE(g->inputs()[1]->tensor());
    expect_same(*g);
}

TEST(Text, AVectorJacobianProductIsReplacedByItsNodes) {
    auto g = parsed(R"(
        graph f(x: f32[3], w: f32[3], dy: f32[3]) {
          %y = mul(x, w)
          %v0, %v1 = vjp(y, dy, x, w)
          %v2 = vjp(%v0, dy, x)            // x has no part in it
          return %v0, %v1, %v2
        }
    )");
    ASSERT_TRUE(g);
    expect_same(*g);
    EXPECT_THAT(print(*g), HasSubstr("mul(dy, w)"));
    EXPECT_THAT(print(*g), HasSubstr("mul(dy, x)"));
    EXPECT_EQ(to_string(g->outputs()[2]->type()), "f32[3]");
    EXPECT_EQ(parse_error("graph f(x: f32[3]) { %a = vjp(x, x) return %a }").code(), Code::E0207);
    EXPECT_EQ(parse_error("graph f(x: i64[3]) { %a = vjp(x, x, x) return %a }").code(), Code::E0208);
}

TEST(Text, EveryElementTypeReadsBackToTheSameBits) {
    std::mt19937_64 random(1);
    for (int i = 0; i < kDTypeCount; ++i) {
        auto dtype = static_cast<DType>(i);
        if (dtype == DType::string) continue;
        int64_t n = 300;
        Tensor t = *Tensor::zeros(dtype, {n});
        int bits = dtype_bits(dtype), width = int(dtype_bytes(dtype));
        for (int64_t k = 0; k < n; ++k) {
            uint64_t value = k < 256 && bits <= 8 ? uint64_t(k) : random();
            char* at = static_cast<char*>(t.mutable_data()) + k * width;
            if (is_complex(dtype)) {
                for (int part = 0; part < 2; ++part) {
                    uint64_t v = random();
                    std::memcpy(at + part * width / 2, &v, size_t(width) / 2);
                }
            } else if (is_float(dtype)) {
                if (bits < 8) value &= (1u << bits) - 1;
                std::memcpy(at, &value, size_t(width));
            } else {
                t.set_int(k, int_wrap(dtype, int64_t(value)));
            }
        }
        Graph g("g");
        g.add_output(g.constant(t, "c"), "c");
        expect_same(g, {.by_value = n});
        expect_same(g, {.by_value = 0});
    }
}

TEST(Text, SpecialFloats) {
    float payload = std::bit_cast<float>(0x7fc00123u), signalling = std::bit_cast<float>(0xff800001u);
    Tensor t = *Tensor::zeros(DType::f32, {8});
    float values[] = {-0.0f, 0.0f, INFINITY, -INFINITY, NAN, payload, signalling, 1e-45f};
    std::memcpy(t.mutable_data(), values, sizeof values);
    Graph g("g");
    g.add_output(g.constant(t, "c"), "c");
    EXPECT_THAT(print(g), HasSubstr("[-0.0,0.0,inf,-inf,nan,0x7fc00123,0xff800001,1e-45]"));
    expect_same(g);
    Tensor s = Tensor::strings({3}, {"a \"quoted\"\nline", std::string("\0\xff", 2), "größe"});
    Graph h("h");
    h.add_output(h.constant(s, "c"), "c");
    expect_same(h);
}

TEST(Text, OddNamesAndEverythingAGraphCarries) {
    Graph g("my graph");
    g.info().producer_name = "a \"b\"";
    g.info().opset = 17;
    g.info().domains["ai.onnx.ml"] = 3;
    g.info().metadata["k\n"] = "v";
    g.doc_string = "about";
    g.metadata["x"] = "y";
    Builder b(g);
    Value* x = g.add_input("/model/x:0", Type(DType::f32, {symbol("batch size"), 3}));
    Value* t = g.add_input("true", Type(DType::f32, {1}));
    auto node = g.add({.op = find_op("add"),
                       .inputs = {x, t},
                       .name = "node 1",
                       .output_names = {"0"},
                       .metadata = {{"doc_string", "hm"}}});
    ASSERT_TRUE(node.ok());
    auto clip = g.add({.op = find_op("clip"), .inputs = {(*node)->output(), nullptr, t}, .output_names = {"äöü"}});
    ASSERT_TRUE(clip.ok()) << clip.error().to_string();
    g.add_output((*clip)->output(), "the output");
    expect_same(g);
}

TEST(Text, NestedGraphs) {
    auto g = parsed(R"(graph f(c: bool[], x: f32[N]) -> (y) {
        %y = if(c, then_branch=graph a() {
            %t = neg(x)
            return %t
        }, else_branch=graph b() {
            const k: f32[1] = [2.0]
            %t = if(c, then_branch=graph inner() { %u = mul(x, k)  return %u }, else_branch=graph inner2() { return x })
            return %t
        })
        return %y
    })");
    ASSERT_TRUE(g);
    expect_same(*g);
}

TEST(Text, WeightsFile) {
    auto folder = std::filesystem::temp_directory_path() / "tessera_text_test";
    std::filesystem::create_directories(folder);
    Graph g("g");
    Tensor big = *Tensor::zeros(DType::f16, {100}), wide = *Tensor::zeros(DType::f64, {50});
    for (int i = 0; i < 100; ++i) big.set_real(i, i * 0.25);
    for (int i = 0; i < 50; ++i) wide.set_real(i, 1.0 / (i + 1));
    g.add_output(g.constant(big, "big"), "big");
    g.add_output(g.constant(wide, "wide"), "wide");
    ASSERT_TRUE(save_text(g, folder / "m.tsr", {.weights_file = "m.bin"}).ok());
    auto back = load_text(folder / "m.tsr");
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    std::string difference;
    EXPECT_TRUE(identical(g, **back, &difference)) << difference;
    std::filesystem::resize_file(folder / "m.bin", 100);
    EXPECT_EQ(load_text(folder / "m.tsr").error().code(), Code::E0107);
    ASSERT_TRUE(save_text(g, folder / "m.tsr", {}).ok());
    EXPECT_TRUE(load_text(folder / "m.tsr").ok());
    EXPECT_EQ(
        parse("weights \"../../etc/passwd\"\ngraph g() { const c: u8[64] = weights(0) return c }", {.folder = folder})
            .error()
            .code(),
        Code::E0106);
    std::filesystem::remove_all(folder);
}

TEST(Text, ErrorsSayWhere) {
    Error e = parse_error("graph f(x: f32[2]) {\n  %a = relu(y)\n  return %a\n}");
    EXPECT_EQ(e.code(), Code::E0302);
    EXPECT_EQ(e.where(), "text:2:13");
    EXPECT_THAT(e.note(), HasSubstr("%a = relu(y)\n"));
    e = parse_error("graph f(a: f32[2,3], b: f32[4,5]) {\n  return matmul(a, b)\n}");
    EXPECT_EQ(e.code(), Code::E0210);
    EXPECT_EQ(e.where(), "text:2:10");
    e = parse_error("graph f(a: f32[2]) { return softmx(a) }");
    EXPECT_EQ(e.code(), Code::E0201);
    EXPECT_THAT(e.hint(), HasSubstr("softmax"));
    EXPECT_EQ(parse_error("graph f(a: f32[2]) { %b = relu(a) : f32[3] return %b }").code(), Code::E0210);
    EXPECT_EQ(parse_error("graph f(a: f32[2]) { %a = relu(a) return %a }").code(), Code::E0204);
    EXPECT_EQ(parse_error("graph f(a: f32[2]) { return transpose(a, prem=[0]) }").code(), Code::E0206);
    EXPECT_EQ(parse_error("graph f(a: f32[2]) { return transpose(a, perm=\"x\") }").code(), Code::E0206);
    EXPECT_EQ(parse_error("graph f() { const c: i8[1] = [128] return c }").code(), Code::E0301);
    EXPECT_EQ(parse_error("graph f() { const c: f32[2,1000000000000,1000000000000] = [1.0] return c }").code(),
              Code::E0211);
    EXPECT_EQ(parse_error("graph f() { const c: f32[4] = data(0) return c }\ndata { 0: \"AAAA\" }").code(),
              Code::E0211);
    EXPECT_EQ(parse_error("").code(), Code::E0301);
    EXPECT_EQ(parse_error("graph f() { return \"").code(), Code::E0301);
}

TEST(Text, NestingIsLimited) {
    std::string calls, lists, types;
    for (int i = 0; i < 100000; ++i) {
        calls += "neg(";
        lists += "[";
        types += "seq(";
    }
    EXPECT_EQ(parse_error("graph f(x: f32[1]) { return " + calls).code(), Code::E0109);
    EXPECT_EQ(parse_error("graph f(x: f32[1]) { return " + lists).code(), Code::E0109);
    EXPECT_EQ(parse_error("graph f(x: " + types).code(), Code::E0109);
}

// Whatever is done to a text, it parses or says why not; what parses prints and parses to itself.
TEST(Text, DamagedTexts) {
    auto g = parsed(R"(model { opset = 17 producer_name = "x" }
graph f(c: bool[], x: f32[N,3], k: i64[2] = [1,2]) -> (y, "odd name") {
  const w: f32[3,2] = [1.0,-2.5e-3,nan,inf,0x7fc00001,0.0]
  const big: f16[40] = data(0)
  %a, _ = split(x, axis=0, num_outputs=2) @"node" {"doc_string" = "d"}
  %m = matmul(x, w) : f32[N,2]
  %i = if(c, then_branch=graph t() { return neg(%m) }, else_branch=graph e() { return %m })
  return %i, %a
}
data { 0: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" }
)");
    ASSERT_TRUE(g);
    std::string text = print(*g);
    std::mt19937 random(7);
    const std::string pieces = "()[]{}%,=:@\"\\-.0x9aN_ \n";
    size_t good = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string t = text;
        for (int edits = 1 + int(random() % 3); edits > 0; --edits) {
            size_t at = random() % t.size();
            switch (random() % 4) {
                case 0: t[at] = pieces[random() % pieces.size()]; break;
                case 1: t.erase(at, 1 + random() % 8); break;
                case 2: t.insert(at, 1, pieces[random() % pieces.size()]); break;
                default: t.resize(std::max<size_t>(1, at)); break;
            }
            if (t.empty()) t = " ";
        }
        auto back = parse(t);
        if (!back.ok()) {
            EXPECT_THAT(back.error().where(), HasSubstr("text:"));
            continue;
        }
        ++good;
        expect_same(**back);
    }
    EXPECT_GT(good, 10u);
}

}  // namespace
}  // namespace tessera::text_test
