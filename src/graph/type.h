// What is known of a value before it is computed: element type and symbolic shape, or a sequence or optional of such.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "expr/expr.h"
#include "graph/tensor.h"

namespace tessera {

// A list of dimensions, or unknown altogether (not even the rank).
class Shape {
   public:
    Shape() = default;  // rank 0
    Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
    Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}
    Shape(const Sizes& sizes) : dims_(sizes.begin(), sizes.end()) {}
    static Shape unknown() {
        Shape s;
        s.ranked_ = false;
        return s;
    }

    bool ranked() const { return ranked_; }
    int64_t rank() const { return static_cast<int64_t>(dims_.size()); }
    const std::vector<Dim>& dims() const { return dims_; }
    const Dim& operator[](int64_t axis) const { return dims_[axis < 0 ? axis + rank() : axis]; }
    Dim& operator[](int64_t axis) { return dims_[axis < 0 ? axis + rank() : axis]; }
    auto begin() const { return dims_.begin(); }
    auto end() const { return dims_.end(); }
    void push_back(Dim d) { dims_.push_back(std::move(d)); }

    std::optional<Sizes> sizes() const;  // where every dimension is a constant
    Dim elements() const;                // the product
    Shape slice(int64_t from, int64_t to) const;  // dimensions [from, to)
    friend Shape operator+(Shape a, const Shape& b);
    bool operator==(const Shape&) const = default;

   private:
    std::vector<Dim> dims_;
    bool ranked_ = true;
};

struct TensorType {
    DType dtype = DType::f32;
    Shape shape;
    int64_t rank() const { return shape.rank(); }
    const Dim& dim(int64_t axis) const { return shape[axis]; }
    bool operator==(const TensorType&) const = default;
};

class Type {
   public:
    enum class Kind { None, Tensor, Sequence, Optional };  // None: an input that is not given
    Type() = default;
    Type(TensorType t) : kind_(Kind::Tensor), tensor_(std::move(t)) {}
    Type(DType dtype, Shape shape) : Type(TensorType{dtype, std::move(shape)}) {}
    static Type sequence(Type element) { return Type(Kind::Sequence, std::move(element)); }
    static Type optional(Type element) { return Type(Kind::Optional, std::move(element)); }

    Kind kind() const { return kind_; }
    bool is_none() const { return kind_ == Kind::None; }
    bool is_tensor() const { return kind_ == Kind::Tensor; }
    bool is_sequence() const { return kind_ == Kind::Sequence; }
    bool is_optional() const { return kind_ == Kind::Optional; }
    const TensorType& tensor() const {
        CHECK(is_tensor());
        return tensor_;
    }
    const Type& element() const { return *element_; }  // of a sequence or optional
    bool operator==(const Type& other) const;

   private:
    Type(Kind kind, Type element) : kind_(kind), element_(std::make_shared<const Type>(std::move(element))) {}
    Kind kind_ = Kind::None;
    TensorType tensor_;
    std::shared_ptr<const Type> element_;
};

std::string to_string(const Shape& s);  // [N,3], [...] where the rank is unknown
std::string to_string(const Type& t);   // f32[N,3], seq(f32[...]), optional(i64[])

Type type_of(const Datum& value);  // with constant sizes; an empty sequence or optional has an f32[...] element

// Both shapes broadcast together as NumPy does; nullopt where two constant sizes clash. Unknown absorbs.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);

// The least specific of two types that both fit (branches of an If, items of a sequence); dims that differ get
// fresh symbols `name.d<i>`, ranks that differ make the shape unknown; nullopt where the kinds or element types clash.
std::optional<Type> join(const Type& a, const Type& b, const std::string& name);

// Whether a concrete type is allowed where `declared` is expected, binding declared's symbols consistently.
bool binds(const Type& declared, const Type& actual, SymbolValues& symbols);

}  // namespace tessera

template <>
struct fmt::formatter<tessera::Type> : fmt::formatter<std::string> {
    auto format(const tessera::Type& t, fmt::format_context& ctx) const {
        return fmt::formatter<std::string>::format(tessera::to_string(t), ctx);
    }
};
template <>
struct fmt::formatter<tessera::Shape> : fmt::formatter<std::string> {
    auto format(const tessera::Shape& s, fmt::format_context& ctx) const {
        return fmt::formatter<std::string>::format(tessera::to_string(s), ctx);
    }
};
