#include "search/siblings.h"

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

std::vector<Siblings> find_siblings(Enumeration& terms, const std::vector<TermPair>& pairs) {
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
    for (const auto& [key, outputs] : wholes) {
        const size_t count = families[key.first].size();
        if (count < 2 || outputs.size() != count) continue;
        Siblings s;
        std::vector<int> before;
        bool shares = true;
        for (const auto& [output, pair] : outputs) {
            const std::vector<int> here = variables_in(terms, pair.right);
            const bool common = std::any_of(here.begin(), here.end(), [&](int v) { return within({v}, before); });
            shares &= before.empty() || common;
            before.insert(before.end(), here.begin(), here.end());
            s.parts.push_back(pair.right);
            s.whole.push_back(pair.left);
        }
        const bool same = s.parts[0] == s.parts[1];
        if (!shares || same) continue;
        const uint8_t size = outputs.begin()->second.left_size;
        s.pair = {s.whole[0], s.whole[1], size, size};
        if (seen.insert(canonical_form(terms, s.pair)).second) found.push_back(std::move(s));
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
    if (!within(variables_in(terms, siblings.whole[0]), bound)) return {};
    return fmt::format("({}) => {}", fmt::join(parts, ", "), to_string(terms, siblings.whole[0]));
}

}  // namespace tessera
