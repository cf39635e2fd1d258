#include "discover/enumerate/siblings.h"

#include <map>
#include <set>

namespace tessera {
namespace {

// The template's op with all its outputs, as text; the same for templates that differ in the output only.
std::string family_of(const OpTemplate& op) {
    Term whole = op.term();
    whole.output = 0;
    return to_string(whole, op.rule);
}

bool within(const std::vector<int>& some, const std::vector<int>& all) {
    return std::all_of(some.begin(), some.end(),
                       [&](int v) { return std::find(all.begin(), all.end(), v) != all.end(); });
}

}  // namespace

std::vector<Siblings> find_siblings(Enumeration& terms, const std::vector<TermPair>& pairs,
                                    const std::vector<TermPair>& irredundant) {
    const auto& templates = terms.set().templates;
    // Templates by family, each with its output.
    std::map<std::string, std::vector<int>> families;
    std::vector<std::string> family(templates.size());
    for (size_t i = 0; i < templates.size(); ++i) {
        const Term& t = templates[i].term();
        if (t.form != Term::Form::Op || t.op->outputs.size() != 1 || !t.op->outputs[0].variadic) continue;
        family[i] = family_of(templates[i]);
        families[family[i]].push_back(static_cast<int>(i));
    }
    // The parts of each whole, by the op's operands.
    std::map<std::pair<std::string, std::array<TermId, 3>>, std::map<int, TermPair>> wholes;
    for (const TermPair& p : pairs) {
        if (p.left.op == kVariableOp || family[p.left.op].empty() || p.right_size == 0) continue;
        const int output = templates[p.left.op].term().output;
        wholes[{family[p.left.op], p.left.args}].emplace(output, p);
    }
    std::vector<Siblings> found;
    std::set<Fingerprint> seen;
    auto first_of = [&](const std::string& name) {
        for (int op : families[name])
            if (templates[op].term().output == 0) return static_cast<uint16_t>(op);
        return static_cast<uint16_t>(families[name][0]);
    };
    auto add = [&](Siblings s) {
        std::vector<int> before;
        bool shares = true;
        for (const TermNode& part : s.parts) {
            const std::vector<int> here = variables_in(terms, part);
            const bool common = std::any_of(here.begin(), here.end(), [&](int v) { return within({v}, before); });
            shares &= before.empty() || common;
            before.insert(before.end(), here.begin(), here.end());
        }
        if (!shares || s.parts[0] == s.parts[1]) return;
        if (seen.insert(canonical_form(terms, s.pair)).second) found.push_back(std::move(s));
    };
    for (const auto& [key, outputs] : wholes) {
        const size_t count = families[key.first].size();
        if (count < 2 || outputs.size() != count) continue;
        Siblings s;
        for (const auto& [output, pair] : outputs) s.parts.push_back(pair.right);
        const TermPair &first = outputs.begin()->second, &second = std::next(outputs.begin())->second;
        s.operand = terms.table()[key.second[0]].node;
        s.op = first_of(key.first);
        s.pair = {first.left, second.left, first.left_size, first.left_size};
        add(std::move(s));
    }
    // What joins two tensors so that the op takes them apart again: its operands are parts of whatever equals it.
    std::map<uint16_t, std::map<std::string, std::map<int, int>>> joins;  // op, family, output: operand
    for (const TermPair& p : pairs) {
        if (p.left_size != 2 || p.right_size != 0 || family[p.left.op].empty()) continue;
        const TermNode& joined = terms.table()[p.left.args[0]].node;
        if (joined.op == kVariableOp || joined.args[0] == joined.args[1]) continue;
        for (int i = 0; i < terms.operands(joined); ++i)
            if (terms.table()[joined.args[i]].node == p.right)
                joins[joined.op][family[p.left.op]].emplace(templates[p.left.op].term().output, i);
    }
    auto by_join = [&](const TermPair& p, const TermNode& joined, const TermNode& other) {
        if (joined.op == kVariableOp || other.op == kVariableOp || !joins.contains(joined.op)) return;
        for (const auto& [name, operands] : joins.at(joined.op)) {
            if (operands.size() < 2 || operands.size() != families[name].size()) continue;
            Siblings s{{}, other, first_of(name), p};
            bool fits = true;
            for (const auto& [output, operand] : operands) {
                const TermTable::Entry& part = terms.table()[joined.args[operand]];
                const uint16_t shapes[3] = {joined.shape, 0, 0};
                const Applied* applied = nullptr;
                for (int op : families[name])
                    if (templates[op].term().output == output) applied = terms.evaluator().apply(op, shapes);
                fits &= applied && part.size > 0 && applied->shape->id == part.node.shape;
                s.parts.push_back(part.node);
            }
            if (fits) add(std::move(s));
        }
    };
    for (const TermPair& p : irredundant) {
        by_join(p, p.left, p.right);
        by_join(p, p.right, p.left);
    }
    return found;
}

std::string rule_text(Enumeration& terms, const TermPair& pair) {
    const std::vector<int> left = variables_in(terms, pair.left), right = variables_in(terms, pair.right);
    const std::string l = to_string(terms, pair.left), r = to_string(terms, pair.right);
    if (l == r) return {};
    if (within(right, left)) return l + " => " + r;
    const bool leaf = pair.right.op == kVariableOp || terms.set().templates[pair.right.op].constant;
    if (within(left, right) && !leaf) return r + " => " + l;
    return {};
}

std::string rule_text(Enumeration& terms, const Siblings& siblings) {
    std::vector<std::string> parts;
    std::vector<int> bound;
    for (const TermNode& part : siblings.parts) {
        parts.push_back(to_string(terms, part));
        const std::vector<int> here = variables_in(terms, part);
        bound.insert(bound.end(), here.begin(), here.end());
    }
    if (!within(variables_in(terms, siblings.operand), bound)) return {};
    return fmt::format("({}) => {}", fmt::join(parts, ", "), to_string(terms, siblings.op, siblings.operand));
}

}  // namespace tessera
