#include "discover/enumerate/prune_derived.h"

#include <set>

#include "base/hash.h"
#include "base/thread_pool.h"
#include "discover/enumerate/prune.h"

namespace tessera {
namespace {

constexpr uint64_t kAny = 0xffff;  // a variable of the pattern

// Ops, each as often as it stands in the written term.
int occurrences(Enumeration& terms, const TermNode& node) {
    if (node.op == kVariableOp || terms.set().templates[node.op].constant) return 0;
    int count = 1;
    for (int i = 0; i < terms.operands(node); ++i) count += occurrences(terms, terms.table()[node.args[i]].node);
    return count;
}

uint64_t shape_key(uint64_t root, uint64_t first, uint64_t second) { return root << 32 | first << 16 | second; }

}  // namespace

void KnownPairs::add(const TermPair& pair) {
    auto one_way = [&](const TermNode& from, const TermNode& to) {
        if (from.op == kVariableOp || terms_.set().templates[from.op].constant) return;
        // A variable that only the other side has would be bound to nothing.
        const std::vector<int> bound = variables_in(terms_, from);
        for (int v : variables_in(terms_, to))
            if (!terms_.world().variables[v].hidden && std::find(bound.begin(), bound.end(), v) == bound.end()) return;
        uint64_t ops[2] = {kAny, kAny};
        for (int i = 0; i < std::min(2, terms_.operands(from)); ++i) ops[i] = terms_.table()[from.args[i]].node.op;
        auto at = static_cast<int>(rewrites_.size());
        rewrites_.push_back({from, to});
        by_ops_[shape_key(from.op, ops[0], ops[1])].push_back(at);
        if (terms_.set().templates[from.op].commutative && ops[0] != ops[1])
            by_ops_[shape_key(from.op, ops[1], ops[0])].push_back(at);
    };
    one_way(pair.left, pair.right);
    if (pair.left_size == pair.right_size) one_way(pair.right, pair.left);
}

template <typename Done>
bool KnownPairs::match(std::vector<Goal> goals, Bindings bindings, const Done& done) const {
    while (!goals.empty()) {
        const Goal goal = goals.back();
        goals.pop_back();
        if (goal.pattern->op == kVariableOp) {
            TermId& bound = bindings[goal.pattern->args[0]];
            if (bound != kNoTerm && bound != goal.term) return false;
            bound = goal.term;
            continue;
        }
        const TermNode& term = terms_.table()[goal.term].node;
        if (term.op != goal.pattern->op) return false;
        const OpTemplate& op = terms_.set().templates[term.op];
        if (op.constant) continue;
        auto child = [&](int i) { return &terms_.table()[goal.pattern->args[i]].node; };
        if (op.commutative) {
            std::vector<Goal> swapped = goals;
            swapped.push_back({child(0), term.args[1]});
            swapped.push_back({child(1), term.args[0]});
            if (match(std::move(swapped), bindings, done)) return true;
        }
        for (int i = 0; i < op.operands; ++i) goals.push_back({child(i), term.args[i]});
    }
    return done(bindings);
}

std::optional<TermNode> KnownPairs::build_root(const TermNode& pattern, const Bindings& bindings) const {
    TermNode made = pattern;
    const OpTemplate& op = terms_.set().templates[pattern.op];
    uint16_t shapes[3] = {};
    for (int i = 0; i < op.operands; ++i) {
        auto arg = build(terms_.table()[pattern.args[i]].node, bindings);
        if (!arg) return std::nullopt;
        made.args[i] = *arg;
        shapes[i] = terms_.table()[*arg].node.shape;
    }
    const Applied* applied = terms_.evaluator().apply(pattern.op, shapes);
    if (!applied) return std::nullopt;
    made.shape = applied->shape->id;
    if (op.commutative && made.args[1] < made.args[0] && shapes[0] == shapes[1]) std::swap(made.args[0], made.args[1]);
    return made;
}

// The representative of the pattern's instance.
std::optional<TermId> KnownPairs::build(const TermNode& pattern, const Bindings& bindings) const {
    if (pattern.op == kVariableOp) {
        const TermId bound = bindings[pattern.args[0]];
        if (bound == kNoTerm) return std::nullopt;
        return bound;
    }
    if (terms_.set().templates[pattern.op].constant) return terms_.find(pattern);
    auto node = build_root(pattern, bindings);
    if (!node) return std::nullopt;
    return terms_.find(*node);
}

bool KnownPairs::derives(const TermPair& pair) const {
    const TermNode& left = pair.left;
    const OpTemplate& op = terms_.set().templates[left.op];
    std::optional<std::vector<uint64_t>> values;
    auto earlier = [&](const TermNode& from, const Bindings& bindings) {
        std::optional<TermNode> made;
        if (from.op == kVariableOp) {
            auto id = build(from, bindings);
            if (!id) return false;
            made = terms_.table()[*id].node;
        } else {
            made = terms_.set().templates[from.op].constant ? from : build_root(from, bindings);
        }
        if (!made || made->shape != left.shape) return false;
        const int size = made->op == kVariableOp || terms_.set().templates[made->op].constant
                             ? 0
                             : terms_.table().size_of(*made, terms_.operands(*made));
        const bool comes_first =
            size < pair.left_size || (size == pair.left_size && (*made == pair.right || *made < left));
        if (!comes_first || *made == left) return false;
        if (!values) values = terms_.values_of(left, {});
        auto other = terms_.values_of(*made, {});
        return other && *other == *values;
    };
    auto try_all = [&](uint64_t key) {
        auto it = by_ops_.find(key);
        if (it == by_ops_.end()) return false;
        for (int number : it->second) {
            const Rewrite& r = rewrites_[number];
            auto done = [&](const Bindings& b) { return earlier(r.to, b); };
            const Bindings none(terms_.world().variables.size(), kNoTerm);
            auto goals = [&](bool swapped) {
                std::vector<Goal> list;
                for (int i = 0; i < op.operands; ++i)
                    list.push_back({&terms_.table()[r.from.args[i]].node, left.args[swapped ? 1 - i : i]});
                return list;
            };
            if (match(goals(false), none, done)) return true;
            if (op.commutative && match(goals(true), none, done)) return true;
        }
        return false;
    };
    uint64_t ops[2] = {kAny, kAny};
    for (int i = 0; i < std::min(2, op.operands); ++i) ops[i] = terms_.table()[left.args[i]].node.op;
    for (uint64_t first : {ops[0], kAny}) {
        for (uint64_t second : {ops[1], kAny}) {
            if (try_all(shape_key(left.op, first, second))) return true;
            if (ops[1] == kAny) break;
        }
        if (ops[0] == kAny) break;
    }
    return false;
}

std::vector<TermPair> irredundant(Enumeration& terms, std::vector<TermPair> pairs, KnownPairs& known, int threads) {
    std::vector<uint8_t> derived(pairs.size(), 0);
    Team team(threads);
    team.each(static_cast<int64_t>(pairs.size()), [&](int64_t i, int) { derived[i] = known.derives(pairs[i]); });
    struct Ranked {
        TermPair pair;
        int occurrences, variables;
    };
    std::vector<Ranked> rest;
    for (size_t i = 0; i < pairs.size(); ++i) {
        if (derived[i]) continue;
        std::vector<int> left = variables_in(terms, pairs[i].left), right = variables_in(terms, pairs[i].right);
        std::set<int> all(left.begin(), left.end());
        all.insert(right.begin(), right.end());
        rest.push_back({pairs[i], occurrences(terms, pairs[i].left) + occurrences(terms, pairs[i].right),
                        static_cast<int>(all.size())});
    }
    std::stable_sort(rest.begin(), rest.end(), [](const Ranked& a, const Ranked& b) {
        return a.occurrences != b.occurrences ? a.occurrences < b.occurrences : a.variables > b.variables;
    });
    std::vector<TermPair> kept;
    for (const Ranked& r : rest) {
        if (known.derives(r.pair)) continue;
        known.add(r.pair);
        kept.push_back(r.pair);
    }
    return kept;
}

}  // namespace tessera
