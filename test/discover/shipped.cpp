#include "discover/shipped.h"

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
    const std::string stem = TESSERA_SOURCE_DIR "/rules/found/taso";
    Result<Rules> rules = load_rules(stem + ".rules");
    Result<Certificates> certificates = load_certificates(stem + ".cert");
    EXPECT_TRUE(rules.ok() && certificates.ok());
    return {*rules, *certificates};
}

int campaign() {
    const char* given = std::getenv("TESSERA_CAMPAIGN");
    return given ? std::atoi(given) : 300;
}

}  // namespace tessera
