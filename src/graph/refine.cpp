#include "graph/refine.h"

namespace tessera {

std::optional<Type> refine(const Type& inferred, const Type& declared, const std::string& name) {
    if (inferred.kind() != declared.kind()) return std::nullopt;
    if (inferred.is_none()) return inferred;
    if (!inferred.is_tensor()) {
        auto element = refine(inferred.element(), declared.element(), name);
        if (!element) return std::nullopt;
        return inferred.is_sequence() ? Type::sequence(std::move(*element)) : Type::optional(std::move(*element));
    }
    const TensorType &have = inferred.tensor(), &said = declared.tensor();
    if (have.dtype != said.dtype) return std::nullopt;
    if (!said.shape.ranked()) return inferred;
    if (!have.shape.ranked()) return declared;
    if (have.rank() != said.rank()) return std::nullopt;
    Shape shape = have.shape;
    for (int64_t i = 0; i < shape.rank(); ++i) {
        if (shape[i].as_int() && said.dim(i).as_int() && !(shape[i] == said.dim(i))) return std::nullopt;
        if (shape[i].is(ExprKind::Var) && shape[i].node().name == fmt::format("{}.d{}", name, i))
            shape[i] = said.dim(i);
    }
    return Type(have.dtype, std::move(shape));
}

}  // namespace tessera
