#include "kernel/definitions.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {

std::vector<Expr> index_vars(const std::vector<Expr>& shape) {
    std::vector<Expr> vars;
    for (size_t d = 0; d < shape.size(); ++d) vars.push_back(index_var(fmt::format("%i{}", d), shape[d].as_int()));
    return vars;
}

std::vector<ReduceAxis> Definition::axes() const {
    std::vector<Expr> vars = index_vars(shape);
    std::vector<ReduceAxis> out;
    for (size_t d = 0; d < shape.size(); ++d) out.push_back({vars[d], shape[d]});
    return out;
}

int Definitions::number(const Value* v) const {
    auto found = numbers.find(v);
    CHECK(found != numbers.end(), "value {} has no definition", v->name());
    return found->second;
}

std::vector<int> Definitions::size_sources(int n) const {
    std::vector<int> out;
    if (sizes.empty()) return out;
    auto add = [&](const Expr& e) {
        for (const std::string& name : free_symbols(e))
            if (auto found = sizes.find(name); found != sizes.end() && found->second != n) out.push_back(found->second);
    };
    const Definition& d = list[size_t(n)];
    for (const Expr& e : d.shape) add(e);
    for (const ReduceAxis& a : d.reduce) add(a.extent);
    if (d.has_body()) add(d.body);
    return out;
}

std::vector<int> loaded_slots(const Expr& e) {
    std::vector<int> out;
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Load) && std::find(out.begin(), out.end(), x.node().slot) == out.end())
            out.push_back(x.node().slot);
    });
    return out;
}

namespace {

Expr mapped(const Expr& e, const std::function<Expr(const Expr&)>& f, std::unordered_map<const ExprNode*, Expr>& done) {
    if (!e.node().reads) return e;
    if (auto found = done.find(e.get()); found != done.end()) return found->second;
    std::vector<Expr> args;
    for (const Expr& a : e.args()) args.push_back(mapped(a, f, done));
    Expr made = e;
    if (e.is(ExprKind::Reduce)) {
        std::vector<ReduceAxis> axes;
        for (const ReduceAxis& a : e.node().axes) axes.push_back({a.var, mapped(a.extent, f, done)});
        made = reduce(e.node().reduce_op, std::move(axes), args[0]);
    } else if (e.is(ExprKind::Load)) {
        made = f(load(e.node().slot, e.dtype(), std::move(args)));
    } else {
        made = with_args(e, std::move(args));
    }
    done.emplace(e.get(), made);
    return made;
}

}  // namespace

Expr map_loads(const Expr& e, const std::function<Expr(const Expr& load)>& f) {
    std::unordered_map<const ExprNode*, Expr> done;
    return mapped(e, f, done);
}

}  // namespace tessera
