#include "graph/copy_nodes.h"

#include <unordered_map>

namespace tessera {

Result<std::vector<Value*>> copy_nodes(const Graph& from, Graph& to, const std::vector<Value*>& inputs) {
    std::unordered_map<const Value*, Value*> here;
    for (size_t i = 0; i < inputs.size(); ++i) here[from.inputs()[i].get()] = inputs[i];
    auto find = [&](Value* v) -> Value* {
        if (!v || &v->graph() != &from) return v;
        if (v->is_constant()) return to.constant(*v->tensor());
        auto found = here.find(v);
        return found == here.end() ? nullptr : found->second;
    };
    for (const auto& node : from.nodes()) {
        NodeSpec spec{.op = &node->op(), .inputs = {}, .attrs = node->attrs(), .outputs = node->output_count()};
        for (const auto& [name, attr] : spec.attrs)
            if (std::holds_alternative<GraphPtr>(attr))
                return Error(Code::E0214, "graph \"{}\" contains nested graphs", from.name());
        for (Value* v : node->inputs()) spec.inputs.push_back(find(v));
        Node* made = TRY(to.add(std::move(spec)));
        for (size_t i = 0; i < node->output_count(); ++i) here[node->output(i)] = made->output(i);
    }
    std::vector<Value*> out;
    for (Value* v : from.outputs()) out.push_back(find(v));
    return out;
}

}  // namespace tessera
