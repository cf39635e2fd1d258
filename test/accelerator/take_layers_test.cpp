// Parts that are taken out of graphs: what is computed stays the same, whatever the host does in between.
#include <gtest/gtest.h>

#include "accelerator/random_layers.h"
#include "graph/evaluate/evaluate.h"
#include "kernel/accelerator/compile/take_layers.h"
#include "kernel/backend/offload.h"

namespace tessera::accelerator_test {
namespace {

using accelerator::Machine;

std::vector<const Node*> parts_of(const Graph& graph) {
    std::vector<const Node*> parts;
    for (const auto& node : graph.nodes())
        if (is_offloaded(*node)) parts.push_back(node.get());
    return parts;
}

// A tensor of bytes that the host computes of another one.
Value* on_host(RandomGraph& r, Value* x) {
    Builder& b = r.builder();
    Value* floats = b.op("dequantize_linear", {x, r.scale(0.03), r.zero(x->type().tensor().dtype)});
    return b.op("quantize_linear", {b.op("sigmoid", {floats}), r.scale(0.01), r.zero(r.byte_type())});
}

TEST(TakeLayers, RandomGraphsStayTheSame) {
    const Machine machine{.name = "usual"};
    size_t parts = 0, several = 0;
    for (uint64_t seed = 1; seed <= 80; ++seed) {
        SCOPED_TRACE(fmt::format("seed {}", seed));
        RandomGraph r(seed);
        const int64_t size = r.upto(4, 9), channels = r.upto(1, 20);
        std::vector<Value*> values;
        for (int64_t i = r.upto(1, 2); i > 0; --i) values.push_back(r.input(r.byte_type(), {1, channels, size, size}));
        for (int64_t i = r.upto(4, 12); i > 0; --i) {
            Value* x = values[size_t(r.upto(0, int64_t(values.size()) - 1))];
            Value* y = values[size_t(r.upto(0, int64_t(values.size()) - 1))];
            const int64_t kind = r.upto(1, 13);
            if (kind <= 5) values.push_back(r.conv(x, {channels}, r.byte_type()));
            if (kind == 6) values.push_back(r.max_pool(x, 3, 1, 1));
            if (kind == 7 || kind == 8) values.push_back(r.add(x, y, r.byte_type(), r.chance(50)));
            if (kind > 8) values.push_back(on_host(r, x));
        }
        for (Value* v : values)
            if (v->node() && (v->uses().empty() || r.chance(20))) r.graph().add_output(v);
        if (r.graph().outputs().empty()) continue;
        ASSERT_TRUE(r.builder().status().ok());
        const Inputs drawn = random_inputs(r);
        tessera::Inputs inputs;
        for (const auto& [name, tensor] : drawn) inputs.emplace(name, tensor);
        const auto want = evaluate(r.graph(), inputs);
        ASSERT_TRUE(want.ok()) << want.error().to_string();
        PassContext context;
        const auto changed = accelerator::take_layers(r.graph(), machine, {}, context);
        ASSERT_TRUE(changed.ok()) << changed.error().to_string();
        const auto got = evaluate(r.graph(), inputs);
        ASSERT_TRUE(got.ok()) << got.error().to_string();
        ASSERT_EQ(got->size(), want->size());
        for (size_t k = 0; k < got->size(); ++k)
            for (int64_t i = 0; i < (*want)[k].tensor().elements(); ++i)
                ASSERT_EQ((*got)[k].tensor().int_at(i), (*want)[k].tensor().int_at(i)) << "output " << k << " at " << i;
        const size_t taken = parts_of(r.graph()).size();
        parts += taken;
        several += taken > 1;
        for (const auto& node : r.graph().nodes()) EXPECT_NE(node->op().name, "qlinear_conv");
        for (const Choice& c : context.choices)
            EXPECT_TRUE(c.decision || c.subject.find("qlinear_conv") == std::string::npos)
                << c.subject << ": " << c.decision.reason();
    }
    EXPECT_GT(parts, 60u);
    EXPECT_GT(several, 10u);
}

// Layers are one part unless the host computes something between them.
TEST(TakeLayers, OnePartUntilTheHostComesBetween) {
    for (bool between : {false, true}) {
        RandomGraph r(7);
        Value* a = r.conv(r.input(DType::u8, {1, 8, 6, 6}), {8}, DType::u8);
        Value* side = r.conv(a, {8}, DType::u8);
        Value* b = r.conv(between ? on_host(r, a) : a, {8}, DType::u8);
        r.graph().add_output(r.add(side, b, DType::u8, true));
        PassContext context;
        const Machine machine{.name = "usual"};
        ASSERT_TRUE(accelerator::take_layers(r.graph(), machine, {}, context).ok());
        EXPECT_EQ(parts_of(r.graph()).size(), between ? 2u : 1u);
    }
}

// Rows of several matrices are those of one.
TEST(TakeLayers, ProductsOfSeveralMatrices) {
    RandomGraph r(5);
    Value* x = r.input(DType::u8, {2, 3, 7, 40});
    Value* w = r.builder().constant(r.tensor(DType::i8, {40, 21}));
    r.graph().add_output(r.builder().op("matmul_integer", {x, w, r.zero(DType::u8)}));
    expect_as_evaluated(Machine{.name = "usual"}, r);
    PassContext context;
    ASSERT_TRUE(accelerator::take_layers(r.graph(), Machine{.name = "usual"}, {}, context).ok());
    EXPECT_EQ(parts_of(r.graph()).size(), 1u);
}

// A pool alone is not worth two copies, and a layer that fits no scratchpad cannot be taken: both are told.
TEST(TakeLayers, SaysWhatStays) {
    RandomGraph r(3);
    Value* x = r.input(DType::u8, {1, 8, 6, 6});
    r.graph().add_output(r.max_pool(x, 3, 1, 1));
    PassContext context;
    ASSERT_TRUE(accelerator::take_layers(r.graph(), Machine{.name = "usual"}, {}, context).ok());
    EXPECT_TRUE(parts_of(r.graph()).empty());
    ASSERT_FALSE(context.choices.empty());
    EXPECT_NE(context.choices[0].decision.reason().find("no convolution or product"), std::string::npos);

    RandomGraph large(4);
    large.graph().add_output(large.conv(large.input(DType::u8, {1, 64, 6, 6}), {8}, DType::u8));
    Machine tiny{.name = "tiny"};
    tiny.wgt_tiles = 2;
    PassContext told;
    ASSERT_TRUE(accelerator::take_layers(large.graph(), tiny, {}, told).ok());
    EXPECT_TRUE(parts_of(large.graph()).empty());
    ASSERT_FALSE(told.choices.empty());
    EXPECT_NE(told.choices[0].decision.reason().find("fits tiny"), std::string::npos);
}

}  // namespace
}  // namespace tessera::accelerator_test
