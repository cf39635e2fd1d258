#include "discover/check/verify_rule.h"

#include <algorithm>

#include "discover/check/check_certificate.h"
#include "discover/check/check_exactness.h"

namespace tessera {

Status verify_rule(const Rule& rule, const Certificates& certificates) {
    auto refused = [&](std::string why) { return Error(Code::E0305, "{}: {}", rule.name, why).at(rule.source); };
    auto found = certificates.find(rule.name);
    if (found == certificates.end()) return refused("it has no certificate");
    const CertificateEntry& entry = found->second;
    Claim claim{rule, entry.shapes};
    for (const auto& [name, list] : entry.values) claim.values.emplace(name, list.dims());
    TRY(check_names(claim));
    for (size_t i = 0; i < rule.variables.size(); ++i)
        if (entry.shapes.contains(rule.variables[i].name) && rule.variables[i].constraint.empty())
            return refused(fmt::format("it is proved for real numbers only, and {} is not said to be float",
                                       rule.variables[i].name));
    // The conditions must confine the rule to what was proved, attributes included.
    Claim bare = claim;
    bare.rule.conditions.clear();
    Rule needed = to_rule(bare);
    std::vector<std::string> stated;
    for (const Term& c : rule.conditions) stated.push_back(to_string(c, rule));
    for (const Term& c : needed.conditions) {
        std::string text = to_string(c, needed);
        if (std::find(stated.begin(), stated.end(), text) == stated.end())
            return refused(fmt::format("it is proved only where {}, which it does not say", text));
    }
    TRY(check_certificate(claim, entry.certificate));
    if (rule.exactness == Exactness::Exact && exactness_of(claim) != Exactness::Exact)
        return refused("it is said to be exact, and its sides do not do the same operations");
    return {};
}

}  // namespace tessera
