// Winograd convolutions with tiles of every side, compiled: how far they are from the sum in f64. The table in
// docs/lowering.md is what this prints.
#include <gtest/gtest.h>

#include "base/random.h"
#include "graph/graph.h"
#include "runtime/compiled_error.h"

namespace tessera::tiles_test {
namespace {

Tensor normal(const char* name, Sizes sizes) {
    auto t = Tensor::zeros(DType::f32, std::move(sizes));
    RandomStream random(0, name);
    for (int64_t i = 0; i < t->elements(); ++i) {
        double sum = -6;  // of twelve uniform ones: about normal
        for (int64_t k = 0; k < 12; ++k) sum += double(random.bits(uint64_t(12 * i + k)) >> 11) / double(uint64_t{1} << 53);
        t->set_real(i, sum);
    }
    return std::move(*t);
}

// Of one convolution, relative to the root mean square of the result.
double error_of(std::vector<int64_t> kernel, std::vector<int64_t> tiles) {
    auto graph = std::make_shared<Graph>("g");
    const std::vector<int64_t> pads = {kernel[0] / 2, kernel[1] / 2, kernel[0] / 2, kernel[1] / 2};
    Value* x = graph->add_input("x", Type(DType::f32, Shape{1, 64, 23, 26}));
    Value* w = graph->constant(normal("w", {12, 64, kernel[0], kernel[1]}));
    auto node = graph->add({find_op("conv"), {x, w}, {{"pads", Attr(pads)}, {"tiles", Attr(tiles)}}});
    EXPECT_TRUE(node.ok());
    graph->add_output((*node)->output(), "y");
    Model model(graph);
    auto executable = compile(model, {.threads = 1, .cache = ""});
    EXPECT_TRUE(executable.ok()) << executable.error().to_string();
    NamedData inputs{{"x", Datum(normal("x", {1, 64, 23, 26}))}};
    return compiled_error(model, *executable, inputs);
}

TEST(Tiles, ErrorsGrowWithTheSide) {
    struct Row {
        std::vector<int64_t> kernel, tiles;
        double most;
    };
    for (const Row& row : std::vector<Row>{{{3, 3}, {1, 1}, 5e-7},
                                           {{3, 3}, {2, 2}, 6e-7},
                                           {{3, 3}, {3, 3}, 1.5e-6},
                                           {{3, 3}, {4, 4}, 2e-6},
                                           {{3, 3}, {5, 5}, 5e-6},
                                           {{3, 3}, {6, 6}, 7e-6},
                                           {{3, 3}, {7, 7}, 2.5e-5},
                                           {{3, 3}, {4, 7}, 1e-5},
                                           {{5, 5}, {2, 2}, 2e-6},
                                           {{5, 5}, {4, 4}, 7e-6},
                                           {{1, 7}, {1, 3}, 3e-6},
                                           {{7, 1}, {4, 1}, 4e-6},
                                           {{2, 2}, {7, 7}, 7e-6}}) {
        const double error = error_of(row.kernel, row.tiles);
        fmt::print("kernel {}x{}, tiles {}x{}: {:.1e}\n", row.kernel[0], row.kernel[1], row.tiles[0], row.tiles[1], error);
        EXPECT_LT(error, row.most);
    }
}

}  // namespace
}  // namespace tessera::tiles_test
