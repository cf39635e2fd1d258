#include "graph/count.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "graph/builder.h"

namespace tessera {
namespace {

constexpr int64_t kMaxKnownElements = 4096;  // constants up to here are handed to an expansion as constants
constexpr int kMaxExpansionDepth = 32;

// What was computed before, with the order in which it was added, so that a branch can be left.
class Seen {
  public:
    bool insert(const Expr& e) {
        if (!seen_.insert(e).second) return false;
        added_.push_back(e);
        return true;
    }
    size_t mark() const { return added_.size(); }
    void back_to(size_t mark) {
        for (; added_.size() > mark; added_.pop_back()) seen_.erase(added_.back());
    }

  private:
    std::unordered_set<Expr, ExprHash> seen_;
    std::vector<Expr> added_;
};

// Counts the arithmetic of a body for one output element, and how often each input is read.
class BodyCounter {
  public:
    struct Reads {
        Expr times = 0;
        bool indirect = false;  // the place depends on another input's elements
    };
    std::map<int, Reads> reads;

    Expr operations(const Expr& body) {
        Seen seen;
        return operations(body, seen, 1);
    }

  private:
    // Whether any input is read in `e`: what reads none is index arithmetic or a constant.
    bool loads(const Expr& e) {
        if (e.is(ExprKind::Load)) return true;
        if (auto it = loads_.find(e.get()); it != loads_.end()) return it->second;
        bool any = std::any_of(e.args().begin(), e.args().end(), [&](const Expr& a) { return loads(a); });
        return loads_[e.get()] = any;
    }

    // A value used twice is computed once; `times` is how often this point is reached for one output element.
    Expr operations(const Expr& e, Seen& seen, const Expr& times) {
        if (!loads(e) || !seen.insert(e)) return 0;
        switch (e.kind()) {
            case ExprKind::Load: return read(e, seen, times);
            case ExprKind::Cast:
            case ExprKind::CastSaturate: return operations(e.arg(0), seen, times);
            case ExprKind::Select: {
                Expr condition = operations(e.arg(0), seen, times);
                const size_t before = seen.mark();
                Expr branch[2];
                for (size_t side : {0, 1}) {
                    branch[side] = operations(e.arg(1 + side), seen, times);
                    seen.back_to(before);
                }
                return condition + max(branch[0], branch[1]);
            }
            case ExprKind::Reduce: {
                Expr extent = 1;
                for (const ReduceAxis& axis : e.node().axes) extent = extent * axis.extent;
                const size_t before = seen.mark();
                const Expr inside = operations(e.arg(0), seen, times * extent);
                seen.back_to(before);
                return extent * (inside + 1);
            }
            default: break;
        }
        Expr total = std::max<int64_t>(1, int64_t(e.args().size()) - 1);
        if (e.is(ExprKind::Call)) total = 1;
        for (const Expr& a : e.args()) total = total + operations(a, seen, times);
        return total;
    }

    Expr read(const Expr& load, Seen& seen, const Expr& times) {
        Reads& r = reads[load.node().slot];
        r.times = r.times + times;
        for (const Expr& index : load.args()) {
            if (!loads(index)) continue;
            reads[load.node().slot].indirect = true;
            operations(index, seen, times);  // for its reads; the arithmetic is on indices
        }
        return 0;
    }

    std::unordered_map<const ExprNode*, bool> loads_;
};

bool ranked_tensor(const Type& t) { return t.is_tensor() && t.tensor().shape.ranked(); }

Expr bytes_of(const Type& t) {
    return t.tensor().shape.elements() * static_cast<int64_t>(dtype_bytes(t.tensor().dtype));
}

bool never_below(const Expr& a, const Expr& b) { return bounds(a - b).low.value_or(-1) >= 0; }

// How much of an input is read: all of it, or what the loads can reach where that is less.
Expr elements_read(const Expr& size, const BodyCounter::Reads& reads) {
    if (never_below(reads.times, size)) return size;
    if (never_below(size, reads.times)) return reads.times;
    return reads.indirect ? min(size, reads.times) : size;
}

void add_whole(const Type& t, Cost& cost) {
    if (ranked_tensor(t))
        cost.bytes = cost.bytes + bytes_of(t);
    else
        cost.complete = false;
}

void add_inputs(const OpView& op, Cost& cost) {
    for (size_t i = 0; i < op.input_count(); ++i)
        if (op.has(i)) add_whole(op.type(i), cost);
}

void count_body(const OpView& op, Cost& cost) {
    std::map<int, BodyCounter::Reads> reads;
    for (size_t i = 0; i < op.output_count(); ++i) {
        if (!op.wants(i)) continue;
        OpView view = op;
        view.for_output(i);
        Expr elements = op.out(i).shape.elements();
        std::vector<Expr> at;
        for (int64_t d = 0; d < op.out(i).rank(); ++d)
            at.push_back(index_var(fmt::format("%i{}", d), op.out(i).dim(d).as_int()));
        // Where the extent of a reduction depends on the place (a running sum), the middle place stands for all.
        Bindings middle;
        for (int64_t d = 0; d < op.out(i).rank(); ++d) middle[at[d].node().name] = floor_div(op.out(i).dim(d), 2);
        BodyCounter counter;
        cost.flops = cost.flops + elements * substitute(counter.operations(op.def().body(view, at)), middle);
        for (auto& [slot, r] : counter.reads) {
            reads[slot].times = reads[slot].times + substitute(r.times, middle) * elements;
            reads[slot].indirect |= r.indirect;
        }
    }
    for (auto& [slot, r] : reads) {
        const TensorType& t = op.tensor(slot);
        cost.bytes = cost.bytes + elements_read(t.shape.elements(), r) * static_cast<int64_t>(dtype_bytes(t.dtype));
    }
}

// How often the nested graphs of a loop run, where its inputs say so.
std::optional<Expr> times_run(const Node& node) {
    return node.op().iterations ? node.op().iterations(node.view()) : std::nullopt;
}

using EachNode = std::function<void(const Node&, const Cost&)>;

Cost count(const Node& node, int depth);

void count_nodes(const Graph& graph, const Expr& times, int depth, const EachNode& each) {
    for (const auto& node : graph.nodes()) {
        Cost c = count(*node, depth);
        each(*node, {c.flops * times, c.bytes * times, c.complete});
        for (const auto& [name, attr] : node->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr))
                count_nodes(**nested, times * times_run(*node).value_or(1), depth, each);
    }
}

Cost count(const Graph& graph, int depth) {
    std::vector<Expr> flops, bytes;
    Cost total;
    count_nodes(graph, 1, depth, [&](const Node&, const Cost& c) {
        flops.push_back(c.flops);
        bytes.push_back(c.bytes);
        total.complete &= c.complete;
    });
    total.flops = sum_of(std::move(flops));
    total.bytes = sum_of(std::move(bytes));
    return total;
}

// The arithmetic of the graph that the node stands for, built beside the node's own.
void count_expansion(const Node& node, const OpView& op, int depth, Cost& cost) {
    Graph scratch("scratch");
    std::vector<Value*> inputs;
    for (Value* v : node.inputs()) {
        if (!v) {
            inputs.push_back(nullptr);
        } else if (v->is_constant() && v->tensor()->elements() <= kMaxKnownElements) {
            inputs.push_back(scratch.constant(*v->tensor()));
        } else {
            inputs.push_back(scratch.add_input(v->name(), v->type()));
            inputs.back()->set_contents(v->contents());
        }
    }
    Builder builder(scratch);
    auto made = op.def().expand(op, inputs, builder);
    if (!made.ok()) {
        cost.complete = false;
        return;
    }
    Cost inner = count(scratch, depth + 1);
    cost.flops = cost.flops + inner.flops;
    cost.complete &= inner.complete;
}

// By the op's meaning; false where only a run can tell.
bool count_meaning(const Node& node, OpView& op, bool body, int depth, Cost& cost) {
    if (!body && (!op.def().expand || depth >= kMaxExpansionDepth)) return false;
    auto missing = op.asks_unknown([&] {
        if (body) {
            count_body(op, cost);
        } else {
            count_expansion(node, op, depth, cost);
            add_inputs(op, cost);
        }
    });
    return !missing;
}

Cost count(const Node& node, int depth) {
    const OpDef& def = node.op();
    OpView op = node.view();
    bool known = true;
    for (size_t i = 0; i < op.input_count(); ++i) known &= !op.has(i) || ranked_tensor(op.type(i));
    for (size_t i = 0; i < node.output_count(); ++i) known &= ranked_tensor(node.output(i)->type());
    bool body = known && def.body && (!def.body_applies || def.body_applies(op));
    Cost cost;
    if (!known || !count_meaning(node, op, body, depth, cost)) {
        cost = {};
        cost.complete = times_run(node).has_value();
        add_inputs(op, cost);
    }
    for (size_t i = 0; i < node.output_count(); ++i)
        if (op.wants(i)) add_whole(node.output(i)->type(), cost);
    return cost;
}

}  // namespace

Cost count(const Node& node) { return count(node, 0); }
Cost count(const Graph& graph) { return count(graph, 0); }
void count_nodes(const Graph& graph, const EachNode& each) { count_nodes(graph, 1, 0, each); }

Expr sum_of(std::vector<Expr> terms) {
    while (terms.size() > 1) {
        size_t half = 0;
        for (size_t i = 0; i < terms.size(); i += 2)
            terms[half++] = i + 1 < terms.size() ? terms[i] + terms[i + 1] : terms[i];
        terms.resize(half);
    }
    return terms.empty() ? Expr(0) : terms[0];
}

}  // namespace tessera
