// Laws of windows over padded tensors and of parts that are cut out and joined again.
#include <fmt/ranges.h>

#include <algorithm>

#include "discover/check/check_element_reader.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

Term integer(int64_t n) {
    Term t;
    t.form = Form::Number;
    t.number = static_cast<double>(n);
    return t;
}

bool is_tensor(const Term& t) { return t.form == Form::Variable && t.slot >= 0 && !t.optional && !t.list; }

const Term* attribute_of(const Term& t, std::string_view name) {
    for (const auto& [attr, value] : t.attrs)
        if (attr == name) return &value;
    return nullptr;
}

}  // namespace

// A window over a tensor that is padded with what the window reads outside (0, for a maximum -inf), as a window with
// that much more padding. Paddings before and after an axis are not negative, and batch and channels have none.
std::optional<Term> ElementReader::padded_window(const Term& t) {
    const bool conv = is_op(t, "conv"), largest = is_op(t, "max_pool"), mean = is_op(t, "average_pool");
    if ((!conv && !largest && !mean) || t.output || t.args.empty()) return {};
    const Term& pad = resolved(t.args[0]);
    if (!is_op(pad, "pad") || !pad.attrs.empty() || pad.rest_slot >= 0 || pad.args.size() < 2 || pad.args.size() > 3)
        return {};
    const Term &x = pad.args[0], &p = pad.args[1];
    if (!is_tensor(x) || !is_tensor(p)) return {};
    const std::string by = fmt::format("ints({})", variable(p)), rank = fmt::format("rank({})", variable(x));
    for (const std::string& at : {std::string("0"), std::string("1"), rank, fmt::format("+({}, 1)", rank)})
        if (!facts_.says(fmt::format("==(at({}, {}), 0)", by, at))) return {};
    if (!facts_.says(fmt::format("all_at_least({}, 0)", by))) return {};
    if (pad.args.size() == 3) {
        const std::string wanted = largest ? "-inf" : "0.0";
        if (!facts_.says(fmt::format("==(number({}), {})", facts_.text(pad.args[2]), wanted))) return {};
    } else if (largest) {
        return {};
    }
    const Term *own = attribute_of(t, "pads"), *automatic = attribute_of(t, "auto_pad");
    if (!own || own->form != Form::Variable || own->slot < 0) return {};
    if (!automatic || automatic->form != Form::Text || automatic->name != "NOTSET") return {};
    const std::string q = facts_.text(*own);
    // Windows reach over the end only where sizes are rounded up, and padding of their own may not count in a mean.
    if (!conv) {
        const Term* up = attribute_of(t, "ceil_mode");
        if (!up || !facts_.attribute(t, "ceil_mode").empty()) return {};
        if (!facts_.says(fmt::format("or(not(given({0})), all_equal({0}, 0))", q))) return {};
    }
    const Term n = call_term("rank", {x}), list = call_term("ints", {p});
    const Term spatial = call_term("join", {call_term("drop", {call_term("take", {list, n}), integer(2)}),
                                            call_term("drop", {list, call_term("+", {n, integer(2)})})});
    Term out = t;
    out.bound_slot = -1;
    out.args[0] = x;
    std::erase_if(out.attrs, [](const auto& a) { return a.first == "pads" || a.first == "count_include_pad"; });
    if (largest) {
        const std::string d = facts_.attribute(t, "dilations");
        if (d.empty() || !facts_.says(fmt::format("or(not(given({0})), all_equal({0}, 1))", d))) return {};
        std::erase_if(out.attrs, [](const auto& a) { return a.first == "dilations"; });
    }
    if (mean) {
        if (!attribute_of(t, "count_include_pad")) return {};
        out.attrs.emplace_back("count_include_pad", integer(1));
    }
    const Term none = call_term("repeat", {integer(0), call_term("-", {call_term("*", {integer(2), n}), integer(4)})});
    out.attrs.emplace_back("pads", conv ? call_term("+", {spatial, call_term("or_else", {*own, none})}) : spatial);
    return out;
}

// The four phases of a 2x2 grid, joined along the channels in order, are what space_to_depth gives.
std::optional<Term> ElementReader::phases(const Term& t) const {
    if (!is_op(t, "concat") || t.args.size() != 4 || facts_.attributes(t) != "axis=1,") return {};
    const Term& x = resolved(t.args[0]).form == Form::Op ? resolved(t.args[0]).args[0] : t.args[0];
    if (!is_tensor(x) || known_rank(x) != 4) return {};
    const std::string of = variable(x);
    for (int axis : {2, 3})
        if (!facts_.says(fmt::format("==(%(dim({}, {}), 2), 0)", of, axis))) return {};
    for (size_t i = 0; i < 4; ++i) {
        const Term& part = resolved(t.args[i]);
        if (!is_op(part, "slice") || part.args.size() != 5 || !is_tensor(part.args[0]) || variable(part.args[0]) != of)
            return {};
        if (facts_.text(part.args[1]) != fmt::format("[{}, {}]", i / 2, i % 2)) return {};
        if (facts_.text(part.args[3]) != "[2, 3]" || facts_.text(part.args[4]) != "[2, 2]") return {};
        if (!facts_.says(fmt::format("covers(ints({}), drop(dims({}), 2))", facts_.text(part.args[2]), of))) return {};
    }
    Term out = op_term("space_to_depth", {x});
    out.attrs.emplace_back("blocksize", integer(2));
    return out;
}

// x c + (-x2, x1) s, with angles c and s for each pair of elements that stand twice, is a rotary embedding of x.
std::optional<Term> ElementReader::rotary(const Term& t) const {
    if (!is_op(t, "add") || t.args.size() != 2) return {};
    const Term &kept = resolved(t.args[0]), &turned = resolved(t.args[1]);
    if (!is_op(kept, "mul") || !is_op(turned, "mul") || !is_tensor(kept.args[0]) || known_rank(kept.args[0]) != 4)
        return {};
    const Term& x = kept.args[0];
    const std::string of = variable(x);
    // unsqueeze(concat(a, a, axis=2), [1]) is of a; unsqueeze(f(concat(a, a, axis=2)), [1]) of f(a).
    std::string half;  // how many pairs there are
    auto twice = [&](const Term& given) -> std::optional<Term> {
        const Term& wide = resolved(given);
        if (!is_op(wide, "unsqueeze") || facts_.text(wide.args[1]) != "[1]") return {};
        const Term& angle = resolved(wide.args[0]);
        const bool function = angle.form == Form::Op && is_one_of(angle.op->name, {"cos", "sin"});
        const Term& pair = function ? resolved(angle.args[0]) : angle;
        if (!is_op(pair, "concat") || pair.args.size() != 2 || pair.attrs.size() != 1 || pair.rest_slot >= 0) return {};
        const Term &a = pair.args[0], &b = pair.args[1];
        if (!is_tensor(a) || !is_tensor(b) || variable(a) != variable(b)) return {};
        if (known_axis(pair.attrs[0].second, 3) != "2") return {};
        half = fmt::format("dim({}, 2)", variable(a));
        return function ? op_term(angle.op->name.c_str(), {a}) : a;
    };
    const std::optional<Term> s = twice(turned.args[1]), c = twice(kept.args[1]);
    if (!c || !s) return {};
    // The sizes are those that a rotary embedding of the pattern asks for, or the conditions do.
    const Term &a = c->form == Form::Op ? c->args[0] : *c, &b = s->form == Form::Op ? s->args[0] : *s;
    const std::string angles = variable(a);
    auto fits = [&](const Term& p) {
        return is_op(p, "rotary_embedding") && p.args.size() == 3 && p.attrs.empty() && p.rest_slot < 0 &&
               facts_.text(p.args[0]) == of && is_tensor(p.args[1]) && is_tensor(p.args[2]) &&
               variable(p.args[1]) == angles && variable(p.args[2]) == variable(b);
    };
    const bool said = variable(b) == angles && facts_.says(fmt::format("==(dim({}, 0), dim({}, 0))", angles, of)) &&
                      facts_.says(fmt::format("==(dim({}, 1), dim({}, 2))", angles, of));
    if (!said && !std::any_of(rule_.pattern.begin(), rule_.pattern.end(), fits)) return {};
    if (known_rank(a) != 3 || !facts_.says(fmt::format("==(*(2, {}), dim({}, 3))", half, of))) return {};
    const std::string other = fmt::format("/(dim({}, 3), 2)", of);
    auto is_half = [&](const std::string& n) { return n == half || n == other; };
    auto is_all = [&](const std::string& n) {
        return n == fmt::format("dim({}, 3)", of) || n == fmt::format("*(2, {})", half) ||
               n == fmt::format("*(2, {})", other);
    };
    auto value = [&](const Term& list) -> std::string {  // of a list of one
        const Term* said = is_tensor(list) ? facts_.equal_to(fmt::format("ints({})", facts_.text(list))) : &list;
        return said && said->form == Form::List && said->args.size() == 1 ? facts_.text(said->args[0]) : "";
    };
    auto is_part = [&](const Term& given, bool second) {
        const Term& part = resolved(given);
        if (!is_op(part, "slice") || part.args.size() != 5 || !is_tensor(part.args[0]) || variable(part.args[0]) != of)
            return false;
        const std::string axes = facts_.text(part.args[3]);
        if (axes != "[3]" && !facts_.says(fmt::format("==(axes_in(ints({}), 4), [3])", axes))) return false;
        if (!keeps_order(part)) return false;
        const std::string from = value(part.args[1]), to = value(part.args[2]);
        if (!second) return from == "0" && is_half(to);
        const bool whole =
            part.bound_slot >= 0 && facts_.says(fmt::format("==(dim({}, 3), {})", facts_.name(part.bound_slot), half));
        return is_half(from) && (whole || is_all(to));
    };
    const Term& joined = resolved(turned.args[0]);
    if (!is_op(joined, "concat") || joined.args.size() != 2 || joined.attrs.size() != 1 || joined.rest_slot >= 0)
        return {};
    const Term& first = resolved(joined.args[0]);
    if (known_axis(joined.attrs[0].second, 4) != "3" || !is_op(first, "neg")) return {};
    if (!is_part(first.args[0], true) || !is_part(joined.args[1], false)) return {};
    return op_term("rotary_embedding", {x, *c, *s});
}

// A part of y + (b, c) along the last axis, where b and c are rows that were joined: that part of y, and b or c.
std::optional<Term> ElementReader::part_of_sum(const Term& t) const {
    if (!is_op(t, "slice") || t.args.size() != 5 || facts_.text(t.args[4]) != "[1]") return {};
    const Term& sum = resolved(t.args[0]);
    if (!is_op(sum, "add")) return {};
    const Term &part = resolved(sum.args[0]), &rows = resolved(sum.args[1]);
    if (!is_op(part, "slice") || part.args.size() != 5 || !is_op(rows, "concat") || rows.args.size() != 2) return {};
    if (facts_.attributes(rows) != "axis=0,") return {};
    for (size_t i : {1u, 2u})
        if (t.args[i].form != Form::List || t.args[i].args.size() != 1) return {};
    for (const Term& a : part.args)
        if (!is_tensor(a)) return {};
    for (const Term& a : rows.args)
        if (!is_tensor(a) || !facts_.says(fmt::format("==(rank({}), 1)", variable(a)))) return {};
    const std::string y = variable(part.args[0]), axes = fmt::format("ints({})", variable(part.args[3]));
    if (facts_.text(t.args[3]) != axes || !facts_.says(fmt::format("==(ints({}), [1])", variable(part.args[4]))) ||
        !facts_.says(fmt::format("==(axes_in({0}, rank({1})), [-(rank({1}), 1)])", axes, y)))
        return {};
    // The part of y is as long as both rows together: it begins at 0 or after, and ends within y.
    auto first = [](const Term& list) { return call_term("at", {call_term("ints", {list}), integer(0)}); };
    const Term begin = first(part.args[1]), end = first(part.args[2]);
    if (!is_not_negative(begin) || !facts_.says(fmt::format("<=({}, dim({}, -1))", facts_.text(end), y))) return {};
    auto length = [&](const Term& row) -> std::optional<Linear> {
        for (const Term& c : rule_.conditions)
            if (c.form == Form::Call && c.name == "==" &&
                facts_.text(c.args[0]) == fmt::format("dim({}, 0)", variable(row)))
                return linear(c.args[1]);
        return {};
    };
    const std::optional<Linear> n = length(rows.args[0]), m = length(rows.args[1]);
    if (!n || !m) return {};
    const Linear both = combined(*n, *m, 1);
    if (both != linear(call_term("-", {end, begin}))) return {};
    const Linear from = linear(t.args[1].args[0]), to = linear(t.args[2].args[0]);
    auto is_zero = [](const Linear& l) {
        return std::all_of(l.begin(), l.end(), [](const auto& term) { return term.second == 0; });
    };
    const bool head = is_zero(from) && to == *n;
    if (!head && (from != *n || to != both)) return {};
    // As the pattern has it.
    const Term* found = nullptr;
    auto search = [&](auto& self, const Term& p) -> void {
        for (const Term& a : p.args) self(self, a);
        if (!is_op(p, "slice") || p.args.size() != 5 || !std::all_of(p.args.begin(), p.args.end(), is_tensor)) return;
        for (size_t i : {0u, 3u, 4u})
            if (variable(p.args[i]) != variable(part.args[i])) return;
        if (variable(p.args[head ? 1 : 2]) != variable(part.args[head ? 1 : 2])) return;
        if (linear(call_term("-", {first(p.args[2]), first(p.args[1])})) == (head ? *n : *m)) found = &p;
    };
    for (const Term& p : rule_.pattern) search(search, p);
    if (!found) return {};
    return op_term("add", {*found, rows.args[head ? 0 : 1]});
}

// What only moves elements, and is as exact as that.
std::optional<Term> ElementReader::rejoined(const Term& t) {
    if (std::optional<Term> grid = phases(t)) return grid;
    if (std::optional<Term> sum = part_of_sum(t)) return sum;
    return transpose_of_stacked(t);
}

// The last two axes change places while all before them are counted as one.
std::optional<Term> ElementReader::transpose_of_stacked(const Term& t) {
    if (!is_op(t, "reshape")) return {};
    const Term& turned = resolved(t.args[0]);
    if (!is_op(turned, "transpose") || facts_.attribute(turned, "perm") != "[0, 2, 1]") return {};
    const Term& flat = resolved(turned.args[0]);
    if (!is_op(flat, "reshape") || flat.bound_slot < 0 || !is_tensor(flat.args[0])) return {};
    const std::string x = variable(flat.args[0]), r = facts_.name(flat.bound_slot);
    if (!facts_.says(fmt::format("==(dim({}, 1), dim({}, -2))", r, x)) ||
        !facts_.says(fmt::format("==(dim({}, 2), dim({}, -1))", r, x)))
        return {};
    Term out = op_term("transpose", {flat.args[0]});
    out.attrs.emplace_back("perm", call_term("swaps_last", {call_term("rank", {flat.args[0]})}));
    return sizes(t) == sizes(out) ? std::optional(out) : std::nullopt;
}

}  // namespace tessera::checker
