#include "kernel/ir/kernel.h"

namespace tessera {
namespace {

using MapStmt = std::function<Stmt(const Stmt&)>;
using MapExpr = std::function<Expr(const Expr&)>;

// The statement with f of each child; itself where nothing changed. A sequence of which one child is left is that
// child.
Stmt with_children(const Stmt& s, const MapStmt& f) {
    auto child = [&](const Stmt& c) { return c ? f(c) : nullptr; };
    if (const For* loop = s->as<For>()) {
        Stmt body = child(loop->body);
        if (body == loop->body) return s;
        For copy = *loop;
        copy.body = std::move(body);
        return make_stmt(std::move(copy));
    }
    if (const Seq* list = s->as<Seq>()) {
        std::vector<Stmt> stmts;
        for (const Stmt& c : list->stmts) stmts.push_back(child(c));
        return stmts == list->stmts ? s : seq(std::move(stmts));
    }
    if (const If* branch = s->as<If>()) {
        Stmt then = child(branch->then), otherwise = child(branch->otherwise);
        if (then == branch->then && otherwise == branch->otherwise) return s;
        if (!then && !otherwise) return nullptr;
        return make_stmt(If{branch->condition, std::move(then), std::move(otherwise)});
    }
    if (const Alloc* a = s->as<Alloc>()) {
        Stmt body = child(a->body);
        return body == a->body ? s : alloc(a->buffer, std::move(body));
    }
    return s;
}

// Whether it is what became of s, rather than a child of it, for which everything is done.
bool still(const Stmt& rebuilt, const Stmt& s) { return rebuilt && rebuilt->node.index() == s->node.index(); }

// f of the statement's own expressions, loop variables left out.
Stmt with_exprs(const Stmt& s, const MapExpr& f) {
    bool changed = false;
    auto map = [&](const Expr& e) {
        Expr mapped = f(e);
        changed |= mapped.get() != e.get();
        return mapped;
    };
    auto map_all = [&](std::vector<Expr>& list) {
        for (Expr& e : list) e = map(e);
    };
    StmtNode copy = *s;
    if (For* loop = std::get_if<For>(&copy.node)) {
        loop->extent = map(loop->extent);
    } else if (If* branch = std::get_if<If>(&copy.node)) {
        branch->condition = map(branch->condition);
        if (changed) return if_then(branch->condition, branch->then, branch->otherwise);
    } else if (Store* to = std::get_if<Store>(&copy.node)) {
        map_all(to->to.indices);
        to->value = map(to->value);
    } else if (Call* call = std::get_if<Call>(&copy.node)) {
        for (Access& a : call->writes) map_all(a.indices);
        for (Access& a : call->reads) map_all(a.indices);
        map_all(call->args);
    }
    return changed ? make_stmt(std::move(copy.node)) : s;
}

}  // namespace

Stmt mutate(const Stmt& s, const MapStmt& f) {
    if (!s) return nullptr;
    Stmt rebuilt = with_children(s, [&](const Stmt& child) { return mutate(child, f); });
    return still(rebuilt, s) ? f(rebuilt) : rebuilt;
}

void visit(const Stmt& s, const std::function<void(const Stmt&)>& f) {
    if (!s) return;
    f(s);
    if (const For* loop = s->as<For>()) visit(loop->body, f);
    if (const Seq* list = s->as<Seq>())
        for (const Stmt& c : list->stmts) visit(c, f);
    if (const If* branch = s->as<If>()) {
        visit(branch->then, f);
        visit(branch->otherwise, f);
    }
    if (const Alloc* a = s->as<Alloc>()) visit(a->body, f);
}

Stmt map_exprs(const Stmt& s, const MapExpr& f) {
    return mutate(s, [&](const Stmt& each) { return with_exprs(each, f); });
}

Stmt substitute(const Stmt& s, const Bindings& bindings) {
    if (!s || bindings.empty()) return s;
    const For* loop = s->as<For>();
    if (!loop) {
        Stmt rebuilt = with_children(s, [&](const Stmt& child) { return substitute(child, bindings); });
        return still(rebuilt, s) ? with_exprs(rebuilt, [&](const Expr& e) { return substitute(e, bindings); })
                                 : rebuilt;
    }
    For copy = *loop;
    copy.extent = substitute(loop->extent, bindings);
    auto own = bindings.find(loop->var.node().name);
    if (own != bindings.end() && own->second.is(ExprKind::Var)) {
        copy.var = own->second;
        copy.body = substitute(loop->body, bindings);
    } else if (own != bindings.end()) {
        Bindings inner = bindings;
        inner.erase(own->first);
        copy.body = substitute(loop->body, inner);
    } else {
        copy.body = substitute(loop->body, bindings);
    }
    bool changed =
        copy.extent.get() != loop->extent.get() || copy.var.get() != loop->var.get() || copy.body != loop->body;
    return changed ? make_stmt(std::move(copy)) : s;
}

void visit_exprs(const Stmt& s, const std::function<void(const Expr&)>& f) {
    auto all = [&](const std::vector<Expr>& list) {
        for (const Expr& e : list) f(e);
    };
    visit(s, [&](const Stmt& each) {
        if (const For* loop = each->as<For>()) f(loop->extent);
        if (const If* branch = each->as<If>()) f(branch->condition);
        if (const Store* to = each->as<Store>()) {
            all(to->to.indices);
            f(to->value);
        }
        if (const Call* call = each->as<Call>()) {
            for (const Access& a : call->writes) all(a.indices);
            for (const Access& a : call->reads) all(a.indices);
            all(call->args);
        }
    });
}

}  // namespace tessera
