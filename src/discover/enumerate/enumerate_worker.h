// What a thread of the enumeration has to itself, and the step that all levels share: one term extended by each
// template.
#pragma once

#include "discover/enumerate/enumerate.h"

namespace tessera {

struct Enumeration::Worker {
    std::vector<uint64_t> scratch, out, a_values;
    std::vector<std::vector<uint64_t>> temporary;
    std::unordered_map<uint32_t, std::vector<Choice>> choices;
    std::vector<Record> records;
    std::vector<TermPair> pairs;
    EnumerateCounts counts;
};

// All terms of `level` ops with `a` as their largest operand.
template <typename Emit>
void Enumeration::extend(TermId a, int level, Worker& worker, const Emit& emit) {
    const TermTable::Entry& entry = table_[a];
    const uint64_t* a_values = stored(a);
    if (!a_values) {
        if (!evaluate(a, worker.a_values, worker)) return;
        a_values = worker.a_values.data();
    }
    const uint16_t shape = entry.node.shape;
    auto values = [&](TermId id) { return id == a ? a_values : stored(id); };
    auto produce = [&](uint16_t op, const Applied& applied, TermId x, TermId y, TermId z) {
        const uint64_t* inputs[3] = {values(x), y == kNoTerm ? nullptr : values(y), z == kNoTerm ? nullptr : values(z)};
        // A term of constants only is a constant; such terms are not enumerated.
        auto varies = [&](TermId id) {
            return id != kNoTerm && (id >= level_begin_[1] || table_[id].node.op == kVariableOp);
        };
        if (!varies(x) && !varies(y) && !varies(z)) return;
        if (worker.out.size() < static_cast<size_t>(applied.shape->elements))
            worker.out.resize(applied.shape->elements);
        if (!evaluator_.run(applied, inputs, worker.out.data(), worker.scratch)) return;
        // A value that is the same number everywhere is a constant that hides as x - x or x / x.
        const uint64_t* first = worker.out.data();
        const uint64_t* last = first + applied.shape->elements;
        if (std::all_of(first, last, [&](uint64_t v) { return v == *first; })) return;
        TermNode node{op, applied.shape->id, {x, y, z}};
        ++worker.counts.terms;
        emit(Record{WorldEvaluator::fingerprint(*applied.shape, worker.out.data()), node});
    };
    const auto& templates = set().templates;
    if (entry.size == level - 1) {
        for (size_t op = 0; op < templates.size(); ++op) {
            if (templates[op].operands != 1 || templates[op].constant) continue;
            const uint16_t shapes[3] = {shape, 0, 0};
            if (const Applied* applied = evaluator_.apply(static_cast<uint16_t>(op), shapes))
                produce(static_cast<uint16_t>(op), *applied, a, kNoTerm, kNoTerm);
        }
    }
    auto pair = [&](TermId b) {
        for (const Choice& c : choices(shape, table_[b].node.shape, worker)) {
            const bool commutes = templates[c.op].commutative;
            if (a == b && c.swapped) continue;
            TermId x = c.swapped ? b : a, y = c.swapped ? a : b;
            if (commutes && shape == table_[b].node.shape && y < x) std::swap(x, y);
            produce(c.op, *c.applied, x, y, kNoTerm);
        }
    };
    auto triple = [&](TermId b, TermId c) {
        std::array<TermId, 3> order{a, b, c};
        std::sort(order.begin(), order.end());
        do {
            const uint16_t shapes[3] = {table_[order[0]].node.shape, table_[order[1]].node.shape,
                                        table_[order[2]].node.shape};
            for (size_t op = 0; op < templates.size(); ++op) {
                if (templates[op].operands != 3 || templates[op].constant) continue;
                if (const Applied* applied = evaluator_.apply(static_cast<uint16_t>(op), shapes))
                    produce(static_cast<uint16_t>(op), *applied, order[0], order[1], order[2]);
            }
        } while (std::next_permutation(order.begin(), order.end()));
    };
    // Partners add no op where the term has enough, and exactly those that are missing otherwise.
    auto small = [&](const auto& visit) {
        for (TermId b = level_begin_[0]; b < level_begin_[1] && (entry.size > 0 || b <= a); ++b) visit(b);
        for (int i = 0; i < entry.size; ++i) visit(entry.ops[i]);
    };
    auto partners = [&](const auto& visit) {
        if (entry.size == level - 1) return small(visit);
        for (int size = 1; size <= entry.size; ++size)
            for (TermId b = level_begin_[size]; b < level_begin_[size + 1]; ++b) {
                if (size == entry.size && b >= a) break;
                if (TermTable::size_of_union(entry, table_[b]) == level - 1) visit(b);
            }
    };
    partners(pair);
    if (arity_ < 3) return;
    partners([&](TermId b) {
        small([&](TermId c) { triple(b, c); });
        if (entry.size == level - 1) return;
        for (int i = 0; i < table_[b].size; ++i) triple(b, table_[b].ops[i]);
    });
}

}  // namespace tessera
