#include "tessera/explore.h"

#include "api/stages.h"
#include "backends/backend.h"
#include "base/protect.h"

namespace tessera {
namespace {

void add(ExploredMachine& to, const DeviceProfile& profile) {
    to.megahertz = profile.megahertz;
    to.cycles += profile.cycles;
    to.matrix_cycles += profile.matrix_cycles;
    to.layers += profile.layers.size();
    for (const DeviceProfile::Layer& layer : profile.layers) to.macs += layer.macs;
}

Result<ExploredMachine> explored(const Graph& graph, const SizedMachine& machine, LowerOptions lower) {
    ExploredMachine made{.sizes = machine.sizes, .area = machine.area};
    lower.offloading = machine.offloading;
    lower.watch.stop_after = "offload";  // the pass of all_lowering_passes that takes the parts
    PassContext context;
    const GraphPtr parts = TRY(prepare_graph(graph, lower, context));
    for (const auto& node : parts->nodes()) {
        if (!is_offloaded(*node)) continue;
        if (const auto profile = TRY(machine.offloading->compile(*node))->profile()) add(made, *profile);
    }
    if (made.layers == 0)
        return Error(Code::E0601, "the machine computes no layer of the model")
            .hint(
                "it takes quantized layers (`tessera quantize`) of constant sizes; `tessera compile --explain` says "
                "why "
                "it leaves each of the others");
    return made;
}

}  // namespace

double ExploredMachine::total_area() const {
    double sum = 0;
    for (const auto& [part, transistors] : area) sum += transistors;
    return sum;
}

double ExploredMachine::utilization() const {
    const double most = double(cycles) * sizes.inputs * sizes.outputs;
    return most > 0 ? double(macs) / most : 0;
}

Result<std::vector<ExploredMachine>> explore(const Model& model, const ExploreOptions& options) {
    return protect("explore", {.text = [&] { return model.to_text(); }}, [&]() -> Result<std::vector<ExploredMachine>> {
        const Backend& backend = *TRY(find_backend(options.target));
        std::vector<SizedMachine> machines;
        const OffloadOptions offload{.virtual_threads = options.virtual_threads};
        TRY(backend.sized(options.target, {}, offload));  // the description itself
        for (const MachineSizes& sizes : options.machines) {
            auto machine = backend.sized(options.target, sizes, offload);
            if (!machine.ok() && machine.error().code() == Code::E0212)
                return Error(Code::E0501, "{}", machine.error().message()).at(machine.error().where());
            machines.push_back(TRY(std::move(machine)));
        }
        const CompileOptions compiling;
        const LowerOptions lower = TRY(lower_options(compiling, Precision::Default, 1));
        const auto graph = TRY(rewritten(model.graph(), Precision::Default, compiling, ""));
        std::vector<ExploredMachine> all;
        for (const SizedMachine& machine : machines) {
            if (options.cancel && options.cancel->load()) return Error(Code::E0410, "interrupted");
            if (options.progress)
                options.progress(fmt::format("{}x{}, {} bytes a cycle", machine.sizes.inputs, machine.sizes.outputs,
                                             machine.sizes.bytes_per_cycle),
                                 all.size(), machines.size());
            all.push_back(TRY(explored(*graph, machine, lower)));
        }
        return all;
    });
}

}  // namespace tessera
