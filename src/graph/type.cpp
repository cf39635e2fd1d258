#include "graph/type.h"

#include <fmt/ranges.h>

namespace tessera {

std::optional<Sizes> Shape::sizes() const {
    if (!ranked_) return std::nullopt;
    Sizes out;
    out.reserve(dims_.size());
    for (const Dim& d : dims_) {
        auto n = d.as_int();
        if (!n) return std::nullopt;
        out.push_back(*n);
    }
    return out;
}

Dim Shape::elements() const {
    Dim n = 1;
    for (const Dim& d : dims_) n = n * d;
    return n;
}

Shape Shape::slice(int64_t from, int64_t to) const {
    return std::vector<Dim>(dims_.begin() + from, dims_.begin() + std::max(from, to));
}

Shape operator+(Shape a, const Shape& b) {
    for (const Dim& d : b) a.push_back(d);
    return a;
}

bool Type::operator==(const Type& other) const {
    if (kind_ != other.kind_) return false;
    if (kind_ == Kind::Tensor) return tensor_ == other.tensor_;
    return kind_ == Kind::None || *element_ == *other.element_;
}

std::string to_string(const Shape& s) {
    if (!s.ranked()) return "[...]";
    std::vector<std::string> parts;
    for (const Dim& d : s) parts.push_back(to_string(d));
    return fmt::format("[{}]", fmt::join(parts, ","));
}

std::string to_string(const Type& t) {
    switch (t.kind()) {
        case Type::Kind::None: return "none";
        case Type::Kind::Tensor: return fmt::format("{}{}", dtype_name(t.tensor().dtype), to_string(t.tensor().shape));
        case Type::Kind::Sequence: return fmt::format("seq({})", to_string(t.element()));
        case Type::Kind::Optional: return fmt::format("optional({})", to_string(t.element()));
    }
    return {};
}

Type type_of(const Datum& value) {
    if (value.is_tensor()) return Type(value.tensor().dtype(), Shape(value.tensor().sizes()));
    Type element(DType::f32, Shape::unknown());
    for (size_t i = 0; i < value.items().size(); ++i) {
        Type t = type_of(value.items()[i]);
        auto both = i == 0 ? t : join(element, t, "item");
        if (both) element = *both;
    }
    return value.is_sequence() ? Type::sequence(element) : Type::optional(element);
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
    if (!a.ranked() || !b.ranked()) return Shape::unknown();
    const Shape &longer = a.rank() >= b.rank() ? a : b, &shorter = a.rank() >= b.rank() ? b : a;
    Shape out = longer;
    for (int64_t i = 1; i <= shorter.rank(); ++i) {
        const Dim &x = longer[-i], &y = shorter[-i];
        auto m = x.as_int(), n = y.as_int();
        if (m && n && *m != *n && *m != 1 && *n != 1) return std::nullopt;
        out[-i] = broadcast_dim(x, y);
    }
    return out;
}

std::optional<Type> join(const Type& a, const Type& b, const std::string& name) {
    if (a == b) return a;
    if (a.kind() != b.kind()) return std::nullopt;
    if (!a.is_tensor()) {
        auto element = join(a.element(), b.element(), name);
        if (!element) return std::nullopt;
        return a.is_sequence() ? Type::sequence(*element) : Type::optional(*element);
    }
    const TensorType &s = a.tensor(), &t = b.tensor();
    if (s.dtype != t.dtype) return std::nullopt;
    if (!s.shape.ranked() || !t.shape.ranked() || s.rank() != t.rank()) return Type(s.dtype, Shape::unknown());
    Shape shape = s.shape;
    for (int64_t i = 0; i < shape.rank(); ++i)
        if (shape[i] != t.shape[i]) shape[i] = symbol(fmt::format("{}.d{}", name, i));
    return Type(s.dtype, shape);
}

bool binds(const Type& declared, const Type& actual, SymbolValues& symbols) {
    if (declared.kind() != actual.kind()) return false;
    if (!declared.is_tensor()) return true;
    const TensorType &d = declared.tensor(), &a = actual.tensor();
    if (d.dtype != a.dtype) return false;
    if (!d.shape.ranked()) return true;
    if (d.rank() != a.rank()) return false;
    for (int64_t i = 0; i < d.rank(); ++i) {
        auto size = a.shape[i].as_int();
        if (!size) continue;
        const Dim& want = d.shape[i];
        if (want.is(ExprKind::Var)) {
            auto [it, fresh] = symbols.emplace(want.node().name, *size);
            if (!fresh && it->second != *size) return false;
        } else if (auto n = evaluate_int(want, symbols); n && *n != *size) {
            return false;
        }
    }
    return true;
}

}  // namespace tessera
