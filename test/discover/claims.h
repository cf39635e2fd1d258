// The claims of claims.txt and axioms.txt.
#pragma once

#include <vector>

#include "discover/claim/claim.h"

namespace tessera {

struct ListedClaims {
    std::vector<Claim> hold, do_not;
};
const ListedClaims& listed_claims();
const ListedClaims& axioms();

}  // namespace tessera
