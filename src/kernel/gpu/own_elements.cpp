#include "kernel/gpu/own_elements.h"

#include <map>
#include <optional>
#include <set>

#include "kernel/ir/races.h"

namespace tessera {
namespace {

constexpr int64_t kMostElements = 64;  // of one thread

// Thread v of `threads` has the elements v * width + [0, width), and so on after each threads * width.
struct Owners {
    int64_t threads = 0, width = 0;
    bool operator==(const Owners&) const = default;
};

class OwnElements {
  public:
    OwnElements(Kernel& kernel, int buffer) : kernel_(kernel), buffer_(buffer) {}

    // Whether all accesses in `body` are of one kind: by threads along x, of which each row has those of one y.
    bool look_at(const Stmt& body) {
        follow(body);
        if (failed_ || !owners_) return false;
        const Buffer& b = kernel_.buffers[static_cast<size_t>(buffer_)];
        const int64_t size = *b.shape.back().as_int(), all = owners_->threads * owners_->width;
        return size % all == 0 && size / owners_->threads <= kMostElements;
    }

    Stmt changed(const Stmt& body) {
        Buffer& b = kernel_.buffers[static_cast<size_t>(buffer_)];
        const int64_t rows = b.shape.size() == 2 ? *b.shape[0].as_int() : 1;
        b.shape = {1, rows, owners_->threads, *b.shape.back().as_int() / owners_->threads};
        return mutate(body, [&](const Stmt& s) -> Stmt {
            const For* loop = s ? s->as<For>() : nullptr;
            return loop && loop->axis == "thread.x" ? make_stmt(within(*loop)) : s;
        });
    }

  private:
    For within(const For& threads) const {
        For made = threads;
        const auto place = [&](const std::vector<Expr>& at) -> std::vector<Expr> {
            return {0, at.size() == 2 ? at[0] : Expr(0), threads.var, in_thread(at.back(), threads)};
        };
        made.body = map_exprs(threads.body, [&](const Expr& whole) {
            return rewrite(whole, [&](const Expr& e) {
                const bool own = e.is(ExprKind::Load) && e.node().slot == buffer_ && e.args().size() <= 2;
                return own ? load(buffer_, e.dtype(), place(e.args())) : e;
            });
        });
        made.body = mutate(made.body, [&](const Stmt& s) -> Stmt {
            const Store* store = s ? s->as<Store>() : nullptr;
            if (!store || store->to.buffer != buffer_ || store->to.indices.size() > 2) return s;
            Store moved = *store;
            moved.to.indices = place(store->to.indices);
            return make_stmt(std::move(moved));
        });
        return made;
    }

    // Inside of a loop over threads along x, and one over threads along y around that.
    void follow(const Stmt& s, const For* threads = nullptr) {
        if (!s || failed_) return;
        if (const For* loop = s->as<For>()) {
            const bool lines = loop->axis == "thread.y";
            if (lines) {
                failed_ |= threads != nullptr || lines_ != nullptr;
                lines_ = loop;
            } else if (is_thread_loop(*loop)) {
                failed_ |= threads != nullptr || loop->axis != "thread.x" || !loop->extent.as_int();
                threads = loop;
            } else if (threads) {
                kinds_.insert_or_assign(loop->var.node().name, loop);
            }
            follow(loop->body, threads);
            if (lines) lines_ = nullptr;
        } else if (const Seq* list = s->as<Seq>()) {
            for (const Stmt& each : list->stmts) follow(each, threads);
        } else if (const Alloc* a = s->as<Alloc>()) {
            follow(a->body, threads);
        } else if (const If* branch = s->as<If>()) {
            loads(branch->condition, threads);
            follow(branch->then, threads);
            follow(branch->otherwise, threads);
        } else if (const Store* store = s->as<Store>()) {
            if (store->to.buffer == buffer_) access(store->to.indices, threads);
            loads(store->value, threads);
            for (const Expr& index : store->to.indices) loads(index, threads);
        } else {
            visit_exprs(s, [&](const Expr& e) { visit(e, [&](const Expr& x) { refuse(x); }); });
            if (const Call* call = s->as<Call>())
                for (const auto* list : {&call->writes, &call->reads})
                    for (const Access& a : *list) failed_ |= a.buffer == buffer_;
        }
    }

    void refuse(const Expr& e) { failed_ |= e.is(ExprKind::Load) && e.node().slot == buffer_; }

    void loads(const Expr& whole, const For* threads) {
        visit(whole, [&](const Expr& e) {
            if (e.is(ExprKind::Load) && e.node().slot == buffer_) access(e.args(), threads);
        });
    }

    void access(const std::vector<Expr>& indices, const For* threads) {
        const auto owners =
            threads && is_own_row(indices) ? owners_of(indices.back(), *threads) : std::optional<Owners>();
        failed_ |= !owners || (owners_ && *owners_ != *owners);
        if (owners) owners_ = owners;
    }

    bool is_own_row(const std::vector<Expr>& indices) const {
        const Buffer& b = kernel_.buffers[static_cast<size_t>(buffer_)];
        if (indices.size() == 1) return lines_ == nullptr;
        return lines_ && indices[0].same(lines_->var) && lines_->extent.same(b.shape[0]);
    }

    static std::optional<int64_t> step_of(const Expr& index, const Expr& var) {
        return (substitute(index, {{var.node().name, var + Expr(1)}}) - index).as_int();
    }

    std::optional<Owners> owners_of(const Expr& index, const For& threads) const {
        const auto width = step_of(index, threads.var);
        if (!width || *width <= 0) return {};
        const Owners owners{*threads.extent.as_int(), *width};
        int64_t low = 0;
        Expr rest = index - threads.var * Expr(*width);
        for (const std::string& name : free_symbols(index)) {
            if (name == threads.var.node().name) continue;
            const auto loop = kinds_.find(name);
            if (loop == kinds_.end()) return {};
            const auto step = step_of(index, loop->second->var), extent = loop->second->extent.as_int();
            const bool constant = loop->second->kind == LoopKind::Unrolled || loop->second->kind == LoopKind::Vector;
            if (!step || !extent || !constant || *step < 0) return {};
            if (*step % (owners.threads * owners.width) != 0) low += *step * (*extent - 1);
            rest = rest - loop->second->var * Expr(*step);
        }
        if (low >= owners.width || !rest.is_int(0)) return {};
        return owners;
    }

    Expr in_thread(const Expr& index, const For& threads) const {
        Expr place = 0;
        for (const std::string& name : free_symbols(index)) {
            if (name == threads.var.node().name) continue;
            const For& loop = *kinds_.at(name);
            const int64_t step = *step_of(index, loop.var), all = owners_->threads * owners_->width;
            place = place + loop.var * Expr(step % all ? step : step / all * owners_->width);
        }
        return place;
    }

    Kernel& kernel_;
    const int buffer_;
    bool failed_ = false;
    const For* lines_ = nullptr;
    std::optional<Owners> owners_;
    std::map<std::string, const For*> kinds_;  // loops of a thread, by variable
};

}  // namespace

void own_elements(Kernel& kernel) {
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        const Alloc* a = s ? s->as<Alloc>() : nullptr;
        if (!a) return s;
        const Buffer& b = kernel.buffers[static_cast<size_t>(a->buffer)];
        if (b.scope != Scope::Shared || b.shape.size() > 2 || b.shape.empty() || !b.strides.empty()) return s;
        for (const Expr& size : b.shape)
            if (!size.as_int()) return s;
        OwnElements own(kernel, a->buffer);
        return own.look_at(a->body) ? alloc(a->buffer, own.changed(a->body)) : s;
    });
}

}  // namespace tessera
