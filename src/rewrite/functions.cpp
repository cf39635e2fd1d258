#include "rewrite/functions.h"

#include "rewrite/make_function.h"

namespace tessera {

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
