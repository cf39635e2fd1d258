// Finds rules: enumerates the worlds of an op set, drops the pairs that renaming, common subgraphs and other pairs
// explain, and proves the rest for all sizes. What is not proved is kept as tested.
#pragma once

#include "discover/discover_bound.h"
#include "discover/enumerate/enumerate.h"
#include "discover/prove/prove.h"

namespace tessera {

struct DiscoverOptions {
    std::string ops = "taso";         // find_op_set
    EnumerateOptions enumerate = {};  // max_ops, seed, threads, work_dir, cancel, progress
    bool prove = true;
    bool all = false;  // also prove pairs that others give
};

// Which rules are written.
struct WriteOptions {
    bool all = false;        // also those that others give
    bool shrinking = false;  // only those that a search gains by at once
};

struct FoundRule {
    Rule rule;  // with the conditions of its claim
    Claim claim;
    Proof::Verdict verdict = Proof::Verdict::Unknown;
    std::string reason;  // why it is not proved
    Certificate certificate;
    TestBound bound;          // where it is neither proved nor refuted
    bool irredundant = true;  // no other rule gives it
    int ops = 0;              // of the larger side
    bool shrinks = false;     // the right side has fewer ops, or computes siblings together
    bool is_written(const WriteOptions& options) const;
};

struct DiscoverCounts {
    EnumerateCounts enumerated;
    int64_t pruned = 0;       // pairs after renaming and common subgraphs: TASO's criteria
    int64_t siblings = 0;     // of those, rules with several outputs
    int64_t irredundant = 0;  // of those, the ones that no other gives
    int64_t proved = 0, proved_irredundant = 0, refuted = 0, unknown = 0;
    double enumerate_seconds = 0, prune_seconds = 0, prove_seconds = 0;
};

struct Discovery {
    std::string ops;
    int max_ops = 0;
    uint64_t seed = 0;
    DiscoverCounts counts;
    std::vector<std::pair<std::string, DiscoverCounts>> worlds;
    std::vector<FoundRule> rules;  // by world, the smaller first
    bool began_anew = false;       // what the work folder held was of another run, or damaged
};

// E0501 for unknown ops, E0410 where it was cancelled, E0105 where the work folder cannot be written.
Result<Discovery> discover(const DiscoverOptions& options);

// The text of a rule file: the rules of one verdict; and the certificates of the proved ones.
std::string rules_text(const Discovery& found, Proof::Verdict verdict, const WriteOptions& options = {});
std::string certificates_text(const Discovery& found, const WriteOptions& options = {});

}  // namespace tessera
