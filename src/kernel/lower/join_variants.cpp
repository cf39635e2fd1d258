#include "kernel/lower/join_variants.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "kernel/ir/regions.h"
#include "kernel/ir/renamed_copy.h"
#include "kernel/ir/verified.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

// Buffers and loops of several kernels side by side in one.
class Joining {
  public:
    explicit Joining(const Lowered& like) : shared_(like.kernel.params - like.scratch.size()) {
        made_ = like;
        made_.scratch.clear();
        made_.kernel.body = nullptr;
        made_.kernel.buffers.resize(shared_);
        for (const Buffer& b : made_.kernel.buffers) names_.insert(b.name);
        for (const std::string& s : made_.kernel.symbols) names_.insert(s);
    }

    // Parameters come first, so all scratch before what is allocated.
    void add_scratch(const Lowered& part, const Expr& condition) {
        std::vector<int> slots(part.kernel.buffers.size(), -1);
        for (size_t i = 0; i < shared_; ++i) slots[i] = int(i);
        for (int slot : part.scratch) {
            Buffer buffer = part.kernel.buffers[size_t(slot)];
            // Where others run, it needs no memory.
            if (!buffer.shape.empty()) buffer.shape[0] = select(condition, buffer.shape[0], 0);
            slots[size_t(slot)] = int(made_.kernel.buffers.size());
            made_.scratch.push_back(slots[size_t(slot)]);
            buffer.name = fresh(buffer.name);
            made_.kernel.buffers.push_back(std::move(buffer));
        }
        slots_.push_back(std::move(slots));
        made_.kernel.params = made_.kernel.buffers.size();
    }

    void add_body(const Lowered& part, const Expr& condition, size_t number) {
        Bindings vars;
        visit(part.kernel.body, [&](const Stmt& s) {
            const For* loop = s->as<For>();
            if (!loop) return;
            ExprNode node = loop->var.node();
            node.name = fresh(node.name);
            vars.insert_or_assign(loop->var.node().name, make_expr(std::move(node)));
        });
        std::vector<int>& slots = slots_[number];
        for (size_t i = 0; i < slots.size(); ++i) {
            if (slots[i] >= 0) continue;
            Buffer buffer = part.kernel.buffers[i];
            for (auto* list : {&buffer.shape, &buffer.strides})
                for (Expr& e : *list) e = substitute(e, vars);
            slots[i] = int(made_.kernel.buffers.size());
            buffer.name = fresh(buffer.name);
            made_.kernel.buffers.push_back(std::move(buffer));
        }
        Stmt body = with_slots(substitute(part.kernel.body, vars), [&](int slot) { return slots[size_t(slot)]; });
        const Seq* all = body ? body->as<Seq>() : nullptr;
        for (const Stmt& s : all ? all->stmts : std::vector<Stmt>{body})
            if (s) stmts_.push_back(guarded(s, condition));
    }

    Lowered take() {
        made_.kernel.body = seq(std::move(stmts_));
        return std::move(made_);
    }

  private:
    std::string fresh(const std::string& name) {
        std::string made = name;
        for (int i = 1; !names_.insert(made).second; ++i) made = name + "_" + std::to_string(i);
        return made;
    }

    // Parallel loops and blocks stay at the top and are left out by their extent.
    static Stmt guarded(const Stmt& s, const Expr& condition) {
        const For* loop = s->as<For>();
        if (!loop || (loop->kind != LoopKind::Parallel && loop->kind != LoopKind::Bound)) return if_then(condition, s);
        For some = *loop;
        some.extent = select(condition, some.extent, 0);
        return for_loop(std::move(some));
    }

    size_t shared_;  // parameters that all have
    Lowered made_;
    std::set<std::string> names_;
    std::vector<std::vector<int>> slots_;  // by part
    std::vector<Stmt> stmts_;
};

}  // namespace

bool prepare_alike(const Lowered& a, const Lowered& b) {
    if (a.prepare_args != b.prepare_args || a.prepared != b.prepared) return false;
    return to_string(a.prepare) == to_string(b.prepare);
}

Lowered join_variants(std::vector<Variant> variants, Lowered otherwise) {
    std::vector<Expr> conditions;
    Expr none = int_const(1, DType::boolean);  // of those before holds
    for (const Variant& v : variants) {
        CHECK(prepare_alike(v.lowered, otherwise), "variants of {} prepare different weights", otherwise.kernel.name);
        conditions.push_back(logical_and(none, v.guard));
        none = logical_and(none, logical_not(v.guard));
    }
    conditions.push_back(none);
    variants.push_back({none, std::move(otherwise)});
    Joining joining(variants.back().lowered);
    for (size_t i = 0; i < variants.size(); ++i) joining.add_scratch(variants[i].lowered, conditions[i]);
    for (size_t i = 0; i < variants.size(); ++i) joining.add_body(variants[i].lowered, conditions[i], i);
    Lowered joined = joining.take();
    drop_unused_buffers(joined.kernel);  // of one that no size asks for
    check_verified(joined.kernel, "join_variants");
    return joined;
}

Lowered one_after_other(const Lowered& first, const Lowered& then) {
    const Expr always = int_const(1, DType::boolean);
    Joining joining(first);
    for (const Lowered* part : {&first, &then}) joining.add_scratch(*part, always);
    joining.add_body(first, always, 0);
    joining.add_body(then, always, 1);
    Lowered joined = joining.take();
    check_verified(joined.kernel, "one_after_other");
    return joined;
}

}  // namespace tessera
