#include "search/extract.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>

#include "base/check.h"

namespace tessera {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

Extractor::Extractor(EGraph& egraph, const Saturation& saturation, CostModel& cost)
    : egraph_(egraph), saturation_(saturation), cost_(cost) {
    // Nodes of the steps come after those that were there.
    const auto& nodes = egraph.graph().nodes();
    for (size_t i = 0; i < saturation.nodes_before; ++i) original_.emplace(nodes[i].get(), i);
    find_alternatives();
}

const Extractor::Option& Extractor::option(const Node& node) const {
    auto it = options_.find(&node);
    if (it != options_.end()) return it->second;
    Option made{options_.size(), cost_.node(node), {}};
    for (const Value* v : node.inputs()) {
        if (!v) continue;
        ClassId c = egraph_.class_of(*v);
        if (!egraph_.weight_only(c)) made.inputs.push_back(c);
    }
    return options_.emplace(&node, std::move(made)).first->second;
}

double Extractor::cost(const Chosen& chosen) const {
    enum : char { New, Open, Done };
    std::vector<char> state(egraph_.class_bound(), New);
    std::vector<char> counted(options_.size(), false);
    struct Place {
        ClassId c;
        const Option* option;
        size_t next;
    };
    double sum = 0;
    std::vector<Place> stack;
    // False where it goes in a circle, or nothing is chosen.
    auto visit = [&](ClassId c) {
        if (state[size_t(c)] != New) return state[size_t(c)] == Done;
        const Value* value = chosen[size_t(c)];
        if (!value) return false;
        state[size_t(c)] = Open;
        stack.push_back({c, value->node() ? &option(*value->node()) : nullptr, 0});
        return true;
    };
    for (const Value* out : egraph_.graph().outputs()) {
        const ClassId root = egraph_.class_of(*out);
        if (egraph_.weight_only(root)) continue;
        if (!visit(root)) return kInfinite;
        while (!stack.empty()) {
            Place& at = stack.back();
            if (at.option && at.next < at.option->inputs.size()) {
                if (!visit(at.option->inputs[at.next++])) return kInfinite;
                continue;
            }
            if (at.option) {
                if (counted.size() <= at.option->number) counted.resize(options_.size(), false);
                if (!counted[at.option->number]) sum += at.option->cost;
                counted[at.option->number] = true;
            }
            state[size_t(at.c)] = Done;
            stack.pop_back();
        }
    }
    return sum;
}

Extractor::Chosen Extractor::defaults() const {
    Chosen chosen(egraph_.class_bound(), nullptr);
    for (size_t c = 0; c < chosen.size(); ++c) {
        if (!egraph_.is_class(ClassId(c))) continue;
        size_t first = std::numeric_limits<size_t>::max();
        for (Value* v : egraph_.members(ClassId(c))) {
            size_t place = !v->node()                      ? 0
                           : original_.contains(v->node()) ? original_.at(v->node()) + 1
                                                           : original_.size() + 1;
            if (place < first) {
                first = place;
                chosen[c] = v;
            }
        }
    }
    return chosen;
}

Extraction Extractor::input() const { return finish(defaults(), false); }

Extraction Extractor::greedy() {
    // The cheapest tree of each class, until nothing changes: what costs more than nothing is never in a circle.
    Chosen chosen(egraph_.class_bound(), nullptr);
    std::vector<double> best(egraph_.class_bound(), kInfinite);
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t c = 0; c < chosen.size(); ++c) {
            if (!egraph_.is_class(ClassId(c))) continue;
            for (Value* v : egraph_.members(ClassId(c))) {
                double sum = 0;
                if (!egraph_.weight_only(ClassId(c)) && v->node()) {
                    sum = node_cost(*v->node()) + 1e-12;
                    for (const Value* i : v->node()->inputs())
                        if (i && !egraph_.weight_only(egraph_.class_of(*i))) sum += best[size_t(egraph_.class_of(*i))];
                }
                if (sum < best[c] * (1 - 1e-9)) {
                    best[c] = sum;
                    chosen[c] = v;
                    changed = true;
                }
            }
        }
    }
    return finish(std::move(chosen), false);
}

void Extractor::take(size_t number, Chosen& chosen, std::vector<bool>& taken) const {
    if (taken[number]) return;
    taken[number] = true;
    const Derivation& step = saturation_.steps[number];
    for (size_t before : step.after) take(before, chosen, taken);
    for (size_t i = 0; i < step.roots.size(); ++i) {
        Value* made = egraph_.current(*step.made[i]);
        chosen[size_t(egraph_.class_of(*made))] = made;
    }
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
    std::vector<bool> taken(saturation_.steps.size(), false);
    for (size_t a : alternatives)
        for (size_t step : alternatives_[a].steps) take(step, chosen, taken);
    return finish(std::move(chosen), false);
}

bool Extractor::improve(Chosen& chosen, double& best, const ExtractOptions& options) const {
    bool improved = false;
    for (size_t c = 0; c < chosen.size(); ++c) {
        if (!egraph_.is_class(ClassId(c)) || egraph_.weight_only(ClassId(c))) continue;
        if (egraph_.members(ClassId(c)).size() < 2) continue;
        for (Value* v : egraph_.members(ClassId(c))) {
            if (v == chosen[c]) continue;
            Value* before = chosen[c];
            chosen[c] = v;
            double now = cost(chosen);
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
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    auto late = [&] { return std::chrono::duration<double>(Clock::now() - began).count() > options.seconds; };
    const Chosen start = defaults();
    const double before = cost(start);
    const Extraction trees = greedy();
    Chosen chosen = start;
    double best = before;
    // What each alternative brings alone, then together in that order.
    for (Alternative& a : alternatives_) {
        if (late()) break;
        Chosen trial = start;
        std::vector<bool> taken(saturation_.steps.size(), false);
        for (size_t step : a.steps) take(step, trial, taken);
        a.gain = before - cost(trial);
    }
    std::vector<size_t> order(alternatives_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return alternatives_[a].gain > alternatives_[b].gain; });
    for (bool changed = true; changed && !late();) {
        changed = false;
        for (size_t a : order) {
            if (late()) break;
            Chosen trial = chosen;
            std::vector<bool> taken(saturation_.steps.size(), false);
            for (size_t step : alternatives_[a].steps) take(step, trial, taken);
            double now = cost(trial);
            if (now < best - options.least_gain) {
                best = now;
                chosen = std::move(trial);
                changed = true;
            }
        }
        // Places that are alike need not be chosen alike.
        for (size_t step = 0; step < saturation_.steps.size() && !late(); ++step) {
            Chosen trial = chosen;
            std::vector<bool> taken(saturation_.steps.size(), false);
            take(step, trial, taken);
            double now = cost(trial);
            if (now < best - options.least_gain) {
                best = now;
                chosen = std::move(trial);
                changed = true;
            }
        }
        if (!late()) changed |= improve(chosen, best, options);
    }
    if (trees.cost < best) {
        best = trees.cost;
        chosen = trees.chosen;
        improve(chosen, best, options);
    }
    const bool exact = improve_exactly(chosen, options.exact_seconds);
    return finish(std::move(chosen), exact);
}

Extraction Extractor::finish(Chosen chosen, bool exact) const {
    Extraction out;
    out.cost = cost(chosen);
    out.exact = exact;
    std::vector<bool> needed(egraph_.class_bound(), false);
    std::vector<ClassId> todo;
    for (const Value* v : egraph_.graph().outputs()) todo.push_back(egraph_.class_of(*v));
    while (!todo.empty()) {
        auto c = size_t(todo.back());
        todo.pop_back();
        if (needed[c]) continue;
        needed[c] = true;
        if (chosen[c] && chosen[c]->node())
            for (const Value* v : chosen[c]->node()->inputs())
                if (v) todo.push_back(egraph_.class_of(*v));
    }
    for (size_t c = 0; c < chosen.size(); ++c)
        if (!needed[c]) chosen[c] = nullptr;
    for (size_t i = 0; i < saturation_.steps.size(); ++i) {
        const Derivation& step = saturation_.steps[i];
        for (size_t k = 0; k < step.roots.size(); ++k) {
            Value* made = egraph_.current(*step.made[k]);
            if (!made->node() || chosen[size_t(egraph_.class_of(*made))] != made) continue;
            if (original_.contains(made->node())) continue;
            out.steps.push_back(i);
            break;
        }
    }
    out.chosen = std::move(chosen);
    return out;
}

std::unique_ptr<Graph> Extractor::build(const Extraction& extraction) const {
    const Graph& from = egraph_.graph();
    auto graph = std::make_unique<Graph>(from.name());
    graph->info() = from.info();
    graph->doc_string = from.doc_string;
    graph->metadata = from.metadata;
    std::unordered_map<const Value*, Value*> now;  // of chosen values
    for (const auto& v : from.inputs()) now[v.get()] = graph->add_input(v->name(), v->type(), v->tensor());
    std::vector<std::pair<const Value*, size_t>> stack;
    auto value_of = [&](const Value& v) { return extraction.chosen[size_t(egraph_.class_of(v))]; };
    auto visit = [&](const Value* v) {
        if (now.contains(v)) return;
        if (v->is_constant())
            now[v] = graph->constant(*v->tensor(), v->name());
        else
            stack.emplace_back(v, 0);
    };
    for (const Value* out : from.outputs()) {
        visit(value_of(*out));
        while (!stack.empty()) {
            auto [value, next] = stack.back();
            const Node& node = *value->node();
            if (now.contains(value)) {
                stack.pop_back();
            } else if (next < node.inputs().size()) {
                ++stack.back().second;
                if (node.inputs()[next]) visit(value_of(*node.inputs()[next]));
            } else {
                NodeSpec spec{&node.op(), {}, node.attrs(), node.output_count(), node.name()};
                for (const Value* v : node.inputs()) spec.inputs.push_back(v ? now.at(value_of(*v)) : nullptr);
                for (size_t i = 0; i < node.output_count(); ++i) {
                    spec.output_names.push_back(node.output(i)->name());
                    spec.given.push_back(node.output_given(i));
                }
                spec.metadata = node.metadata();
                Result<Node*> made = graph->add(std::move(spec));
                CHECK(made.ok(), "{}", made.error().to_string());
                for (size_t i = 0; i < node.output_count(); ++i) now[node.output(i)] = (*made)->output(i);
                stack.pop_back();
            }
        }
    }
    for (size_t i = 0; i < from.outputs().size(); ++i)
        graph->add_output(now.at(value_of(*from.outputs()[i])), from.output_names()[i]);
    return graph;
}

}  // namespace tessera
