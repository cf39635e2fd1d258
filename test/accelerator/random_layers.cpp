#include "accelerator/random_layers.h"

#include <gtest/gtest.h>

#include "graph/evaluate/evaluate.h"

namespace tessera::accelerator_test {

using namespace accelerator;

Value* RandomGraph::input(DType t, Sizes sizes) {
    std::vector<Dim> dims(sizes.begin(), sizes.end());
    return graph_.add_input(fmt::format("x{}", graph_.inputs().size()), Type(t, Shape(std::move(dims))));
}

Tensor RandomGraph::tensor(DType t, Sizes sizes) {
    Tensor made = *Tensor::zeros(t, std::move(sizes));
    for (uint8_t& byte : std::span(static_cast<uint8_t*>(made.mutable_data()), size_t(made.bytes())))
        byte = uint8_t(random_());
    return made;
}

Value* RandomGraph::constant(DType t, int64_t value) {
    Tensor made = *Tensor::zeros(t, {});
    made.set_int(0, value);
    return b_.constant(std::move(made));
}

Value* RandomGraph::conv(Value* x, const ConvSizes& s, DType to) {
    const int64_t channels = *x->type().tensor().shape[1].as_int();
    const int64_t each = channels / s.groups, terms = each * s.kernel_y * s.kernel_x;
    std::vector<float> scales;
    const double about = 1.0 / std::sqrt(double(terms)) / 64;
    for (int64_t o = 0; o < s.outputs; ++o) scales.push_back(float(about * double(upto(50, 200)) / 100));
    std::vector<int32_t> bias;
    for (int64_t o = 0; o < s.outputs; ++o) bias.push_back(int32_t(upto(-terms * 64, terms * 64)));
    const DType from = x->type().tensor().dtype;
    Value* w_scale = chance(80) ? b_.constant(Tensor::of({s.outputs}, scales)) : scale(about);
    return b_.op(
        "qlinear_conv",
        {x, scale(1.0 / 16), zero(from), b_.constant(tensor(DType::i8, {s.outputs, each, s.kernel_y, s.kernel_x})),
         w_scale, constant(DType::i8, 0), scale(1), zero(to),
         chance(80) ? b_.constant(Tensor::of({s.outputs}, bias)) : nullptr},
        {{"pads", Attr(s.pads)},
         {"strides", Attr(std::vector<int64_t>{s.stride, s.stride})},
         {"dilations", Attr(std::vector<int64_t>{s.dilation, s.dilation})},
         {"group", Attr(s.groups)}});
}

Value* RandomGraph::sums(Value* x, const ConvSizes& s) {
    const int64_t channels = *x->type().tensor().shape[1].as_int();
    Value* w = b_.constant(tensor(DType::i8, {s.outputs, channels / s.groups, s.kernel_y, s.kernel_x}));
    Value* sum = b_.op("conv_integer", {x, w, zero(x->type().tensor().dtype), constant(DType::i8, 0)},
                       {{"pads", Attr(s.pads)},
                        {"strides", Attr(std::vector<int64_t>{s.stride, s.stride})},
                        {"dilations", Attr(std::vector<int64_t>{s.dilation, s.dilation})},
                        {"group", Attr(s.groups)}});
    std::vector<int32_t> bias;
    for (int64_t o = 0; o < s.outputs; ++o) bias.push_back(int32_t(upto(-100000, 100000)));
    return b_.add(sum, b_.constant(Tensor::of({1, s.outputs, 1, 1}, bias)));
}

Value* RandomGraph::max_pool(Value* x, int64_t kernel, int64_t stride, int64_t pad) {
    return b_.op("max_pool", {x},
                 {{"kernel_shape", Attr(std::vector<int64_t>(2, kernel))},
                  {"strides", Attr(std::vector<int64_t>(2, stride))},
                  {"pads", Attr(std::vector<int64_t>(4, pad))}});
}

Value* RandomGraph::add(Value* a, Value* b, DType to, bool relu) {
    auto floats = [&](Value* v) {
        return b_.op("dequantize_linear", {v, scale(0.03), zero(v->type().tensor().dtype)});
    };
    Value* sum = b_.add(floats(a), floats(b));
    if (relu) sum = b_.op("relu", {sum});
    return b_.op("quantize_linear", {sum, scale(0.05), zero(to)});
}

Value* RandomGraph::clip(Value* x) {
    const DType t = x->type().tensor().dtype;
    const int64_t low = t == DType::u8 ? upto(0, 100) : upto(-128, 0);
    return b_.op("clip", {x, constant(t, low), constant(t, low + upto(1, 127))});
}

Value* RandomGraph::product(Value* x, int64_t columns, bool bias) {
    const int64_t depth = *x->type().tensor().shape[1].as_int();
    Value* sum =
        b_.op("matmul_integer", {x, b_.constant(tensor(DType::i8, {depth, columns})), zero(x->type().tensor().dtype)});
    if (!bias) return sum;
    std::vector<int32_t> values;
    for (int64_t i = 0; i < columns; ++i) values.push_back(int32_t(upto(-100000, 100000)));
    return b_.add(sum, b_.constant(Tensor::of({columns}, values)));
}

void random_convolution(RandomGraph& r) {
    const int64_t kernel = r.upto(1, 4), kernel_x = r.chance(70) ? kernel : r.upto(1, 5);
    const int64_t dilation = r.chance(80) ? 1 : 2;
    const int64_t least = (std::max(kernel, kernel_x) - 1) * dilation + 1;
    int64_t groups = 1, channels = r.upto(1, 70), outputs = r.upto(1, 70);
    if (r.chance(30)) {
        groups = r.upto(1, 24);
        channels = groups * r.upto(1, 4);
        outputs = groups * r.upto(1, 4);
    }
    Value* x = r.input(r.byte_type(), {r.upto(1, 3), channels, least + r.upto(0, 20), least + r.upto(0, 20)});
    Value* y = r.conv(x,
                      {outputs,
                       kernel,
                       kernel_x,
                       r.upto(1, 3),
                       dilation,
                       groups,
                       {r.upto(0, 2), r.upto(0, 2), r.upto(0, 2), r.upto(0, 2)}},
                      r.byte_type());
    if (r.chance(30)) y = r.clip(y);
    r.graph().add_output(y);
}

void random_pool(RandomGraph& r) {
    const int64_t kernel = r.upto(2, 3);
    Value* x = r.input(r.byte_type(), {r.upto(1, 2), r.upto(1, 70), kernel + r.upto(0, 30), kernel + r.upto(0, 30)});
    r.graph().add_output(r.max_pool(x, kernel, r.upto(1, 3), r.upto(0, 1)));
}

void random_product(RandomGraph& r) {
    Value* x = r.input(r.byte_type(), {r.upto(1, 50), r.upto(1, 300)});
    r.graph().add_output(r.product(x, r.upto(1, 200), r.chance(50)));
}

bool random_network(RandomGraph& r) {
    int64_t channels = r.upto(1, 40);
    Value* x = r.input(r.byte_type(), {r.upto(1, 2), channels, r.upto(5, 24), r.upto(5, 24)});
    for (int64_t layers = r.upto(1, 4); layers > 0; --layers) {
        const int64_t kind = r.upto(1, 4);
        if (kind == 1) x = r.max_pool(x, 3, r.chance(80) ? 1 : 2, 1);
        if (kind == 2) x = r.conv(x, {channels = r.upto(1, 40)}, r.byte_type());
        if (kind == 3) x = r.add(x, r.conv(x, {channels}, r.byte_type()), r.byte_type(), r.chance(60));
        if (kind == 4) {
            Value* a = r.conv(x, {channels = r.upto(1, 40)}, r.byte_type());
            Value* b = r.conv(x, {channels, 1, 1, 1, 1, 1, {0, 0, 0, 0}}, r.byte_type());
            x = r.chance(50) ? r.add(a, b, r.byte_type(), r.chance(60)) : r.add(b, a, r.byte_type(), r.chance(60));
            if (r.chance(30)) r.graph().add_output(a);
        }
    }
    r.graph().add_output(x);
    return x->node() != nullptr;
}

Inputs random_inputs(RandomGraph& random) {
    Inputs inputs;
    for (const auto& v : random.graph().inputs())
        inputs.emplace_back(v->name(), random.tensor(v->type().tensor().dtype, *v->type().tensor().shape.sizes()));
    return inputs;
}

Result<std::vector<Tensor>> run_on(const Machine& machine, const Graph& graph, const Inputs& inputs, int contexts,
                                   Simulation* simulation) {
    Network network = TRY(network_of(graph, machine));
    const CompiledNetwork compiled = TRY(compile_network(std::move(network), machine, {.contexts = contexts}));
    std::vector<uint8_t> memory = compiled.image;
    for (size_t i = 0; i < inputs.size(); ++i) write_input(compiled, i, inputs[i].second, memory);
    Simulation done = TRY(simulate(machine, compiled.instructions, memory));
    if (simulation) *simulation = std::move(done);
    std::vector<Tensor> outputs;
    for (size_t i = 0; i < compiled.network.outputs.size(); ++i)
        outputs.push_back(TRY(read_output(compiled, i, memory)));
    return outputs;
}

void expect_as_evaluated(const Machine& machine, RandomGraph& random, int contexts) {
    ASSERT_TRUE(random.builder().status().ok()) << random.builder().status().error().to_string();
    const Inputs inputs = random_inputs(random);
    tessera::Inputs given;
    for (const auto& [name, tensor] : inputs) given.emplace(name, tensor);
    auto want = evaluate(random.graph(), given);
    ASSERT_TRUE(want.ok()) << want.error().to_string();
    auto got = run_on(machine, random.graph(), inputs, contexts);
    ASSERT_TRUE(got.ok()) << got.error().to_string();
    ASSERT_EQ(got->size(), want->size());
    for (size_t k = 0; k < got->size(); ++k) {
        const Tensor &a = (*got)[k], &b = (*want)[k].tensor();
        ASSERT_EQ(a.elements(), b.elements());
        for (int64_t i = 0; i < a.elements(); ++i) ASSERT_EQ(a.int_at(i), b.int_at(i)) << "output " << k << " at " << i;
    }
}

}  // namespace tessera::accelerator_test
