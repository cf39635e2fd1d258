#include "graph/peak.h"

#include <algorithm>
#include <unordered_map>

namespace tessera {
namespace {

class Liveness {
  public:
    Liveness(const SymbolValues& symbols, Peak& peak) : symbols_(symbols), peak_(peak) {}

    // The most that the graph's own values and those of its nested graphs take.
    int64_t walk(const Graph& graph) {
        std::unordered_map<const Node*, size_t> place;
        for (size_t i = 0; i < graph.nodes().size(); ++i) place[graph.nodes()[i].get()] = i;
        std::vector<int64_t> freed(graph.nodes().size() + 1, 0);
        int64_t live = 0, most = 0;
        auto take = [&](const Value& v, size_t at) {
            int64_t bytes = size_of(v.type());
            live += bytes;
            size_t last = at;
            for (const Use& use : v.uses()) {
                auto found = use.node ? place.find(use.node) : place.end();
                last = std::max(last, found == place.end() ? graph.nodes().size() : found->second);
            }
            freed[last] += bytes;
        };
        for (const auto& v : graph.inputs()) take(*v, 0);
        most = live;
        for (size_t i = 0; i < graph.nodes().size(); ++i) {
            const Node& node = *graph.nodes()[i];
            int64_t inside = 0;
            for (const auto& [_, attr] : node.attrs())
                if (auto* nested = std::get_if<GraphPtr>(&attr)) inside = std::max(inside, walk(**nested));
            for (size_t k = 0; k < node.output_count(); ++k)
                if (!node.output(k)->uses().empty()) take(*node.output(k), i);
            most = std::max(most, live + inside);
            live -= freed[i];
        }
        return most;
    }

  private:
    int64_t size_of(const Type& type) {
        if (!type.is_tensor() || !type.tensor().shape.ranked() || type.tensor().dtype == DType::string) {
            peak_.complete = false;
            return 0;
        }
        int64_t bytes = int64_t(dtype_bytes(type.tensor().dtype));
        for (const Dim& d : type.tensor().shape) {
            SymbolValues values = symbols_;
            if (!d.as_int())
                for (const std::string& name : free_symbols(d)) values.emplace(name, 1);
            auto n = d.as_int() ? d.as_int() : evaluate_int(d, values);
            if (!n || *n < 0 || __builtin_mul_overflow(bytes, *n, &bytes)) {
                peak_.complete = false;
                return 0;
            }
        }
        return bytes;
    }

    const SymbolValues& symbols_;
    Peak& peak_;
};

}  // namespace

Peak peak_memory(const Graph& graph, const SymbolValues& symbols) {
    Peak peak;
    peak.bytes = Liveness(symbols, peak).walk(graph);
    return peak;
}

}  // namespace tessera
