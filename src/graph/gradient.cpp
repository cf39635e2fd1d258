#include "graph/gradient.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace tessera {
namespace {

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
        if (!n.op().gradient && n.op().expand) {
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
        const OpDef& op = s.node->op();
        for (Value* v : s.in)
            if (v && (!v->type().is_tensor() || !v->type().tensor().shape.ranked()))
                return Error(Code::E0202, "Gradient: an input of {} has no known rank", s.node->where());
        if (!op.gradient)
            return Error(Code::E0202, "Gradient: {} cannot be differentiated yet, {}", op.name, s.node->where());
        Gradients g = op.gradient(Backward{b_, *s.node, s.in, s.out[0], arrived->second});
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

}  // namespace

Result<std::vector<Value*>> differentiate(Builder& build, Value* target, const std::vector<Value*>& wanted,
                                          std::map<const Value*, Value*> fed) {
    return Differentiation(build, std::move(fed)).run(target, wanted);
}

}  // namespace tessera
