#include "graph/ops/for_kernels.h"

#include <map>

#include "graph/ops/forest.h"

namespace tessera {

ForKernels for_kernels(const OpDef& op) {
    static const std::map<std::string, ForKernels, std::less<>> kForms = {
        {"batch_normalization", batch_norm_by_factors},
        {"conv_transpose", conv_transpose_by_phases},
        {"dft", dft_by_products},
        {"grid_sample", grid_sample_by_corners},
        {"max", fold_in_parts},
        {"max_pool", max_pool_by_axes},
        {"mean", fold_in_parts},
        {"min", fold_in_parts},
        {"resize", resize_by_axes},
        {"stft", stft_by_products},
        {"sum", fold_in_parts},
        {"tree_ensemble", trees_by_tables},
    };
    auto found = kForms.find(op.name);
    return found == kForms.end() ? nullptr : found->second;
}

ForKernels for_blocks(const OpDef& op) {
    if (op.name == "conv") return conv_of_few_channels;
    if (op.name == "max_pool") return large_max_pool_by_axes;
    return for_kernels(op);
}

ForKernels before_resize(const OpDef& op) { return op.name == "conv" ? conv_before_resize : nullptr; }

}  // namespace tessera
