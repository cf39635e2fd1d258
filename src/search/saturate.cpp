#include "search/saturate.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>

#include "base/hash.h"
#include "rewrite/rules/instantiate.h"
#include "search/ematch.h"
#include "search/merge_sums.h"

namespace tessera {
namespace {

constexpr int64_t kFoldInputs = 4096;  // bytes; larger weights are computed when a graph is taken out

class Saturator {
  public:
    Saturator(EGraph& egraph, const std::vector<const Rule*>& rules, const SaturateOptions& options)
        : egraph_(egraph), options_(options), began_(Clock::now()) {
        context_.precision = options.precision;
        context_.fold_inputs = kFoldInputs;
        for (const Rule* rule : rules) {
            if (!admits(options.precision, rule->exactness)) continue;
            (rule->pattern.size() > 1 ? siblings_ : single_).push_back(rule);
        }
        rests_.resize(single_.size(), 0);
        done_.nodes_before = egraph.graph().nodes().size();
        for (const auto& node : egraph.graph().nodes()) order_.emplace(node.get(), order_.size());
    }

    Saturation run() {
        bool changed = true;
        while (changed && done_.rounds < options_.max_rounds && !stopped()) {
            ++done_.rounds;
            size_t steps = done_.steps.size();
            bool rested = false;
            // Siblings first: what single rules add must not use up the room for them.
            for (const Rule* rule : siblings_)
                if (!stopped()) apply_siblings(*rule);
            egraph_.rebuild();
            for (size_t i = 0; i < single_.size() && !stopped(); ++i) {
                if (rests_[i] > 0) {
                    --rests_[i];
                    rested = true;
                    continue;
                }
                apply_single(i);
            }
            egraph_.rebuild();
            const size_t sums = merge_sums(egraph_, admits(options_.precision, Exactness::Reassociates));
            changed = done_.steps.size() > steps || rested || sums > 0;
        }
        if (done_.stopped_by.empty() && changed) done_.stopped_by = fmt::format("{} iterations", options_.max_rounds);
        done_.complete = done_.stopped_by.empty();
        return std::move(done_);
    }

  private:
    using Clock = std::chrono::steady_clock;

    EGraph& egraph_;
    const SaturateOptions& options_;
    PassContext context_;
    Clock::time_point began_;
    std::vector<const Rule*> single_, siblings_;
    std::vector<int> rests_;
    std::unordered_map<const Node*, size_t> order_;
    std::unordered_set<uint64_t> applied_;
    std::unordered_map<const Rule*, std::unordered_set<const Node*>> merged_;  // what chains of the rule took in
    std::vector<std::pair<Node*, const Rule*>> ends_;                          // of chains
    std::unordered_map<const Node*, size_t> made_by_;                          // node: step
    Saturation done_;

    bool stopped() {
        if (!done_.stopped_by.empty()) return true;
        if (egraph_.node_count() > options_.max_nodes)
            done_.stopped_by = fmt::format("{} nodes", options_.max_nodes);
        else if (egraph_.class_count() > options_.max_classes)
            done_.stopped_by = fmt::format("{} classes", options_.max_classes);
        else if (std::chrono::duration<double>(Clock::now() - began_).count() > options_.seconds)
            done_.stopped_by = fmt::format("{:.3g} s", options_.seconds);
        else if (options_.cancel && *options_.cancel)
            done_.stopped_by = "interrupted";
        return !done_.stopped_by.empty();
    }

    std::vector<Value*> values_of(const OpDef& op, size_t output) const {
        std::vector<Value*> out;
        for (const auto& node : egraph_.graph().nodes())
            if (&node->op() == &op && egraph_.alive(*node) && output < node->output_count())
                out.push_back(node->output(output));
        return out;
    }

    void apply_single(size_t index) {
        const Rule& rule = *single_[index];
        std::vector<Match> matches;
        bool too_many = false;
        for (Value* root : values_of(*rule.pattern[0].op, size_t(rule.pattern[0].output))) {
            if (egraph_.weight_only(egraph_.class_of(*root))) continue;
            ematch(egraph_, rule, *root, [&](const Match& m) {
                if (rule.grows && !may_grow(m)) return false;
                matches.push_back(m);
                too_many = matches.size() >= options_.max_matches;
                return too_many;
            });
            if (too_many || stopped()) break;
        }
        if (too_many) rests_[index] = 2;
        for (const Match& match : matches) {
            if (stopped()) return;
            apply(match);
        }
    }

    // A rule that grows is not applied to what it made, and not where little is at stake.
    bool may_grow(const Match& match) const {
        for (const Node* n : match.nodes)
            if (auto it = made_by_.find(n); it != made_by_.end() && comes_of(it->second, match.rule)) return false;
        return !options_.worthwhile || options_.worthwhile(match.nodes);
    }
    bool comes_of(size_t step, const Rule* rule) const {
        const Derivation& s = done_.steps[step];
        return s.rule == rule ||
               std::any_of(s.after.begin(), s.after.end(), [&](size_t b) { return comes_of(b, rule); });
    }

    uint64_t key_of(const Match& match) const {
        uint64_t h = reinterpret_cast<uintptr_t>(match.rule);
        for (const Value* r : match.roots) h = mix(h, uint64_t(egraph_.class_of(*r)));
        for (const Node* n : match.nodes) h = mix(h, reinterpret_cast<uintptr_t>(n));
        for (const RuleValue& v : match.slots)
            if (auto* value = std::get_if<Value*>(&v)) h = mix(h, uint64_t(egraph_.class_of(**value)));
        return h;
    }

    // The node of the new step that has the op of the pattern's first root; null where nothing was done.
    Node* apply(const Match& match) {
        if (!applied_.insert(key_of(match)).second) return nullptr;
        std::optional<Instance> instance = instantiate(egraph_.graph(), match, context_);
        if (!instance) return nullptr;
        std::vector<Node*> fresh;
        std::unordered_map<const Value*, Value*> now;
        Node* accumulator = nullptr;
        for (Node* created : instance->created) {
            std::vector<Value*> outputs;
            for (size_t i = 0; i < created->output_count(); ++i) outputs.push_back(created->output(i));
            Node* kept = egraph_.add(*created);
            for (size_t i = 0; i < outputs.size(); ++i) now[outputs[i]] = kept->output(i);
            if (kept == created) fresh.push_back(kept);
            if (!accumulator && &kept->op() == match.rule->pattern[0].op &&
                !egraph_.weight_only(egraph_.class_of(*kept->output(0))))
                accumulator = kept;
        }
        Derivation step{match.rule, {}, {}, {}, {}};
        bool news = false;
        for (size_t i = 0; i < match.roots.size(); ++i) {
            Value* made = instance->values[i];
            if (auto it = now.find(made); it != now.end()) made = it->second;
            egraph_.add(*made);
            step.roots.push_back(match.roots[i]);
            step.made.push_back(made);
            news |= egraph_.class_of(*made) != egraph_.class_of(*match.roots[i]);
            egraph_.merge(*match.roots[i], *made);
        }
        if (!news) return accumulator;
        for (const Node* n : match.nodes)
            if (auto it = made_by_.find(n); it != made_by_.end()) step.after.push_back(it->second);
        const Node* root = match.roots[0]->node();
        step.where = root->name().empty() ? match.roots[0]->name() : root->name();
        for (const Node* n : fresh) made_by_.emplace(n, done_.steps.size());
        done_.steps.push_back(std::move(step));
        return accumulator;
    }

    // What is new would be computed from what it replaces.
    bool circular(const Match& match) const {
        std::vector<ClassId> roots;
        for (const Value* r : match.roots) roots.push_back(egraph_.class_of(*r));
        for (size_t i = 0; i < match.slots.size(); ++i) {
            if (!replacement_uses(*match.rule, int(i))) continue;
            if (auto* v = std::get_if<Value*>(&match.slots[i]);
                v && *v && !egraph_.weight_only(egraph_.class_of(**v)) && egraph_.depends(egraph_.class_of(**v), roots))
                return true;
        }
        return false;
    }

    // What a sibling rule may start from: nodes that were there, and what the chains of other rules ended in.
    std::vector<Value*> eligible(const Rule& rule) const {
        std::vector<Value*> out;
        const auto output = size_t(rule.pattern[0].output);
        auto take = [&](Node& node) {
            if (&node.op() != rule.pattern[0].op || !egraph_.alive(node) || output >= node.output_count()) return;
            Value* v = node.output(output);
            if (egraph_.weight_only(egraph_.class_of(*v))) return;
            if (auto it = merged_.find(&rule); it != merged_.end() && it->second.contains(&node)) return;
            out.push_back(v);
        };
        for (size_t i = 0; i < done_.nodes_before; ++i) take(*egraph_.graph().nodes()[i]);
        for (const auto& [node, by] : ends_)
            if (by != &rule) take(*node);
        return out;
    }

    void apply_siblings(const Rule& rule) {
        std::unordered_set<const Node*>& merged = merged_[&rule];
        const std::vector<Value*> firsts = eligible(rule);
        for (Value* first : firsts) {
            if (merged.contains(first->node())) continue;
            std::vector<Value*> others;
            ematch(egraph_, rule, *first, [&](const Match& m) {
                Value* other = m.roots.size() == 2 ? m.roots[1] : nullptr;
                if (other && std::find(firsts.begin(), firsts.end(), other) != firsts.end() &&
                    std::find(others.begin(), others.end(), other) == others.end())
                    others.push_back(other);
                return others.size() >= options_.max_matches;
            });
            std::sort(others.begin(), others.end(), [&](Value* a, Value* b) { return place(a) < place(b); });
            Value* chain = first;
            for (Value* other : others) {
                if (stopped()) return;
                if (merged.contains(other->node())) continue;
                std::optional<Match> found;
                auto fits = [&](const Match& m) {
                    if (circular(m)) return false;
                    found = m;
                    return true;
                };
                ematch(egraph_, rule, *chain, fits, other);
                if (!found) continue;
                Node* next = apply(*found);
                egraph_.rebuild();
                merged.insert(first->node());
                merged.insert(other->node());
                if (next && egraph_.alive(*next)) chain = next->output(size_t(rule.pattern[0].output));
            }
            if (chain != first) ends_.emplace_back(chain->node(), &rule);
        }
    }

    size_t place(const Value* v) const {
        auto it = order_.find(v->node());
        return it == order_.end() ? order_.size() : it->second;
    }
};

}  // namespace

Saturation saturate(EGraph& egraph, const std::vector<const Rule*>& rules, const SaturateOptions& options) {
    return Saturator(egraph, rules, options).run();
}

}  // namespace tessera
