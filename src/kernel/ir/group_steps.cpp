#include "kernel/ir/group_steps.h"

#include "kernel/ir/intrinsic.h"

namespace tessera {
namespace {

constexpr int64_t kQuad = 4, kWarp = 32;  // threads

bool goes_on(const Call& call) {
    const Intrinsic* known = find_intrinsic(call.name);
    return known && known->later;
}

// All get what the first has gathered.
Stmt quad_loops(const Kernel& kernel, const Call& call, int number) {
    const int buffer = call.writes[0].buffer;
    const Buffer& b = kernel.buffers[static_cast<size_t>(buffer)];
    auto variable = [&](const char* name, int64_t extent) {
        return index_var(fmt::format("{}.{}", name, number), extent);
    };
    const Expr warp = variable("quad_warp", *b.shape[0].as_int()), group = variable("quad_group", *b.shape[1].as_int());
    const Expr e = variable("quad_element", *b.shape[3].as_int());
    const Expr from = variable("quad_from", kQuad - 1), to = variable("quad_to", kQuad - 1);
    auto at = [&](const Expr& thread) { return std::vector<Expr>{warp, group, thread, e}; };
    const ReduceOp combine = call.name == kQuadMax ? ReduceOp::Max : ReduceOp::Sum;
    Stmt gather = store(buffer, at(0), load(buffer, b.dtype, at(from + 1)), combine);
    Stmt spread = store(buffer, at(to + 1), load(buffer, b.dtype, at(0)));
    Stmt body = seq({for_loop({.var = from, .extent = kQuad - 1, .body = std::move(gather)}),
                     for_loop({.var = to, .extent = kQuad - 1, .body = std::move(spread)})});
    body = for_loop({.var = e, .extent = b.shape[3], .body = std::move(body)});
    body = for_loop({.var = group, .extent = b.shape[1], .body = std::move(body)});
    return for_loop({.var = warp, .extent = b.shape[0], .body = std::move(body)});
}

Stmt swap_loops(const Kernel& kernel, const Call& call, int number) {
    const Buffer& b = kernel.buffers[static_cast<size_t>(call.writes[0].buffer)];
    const int64_t mask = *call.args[0].as_int();
    std::vector<Expr> at;
    for (const Expr& size : b.shape)
        at.push_back(index_var(fmt::format("swap{}.{}", at.size(), number), *size.as_int()));
    std::vector<Expr> from = at;
    const int64_t line = std::min(*b.shape[2].as_int(), kWarp);  // threads of a warp along x
    if (mask >= line) from[1] = bit(ExprKind::BitXor, at[1], Expr(mask / line));
    if (mask % line) from[2] = bit(ExprKind::BitXor, at[2], Expr(mask % line));
    Stmt body = store(call.writes[0].buffer, at, load(call.reads[0].buffer, b.dtype, from));
    for (size_t d = at.size(); d-- > 0;) body = for_loop({.var = at[d], .extent = b.shape[d], .body = std::move(body)});
    return body;
}

// Whether the warps of [z, y, x] threads are whole, and a number of a thread in its warp is bits of y and of x.
bool has_whole_warps(const Buffer& b) {
    const auto y = b.shape[1].as_int(), x = b.shape[2].as_int();
    if (!y || !x || *y < 1 || *x < 1) return false;
    return *x % kWarp == 0 || (kWarp % *x == 0 && *y % (kWarp / *x) == 0);
}

}  // namespace

bool is_group_step(const Call& call) {
    return call.name == kQuadMax || call.name == kQuadSum || call.name == kWaitProduct || call.name == kSwapLanes;
}

std::optional<std::string> misused_step(const Kernel& kernel, const Call& call) {
    const bool waits = call.name == kWaitProduct, swaps = call.name == kSwapLanes;
    bool right = call.writes.size() == 1 && call.reads.size() == (waits ? 0 : 1) && call.args.size() == (swaps ? 1 : 0);
    if (right && swaps) {
        const auto mask = call.args[0].as_int();
        right = mask && *mask > 0 && *mask < 32 && call.reads[0].buffer != call.writes[0].buffer;
        const Buffer &to = kernel.buffers[static_cast<size_t>(call.writes[0].buffer)],
                     &from = kernel.buffers[static_cast<size_t>(call.reads[0].buffer)];
        right &= to.dtype == from.dtype && to.shape == from.shape;
    } else if (right && !waits) {
        right = call.reads[0].buffer == call.writes[0].buffer;
    }
    if (right) {
        const Buffer& b = kernel.buffers[static_cast<size_t>(call.writes[0].buffer)];
        right = b.scope == Scope::Shared && b.shape.size() == 4 && b.strides.empty();
        right &= right && (swaps ? has_whole_warps(b) : b.shape[2].is_int(kQuad));
        for (const Expr& size : b.shape) right &= size.as_int().has_value();
        for (const Expr& index : call.writes[0].indices) right &= index.is_int(0);
    }
    if (right) return std::nullopt;
    return fmt::format("{} wants a buffer {} in shared memory", call.name,
                       swaps ? "[z, y, x, elements] of threads in whole warps" : "[warps, 8, 4, elements]");
}

std::optional<std::string> misused_product(const Stmt& s) {
    std::optional<std::string> problem;
    auto look = [&](const std::vector<Stmt>& all) {
        std::vector<int> begun;
        for (const Stmt& each : all) {
            const Call* call = each ? each->as<Call>() : nullptr;
            if (!call) continue;
            if (goes_on(*call)) begun.push_back(call->writes[0].buffer);
            if (call->name != kWaitProduct) continue;
            if (begun.empty() || begun.front() != call->writes[0].buffer)
                problem = "wait_product of what was not begun in its sequence, or not as the first";
            else
                begun.erase(begun.begin());
        }
        if (!begun.empty()) problem = "a product that is not waited for in the sequence that begins it";
    };
    visit(s, [&](const Stmt& x) {
        if (const Seq* all = x->as<Seq>()) look(all->stmts);
        for (const Stmt* body :
             {x->as<For>() ? &x->as<For>()->body : nullptr, x->as<Alloc>() ? &x->as<Alloc>()->body : nullptr})
            if (body && *body && (*body)->as<Call>()) look({*body});
        if (const If* branch = x->as<If>())
            for (const Stmt& body : {branch->then, branch->otherwise})
                if (body && body->as<Call>()) look({body});
    });
    return problem;
}

Kernel expand_group_steps(const Kernel& kernel) {
    Kernel expanded = kernel;
    int number = 0;
    expanded.body = mutate(expanded.body, [&](const Stmt& s) -> Stmt {
        if (const Call* call = s ? s->as<Call>() : nullptr; call && call->name == kSwapLanes)
            return swap_loops(kernel, *call, number++);
        const Seq* all = s ? s->as<Seq>() : nullptr;
        if (!all) return s;
        std::vector<Stmt> stmts, begun;
        for (const Stmt& each : all->stmts) {
            const Call* call = each ? each->as<Call>() : nullptr;
            if (call && goes_on(*call)) {
                begun.push_back(each);
            } else if (call && call->name == kWaitProduct && !begun.empty()) {
                stmts.push_back(begun.front());
                begun.erase(begun.begin());
            } else if (call && is_group_step(*call) && call->name != kWaitProduct) {
                stmts.push_back(quad_loops(kernel, *call, number++));
            } else {
                stmts.push_back(each);
            }
        }
        stmts.insert(stmts.end(), begun.begin(), begun.end());
        return seq(std::move(stmts));
    });
    return expanded;
}

}  // namespace tessera
