#include "graph/ops/nested.h"

#include <set>

namespace tessera {
namespace {

void collect_symbols(const Type& t, std::set<std::string>& names) {
    if (t.is_none()) return;
    if (!t.is_tensor()) return collect_symbols(t.element(), names);
    for (const Dim& d : t.tensor().shape)
        for (std::string& s : free_symbols(d)) names.insert(std::move(s));
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
    std::set<std::string> inner, outer;
    for (const auto& input : body.inputs()) collect_symbols(input->type(), inner);
    for (const Type& t : op.inputs()) collect_symbols(t, outer);
    for (const std::string& s : outer) inner.erase(s);
    return inner.empty() ? type : with_fresh_dims(op, type, output, first, inner);
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
