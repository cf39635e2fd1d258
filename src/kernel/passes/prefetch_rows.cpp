// Rows that are read, computed with for a while, and written: what the next iteration of the parallel loop reads, and
// what this one writes, comes into the cache meanwhile.
#include <algorithm>

#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

constexpr int64_t kLineBytes = 64, kLeastBytes = 2 << 10, kMostBytes = 128 << 10;  // of a row

// The loops that run one after the other in an iteration.
void collect(const Stmt& s, std::vector<Stmt>& loops) {
    if (!s) return;
    if (const Seq* list = s->as<Seq>())
        for (const Stmt& each : list->stmts) collect(each, loops);
    if (const Alloc* a = s->as<Alloc>()) collect(a->body, loops);
    if (s->as<For>()) loops.push_back(s);
}

struct Row {
    int buffer = -1;
    Expr index, lane;  // of the vector loop's variable
    int64_t lanes = 0;
};

bool is_global(const Kernel& kernel, int slot) {
    return kernel.buffers[static_cast<size_t>(slot)].scope == Scope::Global;
}

// The row that a loop reads, or writes, in lanes that lie together; each iteration of the parallel loop has another.
std::optional<Row> row_of(const Kernel& kernel, const For& loop, const Expr& instance, bool written) {
    if (loop.kind != LoopKind::Serial) return {};
    Stmt s = loop.body;
    if (const Seq* list = s->as<Seq>()) s = list->stmts.front();
    if (const If* branch = s->as<If>()) s = branch->then;
    const For* vector = s ? s->as<For>() : nullptr;
    if (!vector || vector->kind != LoopKind::Vector || !vector->extent.as_int()) return {};
    const Store* store = vector->body ? vector->body->as<Store>() : nullptr;
    if (!store || store->combine || is_global(kernel, store->to.buffer) != written) return {};
    Row row{store->to.buffer, 0, vector->var, *vector->extent.as_int()};
    if (!written) {
        if (!store->value.is(ExprKind::Load) || !is_global(kernel, store->value.node().slot)) return {};
        row.buffer = store->value.node().slot;
    }
    const std::vector<Expr>& indices = written ? store->to.indices : store->value.args();
    if (indices.size() != 1) return {};
    row.index = indices[0];
    const Expr next = substitute(row.index, {{vector->var.node().name, vector->var + Expr(1)}});
    const std::vector<std::string> names = free_symbols(row.index);
    const bool moves = std::find(names.begin(), names.end(), instance.node().name) != names.end();
    if (!(next - row.index).is_int(1) || !moves) return {};
    const auto bytes = static_cast<int64_t>(dtype_bytes(kernel.buffers[static_cast<size_t>(row.buffer)].dtype));
    const int64_t whole = loop.extent.as_int().value_or(0) * row.lanes * bytes;
    if (whole < kLeastBytes || whole > kMostBytes) return {};
    return row;
}

// Whether a loop computes functions, of what lies in local memory.
bool computes(const Kernel& kernel, const For& loop) {
    bool calls = false, local = true;
    visit_exprs(loop.body, [&](const Expr& whole) {
        visit(whole, [&](const Expr& e) {
            calls |= e.is(ExprKind::Call) && e.node().fn >= Fn::Sqrt && !is_dot(e.node().fn);
            local &= !e.is(ExprKind::Load) || !is_global(kernel, e.node().slot);
        });
    });
    return loop.kind == LoopKind::Serial && calls && local;
}

// The lines of a row that an iteration of `user` touches, `ahead` iterations of the parallel loop later; over `var`.
std::vector<Access> lines(const Kernel& kernel, const Row& row, const For& user, const Expr& var, const Expr& instance,
                          int64_t ahead) {
    const auto bytes = static_cast<int64_t>(dtype_bytes(kernel.buffers[static_cast<size_t>(row.buffer)].dtype));
    std::vector<Access> all;
    for (int64_t at = 0; at < row.lanes * bytes; at += kLineBytes)
        all.push_back({row.buffer,
                       {substitute(row.index, {{instance.node().name, instance + Expr(ahead)},
                                               {user.var.node().name, var},
                                               {row.lane.node().name, Expr(at / bytes)}})}});
    return all;
}

// The body of an iteration with prefetches in the loops that compute; null where there is nothing to fetch.
Stmt with_prefetches(const Kernel& kernel, const For& parallel) {
    std::vector<Stmt> loops;
    collect(parallel.body, loops);
    std::map<const StmtNode*, Stmt> replaced;
    for (size_t c = 0; c < loops.size(); ++c) {
        const For& loop = *loops[c]->as<For>();
        if (!computes(kernel, loop)) continue;
        Call call{.name = "prefetch", .writes = {}, .reads = {}, .args = {kSecondCache}};
        for (size_t u = 0; u < loops.size(); ++u) {
            const For& user = *loops[u]->as<For>();
            if (user.extent != loop.extent) continue;
            const auto row = row_of(kernel, user, parallel.var, u > c);
            if (!row) continue;
            auto& list = u > c ? call.writes : call.reads;
            for (Access& line : lines(kernel, *row, user, loop.var, parallel.var, u > c ? 0 : 1))
                list.push_back(std::move(line));
        }
        if (call.reads.empty()) continue;
        For made = loop;
        made.body = seq({make_stmt(std::move(call)), loop.body});
        replaced[loops[c].get()] = for_loop(std::move(made));
        break;
    }
    if (replaced.empty()) return nullptr;
    std::function<Stmt(const Stmt&)> rebuild = [&](const Stmt& part) -> Stmt {
        if (auto at = replaced.find(part.get()); at != replaced.end()) return at->second;
        if (const Seq* list = part->as<Seq>()) {
            std::vector<Stmt> parts;
            for (const Stmt& each : list->stmts) parts.push_back(rebuild(each));
            return seq(std::move(parts));
        }
        if (const Alloc* a = part->as<Alloc>()) return alloc(a->buffer, rebuild(a->body));
        return part;
    };
    return rebuild(parallel.body);
}

}  // namespace

void prefetch_rows(Kernel& kernel) {
    kernel.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        const For* parallel = s->as<For>();
        if (!parallel || parallel->kind != LoopKind::Parallel) return s;
        For made = *parallel;
        made.body = with_prefetches(kernel, *parallel);
        return made.body ? for_loop(std::move(made)) : s;
    });
}

}  // namespace tessera
