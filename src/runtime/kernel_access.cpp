#include "runtime/kernel_access.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>

namespace tessera {
namespace {

void each_load(const Expr& e, const std::function<void(const Expr&)>& f) {
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Load)) f(x);
    });
}

std::optional<int64_t> product(const std::vector<Expr>& dims, const SymbolValues& symbols) {
    int64_t n = 1;
    for (const Expr& d : dims) {
        auto size = evaluate_int(d, symbols);
        if (!size || *size < 0 || __builtin_mul_overflow(n, *size, &n)) return {};
    }
    return n;
}

// Counts how often a kernel stores to one buffer, and sees that the other is only read at the element being stored, by
// that statement or by ones before it. Indices that are the same there name the same loops, of which each element has
// one iteration.
class Overwriting {
  public:
    Overwriting(size_t input, size_t output, const SymbolValues& symbols)
        : input_(static_cast<int>(input)), output_(static_cast<int>(output)), symbols_(symbols) {}

    bool holds(const Stmt& s, int64_t times) {
        if (!s) return true;
        if (auto* loop = s->as<For>()) {
            auto extent = evaluate_int(loop->extent, symbols_);
            if (mentions(loop->extent)) return false;
            if (!extent) {  // over a loop's variable, say: nothing of ours may be inside
                return !touches(loop->body);
            }
            int64_t inner = 0;
            if (__builtin_mul_overflow(times, std::max<int64_t>(*extent, 0), &inner)) return false;
            ranges_.insert_or_assign(loop->var.node().name, Range{0, std::max<int64_t>(*extent, 0)});
            return holds(loop->body, inner);
        }
        if (auto* branch = s->as<If>())
            if (const auto limit = limit_of(branch->condition))
                return holds(*branch, limit->first, limit->second, times);
        if (auto* seq = s->as<Seq>())
            return std::all_of(seq->stmts.begin(), seq->stmts.end(), [&](const Stmt& x) { return holds(x, times); });
        if (auto* alloc = s->as<Alloc>()) return holds(alloc->body, times);
        if (auto* store = s->as<Store>()) return holds(*store, times);
        return !touches(s);  // If: how often another branch is taken is not known; Call: reads what it likes
    }
    // All that was read of the input was stored over.
    bool all_stored() const { return before_.empty(); }

    int64_t stores = 0;

  private:
    // Iterations of a loop.
    struct Range {
        int64_t begin, end;
    };

    // Of a condition that holds in the first iterations of a loop alone: the loop, and the first in which it does not.
    std::optional<std::pair<std::string, int64_t>> limit_of(const Expr& condition) const {
        const bool less = condition.is(ExprKind::Lt);
        if ((!less && !condition.is(ExprKind::Le)) || !condition.arg(0).is(ExprKind::Var)) return {};
        const auto number = condition.arg(1).as_int();
        const std::string& name = condition.arg(0).node().name;
        if (!number || !ranges_.contains(name)) return {};
        return std::pair(name, *number + (less ? 0 : 1));
    }
    bool holds(const If& branch, const std::string& loop, int64_t limit, int64_t times) {
        const Range all = ranges_.at(loop);
        if (all.begin >= all.end) return true;
        const int64_t each = times / (all.end - all.begin), split = std::clamp(limit, all.begin, all.end);
        ranges_.insert_or_assign(loop, Range{all.begin, split});
        if (!holds(branch.then, each * (split - all.begin))) return false;
        ranges_.insert_or_assign(loop, Range{split, all.end});
        const bool fits = holds(branch.otherwise, each * (all.end - split));
        ranges_.insert_or_assign(loop, all);
        return fits;
    }

    bool holds(const Store& store, int64_t times) {
        for (const Expr& i : store.to.indices)
            if (mentions(i)) return false;
        if (store.to.buffer == input_) return false;
        bool fits = true;
        each_load(store.value, [&](const Expr& load) {
            const int slot = load.node().slot;
            for (const Expr& i : load.args())
                if (mentions(i)) fits = false;
            const bool own = store.to.buffer == output_ && load.args() == store.to.indices;
            if (slot == output_ || (slot == input_ && !own && stores > 0)) fits = false;
            if (slot == input_ && !own) before_.push_back(load.args());
        });
        if (store.to.buffer != output_) return fits;
        const bool plain = !store.combine && !__builtin_add_overflow(stores, times, &stores);
        std::erase_if(before_, [&](const std::vector<Expr>& at) { return at == store.to.indices; });
        return fits && plain;
    }

    bool mentions(const Expr& e) const {
        bool found = false;
        each_load(e, [&](const Expr& load) { found |= load.node().slot == input_ || load.node().slot == output_; });
        return found;
    }

    bool touches(const Stmt& s) const {
        bool found = false;
        visit_exprs(s, [&](const Expr& e) { found |= mentions(e); });
        visit(s, [&](const Stmt& x) {
            auto is_ours = [&](const Access& a) { return a.buffer == input_ || a.buffer == output_; };
            if (auto* store = x->as<Store>()) found |= is_ours(store->to);
            if (auto* call = x->as<Call>())
                found |= std::any_of(call->writes.begin(), call->writes.end(), is_ours) ||
                         std::any_of(call->reads.begin(), call->reads.end(), is_ours);
        });
        return found;
    }

    int input_, output_;
    const SymbolValues& symbols_;
    std::map<std::string, Range> ranges_;    // of loops around, as far as branches leave them
    std::vector<std::vector<Expr>> before_;  // where the input was read, until those elements are stored
};

}  // namespace

KernelAccess kernel_access(const Kernel& kernel) {
    KernelAccess access{std::vector<bool>(kernel.buffers.size()), std::vector<bool>(kernel.buffers.size())};
    visit_exprs(kernel.body, [&](const Expr& e) {
        each_load(e, [&](const Expr& load) { access.reads[static_cast<size_t>(load.node().slot)] = true; });
    });
    visit(kernel.body, [&](const Stmt& s) {
        if (auto* store = s->as<Store>()) {
            access.writes[static_cast<size_t>(store->to.buffer)] = true;
            if (store->combine) access.reads[static_cast<size_t>(store->to.buffer)] = true;
        }
        if (auto* call = s->as<Call>()) {
            for (const Access& a : call->writes) access.writes[static_cast<size_t>(a.buffer)] = true;
            for (const Access& a : call->reads) access.reads[static_cast<size_t>(a.buffer)] = true;
        }
    });
    access.reads.resize(kernel.params);
    access.writes.resize(kernel.params);
    return access;
}

bool may_overwrite(const Kernel& kernel, size_t input, size_t output, const SymbolValues& symbols) {
    const Buffer &in = kernel.buffers[input], &out = kernel.buffers[output];
    if (dtype_bytes(in.dtype) != dtype_bytes(out.dtype) || in.shape != out.shape || in.strides != out.strides ||
        !out.strides.empty())
        return false;
    auto elements = product(out.shape, symbols);
    if (!elements) return false;
    Overwriting check(input, output, symbols);
    // All elements are stored, as a kernel fills its outputs; as many stores as elements: each of them once.
    return check.holds(kernel.body, 1) && check.all_stored() && check.stores == *elements;
}

}  // namespace tessera
