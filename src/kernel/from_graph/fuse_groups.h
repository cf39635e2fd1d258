// What grouping works on: which definitions are stages of which group, which are inlined where they are read, and why.
#pragma once

#include "kernel/from_graph/accesses.h"
#include "kernel/from_graph/from_graph.h"

namespace tessera {

// The most that one kernel computes of an element, in operations and loads (Fusion::code_of). LLVM's time for an
// operation is constant up to twice that and grows beyond. With so many operations between, to write an element and
// read it again costs a few percent. Shipped models stay below: a Winograd transform has 767, everything else at most
// 177.
constexpr double kMostCode = 1024;
// The most loads among them: each tensor that is read takes a register for its address.
constexpr double kMostLoads = 192;

struct CodeSize {
    double code = 0, loads = 0;
    CodeSize& operator+=(const CodeSize& other) { return code += other.code, loads += other.loads, *this; }
    bool fits() const { return code <= kMostCode && loads <= kMostLoads; }
};

struct Fusion {
    const Accesses& acc;
    bool blocks = false;  // for a machine that runs blocks of threads
    std::vector<std::vector<int>> groups = {};
    std::vector<CodeSize> code = {};  // by group: of its stages, and of what is inlined in them
    std::vector<int> group_of;        // by definition: -1 where it is no stage
    std::vector<bool> decided;        // it is a stage, or inlined
    std::vector<int> stored = {};     // maps that must be stages: the last of a region, or alone
    std::vector<Choice> choices = {};

    Fusion(const Accesses& accesses, bool for_blocks)
        : acc(accesses),
          blocks(for_blocks),
          group_of(size_t(accesses.count()), -1),
          decided(size_t(accesses.count())) {}
    int add_group(std::vector<int> members);
    CodeSize code_of(int n) const;  // the operations and loads of a definition, for one element
    void choose(std::string subject, Decision decision) {
        choices.push_back({std::move(subject), std::move(decision)});
    }
};

// Scores, softmax and the product with the values as one group, where that pays.
void fuse_attention(Fusion& fusion, const LowerOptions& options);

// Each reduction with the maps that can be computed on its elements as they are made, or row by row along with it.
void fuse_reductions(Fusion& fusion);

// Each remaining map: fused into its readers if that is cheaper than storing it, else a kernel of its own.
void fuse_maps(Fusion& fusion);

// For blocks: maps of the same elements that are kept, one of which is made of the others, as one kernel that reads
// each tensor once: an optimizer's update of a parameter and of what it remembers.
void join_maps(Fusion& fusion, const Definitions& all);

}  // namespace tessera
