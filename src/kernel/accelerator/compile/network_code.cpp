#include "kernel/accelerator/compile/network_code.h"

#include "kernel/accelerator/compile/find_layers.h"

namespace tessera::accelerator {

std::string NetworkCode::text() const {
    const std::span<const Instruction> all = compiled_.instructions;
    std::string text = fmt::format("// {}: {} instructions, {} bytes of memory\n", compiled_.machine.name, all.size(),
                                   compiled_.image.size());
    size_t next = 0;
    for (const CompiledLayer& layer : compiled_.layers) {
        text += fmt::format("// {} {}: {}\n", layer.op, layer.name, layer.plan);
        text += to_string(all.subspan(layer.first, layer.end - layer.first));
        next = layer.end;
    }
    return text + to_string(all.subspan(next));
}

// The evaluator computes the body of an op in f64, the machine in f32 after each operation.
Result<std::unique_ptr<Graph>> NetworkCode::reference(const Graph& body) const {
    std::unique_ptr<Graph> made = body.clone();
    TRY(leave_rescaling(*made));
    return made;
}

Result<std::shared_ptr<const DeviceCode>> compile_part(const Node& node, const Machine& machine,
                                                       const NetworkOptions& options) {
    Network network = TRY(network_of(node.view().graph("body"), machine));
    CompiledNetwork compiled = TRY(compile_network(std::move(network), machine, options));
    return std::make_shared<const NetworkCode>(std::move(compiled));
}

}  // namespace tessera::accelerator
