#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "expr/text.h"
#include "graph/tile_call.h"
#include "rewrite/edit.h"
#include "rewrite/passes/lowering_passes.h"
#include "tile/absorb.h"
#include "tile/cover.h"
#include "tile/verify.h"

namespace tessera {
namespace {

using tile::ElementMap;
using tile::MapOperand;
using As = TileCall::Argument::As;
using At = MapOperand::At;

constexpr double kMostReads = 2.5;  // of an element, by a kernel that computes it each time
constexpr size_t kMostInputs = 24;

// What a node makes of elements, and the values that these are of.
struct Neighbour {
    ElementMap map;
    std::vector<Value*> values;
};

// Which element a load takes of `shape`, the place of the result's element being given: a run of axes, or all.
std::optional<MapOperand> operand_at(const Expr& e, const Shape& shape, const std::vector<Expr>& vars,
                                     const Shape& out) {
    const auto shift = out.rank() - shape.rank();
    if (shift < 0 || static_cast<int64_t>(e.args().size()) != shape.rank()) return {};
    MapOperand made{.dtype = e.dtype()};
    std::vector<bool> along(static_cast<size_t>(out.rank()));
    for (int64_t d = 0; d < shape.rank(); ++d) {
        const Expr& at = e.arg(static_cast<size_t>(d));
        const auto axis = static_cast<size_t>(d + shift);
        if (at == vars[axis] && shape[d] == out[d + shift])
            along[axis] = true;
        else if (!at.is_int(0) || !shape[d].is_int(1))
            return {};
    }
    // Axes of one element are along whatever they stand in.
    int64_t first = -1, last = -1;
    for (int64_t d = 0; d < out.rank(); ++d) {
        if (out[d].is_int(1) || !along[static_cast<size_t>(d)]) continue;
        if (first < 0) first = d;
        last = d;
    }
    if (first < 0) {
        made.at = shape.elements().is_int(1) ? At::One : At::Same;
        if (made.at == At::Same && !out.elements().is_int(1)) return {};
        return made;
    }
    bool all = true;
    for (int64_t d = 0; d < out.rank(); ++d) {
        if (out[d].is_int(1)) continue;
        const bool inside = d >= first && d <= last;
        if (inside && !along[static_cast<size_t>(d)]) return {};
        all &= inside;
        if (d > last) made.inner = made.inner * out[d];
        if (inside) made.count = made.count * out[d];
    }
    made.at = all ? At::Same : At::Part;
    return made;
}

// A node that computes elements of one tensor from those at the same place. `own`: what a tile kernel stores.
std::optional<Neighbour> neighbour(const Node& node, const Value* own) {
    const OpDef& op = node.op();
    if (!op.body || op.check || !node.is(Trait::Pure) || node.output_count() != 1) return {};
    const Shape* shape = shape_of(node.output());
    if (!shape) return {};
    for (const Value* v : node.inputs())
        if (v && !shape_of(v)) return {};
    if (node.is(Trait::SameOrder)) {
        Value* v = node.input(0);
        if (!(shape_of(v)->elements() == shape->elements())) return {};
        const DType dtype = v->type().tensor().dtype;
        const MapOperand operand{.at = v == own ? At::Own : At::Same, .dtype = dtype};
        return Neighbour{{load(0, dtype, {}), {operand}}, {v}};
    }
    OpView view = node.view();
    if (op.body_applies && !op.body_applies(view)) return {};
    std::vector<Expr> vars;
    for (const Dim& d : *shape) vars.push_back(index_var(fmt::format("i{}", vars.size()), d.as_int()));
    view.for_output(0);
    Expr body = 0;
    if (view.asks_unknown([&] { body = op.body(view, Indices(vars)); })) return {};

    Neighbour made;
    std::vector<int> slots;
    bool fits = true;
    body = map_loads(body, [&](const Expr& e) -> Expr {
        Value* v = node.input(static_cast<size_t>(e.node().slot));
        if (v->is_constant())
            if (auto number = splat(*v->tensor())) return *number;
        auto operand = operand_at(e, *shape_of(v), vars, *shape);
        fits &= operand && (v != own || operand->at == At::Same || shape->elements().is_int(1));
        if (!fits) return e;
        if (v == own) operand->at = At::Own;
        const auto same = std::find(made.values.begin(), made.values.end(), v);
        const auto number = static_cast<size_t>(same - made.values.begin());
        if (same == made.values.end()) {
            made.values.push_back(v);
            made.map.operands.push_back(*operand);
        } else {
            const MapOperand& before = made.map.operands[number];
            fits &= before.at == operand->at && before.inner == operand->inner && before.count == operand->count;
        }
        return load(static_cast<int>(number), e.dtype(), {});
    });
    visit(body, [&](const Expr& e) {
        fits &= !e.is(ExprKind::Var) && !e.is(ExprKind::Reduce) && !(e.is(ExprKind::Call) && is_dot(e.node().fn));
        fits &= kBodyTypes.has(e.dtype()) && (dtype_bits(e.dtype()) >= 8 || e.dtype() == DType::boolean);
    });
    if (!fits || made.values.empty() || body.dtype() != node.output()->type().tensor().dtype) return {};
    made.map.body = body;
    return made;
}

class Fusion {
  public:
    Fusion(Graph& graph, Node& node, TileCall call, PassContext& context)
        : graph_(graph), node_(&node), call_(std::move(call)), context_(context) {}

    // As long as there is something.
    Result<Changed> run() {
        Changed ever = false;
        for (Changed changed = true; changed; ever |= changed) {
            changed = false;
            for (size_t i = 0; i < node_->inputs().size() && !changed; ++i) changed = take_input(i);
            for (size_t o = 0; o < node_->output_count() && !changed; ++o) changed = take_output(o);
            if (changed) call_ = TRY(node_->op().tile(node_->view()));
        }
        return ever;
    }

  private:
    const tile::ProgramData& program() const { return call_.program.data(); }

    // The parameter that is the array of an input or output; nothing where it is several, or no array.
    std::optional<size_t> parameter_of(As as, size_t index) const {
        std::optional<size_t> found;
        for (size_t p = 0; p < call_.arguments.size(); ++p) {
            if (call_.arguments[p].as != as || call_.arguments[p].index != index) continue;
            const bool points = program().types[static_cast<size_t>(program().parameters[p].value)].pointer;
            if (found || !points) return {};
            found = p;
        }
        return found;
    }

    Changed take_input(size_t i) {
        Value* v = node_->input(i);
        if (!v || !v->node() || &v->graph() != &graph_ || v->uses().size() != 1) return false;
        const auto parameter = parameter_of(As::Input, i);
        if (!parameter || std::find(call_.initial.begin(), call_.initial.end(), i) != call_.initial.end()) return false;
        auto from = neighbour(*v->node(), nullptr);
        if (!from) return false;
        const auto first = std::find_if(from->map.operands.begin(), from->map.operands.end(),
                                        [](const MapOperand& o) { return o.at == At::Same; });
        if (first == from->map.operands.end()) return false;
        Value* instead = from->values[static_cast<size_t>(first - from->map.operands.begin())];
        const Shape& shape = v->type().tensor().shape;
        const Decision worth = touched_seldom(*parameter, shape.elements(), true);
        note(fmt::format("fuse {} into the kernel of {}", v->name(), node_->output()->name()), worth);
        if (!worth) return false;
        std::vector<Value*> inputs = node_->inputs();
        inputs[i] = instead;
        return make(*v->node(), tile::absorb_into_loads(program(), *parameter, shape.elements(), from->map), *from,
                    std::move(inputs), {});
    }

    Changed take_output(size_t o) {
        Value* v = node_->output(o);
        if (v->uses().empty()) return false;
        Node* user = v->uses()[0].node;
        for (const Use& use : v->uses())
            if (!use.node || use.node != user || use.graph != &graph_) return false;
        const auto parameter = parameter_of(As::Output, o);
        const Shape* shape = shape_of(v);
        if (!parameter || !shape) return false;
        auto to = neighbour(*user, v);
        if (!to || !(shape_of(user->output())->elements() == shape->elements())) return false;
        for (Value* other : to->values)
            if (other != v && needs(*other, *node_)) return false;
        const Decision may = may_compute(*parameter, o, *to, shape->elements());
        note(fmt::format("fuse {} into the kernel of {}", user->output()->name(), v->name()), may);
        if (!may) return false;
        return make(*user, tile::absorb_into_stores(program(), *parameter, to->map), *to, node_->inputs(), o);
    }

    // Once, however often it is asked.
    void note(std::string subject, const Decision& decision) {
        if (std::none_of(context_.choices.begin(), context_.choices.end(),
                         [&](const Choice& c) { return c.subject == subject; }))
            context_.choices.push_back({std::move(subject), decision});
    }

    // Elements that the kernel does not store are not computed, so there must be none; or it must not matter.
    Decision may_compute(size_t parameter, size_t o, const Neighbour& to, const Expr& elements) {
        if (tile::reads(program(), parameter)) return no("the kernel reads what it stores");
        if (Decision seldom = touched_seldom(parameter, elements, false); !seldom) return seldom;
        const auto own = [&](size_t operand) { return to.map.operands[operand].at == At::Own; };
        if (call_.initial[o] < 0 && tile::gives_zero(to.map.body, own)) return yes("it is computed where it is stored");
        const auto all = tile::covers(program(), parameter, call_.given(), elements);
        if (all && all->is(ExprKind::Const) && all->node().integer) return yes("the kernel stores each element");
        return no("it is not known whether the kernel stores each element");
    }
    // Whether the kernel loads, or stores, an element about once; of sizes that are not known, for some.
    Decision touched_seldom(size_t parameter, const Expr& elements, bool loads) const {
        double least = -1;
        for (int64_t size : {64, 256, 1024, 4096}) {
            SymbolValues symbols;
            const auto value = [&](const Expr& e) {
                for (const std::string& name : free_symbols(e)) symbols.emplace(name, size);
                return evaluate_int(e, symbols).value_or(1);
            };
            tile::Given numbers = call_.given();
            double all = 1;
            for (auto& n : numbers.numbers)
                if (n) n = value(*n);
            for (Expr& axis : numbers.grid) {
                axis = value(axis);
                all *= double(*axis.as_int());
            }
            const tile::ArrayWork work = tile::array_work(program(), numbers)[parameter];
            all *= loads ? work.loads : work.stores;
            const double times = all / double(std::max<int64_t>(1, value(elements)));
            if (least < 0 || times < least) least = times;
        }
        if (least <= kMostReads) return yes("the kernel {} an element once", loads ? "reads" : "stores");
        return no("the kernel {} an element {:.0f} times", loads ? "reads" : "stores", least);
    }

    // Whether a value is computed from what the node gives.
    static bool needs(const Value& v, const Node& node) {
        std::set<const Node*> seen;
        std::vector<const Node*> open;
        if (v.node()) open.push_back(v.node());
        while (!open.empty()) {
            const Node* at = open.back();
            open.pop_back();
            if (at == &node) return true;
            if (!seen.insert(at).second) continue;
            if (has_nested(*at)) return true;  // what its graphs read is not looked at
            for (const Value* in : at->inputs())
                if (in && in->node()) open.push_back(in->node());
        }
        return false;
    }

    // A size as a formula over the inputs' sizes.
    static std::optional<std::string> formula(const Expr& e, const std::vector<Value*>& inputs) {
        Bindings names;
        for (const std::string& name : free_symbols(e))
            for (size_t i = 0; i < inputs.size(); ++i) {
                const Shape* shape = inputs[i] ? shape_of(inputs[i]) : nullptr;
                for (int64_t d = 0; shape && d < shape->rank(); ++d)
                    if ((*shape)[d].is(ExprKind::Var) && (*shape)[d].node().name == name)
                        names.emplace(name, symbol(fmt::format("in{}.d{}", i, d)));
            }
        if (names.size() != free_symbols(e).size()) return {};
        return to_string(substitute(e, names));
    }

    // A formula of the op as one over other inputs. It stays as it is where those it names have kept their sizes.
    std::optional<std::string> restated(const std::string& text, const Expr& means,
                                        const std::vector<Value*>& inputs) const {
        for (size_t i = 0; i < node_->inputs().size(); ++i) {
            if (inputs[i] == node_->input(i) || text.find(fmt::format("in{}.", i)) == std::string::npos) continue;
            if (!(*shape_of(inputs[i]) == *shape_of(node_->input(i)))) return formula(means, inputs);
        }
        return text;
    }
    bool restate_grid(AttrMap& attrs, const std::vector<Value*>& inputs) const {
        auto texts = std::get<std::vector<std::string>>(attrs.at("grid"));
        for (size_t axis = 0; axis < texts.size(); ++axis) {
            auto text = restated(texts[axis], call_.grid[axis], inputs);
            if (!text) return false;
            texts[axis] = std::move(*text);
        }
        attrs["grid"] = std::move(texts);
        return true;
    }
    // Their types; that of output `as` is the other node's.
    bool restate_outputs(AttrMap& attrs, const std::vector<Value*>& inputs, const Node& other,
                         std::optional<size_t> as) const {
        auto texts = std::get<std::vector<std::string>>(attrs.at("outputs"));
        for (size_t o = 0; o < texts.size(); ++o) {
            const TensorType& type = (as == o ? other.output() : node_->output(o))->type().tensor();
            std::vector<std::string> dims;
            for (const Dim& d : type.shape) {
                auto text = formula(d, inputs);
                if (!text) return false;
                dims.push_back(std::move(*text));
            }
            texts[o] = fmt::format("{}[{}]", dtype_name(type.dtype), fmt::join(dims, ", "));
        }
        attrs["outputs"] = std::move(texts);
        return true;
    }

    // A node for the program in the place of the kernel's and of `neighbour`, whose result its output `as` is, or which
    // gave an input.
    Changed make(Node& other, tile::Absorbed absorbed, const Neighbour& with, std::vector<Value*> inputs,
                 std::optional<size_t> as) {
        AttrMap attrs = node_->attrs();
        attrs.erase("backward");
        std::vector<std::string> arguments;
        for (const TileCall::Argument& a : call_.arguments) {
            auto text = a.as == As::Size ? restated(a.text, a.size, inputs) : a.text;
            if (!text) return false;
            arguments.push_back(std::move(*text));
        }
        if (!restate_grid(attrs, inputs) || !restate_outputs(attrs, inputs, other, as)) return false;
        for (const tile::Absorbed::Parameter& p : absorbed.added) {
            if (p.operand) {
                arguments.push_back(fmt::format("in{}", inputs.size()));
                inputs.push_back(with.values[*p.operand]);
                continue;
            }
            auto text = formula(p.number, inputs);
            if (!text) return false;
            arguments.push_back(std::move(*text));
        }
        if (inputs.size() > kMostInputs || !tile::verify(absorbed.program).ok()) return false;
        attrs["arguments"] = std::move(arguments);
        const tile::Program program(std::make_shared<const tile::ProgramData>(std::move(absorbed.program)));
        attrs["kernel"] = program.to_string();
        return put_in_place_of_both(other, std::move(attrs), std::move(inputs), as);
    }
    Changed put_in_place_of_both(Node& other, AttrMap attrs, std::vector<Value*> inputs, std::optional<size_t> as) {
        auto made = graph_.add({.op = &node_->op(),
                                .inputs = std::move(inputs),
                                .attrs = std::move(attrs),
                                .outputs = node_->output_count(),
                                .name = node_->name(),
                                .metadata = node_->metadata()});
        if (!made.ok()) return false;
        const auto instead_of = [&](size_t o) { return as == o ? other.output() : node_->output(o); };
        for (size_t o = 0; o < node_->output_count(); ++o)
            if (!((*made)->output(o)->type() == instead_of(o)->type())) {
                graph_.erase(**made);
                return false;
            }
        Rewriting rewriting(context_, "absorb", {node_, &other});
        if (auto origin = context_.origins.find(node_); origin != context_.origins.end())
            context_.origins.emplace(*made, Origin(origin->second));
        for (size_t o = 0; o < node_->output_count(); ++o) {
            const std::string name = instead_of(o)->name();
            graph_.replace_uses(instead_of(o), (*made)->output(o));
            graph_.rename(*instead_of(o), "");
            graph_.rename(*(*made)->output(o), name);
        }
        rewriting.done({*made});
        // Who reads the other goes first.
        graph_.disconnect(as ? other : *node_);
        graph_.disconnect(as ? *node_ : other);
        node_ = *made;
        return true;
    }

    Graph& graph_;
    Node* node_;
    TileCall call_;
    PassContext& context_;
};

}  // namespace

Result<Changed> fuse_into_tiles(Graph& graph, PassContext& context) {
    std::vector<Node*> kernels;
    for (const auto& node : graph.nodes())
        if (node->op().tile && any_used(*node)) kernels.push_back(node.get());
    Changed changed = false;
    for (Node* node : kernels) {
        if (!any_used(*node)) continue;
        auto call = node->op().tile(node->view());
        if (call.ok() && !call->trusted) changed |= TRY(Fusion(graph, *node, std::move(*call), context).run());
    }
    if (!changed) return false;
    graph.sort();
    graph.erase_unused();
    return true;
}

}  // namespace tessera
