#include "search/extract.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "base/check.h"

namespace tessera {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

Extractor::Extractor(EGraph& egraph, const Saturation& saturation, CostModel& cost, double margin)
    : egraph_(egraph), saturation_(saturation), cost_(cost) {
    // Nodes of the steps come after those that were there.
    const auto& nodes = egraph.graph().nodes();
    for (size_t i = 0; i < saturation.nodes_before; ++i) original_.emplace(nodes[i].get(), i);
    list_members();
    choose_weights();
    ask_costs();
    if (margin > 0) add_margins(margin);
    find_dominated();
    find_alternatives();
}

void Extractor::list_members() {
    const size_t bound = egraph_.class_bound();
    of_class_.resize(bound);
    std::unordered_map<const Node*, int> numbers;
    auto option_of = [&](const Node& node) {
        auto [it, fresh] = numbers.emplace(&node, int(options_.size()));
        if (!fresh) return it->second;
        Option made;
        made.outputs = node.output_count();
        for (ClassId c : egraph_.needs(node))
            if (!egraph_.weight_only(c)) made.inputs.push_back(c);
        std::sort(made.inputs.begin(), made.inputs.end());
        made.inputs.erase(std::unique(made.inputs.begin(), made.inputs.end()), made.inputs.end());
        options_.push_back(std::move(made));
        return it->second;
    };
    for (size_t c = 0; c < bound; ++c) {
        if (!egraph_.is_class(ClassId(c))) continue;
        for (Value* v : egraph_.members(ClassId(c))) {
            of_class_[c].push_back(int(members_.size()));
            number_of_.emplace(v, int(members_.size()));
            members_.push_back({v, v->node() ? option_of(*v->node()) : -1});
        }
    }
    needed_.resize(bound, false);
    std::vector<ClassId> todo;
    for (const Value* out : egraph_.graph().outputs())
        if (!egraph_.weight_only(egraph_.class_of(*out))) roots_.push_back(egraph_.class_of(*out));
    todo = roots_;
    while (!todo.empty()) {
        const auto c = size_t(todo.back());
        todo.pop_back();
        if (needed_[c]) continue;
        needed_[c] = true;
        for (int m : of_class_[c])
            if (members_[size_t(m)].option >= 0)
                for (ClassId i : options_[size_t(members_[size_t(m)].option)].inputs) todo.push_back(i);
    }
    opened_.assign(bound, 0);
    closed_.assign(bound, 0);
    counted_.assign(options_.size(), 0);
}

// What weights give is computed once, so the member over the fewest nodes will do.
void Extractor::choose_weights() {
    weight_choice_.assign(of_class_.size(), -1);
    std::vector<double> size(of_class_.size(), kInfinite);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t c = 0; c < of_class_.size(); ++c) {
            if (!egraph_.is_class(ClassId(c)) || !egraph_.weight_only(ClassId(c))) continue;
            for (int m : of_class_[c]) {
                double sum = 0;
                if (const Node* node = members_[size_t(m)].value->node()) {
                    sum = 1;
                    for (ClassId i : egraph_.needs(*node)) sum += size[size_t(i)];
                }
                if (sum >= size[c]) continue;
                size[c] = sum;
                weight_choice_[c] = m;
                changed = true;
            }
        }
    }
}

void Extractor::ask_costs() {
    std::vector<std::vector<const Node*>> classes;
    for (size_t c = 0; c < of_class_.size(); ++c) {
        if (!needed_[c]) continue;
        std::vector<const Node*> nodes;
        for (int m : of_class_[c])
            if (const Node* n = members_[size_t(m)].value->node()) nodes.push_back(n);
        std::stable_partition(nodes.begin(), nodes.end(), [&](const Node* n) { return original_.contains(n); });
        if (!nodes.empty()) classes.push_back(std::move(nodes));
    }
    cost_.expect(classes);
    std::vector<bool> known(options_.size(), false);
    for (size_t c = 0; c < of_class_.size(); ++c) {
        if (!needed_[c]) continue;
        for (int m : of_class_[c]) {
            const int option = members_[size_t(m)].option;
            if (option < 0 || known[size_t(option)]) continue;
            known[size_t(option)] = true;
            options_[size_t(option)].cost = cost_.node(*members_[size_t(m)].value->node());
        }
    }
}

void Extractor::add_margins(double margin) {
    auto option_of = [&](Value& v) {
        const auto at = number_of_.find(egraph_.current(v));
        return at == number_of_.end() ? -1 : members_[size_t(at->second)].option;
    };
    std::map<int, double> more;  // by option
    for (const Derivation& step : saturation_.steps) {
        if (!step.rule->grows) continue;
        for (size_t i = 0; i < step.made.size(); ++i) {
            const int root = option_of(*step.roots[i]), made = option_of(*step.made[i]);
            if (root < 0 || made < 0 || original_.contains(egraph_.current(*step.made[i])->node())) continue;
            more[made] = std::max(more[made], margin * options_[size_t(root)].cost);
        }
    }
    for (const auto& [option, seconds] : more) options_[size_t(option)].cost += seconds;
}

// A member that needs no more than another one and costs no more is never worse, whatever else is chosen: of nodes that
// differ in an attribute, say, only the cheapest is left to choose.
void Extractor::find_dominated() {
    instead_.resize(members_.size());
    for (size_t m = 0; m < members_.size(); ++m) instead_[m] = int(m);
    auto price = [&](int m) {
        const Member& member = members_[size_t(m)];
        const bool made = member.option >= 0 && !original_.contains(member.value->node());
        return std::pair(member.option < 0 ? -1.0 : options_[size_t(member.option)].cost, made);
    };
    for (size_t c = 0; c < of_class_.size(); ++c) {
        std::vector<int>& all = of_class_[c];
        if (!needed_[c] || all.size() < 2) continue;
        std::stable_sort(all.begin(), all.end(), [&](int a, int b) { return price(a) < price(b); });
        std::vector<int> kept;
        for (int m : all) {
            const int option = members_[size_t(m)].option;
            auto covers = [&](int k) {
                if (members_[size_t(k)].option < 0) return true;
                const auto& few = options_[size_t(members_[size_t(k)].option)].inputs;
                const auto& many = options_[size_t(option)].inputs;
                return std::includes(many.begin(), many.end(), few.begin(), few.end());
            };
            auto better = kept.end();
            // Other outputs of a node may be asked for anyway.
            if (option >= 0 && options_[size_t(option)].outputs == 1)
                better = std::find_if(kept.begin(), kept.end(), covers);
            if (better == kept.end())
                kept.push_back(m);
            else
                instead_[size_t(m)] = *better;
        }
        all = std::move(kept);
    }
}

double Extractor::cost(const Chosen& chosen) const {
    ++walk_;
    struct Place {
        ClassId c;
        const Option* option;
        size_t number, next;
    };
    double sum = 0;
    static thread_local std::vector<Place> stack;
    stack.clear();
    // False where it goes in a circle, or nothing is chosen.
    auto visit = [&](ClassId c) {
        if (closed_[size_t(c)] == walk_) return true;
        if (opened_[size_t(c)] == walk_ || chosen[size_t(c)] < 0) return false;
        opened_[size_t(c)] = walk_;
        const int option = members_[size_t(chosen[size_t(c)])].option;
        if (option < 0)
            closed_[size_t(c)] = walk_;
        else
            stack.push_back({c, &options_[size_t(option)], size_t(option), 0});
        return true;
    };
    for (ClassId root : roots_) {
        if (!visit(root)) return kInfinite;
        while (!stack.empty()) {
            Place& at = stack.back();
            if (at.next < at.option->inputs.size()) {
                if (!visit(at.option->inputs[at.next++])) return kInfinite;
                continue;
            }
            if (counted_[at.number] != walk_) sum += at.option->cost;
            counted_[at.number] = walk_;
            closed_[size_t(at.c)] = walk_;
            stack.pop_back();
        }
    }
    return sum;
}

Extractor::Chosen Extractor::defaults() const {
    Chosen chosen(of_class_.size(), -1);
    for (size_t c = 0; c < chosen.size(); ++c) {
        if (!egraph_.is_class(ClassId(c))) continue;
        if (egraph_.weight_only(ClassId(c))) {
            chosen[c] = weight_choice_[c];
            continue;
        }
        size_t first = std::numeric_limits<size_t>::max();
        for (Value* v : egraph_.members(ClassId(c))) {
            size_t place = !v->node()                      ? 0
                           : original_.contains(v->node()) ? original_.at(v->node()) + 1
                                                           : original_.size() + 1;
            if (place < first) {
                first = place;
                chosen[c] = number_of_.at(v);
            }
        }
    }
    return chosen;
}

Extraction Extractor::input() const { return finish(defaults(), false); }

Extraction Extractor::greedy() const {
    // The cheapest tree of each class, until nothing changes: what costs more than nothing is never in a circle.
    Chosen chosen = defaults();
    std::vector<double> best(chosen.size(), kInfinite);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t c = 0; c < chosen.size(); ++c) {
            if (!needed_[c]) continue;
            for (int m : of_class_[c]) {
                double sum = 0;
                if (const int option = members_[size_t(m)].option; option >= 0) {
                    sum = options_[size_t(option)].cost + 1e-12;
                    for (ClassId i : options_[size_t(option)].inputs) sum += best[size_t(i)];
                }
                if (sum < best[c] * (1 - 1e-9)) {
                    best[c] = sum;
                    chosen[c] = m;
                    changed = true;
                }
            }
        }
    }
    return finish(chosen, false);
}

bool Extractor::take(size_t number, Chosen& chosen, std::vector<bool>& taken) const {
    if (taken[number]) return false;
    taken[number] = true;
    const Derivation& step = saturation_.steps[number];
    bool changed = false;
    for (size_t before : step.after) changed |= take(before, chosen, taken);
    for (Value* value : step.made) {
        Value* made = egraph_.current(*value);
        const ClassId c = egraph_.class_of(*made);
        if (egraph_.weight_only(c)) continue;
        int& now = chosen[size_t(c)];
        const int wanted = number_of_.at(made);
        changed |= now != wanted;
        now = wanted;
    }
    return changed;
}

bool Extractor::take_all(const std::vector<size_t>& steps, Chosen& chosen) const {
    std::vector<bool> taken(saturation_.steps.size(), false);
    bool changed = false;
    for (size_t step : steps) changed |= take(step, chosen, taken);
    return changed;
}

bool Extractor::try_steps(const std::vector<size_t>& steps, Chosen& chosen, double& best, double least_gain,
                          bool instead) const {
    Chosen trial = chosen;
    if (!take_all(steps, trial)) return false;
    for (int& m : trial)
        if (m >= 0 && instead) m = instead_[size_t(m)];
    if (trial == chosen) return false;
    const double now = cost(trial);
    if (!(now < best - least_gain)) return false;
    best = now;
    chosen = std::move(trial);
    return true;
}

void Extractor::find_alternatives() {
    // Chains are alternatives of their own lengths: a step's place among those that it builds on is part of its kind.
    std::vector<size_t> depth(saturation_.steps.size(), 0);
    std::map<std::string, size_t> place;
    for (size_t i = 0; i < saturation_.steps.size(); ++i) {
        const Derivation& step = saturation_.steps[i];
        for (size_t before : step.after) depth[i] = std::max(depth[i], depth[before] + 1);
        std::string kind = fmt::format("{} {}", step.rule->name, depth[i]);
        for (Value* root : step.roots) {
            const Value* now = egraph_.current(*root);
            kind += now->node() ? cost_key(*now->node()) : to_string(now->type());
        }
        auto [it, fresh] = place.emplace(std::move(kind), alternatives_.size());
        if (fresh) alternatives_.emplace_back();
        alternatives_[it->second].steps.push_back(i);
    }
}

Extraction Extractor::with(const std::vector<size_t>& alternatives) const {
    Chosen chosen = defaults();
    for (size_t a : alternatives) take_all(alternatives_[a].steps, chosen);
    return finish(chosen, false);
}

std::vector<size_t> Extractor::by_gain(std::vector<size_t> alternatives) const {
    std::stable_sort(alternatives.begin(), alternatives.end(),
                     [&](size_t a, size_t b) { return alternatives_[a].gain > alternatives_[b].gain; });
    return alternatives;
}

Extraction Extractor::cheapest_of(std::vector<size_t> alternatives, const std::vector<size_t>& from,
                                  const ExtractOptions& options) const {
    const std::vector<size_t> order = by_gain(std::move(alternatives));
    Chosen chosen = defaults();
    double best = cost(chosen);
    try_steps(from, chosen, best, options.least_gain, false);
    auto attempt = [&](const std::vector<size_t>& steps) {
        return !options.until.passed() && try_steps(steps, chosen, best, options.least_gain, false);
    };
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t a : order) changed |= attempt(alternatives_[a].steps);
        for (size_t a : order)
            for (size_t step : alternatives_[a].steps) changed |= attempt({step});
    }
    return finish(chosen, false);
}

bool Extractor::improve(Chosen& chosen, double& best, const ExtractOptions& options) const {
    bool improved = false;
    for (size_t c = 0; c < chosen.size() && !options.until.passed(); ++c) {
        if (!needed_[c] || of_class_[c].size() < 2) continue;
        for (int m : of_class_[c]) {
            if (m == chosen[c]) continue;
            const int before = chosen[c];
            chosen[c] = m;
            const double now = cost(chosen);
            if (now < best - options.least_gain) {
                best = now;
                improved = true;
            } else {
                chosen[c] = before;
            }
        }
    }
    return improved;
}

Extraction Extractor::best(const ExtractOptions& options) {
    auto late = [&] { return options.until.passed(); };
    const Chosen start = defaults();
    const double before = cost(start);
    const Extraction trees = greedy();
    // What each alternative brings alone, then together in that order.
    for (Alternative& a : alternatives_) {
        if (late()) break;
        Chosen trial = start;
        if (take_all(a.steps, trial)) a.gain = before - cost(trial);
    }
    Chosen chosen = start;
    for (int& m : chosen)
        if (m >= 0) m = instead_[size_t(m)];
    double best = cost(chosen);
    std::vector<size_t> all(alternatives_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    const std::vector<size_t> order = by_gain(std::move(all));
    for (bool changed = true; changed && !late();) {
        changed = false;
        for (size_t a : order)
            if (!late()) changed |= try_steps(alternatives_[a].steps, chosen, best, options.least_gain, true);
        // Places that are alike need not be chosen alike.
        for (size_t step = 0; step < saturation_.steps.size() && !late(); ++step)
            changed |= try_steps({step}, chosen, best, options.least_gain, true);
        if (!late()) changed |= improve(chosen, best, options);
    }
    if (trees.cost < best) {
        best = trees.cost;
        for (size_t c = 0; c < chosen.size(); ++c)
            if (needed_[c] && trees.chosen[c]) chosen[c] = number_of_.at(trees.chosen[c]);
        improve(chosen, best, options);
    }
    const bool exact = improve_exactly(chosen, options);
    return finish(chosen, exact);
}

Extraction Extractor::finish(const Chosen& chosen, bool exact) const {
    Extraction out;
    out.cost = cost(chosen);
    out.exact = exact;
    out.chosen.assign(chosen.size(), nullptr);
    std::vector<ClassId> todo;
    for (const Value* v : egraph_.graph().outputs()) todo.push_back(egraph_.class_of(*v));
    while (!todo.empty()) {
        auto c = size_t(todo.back());
        todo.pop_back();
        if (out.chosen[c] || chosen[c] < 0) continue;
        out.chosen[c] = members_[size_t(chosen[c])].value;
        if (const Node* node = out.chosen[c]->node())
            for (ClassId i : egraph_.needs(*node)) todo.push_back(i);
    }
    for (size_t i = 0; i < saturation_.steps.size(); ++i) {
        for (Value* value : saturation_.steps[i].made) {
            Value* made = egraph_.current(*value);
            if (!made->node() || out.chosen[size_t(egraph_.class_of(*made))] != made) continue;
            if (original_.contains(made->node())) continue;
            out.steps.push_back(i);
            break;
        }
    }
    return out;
}

}  // namespace tessera
