// Originals whose corrected mutants are rules for everybody (rules/found/corrected.rules), and the rules made of them.
#pragma once

#include "discover/correct/mutate.h"

namespace tessera {

// Claims, one a line: "conv(x, w, pads=[1, 1, 1, 1]) where x: [2*N,C,H,W], w: [M,C,3,3]"; // comments.
std::string_view built_in_originals();

struct CorrectedRules {
    std::vector<MutantRule> rules;
    size_t originals = 0, mutants = 0;
    int64_t terms = 0;
    std::vector<std::string> refused;
    double seconds = 0;
};

// E0301 for a line that is no original, E0410 where it was cancelled.
Result<CorrectedRules> discover_corrected(std::string_view originals, const MutateOptions& options);

// The text of a rule file, and of the certificates beside it.
std::string rules_text(const CorrectedRules& found);
std::string certificates_text(const CorrectedRules& found);

}  // namespace tessera
