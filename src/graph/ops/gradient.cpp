// The gradient of one value with respect to others (ai.onnx.preview.training). It names values of the graph it stands
// in, so it is taken when the model is read: the part of the graph between is followed backwards, node by node.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "graph/evaluate/evaluate.h"
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

// What a rule sees: one node, its inputs and output as recomputed, and the gradient that arrives at the output.
struct Backward {
    Builder& b;
    const Node& node;
    const std::vector<Value*>& in;
    Value *out, *g;

    Value* number(double v) const { return b.scalar_like(v, out); }
    Value* shape_of(size_t i) const { return b.op("shape", {in[i]}); }
    int64_t rank(size_t i) const { return in[i]->type().tensor().rank(); }
};

using Gradients = std::vector<Value*>;  // one for each input; null: none flows there
using Rule = Gradients (*)(const Backward&);

// The last two dimensions swapped.
Value* transposed(const Backward& r, size_t i) {
    std::vector<int64_t> perm(r.rank(i));
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return r.b.transpose(r.in[i], perm);
}

// A value of a reduction's shape, spread over what was reduced.
Value* spread(const Backward& r, Value* g) {
    OpView view = r.node.view();
    if (!view.integer("keepdims")) {
        auto axes = axes_from_input(view, 1, r.rank(0), view.integer("noop_with_empty_axes"));
        if (!axes.ok() || !*axes) {
            r.b.fail(Error(Code::E0202, "Gradient: the axes of {} are not constant", r.node.where()));
            return nullptr;
        }
        if (!(*axes)->empty()) g = r.b.unsqueeze(g, **axes);
    }
    return r.b.op("expand", {g, r.shape_of(0)});
}

const std::map<std::string, Rule>& rules() {
    static const std::map<std::string, Rule> table = {
        {"identity", [](const Backward& r) -> Gradients { return {r.g}; }},
        {"add",
         [](const Backward& r) -> Gradients {
             return {r.g, r.g};
         }},
        {"sub",
         [](const Backward& r) -> Gradients {
             return {r.g, r.b.op("neg", {r.g})};
         }},
        {"mul",
         [](const Backward& r) -> Gradients {
             return {r.b.mul(r.g, r.in[1]), r.b.mul(r.g, r.in[0])};
         }},
        {"div",
         [](const Backward& r) -> Gradients {
             Value* a = r.b.div(r.g, r.in[1]);
             return {a, r.b.op("neg", {r.b.mul(a, r.out)})};
         }},
        {"sum", [](const Backward& r) -> Gradients { return Gradients(r.in.size(), r.g); }},
        {"neg", [](const Backward& r) -> Gradients { return {r.b.op("neg", {r.g})}; }},
        {"abs", [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.op("sign", {r.in[0]}))}; }},
        {"exp", [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.out)}; }},
        {"log", [](const Backward& r) -> Gradients { return {r.b.div(r.g, r.in[0])}; }},
        {"sqrt", [](const Backward& r) -> Gradients { return {r.b.div(r.g, r.b.mul(r.number(2), r.out))}; }},
        {"reciprocal",
         [](const Backward& r) -> Gradients { return {r.b.op("neg", {r.b.mul(r.g, r.b.mul(r.out, r.out))})}; }},
        {"sin", [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.op("cos", {r.in[0]}))}; }},
        {"cos",
         [](const Backward& r) -> Gradients { return {r.b.op("neg", {r.b.mul(r.g, r.b.op("sin", {r.in[0]}))})}; }},
        {"tanh",
         [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.sub(r.number(1), r.b.mul(r.out, r.out)))}; }},
        {"sigmoid",
         [](const Backward& r) -> Gradients { return {r.b.mul(r.g, r.b.mul(r.out, r.b.sub(r.number(1), r.out)))}; }},
        {"relu",
         [](const Backward& r) -> Gradients {
             return {r.b.op("where", {r.b.op("greater", {r.in[0], r.number(0)}), r.g, r.number(0)})};
         }},
        {"where",
         [](const Backward& r) -> Gradients {
             return {nullptr, r.b.op("where", {r.in[0], r.g, r.number(0)}),
                     r.b.op("where", {r.in[0], r.number(0), r.g})};
         }},
        {"pow",
         [](const Backward& r) -> Gradients {
             Value* exponent = r.b.cast(r.in[1], r.out->type().tensor().dtype);
             Value* less = r.b.op("pow", {r.in[0], r.b.sub(exponent, r.number(1))});
             Value* by_exponent = r.b.mul(r.g, r.b.mul(r.out, r.b.op("log", {r.in[0]})));
             return {r.b.mul(r.g, r.b.mul(exponent, less)), r.b.cast(by_exponent, r.in[1]->type().tensor().dtype)};
         }},
        {"matmul",
         [](const Backward& r) -> Gradients {
             if (r.rank(0) < 2 || r.rank(1) < 2) {
                 r.b.fail(Error(Code::E0202, "Gradient: a product with a vector, {}", r.node.where()));
                 return {};
             }
             return {r.b.matmul(r.g, transposed(r, 1)), r.b.matmul(transposed(r, 0), r.g)};
         }},
        {"transpose",
         [](const Backward& r) -> Gradients {
             std::vector<int64_t> perm = r.node.view().ints_or("perm", {}), inverse(r.rank(0));
             for (int64_t i = 0; i < r.rank(0); ++i) inverse[perm.empty() ? r.rank(0) - 1 - i : perm[i]] = i;
             return {r.b.transpose(r.g, inverse)};
         }},
        {"reduce_sum", [](const Backward& r) -> Gradients { return {spread(r, r.g)}; }},
        {"reduce_mean",
         [](const Backward& r) -> Gradients {
             DType t = r.out->type().tensor().dtype;
             Value* in = r.b.cast(r.b.op("size", {r.in[0]}), t);
             Value* out = r.b.cast(r.b.op("size", {r.out}), t);
             return {r.b.mul(spread(r, r.g), r.b.div(out, in))};
         }},
        {"reduce_max",  // ties share
         [](const Backward& r) -> Gradients {
             DType t = r.out->type().tensor().dtype;
             Value* largest = r.b.cast(r.b.op("equal", {r.in[0], spread(r, r.out)}), t);
             Value* axes = r.in.size() > 1 ? r.in[1] : nullptr;
             Value* ties = r.b.op("reduce_sum", {largest, axes}, r.node.attrs());
             return {r.b.mul(largest, spread(r, r.b.div(r.g, ties)))};
         }},
        {"cast", [](const Backward& r) -> Gradients { return {r.b.cast(r.g, r.in[0]->type().tensor().dtype)}; }},
    };
    return table;
}

// The same elements in another shape: so is the gradient.
const std::set<std::string> kReshapes = {"reshape", "flatten", "squeeze", "unsqueeze"};

// A gradient of a broadcast operand, summed to the operand's own shape.
Value* unbroadcast(Builder& b, Value* g, const Value& x) {
    if (b.failed() || !g) return nullptr;
    const Shape &from = g->type().tensor().shape, &to = x.type().tensor().shape;
    if (from == to) return g;
    std::vector<int64_t> lead(std::max<int64_t>(from.rank() - to.rank(), 0)), ones;
    std::iota(lead.begin(), lead.end(), 0);
    if (!lead.empty()) g = b.reduce("reduce_sum", g, lead, false);
    for (int64_t d = 0; d < to.rank(); ++d) {
        const Dim& wide = from[d + int64_t(lead.size())];
        if (wide == to[d]) continue;
        if (!to[d].is_int(1) && (!wide.as_int() || !to[d].as_int())) {
            b.fail(Error(Code::E0202, "Gradient: whether {} is broadcast to {} is only known at run time", to, from));
            return nullptr;
        }
        ones.push_back(d);
    }
    return ones.empty() ? g : b.reduce("reduce_sum", g, ones);
}

// Recomputes what lies between the named values and the target from the values fed in their place (what is not
// affected is used as it stands), then walks it backwards.
class Differentiation {
  public:
    Differentiation(Builder& b, std::map<const Value*, Value*> fed) : b_(b), now_(std::move(fed)) {
        for (const auto& [named, value] : now_) active_.insert(value);
    }

    Result<std::vector<Value*>> run(Value* target, const std::vector<Value*>& wanted) {
        Value* y = TRY(recompute(target));
        const TensorType& type = y->type().tensor();
        gradients_[y] = b_.op("expand", {b_.scalar(1, type.dtype), b_.op("shape", {y})});
        for (auto s = steps_.rbegin(); s != steps_.rend(); ++s) TRY(backward(*s));
        std::vector<Value*> result;
        for (Value* x : wanted) {
            Value* v = now_.at(x);
            auto it = gradients_.find(v);
            result.push_back(it != gradients_.end() ? it->second
                                                    : b_.op("expand", {b_.scalar_like(0, v), b_.op("shape", {v})}));
        }
        return b_.finish(result);
    }

  private:
    struct Step {
        const Node* node;
        std::vector<Value*> in, out;
    };

    // The value under what is fed, the nodes on the way listed in order.
    Result<Value*> recompute(Value* v) {
        if (auto it = now_.find(v); it != now_.end()) return it->second;
        if (!v->node()) return now_[v] = v;
        if (++depth_ > 2000) return Error(Code::E0109, "Gradient: over 2000 nodes deep");
        const Node& n = *v->node();
        std::vector<Value*> in;
        bool same = true, active = false;
        for (Value* i : n.inputs()) {
            in.push_back(i ? TRY(recompute(i)) : nullptr);
            same &= in.back() == i;
            active |= active_.contains(in.back());
        }
        --depth_;
        if (!active) return now_[v] = v;
        std::vector<Value*> out;
        if (same)
            for (size_t i = 0; i < n.output_count(); ++i) out.push_back(n.output(i));
        else
            out = b_.ops(n.op().name, in, n.attrs(), n.output_count());
        TRY(b_.status());
        if (!rules().contains(n.op().name) && !kReshapes.contains(n.op().name) && n.op().expand) {
            OpView view = out[0]->node()->view();
            std::vector<Value*> smaller = TRY(b_.finish(TRY(n.op().expand(view, in, b_))));
            for (size_t i = 0; i < n.output_count(); ++i) {
                if (i >= smaller.size() || !smaller[i]) continue;
                now_[n.output(i)] = TRY(recompute(smaller[i]));
            }
            return now_.at(v);
        }
        for (size_t i = 0; i < n.output_count(); ++i) now_[n.output(i)] = out[i];
        active_.insert(out.begin(), out.end());
        steps_.push_back({out[0]->node(), in, out});
        return now_.at(v);
    }

    Status backward(const Step& s) {
        auto arrived = gradients_.find(s.out[0]);
        if (arrived == gradients_.end()) return {};
        const std::string& name = s.node->op().name;
        for (Value* v : s.in)
            if (v && (!v->type().is_tensor() || !v->type().tensor().shape.ranked()))
                return Error(Code::E0202, "Gradient: an input of {} has no known rank", s.node->where());
        Backward at{b_, *s.node, s.in, s.out[0], arrived->second};
        Gradients g;
        if (kReshapes.contains(name))
            g = {b_.op("reshape", {at.g, at.shape_of(0)})};
        else if (auto rule = rules().find(name); rule != rules().end())
            g = rule->second(at);
        else
            return Error(Code::E0202, "Gradient: {} cannot be differentiated yet, {}", name, s.node->where());
        TRY(b_.status());
        for (size_t i = 0; i < g.size() && i < s.in.size(); ++i) {
            if (!g[i] || !active_.contains(s.in[i])) continue;
            Value* part = unbroadcast(b_, g[i], *s.in[i]);
            auto [it, first] = gradients_.emplace(s.in[i], part);
            if (!first) it->second = b_.add(it->second, part);
        }
        return b_.status();
    }

    Builder& b_;
    std::map<const Value*, Value*> now_;
    std::vector<Step> steps_;
    std::set<const Value*> active_;  // depends on what is fed
    std::map<const Value*, Value*> gradients_;
    int depth_ = 0;
};

Status differentiate(OnnxCall& call) {
    auto names = [&](const char* attr) {
        auto it = call.attrs.find(attr);
        bool given = it != call.attrs.end() && std::holds_alternative<std::vector<std::string>>(it->second);
        return given ? std::get<std::vector<std::string>>(it->second) : std::vector<std::string>{};
    };
    Graph& graph = call.build.graph();
    auto find = [&](const std::string& name) -> Result<Value*> {
        Value* v = graph.find_value(name);
        if (!v) return Error(Code::E0203, "Gradient: \"{}\" is not defined before it", name);
        if (!v->type().is_tensor() || !is_float(v->type().tensor().dtype))
            return Error(Code::E0208, "Gradient: \"{}\" is {}, not a float tensor", name, v->type());
        return v;
    };
    std::vector<std::string> xs = names("xs"), all = xs;
    for (std::string& z : names("zs")) all.push_back(std::move(z));
    auto y = call.attrs.find("y");
    if (xs.empty() || y == call.attrs.end() || !std::holds_alternative<std::string>(y->second))
        return Error(Code::E0206, "Gradient: needs the attributes \"xs\" and \"y\"");
    if (call.inputs.size() != all.size() || std::count(call.inputs.begin(), call.inputs.end(), nullptr))
        return Error(Code::E0207, "Gradient: has {} inputs for {} names in xs and zs", call.inputs.size(), all.size());
    std::map<const Value*, Value*> fed;
    std::vector<Value*> wanted;
    for (size_t i = 0; i < all.size(); ++i) {
        Value* v = i < xs.size() ? TRY(find(all[i])) : graph.find_value(all[i]);
        if (!v) return Error(Code::E0203, "Gradient: \"{}\" is not defined before it", all[i]);
        const Type &named = v->type(), &given = call.inputs[i]->type();
        if (!named.is_tensor() || !given.is_tensor() || named.tensor().dtype != given.tensor().dtype)
            return Error(Code::E0208, "Gradient: input {} is {}, but \"{}\" is {}", i, given, all[i], named);
        fed[v] = call.inputs[i];
        if (i < xs.size()) wanted.push_back(v);
    }
    Value* target = TRY(find(std::get<std::string>(y->second)));
    call.result = TRY(Differentiation(call.build, std::move(fed)).run(target, wanted));
    return {};
}

Error not_alone(const OpView& op) {
    return op.error(Code::E0409, "is replaced by what it stands for when a model is read, and cannot stand by itself");
}

OpDef gradient() {
    OpDef def{
        .name = "gradient",
        .inputs = {"inputs...: *"},
        .outputs = {"gradients...: *"},
        .attrs = {strings_attr("xs").required(), strings_attr("zs"), string_attr("y").required()},
        .traits = {Trait::Pure, Trait::InfersUnranked},
        .onnx = {"Gradient", {{2, differentiate, {}}}},
        .infer = [](const OpView& op) -> Result<Types> { return not_alone(op); },
        .evaluate = [](const OpView& op, EvalContext&) -> Result<std::vector<Datum>> { return not_alone(op); },
    };
    def.onnx.domain = "ai.onnx.preview.training";
    return def;
}

}  // namespace

std::vector<OpDef> gradient_ops() { return {gradient()}; }

}  // namespace tessera
