#include "api/mesh/zero.h"

#include <algorithm>

namespace tessera::shard {

int zero_stage_of(const TrainedTensor& tensor, bool parameter) {
    if (parameter) return 3;
    if (!tensor.constant.empty()) return kMostZero + 1;
    return tensor.name.ends_with(gradient_sum("")) ? 2 : 1;
}

Result<std::vector<size_t>> batch_axes(const Graph& graph, const StepGraph& step, const Shardings& found) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
        if (std::any_of(step.places.begin(), step.places.end(),
                        [&](const TensorPlace& p) { return p.input == int(i); }))
            continue;
        const auto at = found.find(graph.inputs()[i].get());
        if (at != found.end() && !at->second.dims.empty() && !at->second.dims[0].axes.empty())
            return at->second.dims[0].axes;
    }
    return Error(Code::E0501, "zero divides over the axes of the batch, and the batch is not divided")
        .hint("name an axis of the mesh data, or divide the first dimension of an input");
}

void divide_further(Sharding& sharding, const Sizes& sizes, const std::vector<size_t>& axes, const Mesh& mesh) {
    for (size_t axis : axes) {
        if (sharding.uses(axis)) continue;
        DimSharding* best = nullptr;
        std::pair<bool, int64_t> best_size;
        for (size_t d = 0; d < sizes.size(); ++d) {
            int64_t part = sizes[d];
            for (size_t a : sharding.dims[d].axes) part = (part + mesh.size(a) - 1) / mesh.size(a);
            const std::pair<bool, int64_t> size{part % mesh.size(axis) == 0, part};
            if (part < mesh.size(axis) || (best && size <= best_size)) continue;
            best = &sharding.dims[d];
            best_size = size;
        }
        if (best) best->axes.push_back(axis);
    }
}

}  // namespace tessera::shard
