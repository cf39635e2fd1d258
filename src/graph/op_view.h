// One use of an op as its definition sees it: input types, attributes with their defaults, and what is known of the
// inputs' contents. The same view serves a node of a graph (symbolic sizes) and a call at run time (everything known).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/attr.h"
#include "graph/type.h"

namespace tessera {

struct OpDef;

// A list of output types that one type converts to.
struct Types : std::vector<Type> {
    using std::vector<Type>::vector;
    Types(Type t) { push_back(std::move(t)); }
    Types(TensorType t) { push_back(Type(std::move(t))); }
};

// Index expressions of one element; negative positions count from the end.
class Indices {
   public:
    Indices(std::vector<Expr> list) : list_(std::move(list)) {}
    Indices(std::initializer_list<Expr> list) : list_(list) {}
    const Expr& operator[](int64_t i) const { return list_[i < 0 ? i + rank() : i]; }
    Expr& operator[](int64_t i) { return list_[i < 0 ? i + rank() : i]; }
    int64_t rank() const { return static_cast<int64_t>(list_.size()); }
    const std::vector<Expr>& list() const { return list_; }
    Indices slice(int64_t from, int64_t to) const;            // positions [from, to), negative ones from the end
    Indices with(int64_t at, Expr e) const;                   // position `at` replaced
    Indices inserted(int64_t at, Expr e) const;
    Indices without(int64_t at) const;
    friend Indices operator+(Indices a, const Indices& b);

   private:
    std::vector<Expr> list_;
};

// An input as a body reads it.
class TensorRef {
   public:
    TensorRef(int slot, const TensorType& type) : slot_(slot), type_(&type) {}
    DType dtype() const { return type_->dtype; }
    int64_t rank() const { return type_->rank(); }
    const Dim& dim(int64_t axis) const { return type_->shape[axis]; }
    const Shape& shape() const { return type_->shape; }

    Expr at(const Indices& i) const;
    Expr at() const { return at(Indices{}); }
    // Right-aligned as broadcasting does: a size-1 dimension is read at 0, leading positions that it lacks are dropped.
    Expr broadcast_at(const Indices& i) const;
    // `otherwise` where an index is out of bounds (padding); those before dimension `from` are known to be inside.
    Expr at_or(const Indices& i, const Expr& otherwise, int64_t from = 0) const;

   private:
    int slot_;
    const TensorType* type_;
};

class OpView {
   public:
    OpView(const OpDef& def, const AttrMap& attrs, std::vector<Type> inputs, size_t output_count)
        : def_(&def), attrs_(&attrs), inputs_(std::move(inputs)), output_count_(output_count) {}

    const OpDef& def() const { return *def_; }

    // Inputs.
    size_t input_count() const { return inputs_.size(); }  // positions, given or not
    bool has(size_t i) const { return i < inputs_.size() && !inputs_[i].is_none(); }
    const Type& type(size_t i) const { return inputs_[i]; }
    const TensorType& tensor(size_t i) const { return inputs_[i].tensor(); }
    const Shape& shape(size_t i) const { return tensor(i).shape; }
    DType dtype(size_t i) const { return tensor(i).dtype; }
    int64_t rank(size_t i) const { return tensor(i).rank(); }
    TensorRef in(size_t i) const { return TensorRef(static_cast<int>(i), tensor(i)); }
    const std::vector<Type>& inputs() const { return inputs_; }

    // The input's elements if they are constant: as a tensor, or (integers) as expressions over symbols.
    const Tensor* value(size_t i) const {
        const Tensor* known = elements_of_constant(i);
        if (!known) note_unknown(i);
        return known;
    }
    // A stored program's larger constants have no elements: they were checked before it was stored.
    bool is_constant(size_t i) const { return i < values_.size() && values_[i]; }
    std::optional<std::vector<Expr>> contents(size_t i) const;
    // The contents where all are constants.
    std::optional<std::vector<int64_t>> constant_ints(size_t i) const;

    // Attributes, or the op's default for them. The plain forms need a default or a required attribute.
    bool has_attr(std::string_view name) const { return find_attr(name) != nullptr; }
    int64_t integer(std::string_view name) const;
    double real(std::string_view name) const;
    const std::string& string(std::string_view name) const;
    const std::vector<int64_t>& ints(std::string_view name) const;
    std::vector<int64_t> ints_or(std::string_view name, std::vector<int64_t> fallback) const;
    const std::vector<float>& floats(std::string_view name) const;
    const std::vector<std::string>& strings(std::string_view name) const;
    const Tensor& tensor_attr(std::string_view name) const;
    const Type& type_attr(std::string_view name) const;
    const Graph& graph(std::string_view name) const;
    const GraphPtr& graph_ptr(std::string_view name) const;
    const AttrMap& attrs() const { return *attrs_; }

    // Outputs.
    size_t output_count() const { return output_count_; }
    bool wants(size_t i) const { return i < output_count_ && (i >= wanted_.size() || wanted_[i]); }
    DType signature_dtype(size_t output) const;  // by the signature's type variables; CHECKs that they bind
    const TensorType& out(size_t i = 0) const { return outputs_[i].tensor(); }  // after inference: bodies and expansions
    // An output's sizes at run time, where inference has computed them all; E0108 where that overflowed.
    Result<Sizes> out_sizes(size_t i = 0) const;
    size_t output() const { return output_; }                                   // which output a body is asked for

    // For bodies: a fresh reduction axis, and an input read with broadcasting against the output's shape.
    ReduceAxis reduce(const Dim& extent) const;
    Expr broadcast_in(size_t i, const Indices& o) const;

    // For inference. An axis in [-rank, rank) made non-negative, or an error.
    Result<int64_t> axis(int64_t value, int64_t rank) const;
    Result<std::vector<int64_t>> axes(const std::vector<int64_t>& values, int64_t rank) const;
    Dim fresh(size_t output, size_t dim) const;  // a size only known at run time: symbol `<output name>.d<dim>`
    Types like(size_t input, Shape shape) const { return Type(dtype(input), std::move(shape)); }
    Types same(size_t input) const { return type(input); }
    bool concrete() const { return concrete_; }  // at run time: every size is a constant, every content known

    template <typename... Args>
    Error error(Code code, fmt::format_string<Args...> text, Args&&... args) const {
        return Error(code, "{}: {}", name(), fmt::format(text, std::forward<Args>(args)...)).at(where_);
    }
    template <typename... Args>
    Error shape_error(fmt::format_string<Args...> text, Args&&... args) const {
        return error(Code::E0210, text, std::forward<Args>(args)...);
    }
    std::string_view name() const;  // the ONNX name where there is one
    const std::string& where() const { return where_; }

    // Set by the creator of the view.
    OpView& with_values(std::vector<const Tensor*> values);
    OpView& with_contents(std::vector<const std::vector<Expr>*> contents);
    OpView& with_outputs(std::vector<Type> types);
    OpView& with_output_names(std::vector<std::string> names);
    OpView& with_wanted(std::vector<bool> wanted);  // the requested outputs
    OpView& at(std::string where);
    OpView& for_output(size_t output);
    OpView& made_concrete();
    // Tries a body or an expansion on a node whose inputs are not all known: calls f, which reads through this view and
    // is left where it asks for contents that only a run would give. The input that they are of; none: f is done.
    template <typename F>
    std::optional<size_t> asks_unknown(F&& f) {
        const bool outer = std::exchange(stops_, true);
        std::optional<size_t> missing;
        try {
            f();
        } catch (const UnknownContents& u) {
            missing = u.input;
        }
        stops_ = outer;
        return missing;
    }

   private:
    struct UnknownContents {
        size_t input;
    };
    const Tensor* elements_of_constant(size_t i) const {
        const Tensor* t = is_constant(i) ? values_[i] : nullptr;
        return t && (t->data() || t->elements() == 0) ? t : nullptr;
    }
    void note_unknown(size_t i) const {
        if (stops_ && has(i)) throw UnknownContents{i};
    }
    const Attr* find_attr(std::string_view name) const;
    template <typename T>
    const T& get(std::string_view name) const;

    const OpDef* def_;
    const AttrMap* attrs_;
    std::vector<Type> inputs_;
    size_t output_count_;
    std::vector<const Tensor*> values_;
    std::vector<const std::vector<Expr>*> contents_;
    std::vector<Type> outputs_;
    std::vector<std::string> output_names_;
    std::vector<bool> wanted_;
    std::string where_;
    size_t output_ = 0;
    bool concrete_ = false;
    bool stops_ = false;  // where contents are asked for that are not known
    mutable int next_axis_ = 0;
};

}  // namespace tessera
