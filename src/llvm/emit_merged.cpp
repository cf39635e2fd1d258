// A vector loop inside a loop of copies, whose element follows the last of the copy before: one vector loop over
// several registers, whose code is interleaved. That hides the latency of functions like exp.
#include <algorithm>

#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

bool is_function(const Expr& e) { return e.is(ExprKind::Call) && e.node().fn >= Fn::Exp && e.node().fn <= Fn::Erf; }

// Whether stores alone stand in it, of elements that it does not read, with a function of what it reads.
bool is_map(const Stmt& body) {
    std::vector<int> written;
    bool stores = true, functions = false, apart = true;
    visit(body, [&](const Stmt& s) {
        const Store* st = s->as<Store>();
        stores &= st ? !st->combine : s->as<Seq>() != nullptr;
        if (st) written.push_back(st->to.buffer);
    });
    visit_exprs(body, [&](const Expr& whole) {
        visit(whole, [&](const Expr& e) {
            functions |= is_function(e);
            if (e.is(ExprKind::Load))
                apart &= std::find(written.begin(), written.end(), e.node().slot) == written.end();
        });
    });
    return stores && functions && apart;
}

bool divides(const Stmt& body, const std::string& var) {
    bool found = false;
    visit_exprs(body, [&](const Expr& whole) {
        visit(whole, [&](const Expr& e) {
            if (!e.is(ExprKind::FloorDiv) && !e.is(ExprKind::Mod)) return;
            visit(e.arg(0), [&](const Expr& x) { found |= x.is(ExprKind::Var) && x.node().name == var; });
        });
    });
    return found;
}

}  // namespace

bool Emitter::emit_merged(const For& loop) {
    const For* inner = loop.body ? loop.body->as<For>() : nullptr;
    const auto count = loop.extent.as_int();
    if (lanes_ != 1 || !inner || inner->kind != LoopKind::Vector || !count) return false;
    const auto note = loop.notes.find("unroll");
    const int64_t copies = loop.kind == LoopKind::Unrolled ? std::min<int64_t>(*count, 4)
                           : note != loop.notes.end()      ? std::min(*count, note->second)
                                                           : 1;
    const auto extent = inner->extent.as_int();
    if (copies < 2 || !extent || *extent < 2 || *extent > lanes_for(*inner) || !is_map(inner->body)) return false;
    const int64_t groups = *count / copies;
    const std::string name = loop.var.node().name + "." + inner->var.node().name;
    Expr group = index_var(name + ".group", groups), lane = index_var(name, copies * *extent);
    Stmt body = substitute(inner->body, {{loop.var.node().name, group * copies + floor_div(lane, *extent)},
                                         {inner->var.node().name, mod(lane, *extent)}});
    if (divides(body, name)) return false;
    const For wide{lane, copies * *extent, LoopKind::Vector, {}, {}, body};
    if (touches_registers(wide)) return false;
    emit_for({group, groups, LoopKind::Serial, {}, {}, for_loop(wide)});
    for (int64_t i = groups * copies; i < *count; ++i)
        with_binding(loop.var, {nullptr, i, false, 0}, [&] { emit(loop.body); });
    return true;
}

}  // namespace tessera::codegen
