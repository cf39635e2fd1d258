#include "runtime/weight_places.h"

#include <map>
#include <set>

#include "base/check.h"
#include "runtime/memory_plan.h"
#include "runtime/run_plan.h"

namespace tessera {
namespace {

bool is_large(const Value& v) {
    return v.is_constant() && v.tensor()->dtype() != DType::string && v.tensor()->elements() > kStoredByValue;
}

void collect_inside(const Node& node, std::vector<GraphConstant>& all) {
    for (const auto& [name, attr] : node.attrs()) {
        auto* inner = std::get_if<GraphPtr>(&attr);
        if (!inner || !*inner) continue;
        std::map<std::string, const Value*> by_name;
        for (const auto& v : (*inner)->constants())
            if (is_large(*v)) by_name.emplace(v->name(), v.get());
        for (const auto& [unused, v] : by_name) all.push_back({inner->get(), v});
        for (const auto& each : (*inner)->nodes()) collect_inside(*each, all);
    }
}

}  // namespace

std::vector<GraphConstant> graph_constants(const Program& program) {
    std::set<const Value*> held;
    for (const ProgramBuffer& b : program.buffers) held.insert(b.value);
    std::vector<GraphConstant> all;
    for (const Step& step : program.steps) {
        const bool evaluated = std::holds_alternative<HostStep>(step) || std::holds_alternative<ControlStep>(step);
        if (!evaluated) continue;
        const Node& node = *node_of(step);
        for (const Value* v : captured_values(node))
            if (&v->graph() == program.graph.get() && is_large(*v) && held.insert(v).second)
                all.push_back({program.graph.get(), v});
        collect_inside(node, all);
    }
    return all;
}

Result<WeightPlaces> place_weights(const Program& program, const ProgramLayout& layout) {
    WeightPlaces places;
    places.offsets.assign(program.buffers.size(), -1);
    places.sizes.assign(program.buffers.size(), 0);
    for (size_t b = 0; b < program.buffers.size(); ++b) {
        const bool weight = layout.home[b] == Home::Constant || layout.home[b] == Home::Prepared;
        if (layout.root[b] != static_cast<int>(b) || !weight || !layout.in_run[b]) continue;
        auto sizes = TRY(buffer_sizes(program.buffers[b], {}));
        CHECK(sizes, "weight \"{}\" has no known size", program.buffers[b].name);
        places.offsets[b] = places.bytes;
        places.sizes[b] = TRY(buffer_bytes(program.buffers[b], *sizes));
        places.bytes += aligned(places.sizes[b]);
    }
    return places;
}

}  // namespace tessera
