#include "kernel/from_graph/definitions.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {

std::vector<Expr> index_vars(const std::vector<Expr>& shape) {
    std::vector<Expr> vars;
    for (size_t d = 0; d < shape.size(); ++d) vars.push_back(index_var(fmt::format("%i{}", d), shape[d].as_int()));
    return vars;
}

std::optional<size_t> axis_of(const std::vector<Expr>& vars, const Expr& e) {
    if (!e.is(ExprKind::Var)) return std::nullopt;
    for (size_t d = 0; d < vars.size(); ++d)
        if (vars[d].node().name == e.node().name) return d;
    return std::nullopt;
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

}  // namespace tessera
