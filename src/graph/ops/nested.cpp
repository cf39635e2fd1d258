#include "graph/ops/nested.h"

#include <algorithm>
#include <set>

namespace tessera {
namespace {

void collect_symbols(const Type& t, std::set<std::string>& names) {
    if (t.is_none()) return;
    if (!t.is_tensor()) return collect_symbols(t.element(), names);
    for (const Dim& d : t.tensor().shape)
        for (std::string& s : free_symbols(d)) names.insert(std::move(s));
}

// Sizes that nodes of the body find as they run, named after their results.
void collect_found(const Graph& body, std::set<std::string>& names) {
    for (const auto& node : body.nodes()) {
        for (size_t i = 0; i < node->output_count(); ++i) {
            std::set<std::string> own;
            collect_symbols(node->output(i)->type(), own);
            const std::string prefix = node->output(i)->name();
            for (const std::string& s : own)
                if (s.starts_with(prefix) && s.find(".d") == s.find_first_not_of('_', prefix.size())) names.insert(s);
        }
        for (const auto& [name, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) collect_found(**nested, names);
    }
}

Type with_fresh_dims(const OpView& op, const Type& t, size_t output, size_t first, const std::set<std::string>& inner) {
    if (t.is_none()) return t;
    if (t.is_sequence()) return Type::sequence(with_fresh_dims(op, t.element(), output, first, inner));
    if (t.is_optional()) return Type::optional(with_fresh_dims(op, t.element(), output, first, inner));
    Shape shape = t.tensor().shape;
    for (int64_t d = 0; d < shape.rank(); ++d)
        for (const std::string& s : free_symbols(shape[d]))
            if (inner.contains(s)) {
                shape[d] = op.fresh(output, first + d);
                break;
            }
    return Type(t.tensor().dtype, shape);
}

}  // namespace

std::string output_name(const OpView& op, size_t output) {
    std::string first = op.fresh(output, 0).node().name;  // <name>.d0
    return first.substr(0, first.size() - 3);
}

Type seen_outside(const OpView& op, const Graph& body, const Type& type, size_t output, size_t first) {
    std::set<std::string> used, inner, outer;
    collect_symbols(type, used);
    if (used.empty()) return type;
    for (const auto& input : body.inputs()) collect_symbols(input->type(), inner);
    for (const Type& t : op.inputs()) collect_symbols(t, outer);
    for (const std::string& s : outer) inner.erase(s);
    collect_found(body, inner);
    return inner.empty() ? type : with_fresh_dims(op, type, output, first, inner);
}

bool is_found_by_run(const std::string& symbol) {
    const size_t end = symbol.find_last_not_of("0123456789_");
    return end != symbol.npos && end > 0 && end + 1 < symbol.size() && symbol.substr(end - 1, 2) == ".d";
}

bool varies_in_sequence(const Type& element) {
    std::set<std::string> names;
    collect_symbols(element, names);
    return std::any_of(names.begin(), names.end(), is_found_by_run);
}

Type one_of_sequence(const OpView& op, const Type& element, size_t output) {
    std::set<std::string> names;
    collect_symbols(element, names);
    std::erase_if(names, [](const std::string& s) { return !is_found_by_run(s); });
    return names.empty() ? element : with_fresh_dims(op, element, output, 0, names);
}

Result<Type> carried_type(const OpView& op, const Type& initial, const Type& step, size_t output) {
    if (auto both = join(initial, step, output_name(op, output))) return *both;
    // An empty sequence or optional does not say what it is of; an optional may be opened by the first step.
    if (op.concrete() || initial.is_optional()) return step;
    return op.error(Code::E0208, "loop-carried value {} is {} before an iteration and {} after it", output, initial,
                    step);
}

Type stacked(const Type& element, const Dim& count, int64_t axis) {
    const TensorType& t = element.tensor();
    if (!t.shape.ranked()) return element;
    std::vector<Dim> dims = t.shape.dims();
    dims.insert(dims.begin() + axis, count);
    return Type(t.dtype, dims);
}

}  // namespace tessera
