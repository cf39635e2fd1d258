#include "discover/enumerate/prune.h"

#include <set>

#include "base/hash.h"

namespace tessera {
namespace {

void collect_leaves(Enumeration& terms, const TermNode& node, std::vector<TermNode>& variables) {
    if (node.op == kVariableOp) {
        if (std::find(variables.begin(), variables.end(), node) == variables.end()) variables.push_back(node);
        return;
    }
    for (int i = 0; i < terms.operands(node); ++i) collect_leaves(terms, terms.table()[node.args[i]].node, variables);
}

std::vector<TermNode> variables_of(Enumeration& terms, const TermPair& pair) {
    std::vector<TermNode> variables;
    collect_leaves(terms, pair.left, variables);
    collect_leaves(terms, pair.right, variables);
    return variables;
}

// Subterms with an op, and constants; not the term itself.
void collect_subterms(Enumeration& terms, const TermNode& node, std::vector<TermId>& out) {
    for (int i = 0; i < terms.operands(node); ++i) {
        const TermId id = node.args[i];
        const TermNode& arg = terms.table()[id].node;
        if (arg.op == kVariableOp) continue;
        if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
        if (!terms.set().templates[arg.op].constant) collect_subterms(terms, arg, out);
    }
}

uint64_t structure(Enumeration& terms, const TermNode& node, const std::vector<int>& names) {
    if (node.op == kVariableOp) return mix(0x51, static_cast<uint64_t>(names[node.args[0]]));
    const OpTemplate& op = terms.set().templates[node.op];
    uint64_t h = mix(0x0b, node.op), args[3] = {};
    for (int i = 0; i < op.operands; ++i) args[i] = structure(terms, terms.table()[node.args[i]].node, names);
    if (op.commutative && args[1] < args[0]) std::swap(args[0], args[1]);
    for (int i = 0; i < op.operands; ++i) h = mix(h, args[i]);
    return h;
}

Term with_operands(const Term& term, const std::vector<Term>& operands) {
    if (term.form == Term::Form::Variable) return operands[term.slot];
    Term made = term;
    for (Term& arg : made.args) arg = with_operands(arg, operands);
    return made;
}

Term to_term(Enumeration& terms, const TermNode& node, const Rule& names) {
    if (node.op == kVariableOp) {
        Term t;
        t.kind = TermKind::Tensor;
        t.slot = static_cast<int>(node.args[0]);
        t.name = names.variables[t.slot].name;
        return t;
    }
    const OpTemplate& op = terms.set().templates[node.op];
    std::vector<Term> operands;
    for (int i = 0; i < op.operands; ++i) operands.push_back(to_term(terms, terms.table()[node.args[i]].node, names));
    return with_operands(op.term(), operands);
}

Rule names_of(Enumeration& terms) {
    Rule names;
    for (const World::Variable& v : terms.world().variables) names.variables.push_back({v.name, TermKind::Tensor, {}});
    return names;
}

}  // namespace

bool names_in_order(Enumeration& terms, const TermPair& pair) {
    std::vector<bool> used(terms.world().variables.size());
    for (const TermNode& v : variables_of(terms, pair)) used[v.args[0]] = true;
    const auto& variables = terms.world().variables;
    for (size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) continue;
        for (size_t j = 0; j < i; ++j)
            if (!used[j] && variables[j].hidden == variables[i].hidden && variables[j].shape == variables[i].shape)
                return false;
    }
    return true;
}

bool has_common_subgraph(Enumeration& terms, const TermPair& pair) {
    std::vector<TermId> left, right;
    collect_subterms(terms, pair.left, left);
    collect_subterms(terms, pair.right, right);
    for (TermId id : left) {
        if (std::find(right.begin(), right.end(), id) == right.end()) continue;
        const std::vector<uint64_t> values = terms.evaluator().fresh(terms.table()[id].node.shape, 1000 + id);
        auto a = terms.values_of(pair.left, {id, &values});
        if (!a) continue;
        auto b = pair.right.op == kVariableOp ? std::nullopt : terms.values_of(pair.right, {id, &values});
        if (b && *a == *b) return true;
    }
    // One side is a subterm of the other: then it may be any tensor.
    for (TermId id : left) {
        const TermNode& node = terms.table()[id].node;
        if (!(node == pair.right) || pair.right.op == kVariableOp) continue;
        const std::vector<uint64_t> values = terms.evaluator().fresh(node.shape, 1000 + id);
        auto a = terms.values_of(pair.left, {id, &values});
        if (a && *a == values) return true;
    }
    return false;
}

Fingerprint canonical_form(Enumeration& terms, const TermPair& pair) {
    const auto& variables = terms.world().variables;
    std::vector<int> used;
    for (const TermNode& v : variables_of(terms, pair)) used.push_back(static_cast<int>(v.args[0]));
    std::sort(used.begin(), used.end());
    // Every renaming among the used variables of one shape.
    std::vector<int> names(variables.size());
    for (size_t i = 0; i < names.size(); ++i) names[i] = static_cast<int>(i);
    Fingerprint best{UINT64_MAX, UINT64_MAX};
    std::vector<bool> taken(variables.size());
    auto assign = [&](const auto& self, size_t at) -> void {
        if (at == used.size()) {
            const uint64_t l = structure(terms, pair.left, names), r = structure(terms, pair.right, names);
            best = std::min(best, Fingerprint{std::min(l, r), std::max(l, r)});
            return;
        }
        for (int to : used) {
            if (taken[to] || !(variables[to].shape == variables[used[at]].shape) ||
                variables[to].hidden != variables[used[at]].hidden)
                continue;
            taken[to] = true;
            names[used[at]] = to;
            self(self, at + 1);
            taken[to] = false;
        }
    };
    assign(assign, 0);
    return best;
}

uint64_t nameless_form(Enumeration& terms, const TermNode& node) {
    return structure(terms, node, std::vector<int>(terms.world().variables.size(), 0));
}

std::vector<int> variables_in(Enumeration& terms, const TermNode& node) {
    std::vector<TermNode> leaves;
    collect_leaves(terms, node, leaves);
    std::vector<int> numbers;
    for (const TermNode& leaf : leaves) numbers.push_back(static_cast<int>(leaf.args[0]));
    return numbers;
}

std::string to_string(Enumeration& terms, const TermNode& node) {
    const Rule names = names_of(terms);
    return to_string(to_term(terms, node, names), names);
}

std::string to_string(Enumeration& terms, uint16_t op, const TermNode& operand) {
    const Rule names = names_of(terms);
    return to_string(with_operands(terms.set().templates[op].term(), {to_term(terms, operand, names)}), names);
}

std::string to_string(Enumeration& terms, const TermPair& pair) {
    return fmt::format("{} => {}", to_string(terms, pair.left), to_string(terms, pair.right));
}

}  // namespace tessera
