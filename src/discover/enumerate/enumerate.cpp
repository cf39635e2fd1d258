#include "discover/enumerate/enumerate.h"

#include "base/hash.h"
#include "base/thread_pool.h"
#include "discover/enumerate/enumerate_worker.h"
#include "discover/enumerate/prune.h"

namespace tessera {

Enumeration::Enumeration(const OpSet& set, const World& world, const EnumerateOptions& options)
    : options_(options), evaluator_(set, world, options.seed, options.max_elements) {
    for (const OpTemplate& t : set.templates)
        if (!t.constant) arity_ = std::max(arity_, t.operands);
}

void Enumeration::report(std::string_view phase, int level, int64_t done, int64_t total) const {
    if (!options_.progress) return;
    options_.progress({world().name, phase, level, done, total, counts_.terms, static_cast<int64_t>(classes_.size()),
                       static_cast<int64_t>(pairs_.size()) + pairs_at_last_});
}

Status Enumeration::run() {
    TRY(add_leaves());
    for (int level = 1; level <= options_.max_ops; ++level) {
        const bool last = level == options_.max_ops && level > 3;
        terms_before_last_ = counts_.terms;
        TRY(last ? last_level(level) : inner_level(level));
    }
    counts_.classes = static_cast<int64_t>(classes_.size()) + classes_at_last_;
    count_graphs();
    return {};
}

Status Enumeration::add_leaves() {
    Worker worker;
    level_begin_ = {0};
    auto add = [&](const TermNode& node, std::vector<uint64_t> values, const WorldShape& shape, bool hidden) {
        const TermId id = table_.add(node, false);
        const Fingerprint f = WorldEvaluator::fingerprint(shape, values.data());
        if (!hidden && classes_.find(f) == kNoTerm) classes_.insert(f, id);
        stored_.push_back(std::move(values));
        return id;
    };
    std::vector<TermId> variables;
    const World& w = world();
    // Hidden variables come first, so that leaves are the terms from the first visible one on.
    std::vector<size_t> order;
    for (size_t i = 0; i < w.variables.size(); ++i)
        if (w.variables[i].hidden) order.push_back(i);
    const size_t hidden = order.size();
    for (size_t i = 0; i < w.variables.size(); ++i)
        if (!w.variables[i].hidden) order.push_back(i);
    std::vector<TermId> ids(w.variables.size());
    for (size_t i : order) {
        auto shape = evaluator_.shape_id(w.variables[i].shape);
        if (!shape)
            return Error(Code::E0301, "variable {} of world \"{}\" has no element, or more than {}", w.variables[i].name,
                         w.name, options_.max_elements)
                .at(set().name)
                .hint("give its symbols small sizes: every term is computed for all of them");
        TermNode node;
        node.shape = *shape;
        node.args[0] = static_cast<TermId>(i);
        ids[i] = add(node, evaluator_.fresh(*shape, 1 + i), evaluator_.shape(*shape), w.variables[i].hidden);
    }
    level_begin_[0] = static_cast<TermId>(hidden);
    for (const World::Constant& c : w.constants) {
        TermNode node;
        node.op = static_cast<uint16_t>(c.op);
        uint16_t shapes[3] = {};
        const uint64_t* inputs[3] = {};
        for (size_t i = 0; i < c.variables.size(); ++i) {
            node.args[i] = ids[c.variables[i]];
            shapes[i] = table_[node.args[i]].node.shape;
            inputs[i] = stored(node.args[i]);
        }
        const Applied* applied = evaluator_.apply(node.op, shapes);
        if (!applied) continue;
        node.shape = applied->shape->id;
        std::vector<uint64_t> values(applied->shape->elements);
        if (evaluator_.run(*applied, inputs, values.data(), worker.scratch))
            add(node, std::move(values), *applied->shape, false);
    }
    level_begin_.push_back(table_.size());
    return {};
}

// The terms that a level extends: large enough that the level can be reached.
std::vector<TermId> Enumeration::tasks(int level) const {
    std::vector<TermId> list;
    for (int size = 0; size < level; ++size) {
        if (size * arity_ < level - 1) continue;
        for (TermId id = level_begin_[size]; id < level_begin_[size + 1]; ++id) list.push_back(id);
    }
    return list;
}

const std::vector<Enumeration::Choice>& Enumeration::choices(uint16_t a, uint16_t b, Worker& worker) {
    auto [it, fresh] = worker.choices.try_emplace(static_cast<uint32_t>(a) << 16 | b);
    if (!fresh) return it->second;
    const auto& templates = set().templates;
    for (size_t op = 0; op < templates.size(); ++op) {
        if (templates[op].operands != 2 || templates[op].constant) continue;
        const uint16_t forward[3] = {a, b, 0}, backward[3] = {b, a, 0};
        if (const Applied* applied = evaluator_.apply(static_cast<uint16_t>(op), forward))
            it->second.push_back({static_cast<uint16_t>(op), false, applied});
        if (templates[op].commutative && a == b) continue;
        if (const Applied* applied = evaluator_.apply(static_cast<uint16_t>(op), backward))
            if (!templates[op].commutative || !evaluator_.apply(static_cast<uint16_t>(op), forward))
                it->second.push_back({static_cast<uint16_t>(op), true, applied});
    }
    return it->second;
}

// A term's values: those that are stored, or computed from its operands', which are.
bool Enumeration::evaluate(TermId id, std::vector<uint64_t>& out, Worker& worker) {
    const TermNode& node = table_[id].node;
    uint16_t shapes[3] = {};
    const uint64_t* inputs[3] = {};
    const int count = operands(node);
    for (int i = 0; i < count; ++i) {
        shapes[i] = table_[node.args[i]].node.shape;
        inputs[i] = stored(node.args[i]);
    }
    const Applied* applied = evaluator_.apply(node.op, shapes);
    out.resize(applied->shape->elements);
    return evaluator_.run(*applied, inputs, out.data(), worker.scratch);
}

void Enumeration::keep_values(TermId id, Worker& worker) {
    stored_.resize(id + 1);
    if (table_[id].size <= std::max(1, options_.max_ops - 2)) evaluate(id, stored_[id], worker);
}

Status Enumeration::inner_level(int level) {
    const std::vector<TermId> list = tasks(level);
    std::vector<Worker> workers(Team(options_.threads).threads());
    Worker own;
    constexpr size_t kBatch = 2048;
    std::vector<std::vector<Record>> found(kBatch);
    std::vector<TermPair> candidates;
    for (size_t begin = 0; begin < list.size(); begin += kBatch) {
        if (cancelled()) return Error(Code::E0410, "interrupted");
        report("levels", level, static_cast<int64_t>(begin), static_cast<int64_t>(list.size()));
        const size_t count = std::min(kBatch, list.size() - begin);
        Team team(options_.threads);
        team.each(static_cast<int64_t>(count), [&](int64_t i, int thread) {
            extend(list[begin + i], level, workers[thread], [&](const Record& r) { found[i].push_back(r); });
        });
        for (size_t i = 0; i < count; ++i) {
            for (const Record& r : found[i]) {
                ++counts_.terms;
                const TermId known = classes_.find(r.fingerprint);
                if (known == kNoTerm) {
                    const TermId id = table_.add(r.node, true);
                    classes_.insert(r.fingerprint, id);
                    keep_values(id, own);
                } else if (!(table_[known].node == r.node)) {
                    ++counts_.raw_pairs;
                    candidates.push_back({r.node, table_[known].node, static_cast<uint8_t>(level), table_[known].size});
                }
            }
            found[i].clear();
        }
    }
    level_begin_.push_back(table_.size());
    // Pairs that renaming or a common subgraph explains.
    std::vector<uint8_t> kept(candidates.size(), 0);
    Team team(options_.threads);
    team.each(static_cast<int64_t>(candidates.size()),
              [&](int64_t i, int thread) { kept[i] = keep(candidates[i], workers[thread].counts); });
    for (size_t i = 0; i < candidates.size(); ++i)
        if (kept[i]) pairs_.push_back(candidates[i]);
    for (const Worker& w : workers) {
        counts_.renamed += w.counts.renamed;
        counts_.common += w.counts.common;
    }
    return {};
}

bool Enumeration::keep(const TermPair& pair, EnumerateCounts& counts) {
    if (!names_in_order(*this, pair)) {
        ++counts.renamed;
        return false;
    }
    if (has_common_subgraph(*this, pair)) {
        ++counts.common;
        return false;
    }
    return true;
}

std::optional<TermId> Enumeration::find(const TermNode& node) {
    auto values = values_of(node, {});
    if (!values) return std::nullopt;
    const TermId id = classes_.find(WorldEvaluator::fingerprint(evaluator_.shape(node.shape), values->data()));
    return id == kNoTerm ? std::nullopt : std::optional(id);
}

std::optional<std::vector<uint64_t>> Enumeration::values_of(const TermNode& node, const Override& other) {
    if (node.op == kVariableOp) {
        for (TermId id = 0; id < level_begin_[1]; ++id)
            if (table_[id].node == node) return stored_[id];
        return std::nullopt;
    }
    const int count = operands(node);
    std::vector<std::vector<uint64_t>> made(count);
    uint16_t shapes[3] = {};
    const uint64_t* inputs[3] = {};
    for (int i = 0; i < count; ++i) {
        const TermId arg = node.args[i];
        const TermTable::Entry& e = table_[arg];
        shapes[i] = e.node.shape;
        if (arg == other.term) {
            inputs[i] = other.values->data();
            continue;
        }
        const bool touched = other.term != kNoTerm &&
                             std::find(e.ops.begin(), e.ops.begin() + e.size, other.term) != e.ops.begin() + e.size;
        const bool may_hold_leaf = other.term != kNoTerm && table_[other.term].size == 0 && e.size > 0;
        if (!touched && !may_hold_leaf && (e.size == 0 || !stored_[arg].empty())) {
            inputs[i] = stored(arg);
            continue;
        }
        auto values = values_of(e.node, other);
        if (!values) return std::nullopt;
        made[i] = std::move(*values);
        inputs[i] = made[i].data();
    }
    thread_local std::vector<uint64_t> scratch;
    const Applied* applied = evaluator_.apply(node.op, shapes);
    if (!applied) return std::nullopt;
    std::vector<uint64_t> out(applied->shape->elements);
    if (!evaluator_.run(*applied, inputs, out.data(), scratch)) return std::nullopt;
    return out;
}

// Graphs of up to max_ops ops, each on variables, constants or results of the others, with any number of outputs: what
// a generator visits that adds one op at a time. Counted by shapes alone; the orders in which n ops can be added are at
// most n!, by which the count is divided, so that it is rather too small.
void Enumeration::count_graphs() {
    std::map<uint16_t, double> leaves;
    for (TermId id = level_begin_[0]; id < level_begin_[1]; ++id) leaves[table_[id].node.shape] += 1;
    const auto& templates = set().templates;
    // How many ways there are to add one op, by the shape of its result.
    auto ways = [&](const std::map<uint16_t, double>& there) {
        std::map<uint16_t, double> made;
        for (size_t op = 0; op < templates.size(); ++op) {
            const int arity = templates[op].operands;
            if (templates[op].constant || arity > 2) continue;
            for (const auto& [a, count_a] : there) {
                uint16_t shapes[3] = {a, 0, 0};
                if (arity == 1) {
                    if (const Applied* applied = evaluator_.apply(static_cast<uint16_t>(op), shapes))
                        made[applied->shape->id] += count_a;
                    continue;
                }
                for (const auto& [b, count_b] : there) {
                    shapes[1] = b;
                    const Applied* applied = evaluator_.apply(static_cast<uint16_t>(op), shapes);
                    if (!applied) continue;
                    const bool halved = templates[op].commutative && a == b;
                    made[applied->shape->id] += halved ? count_a * (count_a + 1) / 2 : count_a * count_b;
                }
            }
        }
        return made;
    };
    std::map<std::pair<std::vector<uint16_t>, int>, double> known;
    auto graphs = [&](const auto& self, std::vector<uint16_t> results, int more) -> double {
        if (more == 0) return 1;
        std::sort(results.begin(), results.end());
        auto [it, fresh] = known.try_emplace({results, more}, 0);
        if (!fresh) return it->second;
        std::map<uint16_t, double> there = leaves;
        for (uint16_t shape : results) there[shape] += 1;
        double total = 0;
        for (const auto& [shape, count] : ways(there)) {
            std::vector<uint16_t> with = results;
            with.push_back(shape);
            total += count * self(self, std::move(with), more - 1);
        }
        return known[{results, more}] = total;
    };
    double orders = 1;
    for (int n = 1; n <= options_.max_ops; ++n) {
        orders *= n;
        counts_.graphs += graphs(graphs, {}, n) / orders;
    }
}

}  // namespace tessera
