#include "rtl/layers.h"

#include <fmt/format.h>

#include "accelerator/random_layers.h"
#include "graph/evaluate/evaluate.h"
#include "rtl/compare.h"

namespace tessera::accelerator {
namespace {

using accelerator_test::RandomGraph;

struct LayerOfNetwork {
    const char* name;
    int64_t channels, size, outputs, kernel, stride;
    bool depthwise = false;
    bool residual = false;  // the sum with another value follows, in the same layer
};

const LayerOfNetwork kLayers[] = {
    {"ResNet-18: 7x7/2, 3 of 224x224 to 64", 3, 224, 64, 7, 2},
    {"ResNet-18: 3x3, 64 of 56x56 to 64", 64, 56, 64, 3, 1},
    {"ResNet-18: 3x3, 64 of 56x56 to 64, + residual", 64, 56, 64, 3, 1, false, true},
    {"ResNet-18: 3x3/2, 64 of 56x56 to 128", 64, 56, 128, 3, 2},
    {"ResNet-18: 1x1/2, 64 of 56x56 to 128", 64, 56, 128, 1, 2},
    {"ResNet-18: 3x3, 128 of 28x28 to 128", 128, 28, 128, 3, 1},
    {"ResNet-18: 3x3/2, 128 of 28x28 to 256", 128, 28, 256, 3, 2},
    {"ResNet-18: 3x3, 256 of 14x14 to 256", 256, 14, 256, 3, 1},
    {"ResNet-18: 3x3/2, 256 of 14x14 to 512", 256, 14, 512, 3, 2},
    {"ResNet-18: 3x3, 512 of 7x7 to 512, + residual", 512, 7, 512, 3, 1, false, true},
    {"MobileNet-v1: 3x3/2, 3 of 224x224 to 32", 3, 224, 32, 3, 2},
    {"MobileNet-v1: depthwise, 32 of 112x112", 32, 112, 32, 3, 1, true},
    {"MobileNet-v1: 1x1, 32 of 112x112 to 64", 32, 112, 64, 1, 1},
    {"MobileNet-v1: depthwise/2, 64 of 112x112", 64, 112, 64, 3, 2, true},
    {"MobileNet-v1: 1x1, 64 of 56x56 to 128", 64, 56, 128, 1, 1},
    {"MobileNet-v1: depthwise, 128 of 56x56", 128, 56, 128, 3, 1, true},
    {"MobileNet-v1: 1x1, 256 of 28x28 to 256", 256, 28, 256, 1, 1},
    {"MobileNet-v1: depthwise, 512 of 14x14", 512, 14, 512, 3, 1, true},
    {"MobileNet-v1: 1x1, 512 of 14x14 to 512", 512, 14, 512, 1, 1},
    {"MobileNet-v1: 1x1, 1024 of 7x7 to 1024", 1024, 7, 1024, 1, 1},
};

// Requantized where the machine has a vector ALU, else int32 sums.
void make(RandomGraph& r, const Machine& machine, const LayerOfNetwork& l, int64_t size) {
    const int64_t pad = l.kernel / 2;
    const RandomGraph::ConvSizes sizes{
        l.outputs, l.kernel, l.kernel, l.stride, 1, l.depthwise ? l.channels : 1, {pad, pad, pad, pad}};
    Value* x = r.input(DType::u8, {1, l.channels, size, size});
    if (!machine.alu) return r.graph().add_output(r.sums(x, sizes));
    Value* y = r.conv(x, sizes, l.residual ? DType::i8 : DType::u8);
    if (l.residual) {
        const Sizes like = *y->type().tensor().shape.sizes();
        y = r.add(y, r.input(DType::u8, like), DType::u8, true);
    }
    r.graph().add_output(y);
}

// What differs from the evaluator's result. It rounds once for each node: rescaling is nodes of its own, each in f32.
std::string difference(const CompiledNetwork& compiled, RandomGraph& random, const accelerator_test::Inputs& inputs,
                       const std::vector<uint8_t>& memory) {
    tessera::Inputs given;
    for (const auto& [name, tensor] : inputs) given.emplace(name, tensor);
    if (auto left = leave_rescaling(random.graph()); !left) return left.error().to_string();
    auto want = evaluate(random.graph(), given);
    auto got = read_output(compiled, 0, memory);
    if (!want) return want.error().to_string();
    if (!got) return got.error().to_string();
    const Tensor& w = (*want)[0].tensor();
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < w.elements(); ++i)
        if (got->int_at(i) != w.int_at(i)) {
            if (wrong++ == 0) first = i;
        }
    if (wrong == 0) return "";
    return fmt::format("{} of {} elements differ from the evaluator's; element {} is {}, expected {}", wrong,
                       w.elements(), first, got->int_at(first), w.int_at(first));
}

bool compare_layer(const Machine& machine, RtlMachine& rtl, const LayerOfNetwork& l, int part, uint64_t seed) {
    const auto fail = [&](const std::string& what) {
        fmt::print("{}: {}\n", l.name, what);
        return false;
    };
    RandomGraph r(seed);
    make(r, machine, l, std::max<int64_t>(l.kernel, l.size / part));
    if (!r.builder().status().ok()) return fail(r.builder().status().error().to_string());
    auto network = network_of(r.graph(), machine);
    if (!network) return fail(network.error().to_string());
    auto compiled = compile_network(std::move(*network), machine);
    if (!compiled) return fail(compiled.error().to_string());
    const auto inputs = accelerator_test::random_inputs(r);
    RandomProgram program{compiled->instructions, compiled->image, compiled->program};
    for (size_t i = 0; i < inputs.size(); ++i) write_input(*compiled, i, inputs[i].second, program.memory);
    Comparison c;
    std::vector<uint8_t> memory;
    if (!compare(l.name, machine, rtl, program, c, &memory)) return false;
    fmt::print("{:46} {:9} {:9} {:+6.2f} % {:5.1f} %\n", l.name, c.model, c.rtl, 100 * c.difference(),
               100 * double(c.gemm_rows) / double(c.rtl));
    std::fflush(stdout);
    const std::string what = difference(*compiled, r, inputs, memory);
    return what.empty() || fail(what);
}

}  // namespace

int compare_layers(const Machine& machine, int part) {
    RtlMachine rtl(machine);
    fmt::print("{:46} {:>9} {:>9} {:>8} {:>7}\n", "layer", "model", "RTL", "", "busy");
    int wrong = 0;
    uint64_t seed = 0;
    for (const LayerOfNetwork& l : kLayers) wrong += !compare_layer(machine, rtl, l, part, ++seed);
    fmt::print("{} layers on {}: {} wrong\n", std::size(kLayers), machine.name, wrong);
    return wrong;
}

}  // namespace tessera::accelerator
