#include "search/claims.h"

#include <gtest/gtest.h>

#include <fstream>

namespace tessera {

const ListedClaims& listed_claims() {
    static const ListedClaims all = [] {
        ListedClaims out;
        std::ifstream file(TESSERA_SOURCE_DIR "/test/search/claims.txt");
        EXPECT_TRUE(file.good());
        std::vector<Claim>* to = &out.hold;
        for (std::string line; std::getline(file, line);) {
            if (line.empty() || line.starts_with("#")) continue;
            if (line == "do not hold") {
                to = &out.do_not;
                continue;
            }
            Result<Claim> claim = read_claim(line);
            EXPECT_TRUE(claim.ok()) << line << "\n" << claim.error().to_string();
            if (claim.ok()) to->push_back(std::move(*claim));
        }
        return out;
    }();
    return all;
}

}  // namespace tessera
