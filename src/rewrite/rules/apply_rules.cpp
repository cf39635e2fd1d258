#include "rewrite/rules/apply_rules.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <unordered_set>

#include "rewrite/edit.h"
#include "rewrite/rules/instantiate.h"

namespace tessera {
namespace {

constexpr size_t kReachable = 20000;  // nodes looked at to exclude a cycle
constexpr size_t kFewUses = 4;        // a value with more is not looked at again when it loses one

size_t depth(const Term& term) {
    size_t deepest = 0;
    for (const Term& arg : term.args) deepest = std::max(deepest, depth(arg));
    return term.form == Term::Form::Op ? deepest + 1 : deepest;
}

bool dead(const Node& node) {
    for (size_t i = 0; i < node.output_count(); ++i)
        if (!node.output(i)->uses().empty()) return false;
    return true;
}

// Whether one of `values` is computed from one of `nodes`.
bool reaches(const std::vector<Value*>& values, const std::vector<Value*>& roots) {
    std::vector<Value*> open = values;
    std::unordered_set<const Node*> seen;
    while (!open.empty()) {
        Value* v = open.back();
        open.pop_back();
        if (!v || !v->node() || !seen.insert(v->node()).second) continue;
        for (const Value* root : roots)
            if (v->node() == root->node()) return true;
        if (seen.size() > kReachable) return true;
        for (Value* input : v->node()->inputs()) open.push_back(input);
        for (const auto& [name, attr] : v->node()->attrs())
            if (std::holds_alternative<GraphPtr>(attr)) return true;  // what it captures is not followed
    }
    return false;
}

// The nodes of the match that go once its roots are replaced.
std::vector<const Node*> dying(const Match& match) {
    std::unordered_set<const Value*> kept, roots(match.roots.begin(), match.roots.end());
    for (size_t i = 0; i < match.slots.size(); ++i)
        if (auto* v = std::get_if<Value*>(&match.slots[i]); v && replacement_uses(*match.rule, static_cast<int>(i)))
            kept.insert(*v);
    std::vector<const Node*> gone;
    auto goes = [&](const Node* n) { return std::find(gone.begin(), gone.end(), n) != gone.end(); };
    for (bool changed = true; changed;) {
        changed = false;
        for (const Node* node : match.nodes) {
            if (goes(node)) continue;
            bool all = true;
            for (size_t i = 0; i < node->output_count() && all; ++i) {
                const Value* v = node->output(i);
                if (kept.contains(v)) all = false;
                if (roots.contains(v)) continue;
                for (const Use& use : v->uses()) all = all && use.node && goes(use.node);
            }
            if (!all) continue;
            gone.push_back(node);
            changed = true;
        }
    }
    return gone;
}

// Products, pools, softmax. What moves elements or computes each from one is light.
bool heavy(const OpDef& op) { return !op.has(Trait::Elementwise) && !op.has(Trait::Linear) && !op.has(Trait::Light); }

// No more nodes than before, and nothing heavy done again beside a node that others still need.
bool worth_it(const Match& match) {
    std::vector<const Node*> gone = dying(match);
    if (!match.rule->grows) {
        std::vector<const OpDef*> made = new_ops(match);
        if (made.size() > gone.size()) return false;
        auto heavy_node = [](const Node* n) { return heavy(n->op()); };
        auto all = std::count_if(match.nodes.begin(), match.nodes.end(), heavy_node);
        auto go = std::count_if(gone.begin(), gone.end(), heavy_node);
        return all == go || std::count_if(made.begin(), made.end(), [](auto* op) { return heavy(*op); }) <= go;
    }
    for (const Node* node : match.nodes) {
        bool named = false;
        for (size_t i = 0; i < match.slots.size(); ++i)
            if (auto* v = std::get_if<Value*>(&match.slots[i]); v && (*v)->node() == node)
                named |= replacement_uses(*match.rule, static_cast<int>(i));
        if (!named && std::find(gone.begin(), gone.end(), node) == gone.end()) return false;
    }
    return true;
}

// Nothing is built from what is replaced. With several roots, what one of them needs must not be computed from another.
bool acyclic(const Match& match) {
    for (size_t i = 0; i < match.slots.size(); ++i) {
        auto* v = std::get_if<Value*>(&match.slots[i]);
        if (!v || !replacement_uses(*match.rule, static_cast<int>(i))) continue;
        if (std::any_of(match.roots.begin(), match.roots.end(),
                        [&](const Value* r) { return r->node() == (*v)->node(); }))
            return false;
    }
    if (match.roots.size() < 2) return true;
    std::vector<Value*> leaves;
    for (size_t i = 0; i < match.slots.size(); ++i) {
        if (!replacement_uses(*match.rule, static_cast<int>(i))) continue;
        if (auto* v = std::get_if<Value*>(&match.slots[i])) leaves.push_back(*v);
        if (auto* list = std::get_if<std::vector<Value*>>(&match.slots[i]))
            leaves.insert(leaves.end(), list->begin(), list->end());
    }
    return !reaches(leaves, match.roots);
}

struct Applied {
    std::vector<Node*> created;
    std::vector<Node*> gone;
    std::vector<GraphPtr> gone_graphs;  // that were nested in those
    std::vector<Value*> values;         // in the roots' place
    std::vector<Value*> freed;          // that lost a use
    std::string where;
};

std::optional<Applied> apply(const Rule& rule, Value& root, PassContext& context, bool shared) {
    if (root.uses().empty()) return {};
    std::optional<Match> match = find_match(rule, root, [&](const Match& m) {
        for (const Value* r : m.roots)
            if (r->uses().empty()) return false;
        return (shared || worth_it(m)) && acyclic(m);
    });
    if (!match) return {};
    Graph& graph = root.graph();
    std::optional<Instance> instance = instantiate(graph, *match, context);
    if (!instance) return {};

    Applied done;
    done.values = instance->values;
    const Node& node = *root.node();
    done.where = node.name().empty() ? root.name() : node.name();
    Application record;
    std::unordered_map<const Value*, std::string> taken;  // names that roots had
    std::unordered_set<const Value*> fresh;
    for (const Node* n : instance->created)
        for (size_t i = 0; i < n->output_count(); ++i) fresh.insert(n->output(i));
    for (size_t i = 0; i < match->roots.size(); ++i) {
        Value *old = match->roots[i], *now = instance->values[i];
        graph.replace_uses(old, now);
        bool takes_name = fresh.erase(now) > 0;  // once, where a value stands for two roots
        if (context.record && !takes_name) record.replaced.emplace_back(old->name(), now->name());
        if (!takes_name) continue;
        std::string name = old->name();
        graph.rename(*old, {});
        graph.rename(*now, name);
        taken.emplace(old, name);
        if (context.record) record.replaced.emplace_back(name, name);
    }
    std::vector<Node*> open;
    for (Value* r : match->roots) open.push_back(r->node());
    while (!open.empty()) {
        Node* n = open.back();
        open.pop_back();
        if (!dead(*n) || std::find(done.gone.begin(), done.gone.end(), n) != done.gone.end()) continue;
        done.gone.push_back(n);
        std::vector<Value*> inputs = n->inputs();
        if (context.record) {
            record.removed.push_back(describe(*n));
            for (size_t i = 0; i < n->output_count(); ++i)
                if (auto it = taken.find(n->output(i)); it != taken.end())
                    record.removed.back().outputs[i] = it->second;
        }
        for (const auto& [_, attr] : n->attrs())
            if (auto* nested = std::get_if<GraphPtr>(&attr)) done.gone_graphs.push_back(*nested);
        n->graph().disconnect(*n);
        for (Value* v : inputs) {
            if (!v || v->is_constant()) continue;
            if (v->node()) open.push_back(v->node());
            if (v->node() ? !dead(*v->node()) : !v->uses().empty()) done.freed.push_back(v);
        }
    }
    done.created = std::move(instance->created);
    ++context.rewrites;
    if (context.record) {
        for (const Node* n : done.created) record.added.push_back(describe(*n));
        record.pass = context.pass;
        record.rule = rule.name;
        record.exactness = rule.exactness;
        record.where = done.where;
        context.applications.push_back(std::move(record));
    }
    return done;
}

// The rules from the first one on that led to a node, and the shortest cycle they end in.
std::string cycle_of(const std::vector<std::string>& rules) {
    size_t n = rules.size(), period = n;
    for (size_t p = 1; p <= n / 3; ++p)
        if (std::equal(rules.end() - static_cast<std::ptrdiff_t>(2 * p), rules.end(),
                       rules.end() - static_cast<std::ptrdiff_t>(3 * p),
                       rules.end() - static_cast<std::ptrdiff_t>(p))) {
            period = p;
            break;
        }
    period = std::min<size_t>(period, 12);
    std::string text;
    for (size_t i = n - period; i < n; ++i) text += rules[i] + " -> ";
    return text + rules[n - period];
}

class Engine {
  public:
    Engine(Graph& graph, const RuleSet& rules, PassContext& context)
        : graph_(graph), rules_(rules), context_(context) {}

    Result<Changed> run() {
        size_t nodes = graph_.node_count();
        deepest_allowed_ = 200 + 2 * nodes;
        most_allowed_ = 10000 + 100 * nodes;
        for (Graph* g : all_graphs(graph_))
            for (const auto& node : g->nodes()) push(node.get());
        while (!open_.empty()) {
            Node* node = open_.front();
            open_.pop_front();
            queued_.erase(node);
            if (gone_.contains(node) || dead(*node)) continue;
            TRY(visit(*node));
            if (context_.cancel && context_.cancel->load()) return Error(Code::E0410, "cancelled");
        }
        if (steps_.empty() && !garbage_) return false;
        for (Graph* g : all_graphs(graph_)) g->sort();
        sweep(graph_);
        return !steps_.empty();
    }

  private:
    Graph& graph_;
    const RuleSet& rules_;
    PassContext& context_;
    std::deque<Node*> open_;
    std::unordered_set<const Node*> queued_, gone_;
    size_t deepest_allowed_ = 0, most_allowed_ = 0;
    std::vector<GraphPtr> kept_;  // their nodes may still be on the list
    bool garbage_ = false;

    // How each node came about, so that a loop can be shown.
    struct Step {
        const Rule* rule;
        int parent;  // the step that made a node of the match; -1
        size_t depth;
    };
    std::vector<Step> steps_;
    std::unordered_map<const Node*, int> made_by_;

    void push(Node* node) {
        if (rules_.rooted_at(node->op()).empty()) return;
        if (queued_.insert(node).second) open_.push_back(node);
    }

    void push_users(const Value& v, size_t depth) {
        for (const Use& use : v.uses()) {
            if (!use.node) continue;
            push(use.node);
            if (depth > 1)
                for (size_t i = 0; i < use.node->output_count(); ++i) push_users(*use.node->output(i), depth - 1);
        }
    }

    Status visit(Node& node) {
        for (const Rule* rule : rules_.rooted_at(node.op())) {
            if (!admits(context_.precision, rule->exactness)) continue;
            auto output = static_cast<size_t>(rule->pattern[0].output);
            if (output >= node.output_count()) continue;
            size_t before = node.graph().nodes().size();
            std::optional<Applied> done = apply(*rule, *node.output(output), context_, false);
            garbage_ |= node.graph().nodes().size() != before;
            if (!done) continue;
            TRY(follow(*rule, *done));
            return {};
        }
        return {};
    }

    Status follow(const Rule& rule, const Applied& done) {
        int parent = -1;
        for (const Node* n : done.gone)
            if (auto it = made_by_.find(n); it != made_by_.end())
                if (parent < 0 ||
                    steps_[static_cast<size_t>(it->second)].depth > steps_[static_cast<size_t>(parent)].depth)
                    parent = it->second;
        size_t depth = parent < 0 ? 1 : steps_[static_cast<size_t>(parent)].depth + 1;
        steps_.push_back({&rule, parent, depth});
        auto step = static_cast<int>(steps_.size()) - 1;
        if (depth > deepest_allowed_ || steps_.size() > most_allowed_) return endless(step, done.where);
        for (const Node* n : done.gone) {
            gone_.insert(n);
            made_by_.erase(n);
        }
        for (const GraphPtr& nested : done.gone_graphs) {
            kept_.push_back(nested);
            for (const Graph* g : all_graphs(*nested))
                for (const auto& n : g->nodes()) gone_.insert(n.get());
        }
        for (Node* n : done.created) {
            made_by_[n] = step;
            push(n);
        }
        for (Value* v : done.values) {
            if (v->node()) push(v->node());
            if (!v->is_constant() || v->uses().size() <= kFewUses) push_users(*v, rules_.deepest());
        }
        for (Value* v : done.freed)
            if (v->uses().size() <= kFewUses) push_users(*v, rules_.deepest());
        return {};
    }

    Error endless(int step, const std::string& where) const {
        std::vector<std::string> names;
        for (int s = step; s >= 0; s = steps_[static_cast<size_t>(s)].parent)
            names.push_back(steps_[static_cast<size_t>(s)].rule->name);
        std::reverse(names.begin(), names.end());
        std::string cycle = cycle_of(names), places;
        for (const Rule& rule : rules_.rules())
            if (cycle.starts_with(rule.name + " ->") || cycle.find(" " + rule.name + " ->") != std::string::npos)
                places += fmt::format("{}{}: {}", places.empty() ? "" : "\n", rule.source, to_string(rule));
        return Error(Code::E0304, "the rules do not terminate: {}", cycle)
            .at(where)
            .note("{}", places)
            .hint("give one of them a condition or a direction");
    }
};

}  // namespace

RuleSet::RuleSet(Rules rules) : rules_(std::move(rules)) {
    for (const Rule& rule : rules_) {
        by_op_[rule.pattern[0].op].push_back(&rule);
        for (const Term& root : rule.pattern) deepest_ = std::max(deepest_, depth(root));
    }
}

const std::vector<const Rule*>& RuleSet::rooted_at(const OpDef& op) const {
    static const std::vector<const Rule*> none;
    auto it = by_op_.find(&op);
    return it == by_op_.end() ? none : it->second;
}

Result<Changed> apply_rules(Graph& graph, const RuleSet& rules, PassContext& context) {
    return Engine(graph, rules, context).run();
}

bool apply_rule(const Rule& rule, Value& root, PassContext& context, bool shared) {
    return root.node() && apply(rule, root, context, shared).has_value();
}

}  // namespace tessera
