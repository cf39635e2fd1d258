#include <cstring>

#include "rewrite/passes/lowering_passes.h"

namespace tessera {
namespace {

constexpr int64_t kTile = 64;            // channels that a tile is copied along, and filters that it has
constexpr int64_t kFewestChannels = 2;   // in a group: with one, nearly all would be zeros
constexpr int64_t kEnoughChannels = 32;  // in a group: half a tile is worth copying
constexpr int64_t kAligned = 8;          // channels, of 16 bits, that rows of images begin at multiples of

int64_t filled(int64_t n) { return (n + kTile - 1) / kTile * kTile; }

// How many groups are joined to one: so many that tiles, filled up with zeros, have the least to multiply. 0: none are.
int64_t joined_groups(const Node& node) {
    if (node.op().name != "conv" || !node.input(1) || !node.input(1)->tensor()) return 0;
    const Tensor& w = *node.input(1)->tensor();
    auto group = node.attrs().find("group");
    if (group == node.attrs().end() || w.sizes().size() != 4) return 0;
    if (w.dtype() != DType::f16 && w.dtype() != DType::bf16) return 0;
    const int64_t groups = std::get<int64_t>(group->second), channels = w.sizes()[1];
    if (groups < 2 || channels < kFewestChannels || w.sizes()[0] % groups) return 0;
    if (channels >= kEnoughChannels && channels % kAligned == 0) return 0;
    const int64_t filters = w.sizes()[0] / groups;
    int64_t best = 0, least = 0;
    for (int64_t together = 2; together <= groups; ++together) {
        const int64_t joined = channels * together;
        if (groups % together || joined < kEnoughChannels || joined % kAligned) continue;
        const int64_t work = filled(joined) * filled(filters * together) * (groups / together);
        if (best && work >= least) continue;
        best = together, least = work;
    }
    return best;
}

// The weights of groups with zeros for what others read.
Result<Tensor> joined_weights(const Tensor& w, int64_t groups, int64_t together) {
    const int64_t filters = w.sizes()[0], channels = w.sizes()[1], of_group = filters / groups;
    const auto taps = static_cast<size_t>(w.sizes()[2] * w.sizes()[3]) * dtype_bytes(w.dtype());
    Tensor made = TRY(Tensor::zeros(w.dtype(), {filters, channels * together, w.sizes()[2], w.sizes()[3]}));
    const auto* from = static_cast<const char*>(w.data());
    auto* to = static_cast<char*>(made.mutable_data());
    const auto own = static_cast<size_t>(channels) * taps;
    for (int64_t f = 0; f < filters; ++f) {
        const auto number = static_cast<size_t>(f / of_group % together), filter = static_cast<size_t>(f);
        std::memcpy(to + (filter * static_cast<size_t>(together) + number) * own, from + filter * own, own);
    }
    return made;
}

}  // namespace

Result<Changed> join_groups(Graph& graph, const Machine& machine, PassContext& context) {
    if (!machine.has("wgmma")) return Changed(false);
    Changed changed = false;
    for (const auto& node : graph.nodes()) {
        const int64_t together = joined_groups(*node);
        if (together < 2) continue;
        const int64_t groups = std::get<int64_t>(node->attrs().at("group"));
        graph.set_input(*node, 1, graph.constant(TRY(joined_weights(*node->input(1)->tensor(), groups, together))));
        node->attrs()["group"] = Attr(groups / together);
        changed = true;
        context.choices.push_back({fmt::format("join groups of {}", node->output()->name()),
                                   yes("{} of its {} groups fill a tile of channels", together, groups)});
    }
    if (changed) graph.erase_unused();
    return changed;
}

}  // namespace tessera
