#include <map>

#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

using Accesses = std::map<int, std::vector<std::vector<Expr>>>;  // indices, by buffer

Accesses accesses_of(const Kernel& kernel) {
    Accesses all;
    visit(kernel.body, [&](const Stmt& s) {
        if (const Store* to = s->as<Store>()) all[to->to.buffer].push_back(to->to.indices);
        if (const Call* call = s->as<Call>())
            for (const auto* list : {&call->writes, &call->reads})
                for (const Access& a : *list) all[a.buffer].push_back(a.indices);
    });
    visit_exprs(kernel.body, [&](const Expr& e) {
        visit(e, [&](const Expr& x) {
            if (x.is(ExprKind::Load)) all[x.node().slot].push_back(x.args());
        });
    });
    return all;
}

int divisions(const Expr& e) {
    int count = 0;
    visit(e, [&](const Expr& x) { count += x.is(ExprKind::FloorDiv) || x.is(ExprKind::Mod); });
    return count;
}

// A place in two dimensions, as one. A quotient by the inner size and what is left by it are one number again; where
// that size is 0, there are no places.
Expr place(const Expr& outer, const Expr& inner, const Expr& size) {
    Expr sum = outer * size + inner;
    std::vector<Expr> divided;
    visit(inner, [&](const Expr& x) {
        if (x.is(ExprKind::Mod) && x.arg(1) == size) divided.push_back(x.arg(0));
    });
    for (const Expr& x : divided) {
        const Expr whole = sum - floor_div(x, size) * size - mod(x, size) + x;
        if (divisions(whole) < divisions(sum)) sum = whole;
    }
    return sum;
}

std::vector<Expr> merged(std::vector<Expr> indices, size_t d, const Expr& inner) {
    indices[d] = place(indices[d], indices[d + 1], inner);
    indices.erase(indices.begin() + static_cast<ptrdiff_t>(d) + 1);
    return indices;
}

// Whether dimensions d and d + 1 as one need fewer divisions, and no access more.
bool pays(const std::vector<std::vector<Expr>>& accesses, size_t d, const Expr& inner) {
    int saved = 0;
    for (const auto& indices : accesses) {
        int before = divisions(indices[d]) + divisions(indices[d + 1]);
        int after = divisions(place(indices[d], indices[d + 1], inner));
        if (after > before) return false;
        saved += before - after;
    }
    return saved > 0;
}

}  // namespace

void merge_dimension(Kernel& kernel, int slot, size_t d) {
    Buffer& b = kernel.buffers[static_cast<size_t>(slot)];
    Expr inner = b.shape[d + 1];
    b.shape[d] = b.shape[d] * inner;
    b.shape.erase(b.shape.begin() + static_cast<ptrdiff_t>(d) + 1);
    kernel.body = map_exprs(kernel.body, [&](const Expr& e) {
        return rewrite(e, [&](const Expr& x) {
            if (!x.is(ExprKind::Load) || x.node().slot != slot) return x;
            return load(slot, x.dtype(), merged(x.args(), d, inner));
        });
    });
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        if (!s) return s;
        if (const Store* to = s->as<Store>(); to && to->to.buffer == slot)
            return store(slot, merged(to->to.indices, d, inner), to->value, to->combine);
        const Call* call = s->as<Call>();
        if (!call) return s;
        Call copy = *call;
        for (auto* list : {&copy.writes, &copy.reads})
            for (Access& a : *list)
                if (a.buffer == slot) a.indices = merged(a.indices, d, inner);
        return make_stmt(std::move(copy));
    });
}

void merge_dimensions(Kernel& kernel) {
    for (size_t slot = 0; slot < kernel.params; ++slot) {
        if (!kernel.buffers[slot].strides.empty()) continue;
        // Innermost first: a quotient by all inner sizes is taken last.
        for (size_t d = kernel.buffers[slot].shape.size(); d-- > 1;) {
            const Expr inner = kernel.buffers[slot].shape[d];
            Accesses accesses = accesses_of(kernel);
            auto found = accesses.find(static_cast<int>(slot));
            if (found != accesses.end() && pays(found->second, d - 1, inner))
                merge_dimension(kernel, static_cast<int>(slot), d - 1);
        }
    }
}

}  // namespace tessera
