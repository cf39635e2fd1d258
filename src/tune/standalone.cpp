#include "tune/standalone.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "graph/op_def.h"
#include "search/cost.h"

namespace tessera {
namespace {

constexpr int64_t kComputed = 4096;  // bytes of weights that may as well be computed

std::optional<Sizes> sizes_of(const Value& v, const SymbolValues& symbols = {}) {
    if (!v.type().is_tensor() || !v.type().tensor().shape.ranked()) return {};
    Sizes sizes;
    for (const Dim& d : v.type().tensor().shape) {
        auto size = evaluate_int(d, symbols);
        if (!size) return {};
        sizes.push_back(*size);
    }
    return sizes;
}

int64_t elements_of(const Sizes& sizes) {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
}

// Each from another place of the same numbers, so that no two are equal and none takes memory.
class StandIns {
  public:
    Tensor next(const Sizes& sizes) {
        const int64_t count = elements_of(sizes), offset = 16 * (made_++ % 4096);
        if (!numbers_ || int64_t(numbers_->size()) < count + offset) grow(count + 16 * 4096);
        return Tensor::view(DType::f32, sizes, numbers_->data() + offset, numbers_);
    }

  private:
    void grow(int64_t count) {
        auto numbers = std::make_shared<std::vector<float>>(size_t(count));
        uint32_t state = 1;
        for (float& v : *numbers) {
            state = state * 1664525 + 1013904223;
            v = float(int32_t(state >> 20) - 2047) / 2048;
        }
        numbers_ = std::move(numbers);
    }
    std::shared_ptr<std::vector<float>> numbers_;
    int64_t made_ = 0;
};

StandIns& stand_ins() {
    static thread_local StandIns all;
    return all;
}

std::optional<Tensor> weights_like(const Value& v, const SymbolValues& symbols) {
    if (v.is_constant()) return *v.tensor();
    auto sizes = sizes_of(v, symbols);
    if (!sizes || v.type().tensor().dtype != DType::f32) return {};
    return stand_ins().next(*sizes);
}

// The largest of two by two; null where that fails.
Value* neighbour(Graph& graph, Value* x, int64_t rank, bool padded) {
    std::vector<int64_t> pads(size_t(2 * (rank - 2)), 0);
    if (padded) std::fill(pads.begin(), pads.begin() + (rank - 2), 1);
    NodeSpec spec{find_op("max_pool"), {x}};
    spec.attrs = {{"kernel_shape", Attr(std::vector<int64_t>(size_t(rank - 2), 2))}, {"pads", Attr(std::move(pads))}};
    spec.name = kNeighbour;
    auto made = graph.add(std::move(spec));
    return made.ok() ? (*made)->output() : nullptr;
}

}  // namespace

std::shared_ptr<Graph> standalone(const Node& node, bool with_neighbours, const SymbolValues& symbols) {
    auto graph = std::make_shared<Graph>("node");
    graph->info().opset = node.graph().info().opset;
    NodeSpec spec{&node.op(), {}, node.attrs(), node.output_count()};
    std::unordered_map<const Value*, Value*> given;
    const bool around = with_neighbours && node.is(Trait::Window);
    for (const Value* v : node.inputs()) {
        if (!v) {
            spec.inputs.push_back(nullptr);
            continue;
        }
        if (from_weights(*v)) {
            auto tensor = weights_like(*v, symbols);
            if (!tensor) return {};
            spec.inputs.push_back(graph->constant(std::move(*tensor)));
            continue;
        }
        auto sizes = sizes_of(*v, symbols);
        if (!sizes) return {};
        auto [it, fresh] = given.emplace(v, nullptr);
        if (fresh) {
            const TensorType& type = v->type().tensor();
            const auto rank = int64_t(sizes->size());
            if (around && rank > 2 && type.dtype == DType::f32) {
                for (int64_t d = 2; d < rank; ++d) ++(*sizes)[size_t(d)];
                Value* x = graph->add_input(fmt::format("x{}", given.size()), TensorType{type.dtype, Shape(*sizes)});
                it->second = neighbour(*graph, x, rank, false);
            } else {
                it->second = graph->add_input(fmt::format("x{}", given.size()), TensorType{type.dtype, Shape(*sizes)});
            }
        }
        if (!it->second) return {};
        spec.inputs.push_back(it->second);
    }
    if (given.empty()) return {};
    auto made = graph->add(std::move(spec));
    if (!made.ok()) return {};
    for (size_t i = 0; i < (*made)->output_count(); ++i) {
        Value* y = (*made)->output(i);
        auto sizes = sizes_of(*y);
        if (around && sizes && sizes->size() > 2 && y->type().tensor().dtype == DType::f32)
            y = neighbour(*graph, y, int64_t(sizes->size()), true);
        if (!y) return {};
        graph->add_output(y, fmt::format("y{}", i));
    }
    return graph;
}

void stand_in_weights(Graph& graph) {
    std::unordered_set<const Value*> computed;
    auto weight = [&](const Value* v) { return !v || v->is_constant() || computed.contains(v); };
    std::vector<Value*> large;
    for (const auto& node : graph.nodes()) {
        if (!node->is(Trait::Pure) || node->inputs().empty()) continue;
        if (!std::all_of(node->inputs().begin(), node->inputs().end(), weight)) continue;
        for (size_t i = 0; i < node->output_count(); ++i) {
            computed.insert(node->output(i));
            large.push_back(node->output(i));
        }
    }
    for (Value* v : large) {
        const bool asked = std::any_of(v->uses().begin(), v->uses().end(), [&](const Use& use) {
            return use.graph == &graph && use.node && !computed.contains(use.node->output(0));
        });
        auto sizes = sizes_of(*v);
        if (!asked || !sizes || v->type().tensor().dtype != DType::f32 || elements_of(*sizes) * 4 <= kComputed)
            continue;
        graph.replace_uses(v, graph.constant(stand_ins().next(*sizes)));
    }
    graph.erase_unused();
}

}  // namespace tessera
