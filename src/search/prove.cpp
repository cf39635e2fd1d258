#include "search/prove.h"

namespace tessera {

std::string_view name_of(Proof::Verdict v) {
    switch (v) {
        case Proof::Verdict::Proved: return "proved";
        case Proof::Verdict::Refuted: return "refuted";
        case Proof::Verdict::Unknown: return "unknown";
    }
    return "";
}

Result<Proof> prove(const Claim&, const ProveOptions&) { return Proof{}; }

std::vector<Claim> generalise(const Claim& claim) { return {claim}; }

}  // namespace tessera
