#include "rewrite/rules/functions.h"

#include "rewrite/rules/make_function.h"

namespace tessera {

std::optional<std::vector<int64_t>> numbers_of(const std::vector<Expr>& list) {
    std::vector<int64_t> out;
    for (const Expr& e : list) {
        auto i = e.as_int();
        if (!i) return {};
        out.push_back(*i);
    }
    return out;
}

const std::vector<RuleFunction>& rule_functions() {
    static const std::vector<RuleFunction> all = [] {
        std::vector<RuleFunction> out = functions::arithmetic();
        for (auto& part : {functions::lists(), functions::axes(), functions::tensors(), functions::einsum()})
            out.insert(out.end(), part.begin(), part.end());
        return out;
    }();
    return all;
}

std::vector<const RuleFunction*> find_rule_functions(std::string_view name) {
    std::vector<const RuleFunction*> found;
    for (const RuleFunction& f : rule_functions())
        if (f.name == name) found.push_back(&f);
    return found;
}

}  // namespace tessera
