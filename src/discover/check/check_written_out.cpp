// Ops as simpler ones, and axes in one way of writing.
#include <fmt/ranges.h>

#include <algorithm>

#include "discover/check/check_element_reader.h"

namespace tessera::checker {

// A clip whose limits are one number each.
std::optional<Term> ElementReader::limited(const Term& t) const {
    Term out = t.args[0];
    for (size_t i = 1; i < t.args.size(); ++i) {
        const Term& limit = t.args[i];
        if (is_absent(limit)) continue;
        out = op_term(i == 1 ? "max" : "min", {out, call_term("limit", {limit})});
    }
    return out;
}

// An op as simpler ones. Attributes are f32: what is none of it, or is computed, is right for no wider elements.
std::optional<Term> ElementReader::written_out(const Term& t) {
    if (std::optional<Term> simpler = without_shift(t)) return simpler;
    if (std::optional<Term> sum = exp_of_difference(t, false)) return sum;
    if (std::optional<Term> product = product_written_out(t)) return product;
    if (std::optional<Term> conv = conv_written_out(t)) return conv;
    if (std::optional<Term> norm = norm_written_out(t)) return norm;
    if (std::optional<Term> part = part_of_joined(t)) return part;
    if (std::optional<Term> rows = rows_of_product(t)) return rows;
    if (std::optional<Term> attention = attention_written_out(t)) return attention;
    if (std::optional<Term> window = padded_window(t)) return window;
    if (std::optional<Term> embedding = rotary(t)) return embedding;
    if (is_op(t, "clip")) return limited(t);
    if (std::optional<Term> reduced = reduction_written_out(t)) return reduced;
    std::optional<Term> out = meaning_of(t);
    if (!out) return out;
    const bool rounds = std::any_of(t.attrs.begin(), t.attrs.end(), [&](const auto& a) {
        if (t.op->attr(a.first)->kind != AttrKind::Float) return false;
        return a.second.form == Term::Form::Call ||
               (a.second.form == Term::Form::Number && static_cast<double>(float(a.second.number)) != a.second.number);
    });
    const bool stashes = t.op->attr("stash_type") != nullptr;
    if ((rounds || stashes) && !is_narrow(t)) return {};
    return out;
}

// A sum of absolute values, and an extremum of what one number is added to.
std::optional<Term> ElementReader::reduction_written_out(const Term& t) {
    if (t.form != Term::Form::Op || !is_reduction(t) || t.args.empty()) return {};
    if (is_op(t, "reduce_l1")) {
        Term sum = op_term("reduce_sum", {op_term("abs", {t.args[0]})});
        sum.args.insert(sum.args.end(), t.args.begin() + 1, t.args.end());
        sum.attrs = t.attrs;
        sum.rest_slot = t.rest_slot;
        return sum;
    }
    const Term& sum = resolved(t.args[0]);
    if (!is_one_of(t.op->name, {"reduce_max", "reduce_min"}) || !is_op(sum, "add") || !is_float_product(sum)) return {};
    for (size_t i : {0u, 1u}) {
        const Term& by = resolved(sum.args[i]);
        const bool number = by.form == Term::Form::Variable && !by.list && facts_.same_rank(variable(by)) == "0";
        if (!number && by.form != Term::Form::Number) continue;
        Term rest = t;
        rest.bound_slot = -1;
        rest.args[0] = sum.args[1 - i];
        return op_term("add", {rest, by});
    }
    return {};
}

// exp(x - m) by its sum, and x - m less the logarithm of that, are those of x: what is reduced of x along the same axes
// is a number wherever there is an element.
std::optional<Term> ElementReader::without_shift(const Term& t) const {
    if ((!is_op(t, "div") && !is_op(t, "sub")) || t.args.size() != 2) return {};
    const bool quotient = is_op(t, "div");
    const Term& top = resolved(t.args[0]);
    const Term* sum = &resolved(t.args[1]);
    if (!quotient) {
        if (!is_op(*sum, "log")) return {};
        sum = &resolved(sum->args[0]);
    }
    const std::optional<Term> factored = exp_of_difference(*sum, true);
    if (!factored) return {};
    const Term& inside = resolved(resolved(sum->args[0]).args[0]);  // x - m
    if (quotient && !is_op(top, "exp")) return {};
    const Term& shifted = quotient ? resolved(top.args[0]) : top;
    if (!is_op(shifted, "sub") || facts_.text(shifted.args[0]) != facts_.text(inside.args[0])) return {};
    const Term &m = resolved(shifted.args[1]), &same = resolved(inside.args[1]);
    if (m.form != Term::Form::Op || m.op != same.op || facts_.attributes(m) != facts_.attributes(same) ||
        m.args.size() != same.args.size() || facts_.text(m.args[0]) != facts_.text(same.args[0]) ||
        facts_.text(m.args[1]) != facts_.text(same.args[1]))
        return {};
    const Term &x = shifted.args[0], &all = factored->args[0];
    if (quotient) return op_term("div", {op_term("exp", {x}), all});
    return op_term("sub", {x, op_term("log", {all})});
}

// The sum over axes of exp(x - m), with one m for all of them, is that of exp(x) divided by exp(m), where it is of
// something: the largest of nothing is -inf, and 0 / 0 no number.
std::optional<Term> ElementReader::exp_of_difference(const Term& t, bool has_elements) const {
    if (!is_op(t, "reduce_sum") || t.args.size() != 2 || !keeps_axes(t)) return {};
    const Term& inside = resolved(t.args[0]);
    if (!is_op(inside, "exp")) return {};
    const Term& difference = resolved(inside.args[0]);
    if (!is_op(difference, "sub")) return {};
    const Term &x = difference.args[0], &m = resolved(difference.args[1]);
    if (m.form != Term::Form::Op || m.args.size() != 2 || !keeps_axes(m) ||
        !is_one_of(m.op->name, {"reduce_max", "reduce_min", "reduce_sum", "reduce_mean"}))
        return {};
    if (resolved(x).form != Term::Form::Variable || facts_.text(m.args[0]) != facts_.text(x)) return {};
    if (axes_of(m) != axes_of(t) || !is_float_product(inside)) return {};
    if (facts_.attributes(m) != facts_.attributes(t)) return {};
    if (!has_elements && !facts_.has_elements(variable(resolved(x)))) return {};
    Term sum = t;
    sum.args[0] = op_term("exp", {x});
    return op_term("div", {sum, op_term("exp", {m})});
}

// The axes of a reduction in one way of writing, of the variable that it reads.
std::string ElementReader::axes_of(const Term& t) const {
    const Term& list = t.args[1];
    std::set<std::string> read;
    collect(t.args[0], read);
    const std::string n = read.size() == 1 ? fmt::format("rank({})", *read.begin()) : "?";
    const std::string own = facts_.text(list), last = fmt::format("-({}, 1)", n);
    const bool is_tensor = list.form == Term::Form::Variable && list.slot >= 0 && !facts_.let(list.slot);
    if (list.form == Term::Form::List && list.args.size() == 1)
        if (std::optional<int> rank = known_rank(t.args[0]))
            if (std::optional<std::string> axis = known_axis(list.args[0], *rank)) return fmt::format("[{}]", *axis);
    if (n == "?") return is_tensor ? fmt::format("ints({})", own) : own;
    if (list.form == Term::Form::List && list.args.size() == 1)
        return fmt::format("[axis_in({}, {})]", facts_.text(list.args[0]), n);
    if (own == fmt::format("drop(up_to({}), axis_in({}, {}))", n, last, n)) return fmt::format("[{}]", last);
    if (!is_tensor) return own;
    const std::string axes = fmt::format("axes_in(ints({}), {})", own, n);
    if (const Term* known = facts_.equal_to(axes)) return facts_.text(*known);
    if (facts_.says(fmt::format("==(length(ints({})), 1)", own)))
        return fmt::format("[axis_in(at(ints({}), 0), {})]", own, n);
    if (facts_.says(fmt::format("consecutive({})", axes)) &&
        facts_.says(fmt::format("==(at({}, -1), {})", axes, last)) &&
        facts_.says(fmt::format(">(length(ints({})), 0)", own)))
        return fmt::format("drop(up_to({}), axis_in(at({}, 0), {}))", n, axes, n);
    return fmt::format("ints({})", own);
}

// The variables whose sizes a tensor has, as far as element-wise ops and reductions that keep axes show.
void ElementReader::collect(const Term& given, std::set<std::string>& read) const {
    const Term& t = resolved(given);
    // One element may have more dimensions than what it is added to.
    if (t.form == Term::Form::Variable && facts_.same_rank(variable(t)) != "0")
        read.insert(facts_.same_rank(variable(t)));
    if (t.form != Term::Form::Op) return;
    if (is_reduction(t) && keeps_axes(t)) return collect(t.args[0], read);
    if (!elementwise(t)) read.insert("?");
    for (const Term& a : t.args) collect(a, read);
}

// A number that the rule computes: of constants of one element and attributes.
Term ElementReader::attribute_element(const Term& t) {
    if (t.name == "number" && t.args.size() == 1 && t.args[0].form == Term::Form::Variable && t.args[0].slot >= 0 &&
        facts_.one_element(variable(t.args[0])))
        return element(t.args[0], {});
    if (t.name == "limit") return element(t.args[0], only_element());
    if (t.name == "*" || t.name == "/") {
        out_.reorders = true;  // computed in f64, and rounded once
        return op_term(t.name == "*" ? "mul" : "div", {element(t.args[0], {}), element(t.args[1], {})});
    }
    throw NoElement{fmt::format("no law for {}", facts_.text(t))};
}

std::string ElementReader::constraint_of(const std::string& variable, const std::string& written) const {
    auto it = matched_.find(variable);
    if (!written.empty() || it == matched_.end() || it->second == DTypes()) return written;
    if (it->second.without(kFloats) == DTypes()) return "float";
    if (it->second.without(kInts) == DTypes()) return "int";
    return it->second == DTypes(DType::boolean) ? "bool" : "";
}

// Whether the rule says of an operand that has the result's type, or is normalized, that its elements have at most 32
// bits.
bool ElementReader::is_narrow(const Term& t) const {
    for (size_t i = 0; i < t.args.size(); ++i) {
        const std::string& type = t.op->inputs[std::min(i, t.op->inputs.size() - 1)].type;
        if (type != t.op->outputs[0].type && (i > 0 || !t.op->attr("stash_type"))) continue;
        const Term& a = resolved(t.args[i]);
        const bool op = a.form == Term::Form::Op;
        if (op ? !is_one_of(a.op->name, {"cast", "cast_like"}) && !a.output && is_narrow(a)
               : facts_.narrow(variable(a)))
            return true;
    }
    return false;
}

}  // namespace tessera::checker
