#include "rewrite/refute/computed_types.h"

#include <set>

#include "base/numeric.h"
#include "graph/evaluate/evaluate.h"
#include "graph/infer.h"

namespace tessera {
namespace {

double roundoff(DType t) {
    switch (t) {
        case DType::f64: return 1e-10;
        case DType::f32: return 3e-5;
        case DType::f16: return 3e-2;
        case DType::bf16: return 1e-1;
        case DType::f8e4m3fn:
        case DType::f8e4m3fnuz: return 0.13;  // a step
        case DType::f8e5m2:
        case DType::f8e5m2fnuz: return 0.26;
        default: return 1;
    }
}

bool is_narrowing(DType from, DType to) {
    return !is_float(from) || roundoff(to) > roundoff(from) || float_max(to) < float_max(from);
}

bool moves_or_chooses(Fn fn) { return fn == Fn::Abs || fn == Fn::Sign || fn == Fn::Floor || fn == Fn::Ceil; }

// Whether an expression may round a float, or overflow.
bool rounds(const Expr& e, std::set<const ExprNode*>& seen) {
    if (!seen.insert(&e.node()).second) return false;
    if (is_float(e.dtype())) switch (e.kind()) {
            case ExprKind::Add:
            case ExprKind::Sub:
            case ExprKind::Mul:
            case ExprKind::Div:
            case ExprKind::Mod:
            case ExprKind::Rem:
            case ExprKind::Pow: return true;
            case ExprKind::Call:
                if (!moves_or_chooses(e.node().fn)) return true;
                break;
            case ExprKind::Cast:
            case ExprKind::CastSaturate:
                if (is_narrowing(e.arg(0).dtype(), e.dtype())) return true;
                break;
            case ExprKind::Reduce:
                if (e.node().reduce_op == ReduceOp::Sum || e.node().reduce_op == ReduceOp::Prod) return true;
                break;
            default: break;
        }
    for (const Expr& arg : e.args())
        if (rounds(arg, seen)) return true;
    return false;
}

bool rounds(const Node& node, size_t output) {
    if (node.is(Trait::Movement)) return false;
    const OpDef& op = node.op();
    OpView view = node.view();
    view.made_concrete();  // what would fail in a run has no body
    bool found = true;
    view.asks_unknown([&] {
        if (!infer_types(view).ok() || !op.body || (op.body_applies && !op.body_applies(view))) return;
        view.for_output(output);
        std::set<const ExprNode*> seen;
        found = rounds(op.body(view, output_indices(view.out(output).shape)), seen);
    });
    return found;
}

void add(ComputedTypes& types, DType t) {
    if (!is_float(t)) return;
    types.roundoff = std::max(types.roundoff, roundoff(t));
    types.most = types.floats ? std::min(types.most, float_max(t)) : float_max(t);
    types.floats = true;
}

void each_value(const Graph& graph, const std::function<void(const Value&)>& f) {
    for (const auto& v : graph.inputs()) f(*v);
    for (const auto& v : graph.constants()) f(*v);
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i) f(*n->output(i));
}

}  // namespace

ComputedTypes computed_types(const Graph& graph) {
    ComputedTypes all, computed;
    std::set<DType> types;
    each_value(graph, [&](const Value& v) {
        if (!v.type().is_tensor()) return;
        add(all, v.type().tensor().dtype);
        if (is_float(v.type().tensor().dtype)) types.insert(v.type().tensor().dtype);
    });
    for (const auto& node : graph.nodes()) {
        if (node->op().attr("stash_type")) {  // what it computes with inside
            add(all, DType::f32);
            add(computed, DType::f32);
            types.insert(DType::f32);
        }
        if (types.size() < 2) continue;
        for (size_t i = 0; i < node->output_count(); ++i)
            if (const Type& t = node->output(i)->type();
                t.is_tensor() && is_float(t.tensor().dtype) && rounds(*node, i))
                add(computed, t.tensor().dtype);
    }
    return computed.floats ? computed : all;
}

bool stores_floats(const Graph& graph) {
    auto stored = [](const Value& v) { return v.type().is_tensor() && kNarrowFloats.has(v.type().tensor().dtype); };
    for (const auto& v : graph.inputs())
        if (stored(*v)) return true;
    for (const auto& n : graph.nodes())
        for (size_t i = 0; i < n->output_count(); ++i)
            if (stored(*n->output(i))) return true;
    return false;
}

bool narrows(const ComputedTypes& left, const ComputedTypes& right) {
    return left.floats && right.floats && (right.roundoff > left.roundoff || right.most < left.most);
}

}  // namespace tessera
