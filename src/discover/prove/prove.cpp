#include "discover/prove/prove.h"

#include <algorithm>
#include <functional>

#include "base/decision.h"
#include "discover/check/check_definedness.h"
#include "discover/prove/cancel.h"

namespace tessera {

using namespace prover;

std::string_view name_of(Proof::Verdict v) {
    switch (v) {
        case Proof::Verdict::Proved: return "proved";
        case Proof::Verdict::Refuted: return "refuted";
        case Proof::Verdict::Unknown: return "unknown";
    }
    return "";
}

namespace {

std::string printed(const Atoms& atoms, const Summand& t);

std::string printed(const Atoms& atoms, const Sum& s) {
    std::string out;
    for (const Summand& t : s) out += (out.empty() ? "" : " + ") + printed(atoms, t);
    return out.empty() ? "0" : out;
}

std::string printed(const Atoms& atoms, const Summand& t) {
    std::string out = std::to_string(t.coefficient.numerator);
    if (t.coefficient.denominator != 1) out += "/" + std::to_string(t.coefficient.denominator);
    for (int v : t.variables) out += " sum " + atoms[v].name;
    for (const Poly& g : t.guards) out += " [" + atoms.print(g) + " >= 0]";
    for (const Factor& f : t.factors) {
        out += " * ";
        out += f.kind == Factor::Kind::Load     ? "x" + std::to_string(f.slot)
               : f.kind == Factor::Kind::Number ? "number"
                                                : f.name;
        out += "(";
        for (size_t i = 0; i < f.index.size(); ++i) out += (i ? ", " : "") + atoms.print(f.index[i]);
        for (size_t i = 0; i < f.args.size(); ++i) out += (i ? "; " : "") + printed(atoms, f.args[i]);
        out += ")";
    }
    return out;
}

// One root.
Decision prove_root(const Comprehension& c, const ProveOptions& options, std::vector<std::string>& steps) {
    Atoms atoms;
    Search search{atoms, {}};
    Facts base(atoms);
    for (int64_t d = 0; d < c.shape.rank(); ++d) {
        int id = atoms.variable("_o" + std::to_string(d));
        search.outputs.insert(id);
        Poly i = Poly::atom(id);
        base.add(i);
        base.add(atoms.convert(c.shape[d]) - Poly(1) - i);
    }
    Expansion expansion(atoms, static_cast<size_t>(options.max_terms));
    Sum difference = expansion.expand(c.left);
    Sum right = negated(expansion.expand(c.right));
    difference.insert(difference.end(), right.begin(), right.end());
    std::vector<std::string> header;
    std::string remains;
    for (int round = 0; round < 7; ++round) {
        std::vector<std::string> body;
        search.cut_outputs = round > 0;
        search.steps_left = 3000;
        try {
            Cancel cancel(search, base, body, 0);
            if (cancel.run(difference)) {
                steps.insert(steps.end(), header.begin(), header.end());
                steps.insert(steps.end(), body.begin(), body.end());
                return yes();
            }
            if (round == 0) remains = "what remains: " + printed(atoms, cancel.left());
            if (round > 0 || !search.cut_wanted) return no("{}", remains);
        } catch (const CutOutput& cut) {
            // _o1 = high * divisor + low, in everything.
            const std::string name = atoms[cut.variable].name;
            const std::string high = name + "h", low = name + "l";
            header.push_back(fmt::format("output {} by {} into {} {}", name, atoms.print(cut.divisor), high, low));
            int h = atoms.variable(high), l = atoms.variable(low);
            Atoms::Map map{{cut.variable, Poly::atom(h) * cut.divisor + Poly::atom(l)}};
            Facts cut_base(atoms);
            for (const Poly& p : base.all()) cut_base.add(atoms.substitute(p, map));
            cut_base.add(Poly::atom(l));
            cut_base.add(cut.divisor - Poly(1) - Poly::atom(l));
            base = std::move(cut_base);
            search.outputs.erase(cut.variable);
            search.outputs.insert(h);
            search.outputs.insert(l);
            substitute_in(atoms, difference, map);
        }
    }
    return no("{}", remains);
}

// Whether there is anything to ask on the right: a sum, a product or a choice is a number where its parts are.
bool may_be_undefined(const std::vector<Comprehension>& roots) {
    bool some = false;
    for (const Comprehension& c : roots)
        visit(c.right, [&](const Expr& e) {
            if (!is_float(e.dtype())) return;
            const bool extreme = e.is(ExprKind::Reduce) && e.node().reduce_op != ReduceOp::Sum;
            const bool limit = (e.is(ExprKind::Max) || e.is(ExprKind::Min)) && !e.arg(1).is(ExprKind::Const);
            some = some || extreme || limit || e.is(ExprKind::Div) || e.is(ExprKind::Pow) || e.is(ExprKind::Call);
        });
    for (const Comprehension& c : roots)  // a choice by values may be made by what is no number
        visit(c.left, [&](const Expr& e) { some = some || (e.is(ExprKind::Select) && e.arg(0).node().reads); });
    return some;
}

bool has_numbers(const Rule& rule) {
    std::function<bool(const Term&)> in = [&](const Term& t) {
        return t.form == Term::Form::Number || std::any_of(t.args.begin(), t.args.end(), in);
    };
    return std::any_of(rule.replacement.begin(), rule.replacement.end(), in) || !rule.lets.empty();
}

}  // namespace

Result<Proof> prove(const Claim& claim, const ProveOptions& options) {
    TRY(check_names(claim));
    TRY(check_well_formed(claim));
    std::vector<Comprehension> roots = TRY(comprehend(claim));
    Proof proof;
    std::vector<std::string> steps;
    try {
        for (size_t i = 0; i < roots.size(); ++i) {
            steps.push_back(fmt::format("root {}", i));
            if (Decision proved = prove_root(roots[i], options, steps); !proved) {
                proof.reason = proved.reason();
                return proof;
            }
        }
    } catch (const Unsupported& u) {
        proof.reason = u.why;
        return proof;
    }
    if (may_be_undefined(roots) || has_numbers(claim.rule)) {
        std::vector<ElementOfSides> elements;
        for (const Comprehension& c : roots) elements.push_back({c.shape, c.left, c.right});
        if (Status defined = check_definedness(claim, elements); !defined.ok()) {
            proof.reason = defined.error().message();
            return proof;
        }
    }
    proof.verdict = Proof::Verdict::Proved;
    if (options.certificate)
        for (const std::string& s : steps) proof.certificate.text += s + "\n";
    return proof;
}

}  // namespace tessera
