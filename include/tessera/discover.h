// Discovery: rules that nobody wrote. Small graphs over a set of ops are enumerated; of those that compute the same,
// what no other pair explains is proved for all sizes. docs/superoptimizer.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/error.h"

namespace tessera {

struct DiscoverProgress {
    std::string_view world, phase;  // "levels", "terms", "shards" or "proofs"
    int level = 0;                  // ops of the terms; 0 for proofs
    int64_t done = 0, total = 0;    // of this phase
    int64_t terms = 0, classes = 0, pairs = 0;
};

struct DiscoverRulesOptions {
    std::string ops = "taso";  // "taso", "extended", a file (mine.ops), or names of ops: "add,mul,relu"
    int max_ops = 3;           // on either side of a rule, 1 to 4
    std::string out =
        {};             // file of the proved rules; certificates go to .cert beside it, what is only tested to .tested
    uint64_t seed = 0;  // of the random values
    int threads = 0;    // 0: all cores; the result does not depend on it
    std::string work_dir = {};                  // an interrupted discovery goes on from there when it is started again
    bool prove = true;                          // false: only find
    bool all = false;                           // also prove, and write, the pairs that other rules give
    // Instead of pairs that are equal everywhere: programs that equal an original almost everywhere, corrected and proved
    // (docs/corrected.md). `ops` is then a file of originals, or "taso" for those that come with Tessera.
    bool corrected = false;
    bool shrinking = false;                     // write only rules that leave fewer ops, or compute siblings together
    const std::atomic<bool>* cancel = nullptr;  // set it to stop with E0410
    std::function<void(const DiscoverProgress&)> progress = {};
};

struct DiscoveredCounts {
    double graphs = 0;            // that a generator would visit which adds one op at a time
    int64_t terms = 0;            // evaluated
    int64_t classes = 0;          // of terms that compute the same
    int64_t raw_pairs = 0;        // terms that fell into a class with a representative
    int64_t renamed = 0;          // of those, another one with its variables renamed
    int64_t common_subgraph = 0;  // of those, an instance of one without their common subgraph
    int64_t pruned = 0;           // what is left after these two: TASO's criteria
    int64_t siblings = 0;         // of those, rules with several outputs
    int64_t irredundant = 0;      // of those, the ones that no other gives
    int64_t proved = 0, proved_irredundant = 0, refuted = 0, unknown = 0;
    double enumerate_seconds = 0, prune_seconds = 0, prove_seconds = 0;
};

struct DiscoveredRule {
    std::string name, text;  // text: as a file of rules has it
    std::string shapes;      // of its variables: "x: [M,K], w: [K,N]"
    std::string verdict;     // proved, refuted or unknown
    std::string exactness;   // exact or reassociates
    std::string reason;      // why it is not proved
    std::string certificate;
    int tested_sizes = 0;                   // unknown: assignments of sizes at which both sides were equal
    std::optional<double> error_log2 = {};  // and log2 of the chance that a difference at one of them showed nowhere
    bool irredundant = true;                // no other rule gives it
    bool shrinks = false;                   // the right side has fewer ops, or computes siblings together
    int ops = 0;                            // of the larger side
    std::string boxes = {};                 // of a corrected rule: what of the output is recomputed
    std::string picture = {};               // and the output with them, as SVG
};

struct DiscoveredRules {
    std::string ops;
    int max_ops = 0;
    uint64_t seed = 0;
    double seconds = 0;
    DiscoveredCounts counts;
    std::vector<std::pair<std::string, DiscoveredCounts>> worlds;  // by name
    std::vector<DiscoveredRule> rules;                             // by world, the smaller first
    std::vector<std::string> files;                                // that were written
    std::vector<std::string> warnings;
};

// E0501 for ops that there are not or that have no meaning to compare, E0301 to E0303 for a file of ops, E0105 for
// files that cannot be written (before anything is enumerated), E0410 where it was cancelled.
Result<DiscoveredRules> discover_rules(const DiscoverRulesOptions& options = {});

}  // namespace tessera
