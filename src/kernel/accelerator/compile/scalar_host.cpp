#include "kernel/accelerator/compile/scalar_host.h"

namespace tessera::accelerator {
namespace {

int64_t elements(const Activation& a) { return a.batch * a.channels * a.height * a.width; }

}  // namespace

int64_t scalar_cycles(const Layer& layer, const Network& network, const ScalarHost& host) {
    const auto output = [&](int value) { return elements(network.values[size_t(value)]); };
    if (const auto* conv = std::get_if<Conv>(&layer.work)) {
        const Activation& to = network.values[size_t(conv->output)];
        const int64_t each = to.dtype == DType::i32 ? host.store : host.rescale;
        return macs(*conv, to) * host.multiply_accumulate + elements(to) * (each + (conv->rest ? host.sum : 0));
    }
    if (const auto* pool = std::get_if<MaxPool>(&layer.work))
        return output(pool->output) * (pool->window.kernel_y * pool->window.kernel_x * host.maximum + host.store);
    return output(std::get<Addition>(layer.work).output) * host.sum;
}

}  // namespace tessera::accelerator
