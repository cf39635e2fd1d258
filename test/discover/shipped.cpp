#include "discover/shipped.h"
#include "source_dir.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera {

Claim Shipped::claim(const Rule& rule) const {
    const CertificateEntry& entry = certificates.at(rule.name);
    Claim claim{rule, entry.shapes};
    for (const auto& [name, list] : entry.values) claim.values.emplace(name, list.dims());
    return claim;
}

Shipped shipped_rules() {
    const std::string stem = source_dir() + "/rules/found/taso";
    Result<Rules> rules = load_rules(stem + ".rules");
    Result<Certificates> certificates = load_certificates(stem + ".cert");
    EXPECT_TRUE(rules.ok() && certificates.ok());
    return {*rules, *certificates};
}

Shipped hand_written_rules() {
    Shipped all;
    for (const RuleFile& file : built_in_rule_files()) {
        for (const Rule& rule : built_in_rules(file.name)) all.rules.push_back(rule);
        for (const auto& [name, entry] : built_in_certificates(file.name)) all.certificates.emplace(name, entry);
    }
    return all;
}

uint64_t campaign_seed() {
    const char* given = std::getenv("TESSERA_CAMPAIGN_SEED");
    return given ? std::strtoull(given, nullptr, 10) : 0;
}

int campaign() {
    const char* given = std::getenv("TESSERA_CAMPAIGN");
    return given ? std::atoi(given) : 300;
}

}  // namespace tessera
