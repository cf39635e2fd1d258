// The evidence for a claim, as text that check_certificate replays without the prover, and the files that hold the
// certificates of the rules beside them: rules/found/x.cert for rules/found/x.rules.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "discover/claim/claim.h"

namespace tessera {

// Steps, one a line, under "root 0", "root 1", ... (docs/proofs.md has the laws).
struct Certificate {
    std::string text;
    bool empty() const { return text.empty(); }
};

// One entry of a file: "rule NAME", "where x: [M,K]" (and "with s: [s0 + 1]" for attributes), the steps, "end".
std::string certificate_entry(const Claim& claim, const Certificate& certificate);

// A rule that is believed without a proof has the reason instead: "listed REASON".
struct CertificateEntry {
    std::map<std::string, Shape> shapes, values;
    Certificate certificate;
    std::string listed = {};
};
using Certificates = std::map<std::string, CertificateEntry>;                              // by the rule's name
Result<Certificates> read_certificates(std::string_view text, const std::string& source);  // E0301
Result<Certificates> load_certificates(const std::string& path);
// Those of the rules that come with Tessera, by the same names as built_in_rule_files.
const std::vector<RuleFile>& built_in_certificate_files();
const Certificates& built_in_certificates(std::string_view file);
std::string certificates_path(const std::string& rules_path);

}  // namespace tessera
