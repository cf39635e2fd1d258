#include "discover/check/check_elements.h"

#include "discover/check/check_element_reader.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

}  // namespace

std::optional<Term> ElementReader::transposed_before(const Term& t, Path& path) {
    std::vector<Term> before;  // the operands, not transposed
    const bool all = t.op->name == "concat";
    const Term* perm = nullptr;
    for (size_t i = 0; i < (all ? t.args.size() : 1); ++i) {
        const Term& a = resolved(t.args[i]);
        if (!is_op(a, "transpose") || a.attrs.size() != 1) return {};
        if (perm && facts_.text(*perm) != facts_.text(a.attrs[0].second)) return {};
        perm = &a.attrs[0].second;
        before.push_back(a.args[0]);
    }
    if (!perm) return {};
    const Term p = *perm;
    Term out = t;
    out.bound_slot = -1;
    std::copy(before.begin(), before.end(), out.args.begin());
    Term* axis = nullptr;
    for (auto& [name, value] : out.attrs)
        if (name == "axis") axis = &value;
    Term* axes = is_reduction(t) && t.args.size() == 2     ? &out.args[1]
                 : is_op(t, "slice") && t.args.size() >= 4 ? &out.args[3]
                                                           : nullptr;
    const bool drops = is_op(t, "gather") || ((is_reduction(t) || along_one_axis(t)) && keepdims_is(t, "0"));
    auto ints = [](const Term& a) { return call_term("ints", {a}); };
    if (axes) {
        if (axes->form != Form::Variable || axes->optional) return {};
        if (is_reduction(t) && (t.rest_slot >= 0 || (!drops && !keeps_axes(t)))) return {};
        const std::string gone = fmt::format("left_over({}, ints({}))", facts_.text(p), facts_.text(*axes));
        transpose(path, drops ? gone : facts_.text(p), drops ? t : before[0]);
        *axes = call_term("each_at", {p, ints(*axes)});
        out_.reorders |= is_reduction(t);
    } else if (axis && (along_one_axis(t) || all || is_op(t, "gather"))) {
        if (is_op(t, "gather") && facts_.same_rank(variable(t.args[1])) != "0") return {};
        if (along_one_axis(t) && !keeps_axes(t)) return {};
        const std::string gone = fmt::format("left_over({}, [{}])", facts_.text(p), facts_.text(*axis));
        transpose(path, drops ? gone : facts_.text(p), drops ? t : before[0]);
        *axis = call_term("at", {p, *axis});
        out_.reorders |= is_one_of(t.op->name, {"softmax", "log_softmax"});
    } else if (is_op(t, "pad") && t.args.size() <= 3) {
        const Term r = call_term("rank", {before[0]}), back = call_term("inverse", {p}), pads = ints(t.args[1]);
        transpose(path, facts_.text(p), before[0]);
        out.args[1] = call_term("join", {call_term("permute", {call_term("take", {pads, r}), back}),
                                         call_term("permute", {call_term("drop", {pads, r}), back})});
    } else {
        return {};
    }
    return out;
}

Result<ElementRule> element_rule(const Rule& rule, bool by_meaning) {
    try {
        return ElementReader(rule, by_meaning).run();
    } catch (const NoElement& none) {
        return Error(Code::E0305, "{}: {}", rule.name, none.why).at(rule.source);
    }
}

}  // namespace tessera::checker
