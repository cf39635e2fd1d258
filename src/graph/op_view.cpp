#include "graph/op_view.h"

#include <algorithm>

#include "base/check.h"
#include "expr/index_bound.h"
#include "graph/op_def.h"

namespace tessera {

Indices Indices::slice(int64_t from, int64_t to) const {
    if (from < 0) from += rank();
    if (to < 0) to += rank();
    return std::vector<Expr>(list_.begin() + from, list_.begin() + std::max(from, to));
}
Indices Indices::with(int64_t at, Expr e) const {
    Indices out = *this;
    out[at] = std::move(e);
    return out;
}
Indices Indices::inserted(int64_t at, Expr e) const {
    Indices out = *this;
    out.list_.insert(out.list_.begin() + (at < 0 ? at + rank() + 1 : at), std::move(e));
    return out;
}
Indices Indices::without(int64_t at) const {
    Indices out = *this;
    out.list_.erase(out.list_.begin() + (at < 0 ? at + rank() : at));
    return out;
}
Indices operator+(Indices a, const Indices& b) {
    a.list_.insert(a.list_.end(), b.list_.begin(), b.list_.end());
    return a;
}

Expr TensorRef::at(const Indices& i) const {
    CHECK(i.rank() == rank(), "{} indices into {}", i.rank(), to_string(shape()));
    return load(slot_, dtype(), i.list());
}

Expr TensorRef::broadcast_at(const Indices& i) const {
    CHECK(i.rank() >= rank(), "{} indices into {}", i.rank(), to_string(shape()));
    std::vector<Expr> at(rank());
    for (int64_t d = 1; d <= rank(); ++d) at[rank() - d] = select(eq(dim(-d), 1), 0, i[-d]);
    return load(slot_, dtype(), std::move(at));
}

Expr TensorRef::at_or(const Indices& i, const Expr& otherwise, int64_t from) const {
    Expr inside = int_const(1, DType::boolean);
    for (int64_t d = from; d < rank(); ++d)
        inside = logical_and(inside, logical_and(ge(i[d], 0), lt(i[d], index_bound(dim(d)))));
    return select(inside, at(i), otherwise);
}

std::optional<std::vector<Expr>> OpView::contents(size_t i) const {
    if (const Tensor* t = elements_of_constant(i)) {
        if (!is_int(t->dtype()) && t->dtype() != DType::boolean) return std::nullopt;
        std::vector<Expr> out;
        out.reserve(t->elements());
        for (int64_t k = 0; k < t->elements(); ++k) out.emplace_back(t->int_at(k));
        return out;
    }
    if (i < contents_.size() && contents_[i]) return *contents_[i];
    note_unknown(i);
    return std::nullopt;
}

std::optional<std::vector<int64_t>> OpView::constant_ints(size_t i) const {
    auto exprs = contents(i);
    if (!exprs) return std::nullopt;
    std::vector<int64_t> out;
    out.reserve(exprs->size());
    for (const Expr& e : *exprs) {
        auto n = e.as_int();
        if (!n) {
            note_unknown(i);
            return std::nullopt;
        }
        out.push_back(*n);
    }
    return out;
}

const Attr* OpView::find_attr(std::string_view name) const {
    auto it = attrs_->find(std::string(name));
    if (it != attrs_->end()) return &it->second;
    const AttrDef* def = def_->attr(name);
    CHECK(def, "{} declares no attribute {}", def_->name, name);
    return def->fallback ? &*def->fallback : nullptr;
}

template <typename T>
const T& OpView::get(std::string_view name) const {
    const Attr* a = find_attr(name);
    CHECK(a && std::holds_alternative<T>(*a), "{} needs attribute {}", def_->name, name);
    return std::get<T>(*a);
}

int64_t OpView::integer(std::string_view name) const { return get<int64_t>(name); }
double OpView::real(std::string_view name) const { return get<float>(name); }
const std::string& OpView::string(std::string_view name) const { return get<std::string>(name); }
const std::vector<int64_t>& OpView::ints(std::string_view name) const { return get<std::vector<int64_t>>(name); }
std::vector<int64_t> OpView::ints_or(std::string_view name, std::vector<int64_t> fallback) const {
    return find_attr(name) ? ints(name) : fallback;
}
const std::vector<float>& OpView::floats(std::string_view name) const { return get<std::vector<float>>(name); }
const std::vector<std::string>& OpView::strings(std::string_view name) const { return get<std::vector<std::string>>(name); }
const Tensor& OpView::tensor_attr(std::string_view name) const { return get<Tensor>(name); }
const Type& OpView::type_attr(std::string_view name) const { return get<Type>(name); }
const Graph& OpView::graph(std::string_view name) const { return *get<GraphPtr>(name); }
const GraphPtr& OpView::graph_ptr(std::string_view name) const { return get<GraphPtr>(name); }

DType OpView::signature_dtype(size_t output) const {
    const ParamDef& param = def_->outputs[std::min(output, def_->outputs.size() - 1)];
    if (auto fixed = dtype_from_name(param.type)) return *fixed;
    for (size_t i = 0; i < inputs_.size(); ++i) {
        if (!inputs_[i].is_tensor()) continue;
        const ParamDef& in = def_->inputs[std::min(i, def_->inputs.size() - 1)];
        if (in.type == param.type) return inputs_[i].tensor().dtype;
    }
    CHECK(false, "{}: output {} has no type by its signature", def_->name, output);
    return DType::f32;
}

Result<Sizes> OpView::out_sizes(size_t i) const {
    if (auto sizes = out(i).shape.sizes()) return std::move(*sizes);
    return error(Code::E0108, "the sizes of the output {} are too large", out(i).shape);
}

ReduceAxis OpView::reduce(const Dim& extent) const {
    return {index_var(fmt::format("r{}", next_axis_++), extent.as_int()), extent};
}

Expr OpView::broadcast_in(size_t i, const Indices& o) const {
    TensorRef x = in(i);
    const Shape& y = out(output_).shape;
    std::vector<Expr> at(x.rank());
    for (int64_t d = 1; d <= x.rank(); ++d)
        at[x.rank() - d] = x.dim(-d) == y[-d] ? o[-d] : select(eq(x.dim(-d), 1), 0, o[-d]);
    return x.at(std::move(at));
}

Result<int64_t> OpView::axis(int64_t value, int64_t rank) const {
    if (value < -rank || value >= rank)
        return error(Code::E0212, "axis {} is outside [{}, {})", value, -rank, rank);
    return value < 0 ? value + rank : value;
}

Result<std::vector<int64_t>> OpView::axes(const std::vector<int64_t>& values, int64_t rank) const {
    std::vector<int64_t> out;
    for (int64_t v : values) {
        int64_t a = TRY(axis(v, rank));
        if (std::find(out.begin(), out.end(), a) != out.end()) return error(Code::E0212, "axis {} is given twice", v);
        out.push_back(a);
    }
    return out;
}

Dim OpView::fresh(size_t output, size_t dim) const {
    const std::string& name = output < output_names_.size() ? output_names_[output] : def_->name;
    return symbol(fmt::format("{}.d{}", name, dim));
}

std::string_view OpView::name() const { return def_->onnx.name.empty() ? def_->name : def_->onnx.name; }

OpView& OpView::with_values(std::vector<const Tensor*> values) {
    values_ = std::move(values);
    return *this;
}
OpView& OpView::with_contents(std::vector<const std::vector<Expr>*> contents) {
    contents_ = std::move(contents);
    return *this;
}
OpView& OpView::with_outputs(std::vector<Type> types) {
    outputs_ = std::move(types);
    return *this;
}
OpView& OpView::with_output_names(std::vector<std::string> names) {
    output_names_ = std::move(names);
    return *this;
}
OpView& OpView::with_wanted(std::vector<bool> wanted) {
    wanted_ = std::move(wanted);
    return *this;
}
OpView& OpView::at(std::string where) {
    where_ = std::move(where);
    return *this;
}
OpView& OpView::for_output(size_t output) {
    output_ = output;
    next_axis_ = 0;
    return *this;
}
OpView& OpView::made_concrete() {
    concrete_ = true;
    return *this;
}

}  // namespace tessera
