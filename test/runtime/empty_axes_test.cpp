// Axes whose size only a run brings may be empty, or shorter than constant indices say: compiled code never reads
// outside of them, and says what the evaluator says.
#include <gtest/gtest.h>

#include <cmath>

#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"
#include "tessera/compile.h"

namespace tessera::empty_axes_test {
namespace {

// Runs with every symbol of that size.
void expect_as_evaluated(std::string_view text, int64_t size, bool fails) {
    SCOPED_TRACE(text);
    auto graph = parse(text);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    NamedData inputs;
    for (const auto& v : (*graph)->inputs()) {
        Sizes sizes;
        for (const Dim& d : v->type().tensor().shape) sizes.push_back(d.as_int().value_or(size));
        inputs.emplace(v->name(), Datum(*Tensor::zeros(v->type().tensor().dtype, std::move(sizes))));
    }
    auto want = evaluate(**graph, inputs);
    auto executable = compile(Model((*graph)->clone()), {.threads = 1, .cache = ""});
    ASSERT_TRUE(executable.ok()) << executable.error().to_string();
    auto got = executable->run(inputs);
    ASSERT_EQ(!want.ok(), fails);
    ASSERT_EQ(got.ok(), want.ok()) << (got.ok() ? "" : got.error().to_string());
    if (fails) {
        EXPECT_EQ(got.error().code(), Code::E0406);
        return;
    }
    for (size_t i = 0; i < want->size(); ++i) {
        const Tensor &a = (*got)[i].tensor(), &b = (*want)[i].tensor();
        ASSERT_EQ(a.sizes(), b.sizes());
        for (int64_t k = 0; k < a.elements(); ++k)
            ASSERT_TRUE(a.real_at(k) == b.real_at(k) || std::isnan(b.real_at(k)));
    }
}

TEST(EmptyAxes, AreNotResized) {
    for (const char* how :
         {"mode=\"nearest\"", "mode=\"linear\"", "mode=\"cubic\"", "mode=\"linear\", antialias=1",
          "mode=\"nearest\", nearest_mode=\"floor\", coordinate_transformation_mode=\"asymmetric\""}) {
        const auto text = fmt::format(
            "graph g(x: f32[1,1,N,3]) {{ %r = relu(x) %a = resize(%r, _, _, [1,1,4,4], {}) %y = neg(%a) return %y }}",
            how);
        expect_as_evaluated(text, 0, true);
        expect_as_evaluated(text, 2, false);
    }
    expect_as_evaluated("graph g(x: f32[1,1,N,3]) { %a = resize(x, _, [1.0,1.0,2.0,2.0]) return %a }", 0, false);
    // What lies outside of the region is not read; a region of nothing but zeros lies inside.
    const char* cropped =
        "graph g(x: f32[N,3], r: f32[4]) { %a = resize(x, r, _, [4,4], "
        "coordinate_transformation_mode=\"tf_crop_and_resize\") return %a }";
    expect_as_evaluated(cropped, 0, false);
    expect_as_evaluated(cropped, 2, false);
}

TEST(EmptyAxes, HaveNoEdges) {
    for (const char* mode : {"edge", "reflect", "wrap"}) {
        const auto text = fmt::format("graph g(x: f32[N,3]) {{ %a = pad(x, [1,0,1,0], mode=\"{}\") return %a }}", mode);
        expect_as_evaluated(text, 0, true);
        expect_as_evaluated(text, 2, false);
        expect_as_evaluated(
            fmt::format("graph g(x: f32[2,N,3]) {{ %s = slice(x, [2], [9], [1]) %a = pad(%s, [0,1,0,0,1,0], "
                        "mode=\"{}\") return %a }}",
                        mode),
            2, true);
    }
    expect_as_evaluated("graph g(x: f32[N,3]) { %a = pad(x, [1,0,1,0]) return %a }", 0, false);
}

TEST(EmptyAxes, HaveNothingToPick) {
    for (int64_t size : {0, 2}) {
        expect_as_evaluated("graph g(x: f32[N,3]) { %a = gather(x, [2]) return %a }", size, true);
        expect_as_evaluated("graph g(x: f32[N,3]) { %a = gather_elements(x, [[0,2,1]]) return %a }", size, true);
        expect_as_evaluated("graph g(x: f32[N,3]) { %a = gather_nd(x, [[-3]]) return %a }", size, true);
    }
    expect_as_evaluated("graph g(x: f32[N,3]) { %a = gather(x, 0) return %a }", 0, true);
    expect_as_evaluated("graph g(x: f32[N,3]) { %a = gather(x, [-3,2]) return %a }", 3, false);
}

// Windows and sums of nothing read nothing.
TEST(EmptyAxes, MayBeSummed) {
    for (const char* op : {"max_pool", "average_pool", "lp_pool"})
        expect_as_evaluated(
            fmt::format("graph g(x: f32[1,2,N,4]) {{ %a = {}(x, kernel_shape=[3,3], pads=[2,1,2,1]) return %a }}", op),
            0, false);
    expect_as_evaluated("graph g(x: f32[N,3]) { %a = reduce_sum(x, [0]) return %a }", 0, false);
    expect_as_evaluated("graph g(x: f32[1,4,N], w: f32[3,4,3]) { %a = conv(x, w, pads=[2,2]) return %a }", 0, false);
    expect_as_evaluated("graph g(x: f32[1,4,N], w: f32[4,3,3]) { %a = conv_transpose(x, w) return %a }", 0, false);
    expect_as_evaluated("graph g(x: f32[N,4], y: f32[1,4]) { %a = add(x, y) return %a }", 0, false);
}

}  // namespace
}  // namespace tessera::empty_axes_test
