#include <array>

#include "base/check.h"
#include "kernel/ir/kernel.h"

namespace tessera {

std::string_view scope_name(Scope s) {
    constexpr std::array<std::string_view, 4> kNames{"global", "shared", "local", "register"};
    return kNames[static_cast<size_t>(s)];
}

std::string_view loop_kind_name(LoopKind k) {
    constexpr std::array<std::string_view, 5> kNames{"for", "parallel", "vector", "unrolled", "bound"};
    return kNames[static_cast<size_t>(k)];
}

Stmt make_stmt(std::variant<For, Seq, If, Store, Alloc, Call> node) {
    return std::make_shared<const StmtNode>(StmtNode{std::move(node)});
}

Stmt seq(std::vector<Stmt> stmts) {
    std::vector<Stmt> flat;
    flat.reserve(stmts.size());
    for (Stmt& s : stmts) {
        if (!s) continue;
        if (const Seq* inner = s->as<Seq>())
            for (const Stmt& each : inner->stmts) flat.push_back(seq({each}));
        else
            flat.push_back(std::move(s));
    }
    std::erase(flat, nullptr);
    if (flat.empty()) return nullptr;
    if (flat.size() == 1) return flat[0];
    return make_stmt(Seq{std::move(flat)});
}

Stmt for_loop(For loop) {
    CHECK(loop.var.is(ExprKind::Var), "a loop over {}", to_string(loop.var));
    CHECK(loop.extent.dtype() == DType::i64, "a loop of extent {}", to_string(loop.extent));
    return make_stmt(std::move(loop));
}

Stmt if_then(Expr condition, Stmt then, Stmt otherwise) {
    CHECK(condition.dtype() == DType::boolean, "if {}", to_string(condition));
    if (!then && !otherwise) return nullptr;
    if (condition.is(ExprKind::Const)) return condition.node().integer ? then : otherwise;
    return make_stmt(If{std::move(condition), std::move(then), std::move(otherwise)});
}

Stmt store(int buffer, std::vector<Expr> indices, Expr value, std::optional<ReduceOp> combine) {
    return make_stmt(Store{{buffer, std::move(indices)}, std::move(value), combine});
}

Stmt alloc(int buffer, Stmt body) { return make_stmt(Alloc{buffer, std::move(body)}); }

}  // namespace tessera
