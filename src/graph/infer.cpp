#include "graph/infer.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

Status check_counts(const OpView& op) {
    const OpDef& def = op.def();
    bool open = !def.inputs.empty() && def.inputs.back().variadic;
    size_t given = op.input_count();
    if (given > def.inputs.size() && !open)
        return op.error(Code::E0207, "takes at most {} inputs, has {}", def.inputs.size(), given);
    for (size_t i = 0; i < std::max(given, def.inputs.size()); ++i) {
        const ParamDef& p = def.inputs[std::min(i, def.inputs.size() - 1)];
        bool may_lack = p.optional || (p.variadic && p.type == "*" && i >= given);  // of control flow: none at all
        if (!may_lack && !op.has(i)) return op.error(Code::E0207, "input {} ({}) is missing", i, p.name);
    }
    bool open_outputs = !def.outputs.empty() && def.outputs.back().variadic;
    if (op.output_count() > def.outputs.size() && !open_outputs)
        return op.error(Code::E0207, "has at most {} outputs, not {}", def.outputs.size(), op.output_count());
    return {};
}

Status check_choice(const OpView& op, const AttrDef& def, const std::string& value) {
    if (std::find(def.choices.begin(), def.choices.end(), value) != def.choices.end()) return {};
    std::string known = def.choices[0];
    for (size_t i = 1; i < def.choices.size(); ++i)
        known += (i + 1 < def.choices.size() ? ", " : " or ") + def.choices[i];
    return op.error(Code::E0212, "{} is \"{}\", not {}", def.name, value, known);
}

Status check_attrs(const OpView& op) {
    for (const auto& [name, value] : op.attrs()) {
        const AttrDef* def = op.def().attr(name);
        if (!def) {
            std::string known;
            for (const AttrDef& a : op.def().attrs) known += (known.empty() ? "" : ", ") + a.name;
            return op.error(Code::E0206, "has no attribute \"{}\"", name)
                .hint("it takes: {}", known.empty() ? "none" : known);
        }
        if (def->kind != attr_kind(value))
            return op.error(Code::E0206, "attribute \"{}\" must be of kind {}, is {}", name, attr_kind_name(def->kind),
                            attr_kind_name(attr_kind(value)));
        if (!def->choices.empty()) TRY(check_choice(op, *def, std::get<std::string>(value)));
    }
    for (const AttrDef& def : op.def().attrs)
        if (def.is_required && !op.attrs().contains(def.name))
            return op.error(Code::E0206, "attribute \"{}\" is missing", def.name);
    return {};
}

Status check_types(const OpView& op) {
    const OpDef& def = op.def();
    std::map<std::string, std::pair<DType, size_t>> bound;
    for (size_t i = 0; i < op.input_count(); ++i) {
        if (!op.has(i)) continue;
        const ParamDef& p = def.inputs[std::min(i, def.inputs.size() - 1)];
        if (p.type == "*") continue;
        if (!op.type(i).is_tensor())
            return op.error(Code::E0208, "input {} ({}) must be a tensor, is {}", i, p.name, op.type(i));
        DType actual = op.dtype(i);
        if (auto fixed = dtype_from_name(p.type)) {
            if (actual != *fixed)
                return op.error(Code::E0208, "input {} ({}) must be {}, is {}", i, p.name, p.type, dtype_name(actual));
            continue;
        }
        auto var = std::find_if(def.types.begin(), def.types.end(), [&](const TypeVar& v) { return v.name == p.type; });
        CHECK(var != def.types.end(), "{} uses the undeclared type {}", def.name, p.type);
        if (!var->allowed.has(actual))
            return op.error(Code::E0208, "input {} ({}) cannot be {}", i, p.name, dtype_name(actual));
        auto [it, fresh] = bound.emplace(p.type, std::pair(actual, i));
        if (!fresh && it->second.first != actual)
            return op
                .error(Code::E0208, "inputs {} and {} must have the same element type, but have {} and {}",
                       it->second.second, i, dtype_name(it->second.first), dtype_name(actual))
                .hint("insert a Cast");
    }
    return {};
}

bool has_unranked(const OpView& op) {
    for (const Type& t : op.inputs())
        if (t.is_tensor() && !t.tensor().shape.ranked()) return true;
    return false;
}

Result<Types> by_signature(const OpView& op, const Shape& shape) {
    Types out;
    for (size_t i = 0; i < op.output_count(); ++i) out.emplace_back(op.signature_dtype(i), shape);
    return out;
}

Result<Types> broadcast_all(const OpView& op) {
    Shape shape;
    for (const Type& t : op.inputs()) {
        if (!t.is_tensor()) continue;
        auto both = broadcast(shape, t.tensor().shape);
        if (!both) return op.shape_error("{} and {} do not broadcast", shape, t.tensor().shape);
        shape = *both;
    }
    return by_signature(op, shape);
}

// Whether an expression has at most so many nodes, each counted as often as it stands there.
bool fits(const Expr& e, int& nodes) {
    if (--nodes < 0) return false;
    return std::all_of(e.args().begin(), e.args().end(), [&](const Expr& a) { return fits(a, nodes); });
}
bool fits(const Expr& e) {
    int nodes = kMaxSizeNodes;
    return fits(e, nodes);
}

// Sizes whose expressions have grown out of hand (a product squared again and again) are left to the run.
Types without_large_sizes(const OpView& op, Types types) {
    for (size_t i = 0; i < types.size(); ++i) {
        if (!types[i].is_tensor() || !types[i].tensor().shape.ranked()) continue;
        const std::vector<Dim>& dims = types[i].tensor().shape.dims();
        if (std::all_of(dims.begin(), dims.end(), [](const Dim& d) { return fits(d); })) continue;
        TensorType t = types[i].tensor();
        for (int64_t d = 0; d < t.rank(); ++d)
            if (!fits(t.dim(d))) t.shape[d] = op.fresh(i, size_t(d));
        types[i] = Type(std::move(t));
    }
    return types;
}

std::optional<std::vector<Expr>> all_contents(const OpView& op, size_t i);

// An integer expression of a body with its loads replaced by known contents; nullopt where that is not possible.
class Symbolic {
  public:
    Symbolic(const OpView& op) : op_(op) {}

    std::optional<Expr> value(const Expr& e) {
        if (++steps_ > 4096) return std::nullopt;
        switch (e.kind()) {
            case ExprKind::Const: return is_float(e.dtype()) ? std::nullopt : std::optional(Expr(e.node().integer));
            case ExprKind::Var: return e;
            case ExprKind::Load: return element(e);
            case ExprKind::Cast:
                return is_float(e.arg(0).dtype()) || is_float(e.dtype()) ? std::nullopt : value(e.arg(0));
            case ExprKind::Select: {
                auto c = value(e.arg(0));
                if (!c) return std::nullopt;
                if (c->as_int()) return value(e.arg(*c->as_int() ? 1 : 2));
                auto a = value(e.arg(1)), b = value(e.arg(2));
                return a && b ? std::optional(select(*c, *a, *b)) : std::nullopt;
            }
            case ExprKind::Reduce: return reduction(e);
            default: return operation(e);
        }
    }

  private:
    std::optional<Expr> element(const Expr& load) {
        size_t slot = load.node().slot;
        auto known = op_.contents(slot);
        auto sizes = op_.shape(slot).sizes();
        if (!known || !sizes) return std::nullopt;
        int64_t flat = 0;
        for (size_t d = 0; d < sizes->size(); ++d) {
            auto i = value(load.arg(d));
            if (!i || !i->as_int() || *i->as_int() < 0 || *i->as_int() >= (*sizes)[d]) return std::nullopt;
            flat = flat * (*sizes)[d] + *i->as_int();
        }
        return flat < int64_t(known->size()) ? std::optional((*known)[flat]) : std::nullopt;
    }

    std::optional<Expr> reduction(const Expr& e) {
        if (e.node().axes.size() != 1 || is_float(e.dtype())) return std::nullopt;
        auto extent = value(e.node().axes[0].extent);
        if (!extent || !extent->as_int() || *extent->as_int() < 1 || *extent->as_int() > kMaxContents)
            return std::nullopt;
        std::optional<Expr> total;
        for (int64_t i = 0; i < *extent->as_int(); ++i) {
            auto term = value(substitute(e.arg(0), {{e.node().axes[0].var.node().name, Expr(i)}}));
            if (!term) return std::nullopt;
            if (!total)
                total = term;
            else
                switch (e.node().reduce_op) {
                    case ReduceOp::Sum: total = *total + *term; break;
                    case ReduceOp::Prod: total = *total * *term; break;
                    case ReduceOp::Min: total = min(*total, *term); break;
                    case ReduceOp::Max: total = max(*total, *term); break;
                }
        }
        return total;
    }

    std::optional<Expr> operation(const Expr& e) {
        std::vector<Expr> a;
        for (const Expr& x : e.args()) {
            if (is_float(x.dtype())) return std::nullopt;
            auto v = value(x);
            if (!v) return std::nullopt;
            a.push_back(*v);
        }
        auto fold = [&](auto f) {
            Expr y = a[0];
            for (size_t i = 1; i < a.size(); ++i) y = f(y, a[i]);
            return y;
        };
        switch (e.kind()) {
            case ExprKind::Add: return fold([](const Expr& x, const Expr& y) { return x + y; });
            case ExprKind::Mul: return fold([](const Expr& x, const Expr& y) { return x * y; });
            case ExprKind::Min: return fold([](const Expr& x, const Expr& y) { return min(x, y); });
            case ExprKind::Max: return fold([](const Expr& x, const Expr& y) { return max(x, y); });
            case ExprKind::Sub: return a[0] - a[1];
            case ExprKind::Neg: return -a[0];
            case ExprKind::FloorDiv: return floor_div(a[0], a[1]);
            case ExprKind::Mod: return mod(a[0], a[1]);
            case ExprKind::Div:  // truncation is flooring where nothing is negative
                if (bounds(a[0]).low.value_or(-1) < 0 || bounds(a[1]).low.value_or(-1) < 1) return std::nullopt;
                return floor_div(a[0], a[1]);
            case ExprKind::Lt: return truth(lt(a[0], a[1]));
            case ExprKind::Le: return truth(le(a[0], a[1]));
            case ExprKind::Eq: return truth(eq(a[0], a[1]));
            case ExprKind::Ne: return truth(ne(a[0], a[1]));
            default: return std::nullopt;
        }
    }

    // A comparison as a number where it is decided.
    static std::optional<Expr> truth(const Expr& c) {
        return c.is(ExprKind::Const) ? std::optional(Expr(c.node().integer)) : std::optional(c);
    }

    const OpView& op_;
    int steps_ = 0;
};

Status check_rank(const OpView& op, const Type& t) {
    if (t.is_tensor() && t.tensor().rank() > int64_t(kMaxRank))
        return op.error(Code::E0108, "a tensor of {} dimensions, more than the maximum of {}", t.tensor().rank(),
                        kMaxRank);
    return {};
}

}  // namespace

Status check_signature(const OpView& op) {
    TRY(check_counts(op));
    TRY(check_attrs(op));
    return check_types(op);
}

Result<Types> infer_types(const OpView& op) {
    TRY(check_signature(op));
    for (const Type& t : op.inputs()) TRY(check_rank(op, t));
    const OpDef& def = op.def();
    if (!def.infer) return without_large_sizes(op, TRY(broadcast_all(op)));
    if (has_unranked(op) && !def.has(Trait::InfersUnranked)) return by_signature(op, Shape::unknown());
    Types types = TRY(def.infer(op));
    CHECK(types.size() >= op.output_count(), "{} infers {} types for {} outputs", def.name, types.size(),
          op.output_count());
    types.resize(op.output_count());
    for (const Type& t : types) TRY(check_rank(op, t));
    return without_large_sizes(op, std::move(types));
}

std::optional<std::vector<Expr>> infer_contents(const OpView& op, size_t i) {
    auto contents = all_contents(op, i);
    if (!contents) return std::nullopt;
    bool small = std::all_of(contents->begin(), contents->end(), [](const Expr& e) { return fits(e); });
    return small ? contents : std::nullopt;
}

namespace {

std::optional<std::vector<Expr>> all_contents(const OpView& op, size_t i) {
    const OpDef& def = op.def();
    if (def.contents && i == 0) return def.contents(op);
    if (!def.body || !def.has(Trait::Pure) || (def.body_applies && !def.body_applies(op))) return std::nullopt;
    const TensorType& out = op.out(i);
    if (!is_int(out.dtype) && out.dtype != DType::boolean) return std::nullopt;
    auto sizes = out.shape.sizes();
    if (!sizes) return std::nullopt;
    auto count = element_count(*sizes);
    if (!count.ok() || *count > kMaxContents) return std::nullopt;
    for (size_t k = 0; k < op.input_count(); ++k)
        if (op.has(k) && !op.value(k) && !op.contents(k)) return std::nullopt;
    OpView view = op;
    view.for_output(i);
    std::vector<Expr> elements;
    Symbolic symbolic(view);
    for (int64_t flat = 0; flat < *count; ++flat) {
        std::vector<Expr> at(sizes->size());
        int64_t rest = flat;
        for (int64_t d = int64_t(sizes->size()) - 1; d >= 0; --d) {
            at[d] = rest % (*sizes)[d];
            rest /= (*sizes)[d];
        }
        auto e = symbolic.value(def.body(view.for_output(i), at));
        if (!e || e->dtype() != DType::i64) return std::nullopt;
        elements.push_back(*e);
    }
    return elements;
}

}  // namespace

}  // namespace tessera
