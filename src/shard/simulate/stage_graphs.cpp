#include "shard/simulate/stage_graphs.h"

#include <algorithm>
#include <unordered_map>

#include "graph/count.h"
#include "shard/simulate/split_passes.h"

namespace tessera::shard {
namespace {

double seconds_of(const Node& node, const DeviceSpeeds& speeds) {
    const Cost cost = count(node);
    return std::max(double(cost.flops.as_int().value_or(0)) / speeds.peak(DType::f32),
                    double(cost.bytes.as_int().value_or(0)) / speeds.bytes_per_second);
}

// The stage of each node: as many nodes as bring it nearest to its share.
std::vector<int64_t> stages_of(const Graph& graph, int64_t stages, const DeviceSpeeds& speeds) {
    std::vector<double> until;
    double all = 0;
    for (const auto& node : graph.nodes()) {
        const double own = seconds_of(*node, speeds);
        until.push_back(all + own / 2);
        all += own;
    }
    std::vector<int64_t> list;
    const auto count = int64_t(until.size());
    for (int64_t i = 0; i < count; ++i) {
        auto s = std::min(stages - 1, int64_t(until[size_t(i)] / all * double(stages)));
        const int64_t before = list.empty() ? 0 : list.back();
        s = std::clamp(s, before, std::min(before + int64_t(!list.empty()), i));
        list.push_back(std::max(s, stages - (count - i)));  // at least a node for each
    }
    return list;
}

}  // namespace

Result<std::vector<StageGraph>> stage_graphs(const Graph& graph, int64_t stages, const DeviceSpeeds& speeds) {
    if (int64_t(graph.nodes().size()) < stages)
        return Error(Code::E0501, "{} nodes do not divide into {} stages", graph.nodes().size(), stages);
    const std::vector<int64_t> stage = stages_of(graph, stages, speeds);
    std::unordered_map<const Value*, std::pair<int64_t, int64_t>>
        lives;  // the stage that makes it, the last that reads it
    for (size_t n = 0; n < stage.size(); ++n) {
        const Node& node = *graph.nodes()[n];
        for (size_t i = 0; i < node.output_count(); ++i) lives[node.output(i)] = {stage[n], stage[n]};
        for (const Value* in : node.inputs())
            if (auto at = lives.find(in); at != lives.end()) at->second.second = std::max(at->second.second, stage[n]);
    }
    std::vector<StageGraph> made(static_cast<size_t>(stages));
    for (int64_t s = 0; s < stages; ++s) {
        std::vector<const Value*> given, outputs;
        std::vector<std::string> names;
        StageGraph& part = made[size_t(s)];
        for (const auto& node : graph.nodes())
            for (size_t i = 0; i < node->output_count(); ++i) {
                const Value* v = node->output(i);
                const auto [from, last] = lives.at(v);
                if (from < s && last >= s) {
                    given.push_back(v);
                    part.received.push_back(v->name());
                }
                if (from <= s && last > s) part.sent.push_back(v->name());
                const bool returned =
                    std::find(graph.outputs().begin(), graph.outputs().end(), v) != graph.outputs().end();
                if (from == s && (last > s || returned)) {
                    outputs.push_back(v);
                    names.push_back(v->name());
                }
            }
        part.graph = TRY(subgraph(graph, fmt::format("stage{}", s), given, outputs, names));
    }
    return made;
}

}  // namespace tessera::shard
