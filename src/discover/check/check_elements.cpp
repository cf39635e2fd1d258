#include "discover/check/check_elements.h"

#include "base/numeric.h"
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

void ElementReader::conditions() {
    auto carry = [&](auto& self, const Term& c) -> void {
        if (c.form != Term::Form::Call) return;
        if (c.name == "and")
            for (const Term& part : c.args) self(self, part);
        if (is_one_of(c.name, {"<", "<="}) && c.args[0].name == "number" && c.args[1].name == "number") {
            for (const auto& [i, low] : variable_of_)
                for (const auto& [j, high] : variable_of_) {
                    if (!is_variable(c.args[0].args[0], low) || !is_variable(c.args[1].args[0], high)) continue;
                    Term said = c;
                    said.args[0].args[0].slot = i;
                    said.args[1].args[0].slot = j;
                    out_.rule.conditions.push_back(said);
                }
            return;
        }
        const bool compares = is_one_of(c.name, {"<", "<=", ">", ">=", "!="});
        const Term& about = compares ? c.args[0] : c;
        if (compares && (about.name != "number" || c.args[1].form != Term::Form::Number)) return;
        if (!compares && !is_one_of(c.name, {"positive", "non_negative", "invertible", "finite", "power_of_two"}))
            return;
        if (about.args.size() != 1 || about.args[0].form != Term::Form::Variable || about.args[0].slot < 0) return;
        for (const auto& [slot, variable] : variable_of_) {
            if (!is_variable(about.args[0], variable)) continue;
            Term said = c;
            Term& place = compares ? said.args[0].args[0] : said.args[0];
            place.slot = slot;
            place.name = out_.rule.variables[static_cast<size_t>(slot)].name;
            out_.rule.conditions.push_back(said);
        }
    };
    for (const Term& c : rule_.conditions) carry(carry, c);
}

Term ElementReader::variable_element(const Term& t, const Path& path) {
    if (t.slot >= 0 && rule_.variables[static_cast<size_t>(t.slot)].kind == TermKind::Float && !facts_.let(t.slot))
        return leaf("attribute " + facts_.name(t.slot), "");
    if (t.slot < 0 && t.optional) throw NoElement{"an operand may be absent"};
    if (t.slot < 0) return leaf(fmt::format("_@{}{}", t.at, path_text(path)), "");
    if (facts_.let(t.slot)) throw NoElement{fmt::format("no law for {}", facts_.text(t))};
    const std::string name = facts_.name(t.slot);
    if (t.optional) throw NoElement{fmt::format("{} may be absent", name)};
    if (std::optional<double> n = known_number(t)) {
        // It may be either zero, and a literal is one of them.
        out_.reorders |= *n == 0 && !types_in(name, kFloats).empty();
        return number(*n);
    }
    std::string what = name + (t.list ? "..." : "");
    // A vector of channels has one for each: nothing of it is spread.
    Path there = path;
    if (channels_.contains(name) && there.size() > 1 && there.back().kind == Step::Kind::Broadcast &&
        there[there.size() - 2].kind == Step::Kind::Channel)
        there.pop_back();
    if (!facts_.one_element(name)) what += path_text(there);
    Term out = leaf(what, constraint_of(name, rule_.variables[static_cast<size_t>(t.slot)].constraint));
    if (!t.list) variable_of_[out.slot] = t.slot;
    out.list = t.list;
    return out;
}

std::optional<double> ElementReader::known_number(const Term& t) const {
    if (t.list) return {};
    const std::string& name = facts_.name(t.slot);
    if (std::optional<double> n = facts_.number(name)) return n;
    const bool boolean = types_in(name, kAllTypes) == "bool";
    if (boolean && facts_.says(fmt::format("all_true({})", name))) return 1;
    if (facts_.says(fmt::format("all_false({})", name))) return 0;
    return {};
}

std::string ElementReader::types_in(const std::string& variable, DTypes these) const {
    auto it = matched_.find(variable);
    if (it == matched_.end()) return "any";
    const DTypes left = it->second.without(kAllTypes.without(these));
    return left == DTypes() ? "" : left == DTypes(DType::boolean) ? "bool" : "any";
}

void ElementReader::check_views(const Term& given, bool is_result) {
    const Term& t = resolved(given);
    if (t.form != Form::Op) return;
    for (const Term& a : t.args) check_views(a, false);
    const bool late = is_one_of(t.op->name, {"reshape", "squeeze"}) && t.args.size() > 1 &&
                      t.args[1].form == Form::Variable && (t.args[1].slot < 0 || !facts_.let(t.args[1].slot));
    // Without elements, sizes say nothing of an axis that is gone: it may be other than 1, which stops the program.
    if ((is_result && !is_op(t, "squeeze")) || !late) return;
    auto collect = [&](auto& self, const Term& p) -> void {
        if (p.form != Form::Op) return;
        if (is_one_of(p.op->name, {"reshape", "squeeze"})) viewed_.emplace(p.op, sizes(p));
        for (const Term& a : p.args) self(self, a);
    };
    if (viewed_.empty())
        for (const Term& p : rule_.pattern) collect(collect, p);
    if (!viewed_.contains({t.op, sizes(t)}))
        throw NoElement{fmt::format("{} on the right may not fit what it reads", t.op->name)};
}

// A number among an op's operands has their type, where one of them must have the same. Where none must, the pattern's
// may have any, and the right side's has that of another operand: the same number only where all are floats.
void ElementReader::check_literals(const Term& t) {
    std::map<std::string, DTypes> of = matched_;
    auto param = [&](size_t i) { return t.op->inputs[std::min(i, t.op->inputs.size() - 1)].type; };
    auto adapts = [&](const Term& a) { return a.form == Form::Number || (a.kind == TermKind::Float && is_number(a)); };
    for (size_t i = 0; i < t.args.size(); ++i) {
        const Term& literal = t.args[i];
        if (!adapts(literal)) continue;
        DTypes types = kAllTypes;
        bool shared = dtype_from_name(param(i)).has_value(), told = false;
        for (size_t j = 0; j < t.args.size(); ++j) {
            const Term& given = t.args[j];
            const bool placed = given.form == Form::Call && is_one_of(given.name, {"channel", "beside", "limit"});
            const Term& other = resolved(placed ? given.args[0] : given);
            if (adapts(t.args[j]) || is_absent(other) || dtype_from_name(param(j))) continue;
            if (other.form != Form::Op && other.form != Form::Variable) continue;
            if (param(j) == param(i) || !told) types = types_of_term(other, of);
            told = true;
            shared |= param(j) == param(i);
            if (param(j) == param(i)) break;
        }
        const bool floats = told && types.without(kFloats) == DTypes();
        // What the rule computes is a real number, which neither wraps nor is rounded down.
        const bool computed = literal.form == Form::Call && !is_one_of(literal.name, {"number", "limit"});
        if (!floats && (!shared || computed))
            throw NoElement{fmt::format("{} in {} may have any type", facts_.text(literal), t.op->name)};
        const bool first = is_op(t, "pow") && literal.form == Form::Number && literal.number == 1;
        out_.reorders |= !shared && !first;  // the first power is rounded to the same, whatever it is computed in
        if (left_ || floats || literal.form != Form::Number || is_one_of(t.op->name, {"add", "sub", "mul"})) continue;
        // What wraps is right in a sum or product of integers only.
        for (int k = 0; k < 32; ++k) {
            const DType type = static_cast<DType>(k);
            if (!kAllTypes.has(type) || !types.has(type) || kFloats.has(type) || kComplex.has(type)) continue;
            const bool fits = type == DType::boolean ? literal.number == 0 || literal.number == 1
                              : type == DType::u64   ? literal.number >= 0
                              : is_int(type)         ? literal.number >= static_cast<double>(int_min(type)) &&
                                                   literal.number <= static_cast<double>(int_max(type))
                                             : true;
            if (!fits || literal.number != static_cast<double>(literal.whole()))
                throw NoElement{fmt::format("{} is no number of {}", facts_.text(literal), dtype_name(type))};
        }
    }
}

Term ElementReader::elementwise_element(const Term& t, const Path& path) {
    Term out = t;
    out.bound_slot = -1;
    out.args.clear();
    if (has_parameters(t)) std::erase_if(out.attrs, [](const auto& a) { return a.first == "axis"; });
    const std::string own = sizes(t);
    // The engine matches two operands in either order, and of two zeros a maximum is either.
    out_.reorders |= left_ && is_one_of(t.op->name, {"max", "min"}) && t.args.size() == 2;
    bool parameter = false;
    for (const Term& a : t.args) {
        const Term& x = resolved(a);
        Path there = parameter ? only_element() : path;
        if (!parameter && !is_number(x) && sizes(a) != own && sizes(a) != "joined()")
            broadcast(there, sizes(a), rank(t));
        out.args.push_back(element(a, there));
        parameter |= has_parameters(t);
        // Sums of sums, and maxima of maxima, of any number of operands. Which of two zeros is the larger a target
        // decides, also by which of them are constants.
        const Term last = out.args.back();
        if (!is_one_of(t.op->name, {"sum", "max", "min"}) || !is_op(last, t.op->name)) continue;
        out.args.pop_back();
        out.args.insert(out.args.end(), last.args.begin(), last.args.end());
        out_.reorders = true;
    }
    return out;
}

Term ElementReader::function_element(const Term& t, Path path) {
    // Without the axes it reduces an op gives the same elements in the same order.
    if ((is_reduction(t) || is_one_of(t.op->name, {"arg_max", "arg_min"})) && keepdims_is(t, "0")) {
        Term kept = t;
        std::erase_if(kept.attrs, [](const auto& a) { return a.first == "keepdims"; });
        view(path, sizes(kept), sizes(t));
        return element(kept, path);
    }
    if (by_meaning_)
        if (std::optional<Term> attention = attention_leaf(t, path)) return *attention;
    if (by_meaning_ && is_one_of(t.op->name, {"matmul", "gemm", "conv", "conv_transpose"}))
        return product_leaf(t, std::move(path));
    if (is_op(t, "concat")) {
        // What is joined of joined parts is joined of all.
        std::vector<std::string> parts;
        for (const Term& a : t.args) {
            const Term& inner = resolved(a);
            const bool same = is_op(inner, "concat") && facts_.attributes(inner) == facts_.attributes(t);
            if (!same) parts.push_back(whole(a, false));
            for (const Term& b : same ? inner.args : std::vector<Term>()) parts.push_back(whole(b, false));
        }
        return leaf(fmt::format("concat[{}]({}){}", facts_.attributes(t), fmt::join(parts, ", "), path_text(path)), "",
                    partial(t));
    }
    if (is_reduction(t) && t.args.size() == 2)
        return leaf(fmt::format("{}.{}[{}]({}, {}){}", t.op->name, t.output, facts_.attributes(t),
                                whole(t.args[0], false), axes_of(t), path_text(path)),
                    "", partial(t));
    return leaf(
        fmt::format("{}.{}[{}]({}){}", t.op->name, t.output, facts_.attributes(t), whole_operands(t), path_text(path)),
        "", partial(t));
}

const Term* ElementReader::does_nothing(const Term& t) {
    const std::string& name = t.op->name;
    const bool alone = t.args.size() == 1 && !t.args[0].list;
    if (is_one_of(name, {"identity"}) || (name == "dropout" && t.output == 0 && t.args.size() < 3)) return &t.args[0];
    if (alone && is_one_of(name, {"concat", "sum", "mean", "max", "min", "clip"})) return &t.args[0];
    if (name == "cast" && !type(t).empty() && type(t) == type(t.args[0])) return &t.args[0];
    if (name == "cast" && known_type(t) && known_type(t) == known_type(t.args[0])) return &t.args[0];
    if (name == "transpose" && facts_.says(fmt::format("is_identity({})", facts_.attribute(t, "perm"))))
        return &t.args[0];
    if (is_one_of(name, {"reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min"}) &&
        sizes(t) == sizes(t.args[0])) {
        const Term& x = resolved(t.args[0]);
        const bool whole_numbers =
            x.form == Term::Form::Variable && x.slot >= 0 && rule_.variables[size_t(x.slot)].constraint == "int";
        out_.reorders |= !whole_numbers && !name.ends_with("max") && !name.ends_with("min");
        return &t.args[0];
    }
    if (name == "pad" && facts_.says(fmt::format("all_equal(ints({}), 0)", facts_.text(t.args[1])))) return &t.args[0];
    return nullptr;
}

Result<ElementRule> element_rule(const Rule& rule, bool by_meaning) {
    try {
        return ElementReader(rule, by_meaning).run();
    } catch (const NoElement& none) {
        return Error(Code::E0305, "{}: {}", rule.name, none.why).at(rule.source);
    }
}

}  // namespace tessera::checker
