// Attention as the softmax of scaled scores times the values, and heads that are repeated.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "discover/check/check_element_reader.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

}  // namespace

// The rank, where the conditions give it as a number.
std::optional<int> ElementReader::known_rank(const Term& given) const {
    const Term& t = resolved(given);
    if (is_number(t)) return 0;
    if (t.form == Form::Variable && !t.list) {
        for (int n = 0; n <= 8; ++n)
            if (facts_.says(fmt::format("==(rank({}), {})", variable(t), n))) return n;
        return {};
    }
    if (t.form != Form::Op) return {};
    if (is_one_of(t.op->name, {"transpose", "softmax", "slice"})) return known_rank(t.args[0]);
    if (is_op(t, "matmul")) {
        const std::optional<int> a = known_rank(t.args[0]), b = known_rank(t.args[1]);
        return a && b && std::min(*a, *b) >= 2 ? std::optional(std::max(*a, *b)) : std::nullopt;
    }
    if (!elementwise(t)) return {};
    std::optional<int> largest;
    for (const Term* a : operands(t))
        if (std::optional<int> n = known_rank(*a)) largest = std::max(*n, largest.value_or(0));
    // The others are said to have no more axes.
    auto is_less = [&](const Term* a) {
        const Term& x = resolved(*a);
        if (known_rank(x)) return true;
        if (!largest || x.form != Form::Variable || x.list) return false;
        for (int n = 0; n <= *largest; ++n)
            if (facts_.says(fmt::format("<=(rank({}), {})", variable(x), n))) return true;
        return std::any_of(rule_.variables.begin(), rule_.variables.end(), [&](const RuleVariable& y) {
            for (int n = 0; n <= *largest; ++n)
                if (facts_.says(fmt::format("==(rank({}), {})", y.name, n)))
                    return facts_.says_of("mask_fits", {variable(x), y.name});
            return false;
        });
    };
    const std::vector<const Term*> all = operands(t);
    return std::all_of(all.begin(), all.end(), is_less) ? largest : std::nullopt;
}

// An axis of a tensor of that rank, counted from the front.
std::optional<std::string> ElementReader::known_axis(const Term& axis, int rank) const {
    if (axis.form == Form::Number && axis.number == static_cast<int>(axis.number)) {
        const int n = static_cast<int>(axis.number);
        if (n >= -rank && n < rank) return std::to_string(n < 0 ? n + rank : n);
    }
    if (axis.form != Form::Variable || axis.slot < 0) return {};
    const Term* said = facts_.equal_to(fmt::format("axis_in({}, {})", facts_.text(axis), rank));
    return said ? std::optional(facts_.text(*said)) : std::nullopt;
}

// softmax(scale * q k' + mask) v. As many heads of keys as of queries, and a mask that has all keys: a shorter one is
// continued by -inf. The op takes the root of its scale, which is a number where that is not negative.
std::optional<Term> ElementReader::attention_written_out(const Term& t) {
    if (!is_op(t, "attention") || t.output || t.args.size() < 3 || t.args.size() > 4 || t.rest_slot >= 0) return {};
    const Term* scale = nullptr;
    for (const auto& [name, value] : t.attrs) {
        if (name == "scale")
            scale = &value;
        else if (!facts_.attribute(t, name).empty())
            return {};
    }
    const Term &q = t.args[0], &k = resolved(t.args[1]), &v = t.args[2];
    auto is_tensor = [](const Term& x) { return x.form == Form::Variable && x.slot >= 0 && !x.optional && !x.list; };
    if (!scale || !is_tensor(q) || !is_tensor(v) || known_rank(q) != 4) return {};
    const bool turned = is_op(k, "transpose") && facts_.attribute(k, "perm") == "[0, 1, 3, 2]" && is_tensor(k.args[0]);
    Term keys;  // head size by keys
    if (turned) {
        keys = k.args[0];
        if (!facts_.says(fmt::format("heads_agree({}, {}, {})", variable(q), variable(keys), variable(v)))) return {};
    } else {
        if (!is_tensor(k) || !facts_.says(fmt::format("==(dim({}, 1), dim({}, 1))", variable(q), variable(k))))
            return {};
        static const Term kPerm =
            (*read_rules("law: transpose(x, perm=[0, 1, 3, 2]) => x", "law"))[0].pattern[0].attrs[0].second;
        keys = op_term("transpose", {k});
        keys.attrs.emplace_back("perm", kPerm);
    }
    Term scores = op_term("matmul", {q, keys});
    auto is_positive = [&](const Term& n) {
        return n.form == Form::Call && n.name == "number" && is_tensor(n.args[0]) &&
               facts_.one_element(variable(n.args[0])) && is_narrow(t) &&
               (facts_.says(fmt::format(">({}, 0.0)", facts_.text(n))) ||
                facts_.says(fmt::format(">({}, 0)", facts_.text(n))));
    };
    if (scale->form == Form::Number) {
        if (!(scale->number > 0) || static_cast<double>(static_cast<float>(scale->number)) != scale->number) return {};
        if (scale->number != 1) scores = op_term("mul", {scores, *scale});
    } else if (scale->form == Form::Variable && left_) {
        scores = op_term("mul", {scores, *scale});
    } else if (is_positive(*scale)) {
        scores = op_term("mul", {scores, *scale});
    } else if (scale->form == Form::Call && scale->name == "/" && scale->args[0].form == Form::Number &&
               scale->args[0].number == 1 && is_positive(scale->args[1]) &&
               facts_.says(fmt::format("invertible({})", variable(scale->args[1].args[0])))) {
        scores = op_term("div", {scores, scale->args[1]});
    } else {
        return {};
    }
    if (t.args.size() == 4) {
        const Term& m = t.args[3];
        if (!is_tensor(m)) return {};
        const bool fits =
            turned ? facts_.says(fmt::format("mask_fits({}, {}, {})", variable(m), variable(q), variable(keys)))
                   : facts_.says(fmt::format("is_float({})", variable(m))) &&
                         facts_.says(fmt::format("==(dim({}, -1), dim({}, 2))", variable(m), variable(k)));
        if (!fits) return {};
        scores = op_term("add", {scores, m});
    }
    return op_term("matmul", {op_term("softmax", {scores}), v});
}

// Heads that stand several times one after another, as those they are: the head that query h looks at is h / (g n) of
// them, and (h / n) / g of what stands g times.
std::optional<Term> ElementReader::shared_heads(const Term& given) const {
    const Term& flat = resolved(given);
    if (!is_op(flat, "reshape") || flat.bound_slot < 0 || !flat.attrs.empty() || flat.rest_slot >= 0) return {};
    const Term& spread = resolved(flat.args[0]);
    if (!is_op(spread, "expand") || spread.bound_slot < 0) return {};
    const Term& with_axis = resolved(spread.args[0]);
    if (!is_op(with_axis, "unsqueeze") || facts_.text(with_axis.args[1]) != "[2]") return {};
    const Term& k = with_axis.args[0];
    if (k.form != Form::Variable || k.slot < 0 || k.optional || known_rank(k) != 4) return {};
    const std::string x = variable(k), wide = facts_.name(spread.bound_slot), all = facts_.name(flat.bound_slot);
    const bool repeated =
        facts_.says(
            fmt::format("==(dims({0}), [dim({1}, 0), dim({1}, 1), dim({0}, 2), dim({1}, 2), dim({1}, 3)])", wide, x)) &&
        facts_.says(fmt::format("==(dims({0}), [dim({2}, 0), *(dim({2}, 1), dim({1}, 2)), dim({2}, 2), dim({2}, 3)])",
                                all, wide, x));
    return repeated ? std::optional(k) : std::nullopt;
}

// Queries, keys and scale are only read as scale * q k: numbers among them are one product.
std::optional<Term> ElementReader::attention_leaf(Term t, const Path& path) {
    if (!is_op(t, "attention") || t.output || t.args.size() > 4 || t.rest_slot >= 0) return {};
    std::multiset<std::string> factors;
    auto collect_factors = [&](auto& self, const Term& f) -> bool {
        if (f.form == Form::Call && f.name == "*") return self(self, f.args[0]) && self(self, f.args[1]);
        if (f.form == Form::Call) {
            if (f.name != "number" || f.args[0].form != Form::Variable || !facts_.one_element(variable(f.args[0])))
                return false;
            // The op takes the root of its scale.
            if (!facts_.says(fmt::format(">({}, 0.0)", facts_.text(f))) &&
                !facts_.says(fmt::format(">({}, 0)", facts_.text(f))))
                return false;
            factors.insert(variable(f.args[0]));
            return true;
        }
        factors.insert("attribute " + facts_.text(f));
        return true;
    };
    auto scale = std::find_if(t.attrs.begin(), t.attrs.end(), [](const auto& a) { return a.first == "scale"; });
    if (scale == t.attrs.end() || (scale->second.form == Form::Call && !is_narrow(t)) ||
        !collect_factors(collect_factors, scale->second))
        return {};
    auto one_number = [&](const Term& y, const Term& s) {
        return s.form == Form::Variable && s.slot >= 0 && facts_.one_element(variable(s)) &&
               sizes(op_term("mul", {y, s})) == sizes(y);
    };
    for (size_t i : {0u, 1u}) {
        Term a = resolved(t.args[i]);
        if (auto parts = factored(a, one_number)) {
            t.args[i] = parts->first;
            factors.insert(variable(parts->second));
        } else if (is_op(a, "transpose")) {
            if (auto inner = factored(a.args[0], one_number)) {
                a.args[0] = inner->first;
                t.args[i] = a;
                factors.insert(variable(inner->second));
            }
        }
    }
    // Keys and values have equally many heads, before and after.
    if (t.args.size() >= 3 && known_rank(t.args[0]) == 4) {
        const std::optional<Term> k = shared_heads(t.args[1]), v = shared_heads(t.args[2]);
        if (k && v && facts_.says(fmt::format("==(dim({}, 1), dim({}, 1))", variable(*k), variable(*v)))) {
            t.args[1] = *k;
            t.args[2] = *v;
        }
    }
    return leaf(fmt::format("attention[{}]({}){} scaled by {}", facts_.attributes(t, {"scale"}), whole_operands(t),
                            path_text(path), fmt::join(factors, " ")),
                "float", partial(t));
}

}  // namespace tessera::checker
