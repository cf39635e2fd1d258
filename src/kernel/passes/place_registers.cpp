#include <set>

#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

// Buffers of registers that some access indexes by what is no constant once loops are expanded.
class Indexed {
  public:
    explicit Indexed(const Kernel& kernel) : kernel_(kernel) {}

    std::set<int> run() {
        find(kernel_.body);
        return std::move(found_);
    }

  private:
    void find(const Stmt& s) {
        if (!s) return;
        if (const For* loop = s->as<For>()) {
            look(loop->extent);
            const bool expanded = loop->kind == LoopKind::Unrolled || loop->kind == LoopKind::Vector;
            if (expanded) expanded_.insert(loop->var.node().name);
            find(loop->body);
            return;
        }
        if (const Seq* all = s->as<Seq>())
            for (const Stmt& each : all->stmts) find(each);
        if (const Alloc* a = s->as<Alloc>()) find(a->body);
        if (const If* branch = s->as<If>()) {
            look(branch->condition);
            find(branch->then);
            find(branch->otherwise);
        }
        if (const Store* to = s->as<Store>()) {
            look(to->to.buffer, to->to.indices);
            look(to->value);
        }
        if (const Call* call = s->as<Call>())
            for (const auto* list : {&call->writes, &call->reads})
                for (const Access& a : *list) look(a.buffer, a.indices);
    }

    void look(int buffer, const std::vector<Expr>& indices) {
        for (const Expr& index : indices) {
            look(index);
            bool constant = !index.node().reads;
            for (const std::string& name : free_symbols(index)) constant &= expanded_.contains(name);
            if (!constant && kernel_.buffers[size_t(buffer)].scope == Scope::Register) found_.insert(buffer);
        }
    }
    void look(const Expr& whole) {
        visit(whole, [&](const Expr& e) {
            if (e.is(ExprKind::Load)) look(e.node().slot, e.args());
        });
    }

    const Kernel& kernel_;
    std::set<std::string> expanded_;  // variables, which are unique in a kernel
    std::set<int> found_;
};

}  // namespace

void place_registers(Kernel& kernel) {
    for (int buffer : Indexed(kernel).run()) kernel.buffers[size_t(buffer)].scope = Scope::Local;
}

}  // namespace tessera
