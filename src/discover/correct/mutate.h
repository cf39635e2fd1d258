// Corrected mutants for the products of a graph: rules that a search may use, each with its proof. What a mutant is
// made of is mutated again, so that one axis after the other is moved.
#pragma once

#include <atomic>
#include <functional>

#include "base/deadline.h"
#include "discover/correct/correct.h"
#include "discover/correct/targets.h"

namespace tessera {

struct MutateOptions {
    double seconds = 30;
    Deadline until = {};           // no later than this; a proof that is not done by then is none
    int rounds = 3;                // of mutating what mutants are made of; after the first, of those without strips
    double least_share = 0.02;     // of the graph's work: what a target must have
    double most_corrected = 0.35;  // of the output at the sizes at hand
    double most_work = 1.5;        // of mutant and correction at those, over what the original does
    size_t most_of_target = 3;     // rules for one target
    double least_agreement_at_hand = 0.5;  // of a mutant that is not proved for all sizes, to be tried at those at hand
    const std::atomic<bool>* cancel = nullptr;
    std::function<void(std::string_view target, size_t done, size_t total)> progress = {};
    // Texts by key, kept between searches: the rules of a target that was mutated to its end.
    std::function<std::optional<std::string>(const std::string& key)> recall = {};
    std::function<void(const std::string& key, const std::string& text)> remember = {};
};

struct MutantRule {
    Rule rule;                  // with the conditions of its claim
    Corrected corrected;        // the claim, its strips and its proof
    SymbolValues sizes;         // of the claim's symbols at the first place
    double share = 0;           // of the output that is recomputed at those sizes
    bool for_all_sizes = true;  // false: the exact test at these sizes is its ground
    std::vector<std::string> where;
};

struct Mutation {
    std::vector<MutantRule> rules;
    size_t targets = 0, mutants = 0;  // looked at
    size_t remembered = 0;            // targets, of those
    int64_t terms = 0;                // evaluated
    std::vector<std::string>
        refused;           // why mutants were not taken: "3 x the mutant differs in the whole of the output"
    bool complete = true;  // not stopped by the time limit
    double seconds = 0;
};

// E0410 where it was cancelled.
Result<Mutation> mutate(const Graph& graph, const MutateOptions& options = {});

// The rules of one target, at sizes at hand.
std::vector<MutantRule> mutant_rules_of(const MutationTarget& target, const MutateOptions& options, Mutation& counts);

}  // namespace tessera
