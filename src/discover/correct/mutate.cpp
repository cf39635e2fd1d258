#include "discover/correct/mutate.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/in_parallel.h"
#include "discover/correct/boxes.h"
#include "discover/correct/mutants.h"
#include "discover/correct/remember.h"
#include "discover/prove/comprehension.h"

namespace tessera {
namespace {

// Of the output's elements, those in a strip.
double corrected_share(const Corrected& c, const SymbolValues& sizes) {
    double kept = 1;
    for (int64_t d = 0; d < c.output.rank(); ++d) {
        const double all = double(evaluate_int(c.output[d], sizes).value_or(0));
        double cut = 0;
        for (const Strip& s : c.strips)
            if (s.axis == d) cut += double(evaluate_int(s.end - s.begin, sizes).value_or(0));
        if (all > 0) kept *= std::max(0.0, 1 - cut / all);
    }
    return 1 - kept;
}

// The sizes of a claim that begins at least sizes; nothing where these are too small.
std::optional<SymbolValues> sizes_from_least(const Claim& claim, const MutationTarget& target) {
    SymbolValues sizes;
    for (const auto& [name, shape] : claim.shapes) {
        const Shape& was = target.claim.shapes.at(name);
        for (int64_t d = 0; d < shape.rank(); ++d)
            for (const std::string& s : free_symbols(shape[d])) {
                auto size = evaluate_int(was[d], target.sizes), none = evaluate_int(shape[d], {{s, 0}}),
                     one = evaluate_int(shape[d], {{s, 1}});
                if (!size || !none || !one || *size < *none) return {};
                sizes[s] = (*size - *none) / (*one - *none);
            }
    }
    return sizes;
}

}  // namespace

namespace {

// What mutant and correction multiply and add, over what the original does.
double work_ratio(const Claim& claim, const SymbolValues& values) {
    Bindings sizes;
    for (const auto& [name, size] : values) sizes.emplace(name, size);
    Result<Sides> sides = build_sides(claim, sizes);
    if (!sides.ok()) return 1;
    double all = 0;
    for (const auto& node : sides->graph->nodes()) all += product_work(*node);
    const double original = product_work(*sides->left[0]->node());
    return original > 0 ? (all - original) / original : 1;
}

// The claim at the sizes at hand.
Claim at_sizes(Claim claim, const SymbolValues& sizes) {
    Bindings numbers;
    for (const auto& [name, size] : sizes) numbers.emplace(name, size);
    for (auto& [name, shape] : claim.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d) shape[d] = substitute(shape[d], numbers);
    return claim;
}

// A rule, where mutant and correction are proved for all sizes, or hold at the sizes at hand: by a proof, or by the
// exact test of every box.
Result<MutantRule> rule_of(const MutantClaim& mutant, const MutationTarget& target, const MutateOptions& options) {
    auto refused = [](std::string why) { return Error(Code::E0303, "{}", why); };
    const ProveOptions prove{.write_out = true, .max_questions = kQuestions, .until = options.until};
    Corrected corrected = TRY(correct(mutant.claim, prove));
    MutantRule made{.rule = {}, .corrected = std::move(corrected), .sizes = {}, .where = target.where};
    std::optional<SymbolValues> sizes = sizes_from_least(made.corrected.claim, target);
    if (!made.corrected.proved()) {
        if (target.sizes.empty() || mutant.agreement < options.least_agreement_at_hand)
            return refused(made.corrected.refused.substr(0, 80));
        made.corrected = TRY(correct(at_sizes(mutant.claim, target.sizes), prove));
        made.for_all_sizes = false;
        sizes.emplace();
        const bool written = made.corrected.refused.empty() || !made.corrected.strips.empty();
        if (!made.corrected.proved() &&
            (!written || !TRY(compare_boxes(made.corrected.claim, {.until = options.until})).equal()))
            return refused(made.corrected.refused.substr(0, 80));
    }
    if (!sizes) return refused("these sizes are below its least ones");
    made.sizes = std::move(*sizes);
    made.share = corrected_share(made.corrected, made.sizes);
    if (made.share > options.most_corrected) return refused("its correction is too large");
    if (const double work = work_ratio(made.corrected.claim, made.sizes); work > options.most_work)
        return refused(fmt::format("it computes {:.1f} times as much", work));
    Claim& claim = made.corrected.claim;
    const std::string text = to_string(claim);
    claim.rule.name =
        fmt::format("{}-{}-{:08x}", claim.rule.name, made.corrected.strips.empty() ? "moved" : "corrected",
                    hash_bytes(text.data(), text.size()) >> 32);
    made.rule = to_rule(claim);
    made.rule.evidence = made.corrected.proved() ? Evidence::Proved : Evidence::Tested;
    return made;
}

}  // namespace

std::vector<MutantRule> mutant_rules_of(const MutationTarget& target, const MutateOptions& options, Mutation& counts) {
    std::vector<MutantRule> rules;
    std::map<std::string, int> refused;
    Result<MutantClaims> found = find_mutants(target.claim, {.until = options.until, .cancel = options.cancel});
    ++counts.targets;
    if (!found.ok()) {
        counts.refused.push_back(found.error().message());
        return rules;
    }
    counts.terms += found->terms;
    counts.complete = counts.complete && found->complete;
    for (const MutantClaim& mutant : found->list) {
        if (rules.size() == options.most_of_target || (options.cancel && *options.cancel)) break;
        ++counts.mutants;
        Result<MutantRule> made = rule_of(mutant, target, options);
        if (options.until.passed()) {  // why this one was refused says nothing, then
            counts.complete = false;
            if (!made.ok()) break;
        }
        if (made.ok())
            rules.push_back(std::move(*made));
        else
            ++refused[made.error().message()];
    }
    for (const auto& [why, times] : refused) counts.refused.push_back(fmt::format("{} x {}", times, why));
    return rules;
}

namespace {

// As they are remembered, or made and then remembered.
std::vector<MutantRule> known_rules_of(const MutationTarget& target, const MutateOptions& options, Mutation& counts) {
    const std::string key = remembered_key(target, options);
    if (options.recall)
        if (const auto text = options.recall(key))
            if (auto rules = read_remembered(key, *text, target.where)) {
                ++counts.targets;
                ++counts.remembered;
                return std::move(*rules);
            }
    const bool complete = std::exchange(counts.complete, true);
    std::vector<MutantRule> rules = mutant_rules_of(target, options, counts);
    const bool cancelled = options.cancel && *options.cancel;
    if (counts.complete && !cancelled && options.remember) options.remember(key, remembered_text(key, rules));
    counts.complete = counts.complete && complete;
    return rules;
}

// By target, on all cores; none of those that were not reached in time.
std::vector<std::vector<MutantRule>> rules_of_all(const std::vector<MutationTarget>& targets,
                                                  const MutateOptions& given, Mutation& counts) {
    const std::thread::id caller = std::this_thread::get_id();  // who is told of progress
    std::mutex calls;                                           // of what others gave
    MutateOptions options = given;
    if (given.recall)
        options.recall = [&](const std::string& key) {
            const std::scoped_lock lock(calls);
            return given.recall(key);
        };
    if (given.remember)
        options.remember = [&](const std::string& key, const std::string& text) {
            const std::scoped_lock lock(calls);
            given.remember(key, text);
        };
    std::vector<std::vector<MutantRule>> rules(targets.size());
    std::vector<Mutation> parts(targets.size());
    in_parallel(targets.size(), 0, [&](size_t i) {
        if (given.cancel && *given.cancel) return;
        if (options.until.passed()) {
            parts[i].complete = false;
            return;
        }
        if (given.progress && std::this_thread::get_id() == caller)
            given.progress(targets[i].where.front(), i, targets.size());
        rules[i] = known_rules_of(targets[i], options, parts[i]);
    });
    for (Mutation& part : parts) {
        counts.targets += part.targets;
        counts.mutants += part.mutants;
        counts.remembered += part.remembered;
        counts.terms += part.terms;
        counts.complete = counts.complete && part.complete;
        counts.refused.insert(counts.refused.end(), part.refused.begin(), part.refused.end());
    }
    return rules;
}

}  // namespace

Result<Mutation> mutate(const Graph& graph, const MutateOptions& given) {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    MutateOptions options = given;
    options.until = given.until.within(given.seconds);
    Mutation found;
    std::vector<MutationTarget> open = find_targets(graph);
    double work = 0;
    for (const MutationTarget& t : open) work += t.work;
    std::erase_if(open, [&](const MutationTarget& t) { return t.work < options.least_share * work; });
    std::set<std::string> seen;
    for (const MutationTarget& t : open) seen.insert(to_string(t.claim));
    for (int round = 0; round < options.rounds && !open.empty(); ++round) {
        std::vector<MutationTarget> next;
        std::vector<std::vector<MutantRule>> rules = rules_of_all(open, options, found);
        if (options.cancel && *options.cancel) return Error(Code::E0410, "interrupted");
        for (size_t i = 0; i < open.size(); ++i) {
            for (MutantRule& rule : rules[i]) {
                // What the mutant computes instead, at the sizes at hand.
                Bindings sizes;
                for (const auto& [name, size] : rule.sizes) sizes.emplace(name, size);
                const bool deeper = round == 0 || rule.corrected.strips.empty();
                if (Result<Sides> sides = build_sides(rule.corrected.claim, sizes); deeper && sides.ok()) {
                    std::vector<MutationTarget> inside = find_targets(*sides->graph);
                    double most = 0;
                    for (const MutationTarget& t : inside) most = std::max(most, t.work);
                    for (MutationTarget& t : inside)
                        if (t.work > 0.5 * most && seen.insert(to_string(t.claim)).second) {
                            t.where = open[i].where;
                            next.push_back(std::move(t));
                        }
                }
                found.rules.push_back(std::move(rule));
            }
        }
        open = std::move(next);
    }
    found.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    return found;
}

}  // namespace tessera
