// Proves a claim for all sizes: composes the bodies of each side into one expression of an output element, brings both
// to a normal form (sums of guarded products over index comprehensions) and compares. Unknown is not refuted.
#pragma once

#include <functional>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "discover/claim/certificate.h"
#include "discover/claim/claim.h"

namespace tessera {

struct ProveOptions {
    bool certificate = true;    // keep the evidence
    int max_terms = 400;        // of a normal form; beyond it the verdict is unknown
    bool write_out = false;     // where nothing else cancels: a sum over a few values as the terms at each
    int64_t max_questions = 0;  // about what follows from conditions on sizes; 0: no limit
    Deadline until = {};        // then the verdict is unknown
    // Called once for each root whose proof takes long. True: give up.
    std::function<bool()> give_up = {};
};

struct Proof {
    enum class Verdict { Proved, Refuted, Unknown };
    Verdict verdict = Verdict::Unknown;
    std::string reason = {};  // why it is not proved
    bool undefined = false;   // because the right side may be no number where the left side is one
    Certificate certificate = {};
    bool proved() const { return verdict == Verdict::Proved; }
};
std::string_view name_of(Proof::Verdict v);  // "proved", "refuted", "unknown"

// An error where the claim makes no sense: a variable without a shape, a side that inference refuses.
Result<Proof> prove(const Claim& claim, const ProveOptions& options = {});

// The same claim made more general in several ways, the most general first and the claim itself last. The first that
// proves is the rule to keep; what it still fixes are its side conditions.
std::vector<Claim> generalise(const Claim& claim);
// Generates more general forms one by one, on demand, until `stop` returns true.
void each_general(const Claim& claim, const std::function<bool(const Claim&)>& stop);

}  // namespace tessera
