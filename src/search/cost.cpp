#include "search/cost.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "graph/count.h"
#include "graph/ops/conv_tiles.h"
#include "rewrite/pass.h"

namespace tessera {
namespace {

constexpr double kProductIntensity = 1.5;  // operations for each element that is moved

constexpr double kSumsOfHalves = 30;  // the sums for an element, in operations of products: measured

double number(const Expr& e) { return double(e.as_int().value_or(1)); }

class EstimatedCost : public CostModel {
  public:
    EstimatedCost(const Speeds& speeds, bool fused) : speeds_(speeds), fused_(fused) {}
    std::string name() const override { return fused_ ? "estimate" : "sum of ops"; }
    double node(const Node& node) override {
        std::string key = cost_key(node);
        auto it = known_.find(key);
        if (it == known_.end()) it = known_.emplace(std::move(key), estimate(node)).first;
        return it->second;
    }

  private:
    static constexpr double kFusedMap = 0.35, kFusedView = 0.02;  // of their bytes, on average

    double estimate(const Node& node) const {
        Cost cost = count(node);
        double flops = number(cost.flops), bytes = number(cost.bytes) / speeds_.bytes;
        if (!cost.complete) return bytes + speeds_.launch;
        switch (work_of(node)) {
            case Work::View: return fused_ ? kFusedView * bytes : bytes + speeds_.launch;
            case Work::Map: {
                double arithmetic = flops / speeds_.map_flops;
                return fused_ ? kFusedMap * std::max(bytes, arithmetic) : std::max(bytes, arithmetic) + speeds_.launch;
            }
            case Work::Product:
                if (auto known = on_gpu(node)) return *known;
                bytes += tile_weight_bytes(node) / speeds_.bytes;
                return std::max(bytes, product_flops(node, flops) / speeds_.flops) + speeds_.launch;
            case Work::Other: return std::max(bytes, flops / speeds_.map_flops) + speeds_.launch;
        }
        return 0;
    }

    static std::optional<ConvTiles> tiles_of(const Node& node) {
        auto tiles = conv_tiles(node);
        return tiles && from_weights(*node.input(1)) ? tiles : std::nullopt;
    }

    std::optional<double> on_gpu(const Node& node) const {
        if (!speeds_.gpu || node.inputs().size() < 2) return std::nullopt;
        return conv_seconds(node, from_weights(*node.input(1)), *speeds_.gpu);
    }

    // As the compiler does it: what is asked for, otherwise what is less.
    double product_flops(const Node& node, double direct) const {
        if (speeds_.gpu) return direct;
        if (node.attrs().contains("halvings")) {
            const double times = double(node.view().integer("halvings"));
            const double elements = double(number(node.input(0)->type().tensor().shape.elements())) +
                                    number(node.output()->type().tensor().shape.elements());
            return direct * std::pow(7.0 / 8, times) + kSumsOfHalves * times * elements;
        }
        auto tiles = tiles_of(node);
        if (!tiles) return direct;
        const double work = tiles->products() + tiles->transforms();
        return tiles->requested ? work : std::min(direct, work);
    }

    // What weights take more where tiles are asked for.
    double tile_weight_bytes(const Node& node) const {
        auto tiles = tiles_of(node);
        if (!tiles || !tiles->requested) return 0;
        return 4 * double(tiles->channels) * double(tiles->outputs) *
               double(tiles->axes[0].points() * tiles->axes[1].points() -
                      tiles->axes[0].kernel * tiles->axes[1].kernel);
    }

    Speeds speeds_;
    bool fused_;
    std::unordered_map<std::string, double> known_;
};

}  // namespace

void CostModel::expect(const std::vector<std::vector<const Node*>>&) {}
std::optional<double> CostModel::groups(const Graph&) { return {}; }

double CostModel::graph(const Graph& graph) {
    std::unordered_set<const Value*> constant;
    double sum = 0;
    for (const auto& n : graph.nodes()) {
        bool all = n->is(Trait::Pure) && !n->inputs().empty();
        for (const Value* v : n->inputs()) all = all && (!v || v->is_constant() || constant.contains(v));
        if (all) {
            for (size_t i = 0; i < n->output_count(); ++i) constant.insert(n->output(i));
            continue;
        }
        sum += node(*n);
    }
    return sum;
}

Work work_of(const Node& node) {
    if (node.is(Trait::Elementwise)) return Work::Map;
    Cost cost = count(node);
    double flops = number(cost.flops), elements = number(cost.bytes) / 4;
    if (cost.complete && cost.flops.is_int(0)) return Work::View;
    return cost.complete && flops > kProductIntensity * elements ? Work::Product : Work::Other;
}

bool from_weights(const Value& value) {
    std::unordered_map<const Value*, bool> known;  // false while it is looked at: nodes of an e-graph have cycles
    std::function<bool(const Value*)> computed = [&](const Value* v) {
        if (!v || v->is_constant()) return true;
        const Node* node = v->node();
        if (!node || node->inputs().empty() || !node->is(Trait::Pure)) return false;
        if (auto [at, first] = known.try_emplace(v, false); !first) return at->second;
        return known[v] = std::all_of(node->inputs().begin(), node->inputs().end(), computed);
    };
    return computed(&value);
}

std::string cost_key(const Node& node) {
    std::string text = node.op().name;
    for (const Value* v : node.inputs()) {
        text += ' ';
        if (!v) continue;
        text += to_string(v->type());
        if (from_weights(*v)) text += '=';
    }
    for (size_t i = 0; i < node.output_count(); ++i) text += " -> " + to_string(node.output(i)->type());
    return text + " " + describe(node).attrs;
}

std::unique_ptr<CostModel> estimated_cost(const Speeds& speeds, bool fused) {
    return std::make_unique<EstimatedCost>(speeds, fused);
}

}  // namespace tessera
