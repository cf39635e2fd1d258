// Every graph that an optimization went through, as items that come, change and go step by step. It is made of the
// rewrites, which are texts, and of what the graph was after each pass: where a text does not say all, the next
// snapshot sets it right. So after each pass, and at the end, the graph is exactly the one that was there.
#pragma once

#include "snapshot.h"
#include "tessera/optimize.h"

namespace tessera::cli {

struct ItemVersion {
    Facts facts;
    std::vector<ItemRef> inputs;
};

struct Replay {
    struct Change {
        int item, version;  // -1: it goes
    };
    struct Step {
        int rewrite = -1;  // which of the report's; -1: what a pass did besides
        std::string pass;
        bool placed = true;  // false: the record did not fit the graph in all its parts
        std::vector<Change> changes = {};
    };
    std::vector<ItemVersion> versions;
    int items = 0;
    std::vector<Change> before;
    std::vector<Step> steps;
};

// What the graph was after a pass that changed it.
struct PassSnapshot {
    std::string pass;
    Snapshot graph;
};

Replay replay(const Snapshot& before, const std::vector<Rewrite>& rewrites, const std::vector<PassSnapshot>& passes);

}  // namespace tessera::cli
