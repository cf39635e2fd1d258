#include "kernel/gpu/rows_together.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernel/ir/races.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 4, kWarpThreads = 32, kLeastBlocks = 4096;

// All that a block does is loops over the threads of one warp, one after the other.
bool is_of_one_warp(const Stmt& s) {
    if (!s) return true;
    if (const Alloc* a = s->as<Alloc>()) return is_of_one_warp(a->body);
    if (const Seq* all = s->as<Seq>()) return std::all_of(all->stmts.begin(), all->stmts.end(), is_of_one_warp);
    const For* loop = s->as<For>();
    if (!loop || loop->kind != LoopKind::Bound || loop->axis != "thread.x" || !loop->extent.is_int(kWarpThreads))
        return false;
    bool alone = true;
    visit(loop->body, [&](const Stmt& x) {
        const For* inner = x->as<For>();
        alone &= !(inner && inner->kind == LoopKind::Bound) && !x->as<Call>();
    });
    return alone;
}

class Together {
  public:
    Together(Kernel& kernel, const For& rows) : kernel_(kernel), rows_(rows) {
        visit(rows.body, [&](const Stmt& s) {
            const Alloc* a = s->as<Alloc>();
            if (a && kernel.buffers[static_cast<size_t>(a->buffer)].scope == Scope::Shared) shared_.insert(a->buffer);
        });
    }

    Stmt made() {
        For blocks = rows_;
        blocks.extent = floor_div(rows_.extent, kRows);
        blocks.var = index_var(rows_.var.node().name, blocks.extent.as_int());
        blocks.body = inside(rows_.body);
        for (int slot : shared_) {
            Buffer& b = kernel_.buffers[static_cast<size_t>(slot)];
            if (!b.strides.empty()) {
                Expr size = 1;
                for (size_t d = 0; d < b.shape.size(); ++d) size = size + (b.shape[d] - 1) * b.strides[d];
                b.strides.insert(b.strides.begin(), size);
            }
            b.shape.insert(b.shape.begin(), kRows);
        }
        return make_stmt(std::move(blocks));
    }

  private:
    Stmt inside(const Stmt& s) {
        if (!s) return s;
        if (const Alloc* a = s->as<Alloc>()) return alloc(a->buffer, inside(a->body));
        if (const Seq* all = s->as<Seq>()) {
            std::vector<Stmt> list;
            for (const Stmt& each : all->stmts) list.push_back(inside(each));
            return seq(std::move(list));
        }
        const std::string& name = rows_.var.node().name;
        const Expr row = index_var(fmt::format("{}.row{}", name, names_++), kRows);
        const Expr block = index_var(name, floor_div(rows_.extent, kRows).as_int());
        Stmt body = substitute(s, {{name, block * Expr(kRows) + row}});
        body = of_row(body, row);
        return for_loop(
            {.var = row, .extent = kRows, .kind = LoopKind::Bound, .axis = "thread.y", .body = std::move(body)});
    }

    // What rows share becomes their own.
    Stmt of_row(const Stmt& s, const Expr& row) const {
        const auto with = [&](std::vector<Expr> indices) {
            indices.insert(indices.begin(), row);
            return indices;
        };
        Stmt loaded = map_exprs(s, [&](const Expr& e) {
            return rewrite(e, [&](const Expr& x) {
                if (!x.is(ExprKind::Load) || !shared_.contains(x.node().slot)) return x;
                return load(x.node().slot, x.dtype(), with(x.args()));
            });
        });
        return mutate(loaded, [&](const Stmt& x) -> Stmt {
            const Store* to = x ? x->as<Store>() : nullptr;
            if (!to || !shared_.contains(to->to.buffer)) return x;
            Store made = *to;
            made.to.indices = with(made.to.indices);
            return make_stmt(std::move(made));
        });
    }

    Kernel& kernel_;
    const For rows_;
    std::set<int> shared_;
    int names_ = 0;
};

}  // namespace

void take_rows_together(Kernel& kernel) {
    const For* rows = kernel.body ? kernel.body->as<For>() : nullptr;
    if (!rows || rows->kind != LoopKind::Bound || rows->axis != "block.x" || !is_of_one_warp(rows->body)) return;
    const auto blocks = rows->extent.as_int();
    if (!blocks || *blocks % kRows || *blocks < kLeastBlocks) return;
    kernel.body = Together(kernel, *rows).made();
}

}  // namespace tessera
