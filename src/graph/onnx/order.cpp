#include "graph/onnx/order.h"

#include <functional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace tessera {
namespace {

using NameSet = std::unordered_set<std::string_view>;
constexpr int kMaxDepth = 200;  // deeper files are refused later, with a message

void add_captures(const onnx::Graph& graph, NameSet& out, int depth);

// Everything the node reads: its inputs and what its nested graphs capture.
void add_reads(const onnx::Node& node, NameSet& out, int depth) {
    for (const std::string& name : node.inputs)
        if (!name.empty()) out.insert(name);
    for (const onnx::Attribute& a : node.attributes) {
        if (a.g) add_captures(*a.g, out, depth + 1);
        for (const onnx::Graph& g : a.graphs) add_captures(g, out, depth + 1);
    }
}

void add_captures(const onnx::Graph& graph, NameSet& out, int depth) {
    if (depth > kMaxDepth) return;
    NameSet defined, used;
    for (const auto& v : graph.inputs) defined.insert(v.name);
    for (const auto& t : graph.initializers) defined.insert(t.name);
    for (const auto& t : graph.sparse_initializers) defined.insert(t.values.name);
    for (const auto& n : graph.nodes) defined.insert(n.outputs.begin(), n.outputs.end());
    for (const auto& n : graph.nodes) add_reads(n, used, depth);
    for (const auto& v : graph.outputs) used.insert(v.name);
    for (std::string_view name : used)
        if (!defined.count(name)) out.insert(name);
}

std::string node_label(const onnx::Node& node) {
    if (!node.name.empty()) return fmt::format("\"{}\" ({})", node.name, node.op_type);
    return fmt::format("{} -> \"{}\"", node.op_type, node.outputs.empty() ? "" : node.outputs[0]);
}

}  // namespace

Result<std::vector<size_t>> definition_order(const std::vector<onnx::Node>& nodes) {
    std::unordered_map<std::string_view, size_t> maker;
    for (size_t i = 0; i < nodes.size(); ++i)
        for (const std::string& name : nodes[i].outputs)
            if (!name.empty()) maker.emplace(name, i);

    std::vector<std::vector<size_t>> needs(nodes.size());
    bool sorted = true;
    for (size_t i = 0; i < nodes.size(); ++i) {
        NameSet reads;
        add_reads(nodes[i], reads, 0);
        for (std::string_view name : reads) {
            auto it = maker.find(name);
            if (it == maker.end()) continue;
            needs[i].push_back(it->second);
            sorted &= it->second < i;
        }
    }
    std::vector<size_t> order;
    order.reserve(nodes.size());
    if (sorted) {
        for (size_t i = 0; i < nodes.size(); ++i) order.push_back(i);
        return order;
    }

    std::vector<std::vector<size_t>> needed_by(nodes.size());
    std::vector<size_t> missing(nodes.size());
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;  // earliest in the file first
    for (size_t i = 0; i < nodes.size(); ++i) {
        missing[i] = needs[i].size();
        for (size_t n : needs[i]) needed_by[n].push_back(i);
        if (missing[i] == 0) ready.push(i);
    }
    while (!ready.empty()) {
        size_t i = ready.top();
        ready.pop();
        order.push_back(i);
        for (size_t user : needed_by[i])
            if (--missing[user] == 0) ready.push(user);
    }
    if (order.size() == nodes.size()) return order;

    // Every node left needs another one left: walking along such needs comes back to a node already seen.
    size_t at = 0;
    while (missing[at] == 0) ++at;
    std::vector<size_t> path;
    std::unordered_map<size_t, size_t> place;
    while (place.emplace(at, path.size()).second) {
        path.push_back(at);
        for (size_t n : needs[at])
            if (missing[n] > 0) {
                at = n;
                break;
            }
    }
    std::string cycle;
    size_t shown = 0, length = path.size() - place[at];
    for (size_t i = path.size(); i-- > place[at] && shown < 8; ++shown)
        cycle += (cycle.empty() ? "" : " -> ") + node_label(nodes[path[i]]);
    if (shown < length) cycle += fmt::format(" -> ... ({} nodes)", length);
    return Error(Code::E0205, "the graph has a cycle: {} -> back to the first", cycle)
        .hint("express recurrences with Loop or Scan");
}

}  // namespace tessera
