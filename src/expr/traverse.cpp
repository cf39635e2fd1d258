#include <algorithm>
#include <set>

#include "base/check.h"
#include "expr/expr.h"
#include "expr/node_table.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

using Rebuilt = RebuiltExprs;
constexpr uint32_t kShallow = 200;  // nodes on the way to a leaf, up to which a walk may recurse

template <typename Enter, typename Leave>
void walk_shallow(const Expr& e, NodeTable& done, const Enter& enter, const Leave& leave) {
    if (done.at(e.get()).second) return;
    if (enter(e)) {
        const auto& axes = e.node().axes;
        for (size_t i = axes.size(); i-- > 0;) walk_shallow(axes[i].extent, done, enter, leave);
        for (const Expr& a : e.args()) walk_shallow(a, done, enter, leave);
    }
    leave(e);
}

// Calls `leave` on each distinct node, children first. `enter` says whether to go under a node.
template <typename Enter, typename Leave>
void walk(const Expr& root, const Enter& enter, const Leave& leave) {
    if (root.args().empty()) {
        leave(root);
        return;
    }
    NodeTable done;
    if (root.node().depth <= kShallow) return walk_shallow(root, done, enter, leave);
    struct Frame {
        const Expr* e;
        bool entered;
    };
    std::vector<Frame> stack{{&root, false}};
    while (!stack.empty()) {
        Frame& top = stack.back();
        const Expr& e = *top.e;
        if (top.entered) {
            stack.pop_back();
            leave(e);
            continue;
        }
        if (done.at(e.get()).second) {
            stack.pop_back();
            continue;
        }
        top.entered = true;
        if (!enter(e)) continue;
        for (size_t i = e.args().size(); i-- > 0;) stack.push_back({&e.arg(i), false});
        for (const ReduceAxis& axis : e.node().axes) stack.push_back({&axis.extent, false});
    }
}

Expr with_axes(const Expr& e, std::vector<ReduceAxis> axes, const Expr& value) {
    return reduce(e.node().reduce_op, std::move(axes), value);
}

// The node with its children replaced by what `rebuilt` holds for them; itself where nothing changed.
Expr rebuild(const Expr& e, const Rebuilt& rebuilt) {
    bool changed = false;
    auto look_up = [&](const Expr& child) -> const Expr& {
        const Expr* found = rebuilt.find(child.get());
        if (!found) return child;
        changed |= found->get() != child.get();
        return *found;
    };
    for (const Expr& a : e.args()) look_up(a);
    for (const ReduceAxis& axis : e.node().axes) {
        look_up(axis.var);
        look_up(axis.extent);
    }
    if (!changed) return e;
    std::vector<Expr> args;
    args.reserve(e.args().size());
    for (const Expr& a : e.args()) args.push_back(look_up(a));
    std::vector<ReduceAxis> axes;
    for (const ReduceAxis& axis : e.node().axes) {
        const Expr& var = look_up(axis.var);
        axes.push_back({var.is(ExprKind::Var) ? var : axis.var, look_up(axis.extent)});
    }
    return e.is(ExprKind::Reduce) ? with_axes(e, std::move(axes), args[0]) : with_args(e, std::move(args));
}

void collect_free(const Expr& e, std::set<std::string>& names) {
    walk(
        e, [](const Expr& x) { return !x.is(ExprKind::Reduce); },
        [&](const Expr& x) {
            if (x.is(ExprKind::Var)) names.insert(x.node().name);
            if (!x.is(ExprKind::Reduce)) return;
            std::set<std::string> inner;
            collect_free(x.arg(0), inner);
            for (const ReduceAxis& axis : x.node().axes) inner.erase(axis.var.node().name);
            for (const ReduceAxis& axis : x.node().axes) collect_free(axis.extent, inner);
            names.merge(inner);
        });
}

// A reduction's variables hide bindings of the same name, and step aside where a binding's value mentions them.
Expr substitute_reduce(const Expr& e, const Bindings& bindings) {
    std::vector<ReduceAxis> axes;
    for (const ReduceAxis& axis : e.node().axes) axes.push_back({axis.var, substitute(axis.extent, bindings)});
    Bindings inner = bindings;
    for (const ReduceAxis& axis : axes) inner.erase(axis.var.node().name);
    std::set<std::string> inside;
    collect_free(e.arg(0), inside);
    std::erase_if(inner, [&](const auto& binding) { return !inside.contains(binding.first); });
    std::set<std::string> mentioned;
    for (const auto& [name, value] : inner) collect_free(value, mentioned);
    for (ReduceAxis& axis : axes) {
        const std::string& name = axis.var.node().name;
        if (!mentioned.contains(name)) continue;
        inside.insert(mentioned.begin(), mentioned.end());
        std::string fresh;
        for (int i = 1; fresh.empty() || inside.contains(fresh); ++i) fresh = name + "_" + std::to_string(i);
        inside.insert(fresh);
        ExprNode node = axis.var.node();
        node.name = fresh;
        Expr renamed = make_expr(std::move(node));
        inner.insert_or_assign(name, renamed);
        axis.var = renamed;
    }
    return with_axes(e, std::move(axes), substitute(e.arg(0), inner));
}

}  // namespace

void visit(const Expr& e, const std::function<void(const Expr&)>& f) {
    walk(
        e, [](const Expr&) { return true; }, f);
}

std::vector<std::string> free_symbols(const Expr& e) {
    std::set<std::string> names;
    collect_free(e, names);
    return {names.begin(), names.end()};
}

Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f) {
    Rebuilt rebuilt;
    Expr result = e;
    visit(e, [&](const Expr& x) {
        for (const ReduceAxis& axis : x.node().axes)
            if (!rebuilt.find(axis.var.get())) rebuilt.emplace(axis.var.get(), f(axis.var));
        result = f(rebuild(x, rebuilt));
        rebuilt.emplace(x.get(), result);
    });
    return result;
}

Expr substitute(const Expr& e, const Bindings& bindings) {
    if (bindings.empty()) return e;
    Rebuilt rebuilt;
    Expr result = e;
    walk(
        e, [](const Expr& x) { return !x.is(ExprKind::Reduce); },
        [&](const Expr& x) {
            if (x.is(ExprKind::Var)) {
                auto found = bindings.find(x.node().name);
                result = found == bindings.end() ? x : found->second;
            } else if (x.is(ExprKind::Reduce)) {
                result = substitute_reduce(x, bindings);
            } else if (x.args().empty()) {
                result = x;
                return;
            } else {
                result = rebuild(x, rebuilt);
            }
            if (result.get() != x.get()) rebuilt.emplace(x.get(), result);
        });
    return result;
}

Expr simplify(const Expr& e) {
    Rebuilt rebuilt;
    Expr result = e;
    visit(e, [&](const Expr& x) {
        result = rebuild(x, rebuilt);
        if (!x.args().empty() && !x.is(ExprKind::Reduce)) result = with_args(result, result.args());
        rebuilt.emplace(x.get(), result);
    });
    return result;
}

Expr with_args(const Expr& e, std::vector<Expr> args) {
    const ExprNode& node = e.node();
    CHECK(args.size() == node.args.size(), "{} arguments for {}", args.size(), to_string(e));
    auto fold = [&](auto&& combine) {
        // In pairs, so that a long sum is not merged term by term.
        while (args.size() > 1) {
            size_t half = 0;
            for (size_t i = 0; i + 1 < args.size(); i += 2) args[half++] = combine(args[i], args[i + 1]);
            if (args.size() % 2) args[half++] = std::move(args.back());
            args.resize(half);
        }
        return args[0];
    };
    switch (node.kind) {
        case ExprKind::Const:
        case ExprKind::Var: return e;
        case ExprKind::Load: return load(node.slot, node.dtype, std::move(args));
        case ExprKind::Add: return fold([](const Expr& a, const Expr& b) { return a + b; });
        case ExprKind::Mul: return fold([](const Expr& a, const Expr& b) { return a * b; });
        case ExprKind::Min: return fold([](const Expr& a, const Expr& b) { return min(a, b); });
        case ExprKind::Max: return fold([](const Expr& a, const Expr& b) { return max(a, b); });
        case ExprKind::Sub: return args[0] - args[1];
        case ExprKind::Div: return args[0] / args[1];
        case ExprKind::FloorDiv: return floor_div(args[0], args[1]);
        case ExprKind::Mod: return mod(args[0], args[1]);
        case ExprKind::Rem: return rem(args[0], args[1]);
        case ExprKind::Pow: return pow(args[0], args[1]);
        case ExprKind::BitAnd:
        case ExprKind::BitOr:
        case ExprKind::BitXor:
        case ExprKind::Shl:
        case ExprKind::Shr: return bit(node.kind, args[0], args[1]);
        case ExprKind::Lt: return lt(args[0], args[1]);
        case ExprKind::Le: return le(args[0], args[1]);
        case ExprKind::Eq: return eq(args[0], args[1]);
        case ExprKind::Ne: return ne(args[0], args[1]);
        case ExprKind::And: return logical_and(args[0], args[1]);
        case ExprKind::Or: return logical_or(args[0], args[1]);
        case ExprKind::Not: return logical_not(args[0]);
        case ExprKind::BitNot: return bit_not(args[0]);
        case ExprKind::Neg: return -args[0];
        case ExprKind::Call: return call(node.fn, std::move(args));
        case ExprKind::Cast: return cast(args[0], node.dtype);
        case ExprKind::CastSaturate: return cast_saturate(args[0], node.dtype);
        case ExprKind::Select: return select(args[0], args[1], args[2]);
        case ExprKind::Reduce: return with_axes(e, node.axes, args[0]);
    }
    return e;
}

}  // namespace tessera
