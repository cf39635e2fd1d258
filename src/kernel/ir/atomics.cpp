#include "kernel/ir/atomics.h"

#include <algorithm>

namespace tessera {
namespace {

struct Atomic {
    std::string_view name;
    Expr (*update)(const Expr& old, const std::vector<Expr>& args);
};

const Atomic kAtomics[] = {
    {"atomic_add", [](const Expr& old, const std::vector<Expr>& args) { return old + args[0]; }},
    {"atomic_mul", [](const Expr& old, const std::vector<Expr>& args) { return old * args[0]; }},
    {"atomic_min", [](const Expr& old, const std::vector<Expr>& args) { return min(old, args[0]); }},
    {"atomic_max", [](const Expr& old, const std::vector<Expr>& args) { return max(old, args[0]); }},
    {"atomic_and", [](const Expr& old, const std::vector<Expr>& args) { return bit(ExprKind::BitAnd, old, args[0]); }},
    {"atomic_or", [](const Expr& old, const std::vector<Expr>& args) { return bit(ExprKind::BitOr, old, args[0]); }},
    {"atomic_xor", [](const Expr& old, const std::vector<Expr>& args) { return bit(ExprKind::BitXor, old, args[0]); }},
    {"atomic_exchange", [](const Expr&, const std::vector<Expr>& args) { return args[0]; }},
    {"atomic_compare",
     [](const Expr& old, const std::vector<Expr>& args) { return select(eq(old, args[0]), args[1], old); }},
};

const Atomic* find_atomic(std::string_view name) {
    const auto* found =
        std::find_if(std::begin(kAtomics), std::end(kAtomics), [&](const Atomic& a) { return a.name == name; });
    return found == std::end(kAtomics) ? nullptr : found;
}

}  // namespace

bool is_atomic(const Call& call) { return find_atomic(call.name) != nullptr; }

Expr updated(const Call& call, const Expr& old) { return find_atomic(call.name)->update(old, call.args); }

}  // namespace tessera
