// Adds to an e-graph what rules derive, iteration by iteration, until nothing new comes or a limit is met. Sibling rules
// (several roots) are applied along chains: of k products that share an input, the first two, those and the third, and
// so on, so that what is added grows with k and not with its subsets.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "rewrite/rule.h"
#include "search/egraph.h"

namespace tessera {

struct SaturateOptions {
    Precision precision = Precision::Default;
    size_t max_nodes = 20000, max_classes = 20000;
    size_t max_matches = 2000;  // of one rule in one iteration; a rule that has more rests for two
    int max_rounds = 6;
    double seconds = 10;
    // Whether a rule that grows is tried on these nodes of its pattern; without it, always.
    std::function<bool(const std::vector<Node*>& nodes)> worthwhile = {};
    const std::atomic<bool>* cancel = nullptr;
};

// One use of a rule: these classes may be computed by these values instead.
struct Derivation {
    const Rule* rule = nullptr;
    std::vector<Value*> roots;  // what the pattern's roots were
    std::vector<Value*> made;   // for each root
    std::vector<size_t> after;  // the steps whose nodes it matched
    std::string where;          // the name of the first root's node, or of its value
};

struct Saturation {
    std::vector<Derivation> steps;
    size_t nodes_before = 0;  // of the working graph: those from here on are new
    int rounds = 0;
    bool complete = false;   // nothing more follows from the rules
    std::string stopped_by;  // the limit that was met, where it is not complete
};

Saturation saturate(EGraph& egraph, const std::vector<const Rule*>& rules, const SaturateOptions& options);

}  // namespace tessera
