#include "kernel/accelerator/compile/compile_network.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernel/accelerator/compile/scalar_host.h"
#include "kernel/accelerator/compile/write_layers.h"

namespace tessera::accelerator {
namespace {

Result<WrittenLayer> write_layer(const LayerContext& context, const Layer& layer) {
    if (auto* conv = std::get_if<Conv>(&layer.work)) return write_conv(context, *conv);
    if (auto* pool = std::get_if<MaxPool>(&layer.work)) return write_pool(context, *pool);
    return write_addition(context, std::get<Addition>(layer.work));
}

std::vector<int> values_of(const Layer& layer) {
    if (auto* conv = std::get_if<Conv>(&layer.work)) {
        std::vector<int> used{conv->input, conv->output};
        if (conv->other >= 0) used.push_back(conv->other);
        return used;
    }
    if (auto* pool = std::get_if<MaxPool>(&layer.work)) return {pool->input, pool->output};
    const Addition& a = std::get<Addition>(layer.work);
    return {a.a, a.b, a.output};
}

Place place_of(const Activation& value, const Machine& machine) {
    const bool wide = value.dtype == DType::i32;
    return {value, 0, wide ? machine.outputs : std::max(machine.inputs, machine.outputs)};
}

// Where an element of [batch, channels, height, width] lies.
int64_t offset(const Place& p, int64_t n, int64_t c, int64_t y, int64_t x) {
    return p.address + (n * p.blocks() + c / p.lanes) * p.plane() + y * p.line() + x * p.pixel() +
           c % p.lanes * p.element();
}

// f(image, channel, y, x) in the order of the tensor.
template <typename F>
void for_each_element(const Activation& is, const F& f) {
    if (is.matrix) {
        for (int64_t x = 0; x < is.width; ++x)
            for (int64_t c = 0; c < is.channels; ++c) f(0, c, 0, x);
        return;
    }
    for (int64_t n = 0; n < is.batch; ++n)
        for (int64_t c = 0; c < is.channels; ++c)
            for (int64_t y = 0; y < is.height; ++y)
                for (int64_t x = 0; x < is.width; ++x) f(n, c, y, x);
}

// The windows of a value as channels: channel (c * kernel_y + ky) * kernel_x + kx.
void write_windows(const Network::Windows& windows, const Activation& of, const Place& to, const Tensor& tensor,
                   std::vector<uint8_t>& memory) {
    const auto* bytes = static_cast<const uint8_t*>(tensor.data());
    const Window& w = windows.window;
    for (int64_t n = 0; n < of.batch; ++n)
        for (int64_t c = 0; c < of.channels; ++c)
            for (int64_t ky = 0; ky < w.kernel_y; ++ky)
                for (int64_t kx = 0; kx < w.kernel_x; ++kx)
                    for (int64_t y = 0; y < to.is.height; ++y)
                        for (int64_t x = 0; x < to.is.width; ++x) {
                            const int64_t iy = y * w.stride_y + ky * w.dilation_y - w.top;
                            const int64_t ix = x * w.stride_x + kx * w.dilation_x - w.left;
                            const bool inside = iy >= 0 && iy < of.height && ix >= 0 && ix < of.width;
                            const int64_t at = ((n * of.channels + c) * of.height + iy) * of.width + ix;
                            memory[size_t(offset(to, n, (c * w.kernel_y + ky) * w.kernel_x + kx, y, x))] =
                                inside ? bytes[at] : uint8_t(windows.zero);
                        }
}

}  // namespace

int64_t macs(const Conv& conv, const Activation& output) {
    const int64_t out = conv.weights.size(0);
    return conv.weights.elements() / out * output.batch * output.channels * output.height * output.width;
}

Result<CompiledNetwork> compile_network(Network network, const Machine& machine, const NetworkOptions& options) {
    const int wide = std::max(machine.inputs, machine.outputs), narrow = std::min(machine.inputs, machine.outputs);
    if (wide % narrow != 0)
        return Error(Code::E0212, "{}: an array of {} inputs and {} outputs, neither a multiple of the other",
                     machine.name, machine.inputs, machine.outputs);
    CompiledNetwork made{.machine = machine};
    Writer writer(made.machine);
    for (const Activation& value : network.values) made.places.push_back(place_of(value, machine));
    std::vector<bool> in_memory(network.values.size(), false);
    for (const Layer& layer : network.layers)
        for (int value : values_of(layer)) in_memory[size_t(value)] = true;
    for (size_t v = 0; v < made.places.size(); ++v)
        if (in_memory[v]) made.places[v].address = TRY(writer.place(made.places[v].bytes()));
    for (size_t i = 0; i < network.layers.size(); ++i) {
        Layer& layer = network.layers[i];
        CompiledLayer about{.name = layer.name, .op = layer.op, .first = writer.program().size()};
        for (int value : values_of(layer)) about.least_bytes += made.places[size_t(value)].bytes();
        const LayerContext context{writer, made.places, options.contexts, i == 0, i + 1 == network.layers.size()};
        const WrittenLayer written = TRY(write_layer(context, layer));
        about.plan = written.plan;
        about.matrix_rows = written.matrix_rows;
        about.end = writer.program().size();
        about.scalar_cycles = scalar_cycles(layer, network);
        if (auto* conv = std::get_if<Conv>(&layer.work)) {
            about.macs = macs(*conv, network.values[size_t(conv->output)]);
            about.least_bytes += conv->weights.elements();
            conv->weights = Tensor();
        }
        made.layers.push_back(std::move(about));
    }
    writer.add({.tokens = {}, .op = Finish{}});
    made.program = TRY(writer.place(encode(writer.program())));
    made.instructions = std::move(writer.program());
    made.image = std::move(writer.image());
    made.network = std::move(network);
    return made;
}

void write_input(const CompiledNetwork& compiled, size_t i, const Tensor& tensor, std::vector<uint8_t>& memory) {
    const Network& network = compiled.network;
    const int value = network.inputs[i];
    const Activation& is = network.values[size_t(value)];
    CHECK(tensor.elements() == is.batch * is.channels * is.height * is.width, "an input of {} elements",
          tensor.elements());
    for (const Network::Windows& windows : network.windows)
        if (windows.of == value) write_windows(windows, is, compiled.places[size_t(windows.value)], tensor, memory);
    const Place& to = compiled.places[size_t(value)];
    const bool used = std::any_of(network.layers.begin(), network.layers.end(), [&](const Layer& layer) {
        const std::vector<int> values = values_of(layer);
        return std::find(values.begin(), values.end(), value) != values.end();
    });
    if (!used) return;
    const auto* bytes = static_cast<const uint8_t*>(tensor.data());
    for_each_element(
        is, [&](int64_t n, int64_t c, int64_t y, int64_t x) { memory[size_t(offset(to, n, c, y, x))] = *bytes++; });
}

Result<Tensor> read_output(const CompiledNetwork& compiled, size_t i, const std::vector<uint8_t>& memory) {
    const Place& from = compiled.places[size_t(compiled.network.outputs[i])];
    const Activation& is = from.is;
    const Sizes sizes = is.matrix ? Sizes{is.width, is.channels} : Sizes{is.batch, is.channels, is.height, is.width};
    Tensor made = TRY(Tensor::zeros(is.dtype, sizes));
    auto* bytes = static_cast<uint8_t*>(made.mutable_data());
    const int64_t element = from.element();
    for_each_element(is, [&](int64_t n, int64_t c, int64_t y, int64_t x) {
        std::memcpy(bytes, &memory[size_t(offset(from, n, c, y, x))], size_t(element));
        bytes += element;
    });
    return made;
}

}  // namespace tessera::accelerator
