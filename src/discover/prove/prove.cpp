#include "discover/prove/prove.h"

#include <algorithm>
#include <functional>

#include "discover/check/check_cancellation.h"
#include "discover/check/check_definedness.h"
#include "discover/check/check_types.h"
#include "discover/prove/root.h"

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

// One root.
Decision prove_root(const Comprehension& c, const ProveOptions& options, std::vector<std::string>& steps) {
    return RootProof(c, options).run(steps);
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

// Whether anything may cancel on the right.
bool subtracts(const std::vector<Comprehension>& roots) {
    bool some = false;
    for (const Comprehension& c : roots)
        visit(c.right, [&](const Expr& e) {
            const bool negative = e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real < 0;
            const bool chooses = e.is(ExprKind::Select) && e.arg(0).node().reads;  // c a + b - c b
            some = some || negative || chooses || e.is(ExprKind::Sub) || e.is(ExprKind::Neg);
        });
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
    std::vector<ElementOfSides> elements;
    for (const Comprehension& c : roots) elements.push_back({c.shape, c.left, c.right});
    if (may_be_undefined(roots) || has_numbers(claim.rule)) {
        if (Status defined = check_definedness(claim, elements); !defined.ok()) {
            proof.reason = defined.error().message();
            proof.undefined = true;
            return proof;
        }
    }
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
    if (Status kept = checker::check_types(claim.rule); !kept.ok()) {
        proof.reason = kept.error().message();
        return proof;
    }
    if (subtracts(roots))
        if (Status bounded = check_cancellation(claim, elements); !bounded.ok()) {
            proof.reason = bounded.error().message();
            return proof;
        }
    proof.verdict = Proof::Verdict::Proved;
    if (options.certificate)
        for (const std::string& s : steps) proof.certificate.text += s + "\n";
    return proof;
}

}  // namespace tessera
