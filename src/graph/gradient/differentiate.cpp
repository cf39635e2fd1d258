#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "graph/expand_node.h"
#include "graph/gradient/gradient.h"

namespace tessera {
namespace {

bool is_float_tensor(const Value* v) { return v && v->type().is_tensor() && is_float(v->type().tensor().dtype); }

}  // namespace

bool has_rule(const Node& node) {
    const OpDef& op = node.op();
    return op.gradient && (!op.gradient_applies || op.gradient_applies(node.view()));
}

namespace {

// The dimensions that broadcasting `to` to `from` widened; nothing where sizes do not say.
std::optional<std::vector<int64_t>> widened(const Shape& from, const Shape& to) {
    const int64_t lead = std::max<int64_t>(from.rank() - to.rank(), 0);
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < to.rank(); ++d) {
        const Dim& wide = from[d + lead];
        if (wide == to[d]) continue;
        if (!to[d].is_int(1) && (!wide.as_int() || !to[d].as_int())) return {};
        dims.push_back(d);
    }
    return dims;
}

// A gradient of a broadcast operand, summed to the operand's own shape.
Value* unbroadcast(Builder& b, Value* g, const Value& x) {
    if (b.failed() || !g) return nullptr;
    const Shape &from = g->type().tensor().shape, &to = x.type().tensor().shape;
    if (from == to) return g;
    std::vector<int64_t> lead(size_t(std::max<int64_t>(from.rank() - to.rank(), 0)));
    std::iota(lead.begin(), lead.end(), 0);
    auto ones = widened(from, to);
    if (!ones) {
        b.fail(Error(Code::E0202, "Gradient: whether {} is broadcast to {} is only known at run time", to, from));
        return nullptr;
    }
    if (ones->empty()) return b.reduce("reduce_sum", g, lead, false);
    std::vector<int64_t> summed = lead;
    for (int64_t d : *ones) summed.push_back(d + int64_t(lead.size()));
    g = b.reduce("reduce_sum", g, summed);
    return lead.empty() ? g : b.squeeze(g, lead);
}

// What graphs nested in the node read from around it.
void collect_captured(const Graph& nested, std::unordered_set<const Graph*>& inside, std::vector<Value*>& captured) {
    inside.insert(&nested);
    auto consider = [&](Value* v) {
        if (v && !v->is_constant() && !inside.contains(&v->graph()) &&
            std::find(captured.begin(), captured.end(), v) == captured.end())
            captured.push_back(v);
    };
    for (const auto& node : nested.nodes()) {
        for (Value* v : node->inputs()) consider(v);
        for (const auto& [name, attr] : node->attrs())
            if (auto* inner = std::get_if<GraphPtr>(&attr)) collect_captured(**inner, inside, captured);
    }
    for (Value* v : nested.outputs()) consider(v);
}

std::vector<Value*> captured_by(const Node& node) {
    std::unordered_set<const Graph*> inside;
    std::vector<Value*> captured;
    for (const auto& [name, attr] : node.attrs())
        if (auto* nested = std::get_if<GraphPtr>(&attr)) collect_captured(**nested, inside, captured);
    return captured;
}

// Goes through the nodes between what is fed or wanted and the seeds, in order; computes those again whose inputs were
// fed, writes out those that have no derivative of their own, then walks them all backwards.
class Differentiation {
  public:
    Differentiation(Builder& b, std::map<const Value*, Value*> fed) : b_(b) {
        for (const auto& [named, value] : fed) {
            now_[named] = value;
            active_.insert(value);
        }
    }

    void follow(Value* v) { active_.insert(v); }
    void stop(const Value* v) { stopped_.insert(v); }

    // Null where none flows.
    Result<Gradients> run(const std::vector<Seed>& seeds, const std::vector<Value*>& wanted) {
        for (const Value* v : wanted)
            if (!is_float_tensor(v))
                return Error(Code::E0208, "Gradient: \"{}\" is {}, and only float tensors have gradients", v->name(),
                             v->type())
                    .hint("leave it out, or cast it to a float type before it is used");
        for (const Seed& seed : seeds) need(seed.of);
        std::vector<const Node*> order;
        for (const auto& node : b_.graph().nodes())
            if (needed_.contains(node.get())) order.push_back(node.get());
        for (const Node* node : order) TRY(forward(*node, now_));
        for (const Seed& seed : seeds) {
            Value* y = current(seed.of, now_);
            Value* ones = seed.gradient;
            if (!ones) ones = b_.op("expand", {b_.scalar_like(1, y), b_.op("shape", {y})});
            add(y, ones);
        }
        for (auto s = steps_.rbegin(); s != steps_.rend(); ++s) TRY(backward(*s));
        Gradients result;
        for (Value* x : wanted) {
            auto it = gradients_.find(current(x, now_));
            result.push_back(it != gradients_.end() ? it->second : nullptr);
        }
        return b_.finish(result);
    }

    Value* current(const Value* v) const { return current(v, now_); }

  private:
    using Map = std::unordered_map<const Value*, Value*>;
    struct Step {
        const Node* node;
        std::vector<Value*> in, out, captured;
    };

    static Value* current(const Value* v, const Map& map) {
        auto it = map.find(v);
        return it == map.end() ? const_cast<Value*>(v) : it->second;
    }

    // All nodes that a value depends on, but for what is computed before those that are fed.
    void need(const Value* v) {
        std::vector<const Value*> open{v};
        while (!open.empty()) {
            const Value* at = open.back();
            open.pop_back();
            if (!at || !at->node() || now_.contains(at) || &at->graph() != &b_.graph()) continue;
            if (!needed_.insert(at->node()).second) continue;
            for (const Value* in : at->node()->inputs()) open.push_back(in);
            for (const Value* in : captured_by(*at->node())) open.push_back(in);
        }
    }

    bool is_active(const Value* v) const { return v && active_.contains(v) && !stopped_.contains(v); }

    static bool by_body(const Node& n) {
        return n.op().body && (!n.op().body_applies || n.op().body_applies(n.view()));
    }

    Status forward(const Node& n, Map& map) {
        std::vector<Value*> in;
        bool same = true, active = false;
        for (Value* i : n.inputs()) {
            in.push_back(i ? current(i, map) : nullptr);
            same &= in.back() == i;
            active |= is_active(in.back());
        }
        std::vector<Value*> captured = captured_by(n), out;
        for (Value* v : captured)
            if (is_active(current(v, map)) && current(v, map) != v)
                return Error(Code::E0202, "Gradient: a graph nested in {} reads \"{}\", which the gradient replaces",
                             n.where(), v->name());
        std::erase_if(captured, [&](const Value* v) { return !is_active(v); });
        if (!active && captured.empty()) return {};
        if (same)
            for (size_t i = 0; i < n.output_count(); ++i) out.push_back(n.output(i));
        else
            out = b_.ops(n.op().name, in, n.attrs(), n.output_count());
        TRY(b_.status());
        for (size_t i = 0; i < n.output_count(); ++i)
            if (!same && !map.contains(n.output(i))) map[n.output(i)] = out[i];
        const Node& made = *out[0]->node();
        if (!has_rule(made) && !by_body(made) && n.op().expand) {
            if (TRY(written_out(made, map))) return {};
        }
        active_.insert(out.begin(), out.end());
        steps_.push_back({&made, std::move(in), std::move(out), std::move(captured)});
        return {};
    }

    // The node's expansion takes its place, node by node.
    Result<bool> written_out(const Node& n, Map& map) {
        const size_t first = b_.graph().nodes().size();
        auto smaller = expand_node(n, b_);
        TRY(b_.status());
        if (!smaller) return false;
        std::vector<const Node*> inside;
        for (size_t i = first; i < b_.graph().nodes().size(); ++i) inside.push_back(b_.graph().nodes()[i].get());
        Map own;
        for (const Node* node : inside) TRY(forward(*node, own));
        for (auto& [from, to] : map)
            for (size_t i = 0; i < n.output_count() && i < smaller->size(); ++i)
                if (to == n.output(i) && (*smaller)[i]) to = current((*smaller)[i], own);
        for (size_t i = 0; i < n.output_count() && i < smaller->size(); ++i)
            if ((*smaller)[i]) map[n.output(i)] = current((*smaller)[i], own);
        return true;
    }

    void add(Value* to, Value* part) {
        auto [it, first] = gradients_.emplace(to, part);
        if (!first) it->second = b_.add(it->second, part);
    }

    Status backward(const Step& s) {
        std::vector<Value*> gs;
        for (Value* out : s.out) {
            auto arrived = gradients_.find(out);
            gs.push_back(arrived == gradients_.end() || stopped_.contains(out) ? nullptr : arrived->second);
        }
        if (std::count(gs.begin(), gs.end(), nullptr) == std::ptrdiff_t(gs.size())) return {};
        const OpDef& op = s.node->op();
        std::vector<bool> wanted;
        for (const Value* v : s.in) {
            wanted.push_back(is_active(v) && is_float_tensor(v));
            if (v && v->type().is_tensor() && !v->type().tensor().shape.ranked())
                return Error(Code::E0202, "Gradient: an input of {} has no known rank", s.node->where());
        }
        const bool only_draws = op.has(Trait::Random) && !op.gradient && !by_body(*s.node);
        std::vector<Value*> captured = s.captured;
        std::erase_if(captured, [](const Value* v) { return !is_float_tensor(v); });
        if (only_draws || (captured.empty() && std::count(wanted.begin(), wanted.end(), true) == 0)) return {};
        Value* g = gs[0];
        if (!g) g = b_.op("expand", {b_.scalar_like(0, s.out[0]), b_.op("shape", {s.out[0]})});
        const Backward r{b_, *s.node, s.in, s.out[0], g, s.out, gs, wanted, captured};
        Gradients parts;
        if (has_rule(*s.node) && fits_rule(r)) parts = op.gradient(r);
        TRY(b_.status());
        if (parts.empty()) {
            if (!by_body(*s.node) || !captured.empty()) return no_derivative(*s.node);
            parts = gradients_by_body(r);
        }
        TRY(b_.status());
        for (size_t i = 0; i < parts.size() && i < s.in.size(); ++i)
            if (parts[i] && wanted[i])
                add(s.in[i],
                    op.has(Trait::Elementwise) || op.gradient ? unbroadcast(b_, parts[i], *s.in[i]) : parts[i]);
        for (size_t i = 0; i < captured.size() && s.in.size() + i < parts.size(); ++i)
            if (parts[s.in.size() + i]) add(captured[i], parts[s.in.size() + i]);
        return b_.status();
    }

    // Rules of operands that broadcast leave the sums over them to us, who must know which dimensions those are.
    bool fits_rule(const Backward& r) const {
        for (size_t i = 0; i < r.in.size() && r.node.is(Trait::Elementwise); ++i)
            if (r.wants(i) && !widened(r.out->type().tensor().shape, r.in[i]->type().tensor().shape)) return false;
        return true;
    }

  public:
    static Error no_derivative(const Node& n) {
        const char* why = why_no_gradient(n.op());
        return Error(Code::E0202, "Gradient: {} has no derivative{}{}, {}", n.op().name, why ? ": " : "",
                     why ? why : "", n.where())
            .hint("stop the gradient before it, or leave out the values that reach it");
    }

  private:
    Builder& b_;
    Map now_;
    std::unordered_set<const Node*> needed_;
    std::vector<Step> steps_;
    std::unordered_set<const Value*> active_;  // depends on what is fed or wanted
    std::unordered_set<const Value*> stopped_;
    std::unordered_map<const Value*, Value*> gradients_;
};

}  // namespace

Gradients NoGradient::operator()(const Backward& r) const {
    r.b.fail(Differentiation::no_derivative(r.node));
    return {};
}

const char* why_no_gradient(const OpDef& op) {
    const NoGradient* none = op.gradient.target<NoGradient>();
    return none ? none->why : nullptr;
}

Result<Gradients> gradients(Builder& build, const std::vector<Seed>& seeds, const std::vector<Value*>& wanted,
                            const std::vector<Value*>& stopped) {
    Differentiation d(build, {});
    for (Value* v : wanted) d.follow(v);
    for (const Value* v : stopped) d.stop(v);
    return d.run(seeds, wanted);
}

Result<std::vector<Value*>> differentiate(Builder& build, Value* target, const std::vector<Value*>& wanted,
                                          std::map<const Value*, Value*> fed) {
    Differentiation d(build, std::move(fed));
    for (Value* v : wanted) d.follow(d.current(v));
    Gradients result = TRY(d.run({{target}}, wanted));
    for (size_t i = 0; i < result.size(); ++i) {
        if (result[i]) continue;
        Value* v = d.current(wanted[i]);
        result[i] = build.op("expand", {build.scalar_like(0, v), build.op("shape", {v})});
    }
    return build.finish(result);
}

}  // namespace tessera
