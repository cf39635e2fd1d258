#include "discover/claims.h"
#include "source_dir.h"

#include <gtest/gtest.h>

#include <fstream>

namespace tessera {
namespace {

ListedClaims read_listed(const std::string& name, const std::string& divider) {
    ListedClaims out;
    std::ifstream file(source_dir() + "/test/discover/" + name);
    EXPECT_TRUE(file.good());
    std::vector<Claim>* to = &out.hold;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line.starts_with("#")) continue;
        if (line == divider) {
            to = &out.do_not;
            continue;
        }
        Result<Claim> claim = read_claim(line);
        EXPECT_TRUE(claim.ok()) << line << "\n" << claim.error().to_string();
        if (claim.ok()) to->push_back(std::move(*claim));
    }
    return out;
}

}  // namespace

const ListedClaims& listed_claims() {
    static const ListedClaims all = read_listed("claims.txt", "do not hold");
    return all;
}

const ListedClaims& axioms() {
    static const ListedClaims all = read_listed("axioms.txt", "unsound");
    return all;
}

}  // namespace tessera
