// Laws of products of matrices and convolutions, for any rank: what is linear in an operand may be taken out of it.
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "discover/check/check_element_reader.h"

namespace tessera::checker {
namespace {

using Form = Term::Form;

const Term* named_attribute(const Term& t, std::string_view name) {
    for (const auto& [attr, value] : t.attrs)
        if (attr == name) return &value;
    return nullptr;
}
bool is_one(const Term* t) { return t && t->form == Form::Number && t->number == 1; }

Term with_operand(const Term& t, size_t i, const Term& operand) {
    Term out = t;
    out.bound_slot = -1;
    out.args[i] = operand;
    return out;
}

}  // namespace

// A matrix with the transpositions around it, and that of an attribute, counted.
std::string ElementReader::oriented(const Term& product, size_t operand, bool flipped, bool only_sizes) {
    const char* attr = operand == 0 ? "transA" : "transB";
    const Term* t = &resolved(product.args[operand]);
    while (is_op(*t, "transpose") && facts_.attribute(*t, "perm") == "[1, 0]") {
        t = &resolved(t->args[0]);
        flipped = !flipped;
    }
    std::string base = product.op->attr(attr) ? facts_.attribute(product, attr) : "";
    if (const Term* n = named_attribute(product, attr);
        n && n->form == Form::Call && n->name == "-" && n->args.size() == 2 && is_one(&n->args[0])) {  // 1 - q
        const std::string q = facts_.text(n->args[1]);
        if (facts_.says(fmt::format("or(==({}, 0), ==({}, 1))", q, q))) {
            base = q;
            flipped = !flipped;
        }
    }
    if (base == "1") {
        base.clear();
        flipped = !flipped;
    }
    return fmt::format("{}{}{}", only_sizes ? sizes(*t) : whole(*t, false), flipped ? "'" : "",
                       base.empty() ? "" : "^" + base);
}

bool ElementReader::is_matrix(const Term& given) const {
    const Term& t = resolved(given);
    if (t.form == Form::Variable)
        return facts_.says(fmt::format("==(rank({}), 2)", variable(t))) || matrices_.contains(variable(t));
    if (t.form != Form::Op) return false;
    if (is_op(t, "transpose")) return facts_.attribute(t, "perm") == "[1, 0]" || is_matrix(t.args[0]);
    if (is_op(t, "gemm")) return true;
    if (is_op(t, "matmul")) return is_matrix(t.args[0]) && is_matrix(t.args[1]);
    if (is_op(t, "mul")) return is_matrix(t.args[0]) && is_row(t.args[1]);
    return false;
}
// Element-wise ops of vectors of channels: one element for each column.
bool ElementReader::is_row(const Term& given) const {
    const Term& t = resolved(given);
    if (t.form == Form::Number) return true;
    if (t.form == Form::Variable)
        return t.slot >= 0 && (channels_.contains(variable(t)) ||
                               rule_.variables[static_cast<size_t>(t.slot)].kind == TermKind::Float);
    return t.form == Form::Op && elementwise(t) &&
           std::all_of(t.args.begin(), t.args.end(), [&](const Term& a) { return is_row(a); });
}

// What ops ask of their operands.
void ElementReader::learn_operands(const Term& t) {
    for (size_t i = 0; i < t.args.size(); ++i) {
        const Term& a = t.args[i];
        learn_operands(a);
        if (t.form != Form::Op || a.form != Form::Variable || a.slot < 0 || a.optional || a.list) continue;
        if (is_op(t, "gemm") && i < 2) matrices_.insert(variable(a));
        if (is_op(t, "transpose") && facts_.attribute(t, "perm") == "[1, 0]") matrices_.insert(variable(a));
        const bool normal = is_op(t, "batch_normalization") && i > 0;
        if (normal || (is_one_of(t.op->name, {"conv", "conv_transpose"}) && i == 2)) channels_.insert(variable(a));
        if (normal && t.args[1].form == Form::Variable) facts_.join_sizes(variable(a), variable(t.args[1]));
    }
}

// The matrix product as a pair of matrices; empty where it is of stacks.
std::string ElementReader::product_name(const Term& t, bool flipped, bool only_sizes) {
    if (t.args.size() < 2) return "";
    if (is_op(t, "matmul") && !(is_matrix(t.args[0]) && is_matrix(t.args[1]))) return "";
    if (!is_op(t, "matmul") && !is_op(t, "gemm")) return "";
    std::string a = oriented(t, 0, flipped, only_sizes), b = oriented(t, 1, flipped, only_sizes);
    if (flipped) std::swap(a, b);
    return fmt::format("product({}, {})", a, b);
}

// s of mul(y, s) or mul(s, y) where it satisfies a condition; then y.
std::optional<std::pair<Term, Term>> ElementReader::factored(const Term& given,
                                                             const std::function<bool(const Term&, const Term&)>& is) {
    const Term& t = resolved(given);
    if (!is_op(t, "mul")) return {};
    if (is(t.args[0], t.args[1])) return std::pair(t.args[0], t.args[1]);
    if (is(t.args[1], t.args[0])) return std::pair(t.args[1], t.args[0]);
    return {};
}

std::optional<Term> ElementReader::taken_out_of_product(const Term& t) {
    auto one_number = [&](const Term& y, const Term& s) {
        if (s.form != Form::Variable || s.slot < 0) return false;
        const bool attribute = is_number(s) && !facts_.let(s.slot);
        return (attribute || facts_.one_element(variable(s))) && sizes(op_term("mul", {y, s})) == sizes(y);
    };
    for (size_t i : {0u, 1u})
        if (auto parts = factored(t.args[i], one_number))
            return op_term("mul", {with_operand(t, i, parts->first), parts->second});
    auto two_numbers = [&](const Term& y, const Term& s) {
        const Term& m = resolved(s);
        return is_op(m, "mul") && one_number(y, m.args[0]) && one_number(y, m.args[1]);
    };
    for (size_t i : {0u, 1u})
        if (auto parts = factored(t.args[i], two_numbers)) {
            const Term& m = resolved(parts->second);
            return op_term("mul", {op_term("mul", {with_operand(t, i, parts->first), m.args[0]}), m.args[1]});
        }
    // A row beside the columns of the right matrix.
    auto columns = [&](const Term& y, const Term& s) {
        if (is_row(s)) return is_matrix(y) && resolved(s).form != Form::Number && facts_.attribute(t, "transB").empty();
        if (y.form != Form::Variable || s.form != Form::Variable || s.slot < 0) return false;
        const std::string b = variable(y);
        return facts_.attribute(t, "transB").empty() && facts_.says(fmt::format(">=(rank({}), 2)", b)) &&
               facts_.says(fmt::format("varies_only_along({}, -(rank({}), 1), rank({}))", variable(s), b, b));
    };
    if (auto parts = factored(t.args[1], columns))
        return op_term("mul", {with_operand(t, 1, parts->first), parts->second});
    auto transposed = [&](const Term& y, const Term& s) {
        const Term& r = resolved(s);
        const std::string trans = facts_.attribute(t, "transB");
        return y.form == Form::Variable && is_op(r, "reshape") && is_row(r.args[0]) && !trans.empty() &&
               facts_.says(fmt::format("or(==({}, 0), ==({}, 1))", trans, trans)) &&
               facts_.text(r.args[1]) == fmt::format("choose(==({}, 1), [-1, 1], [1, -1])", trans);
    };
    if (auto parts = factored(t.args[1], transposed))
        return op_term("mul", {with_operand(t, 1, parts->first), resolved(parts->second).args[0]});
    // Sums of operands of the same sizes.
    for (size_t i : {0u, 1u}) {
        const Term& sum = resolved(t.args[i]);
        if (is_op(sum, "add") && sizes(sum.args[0]) == sizes(sum.args[1]))
            return op_term("add", {with_operand(t, i, sum.args[0]), with_operand(t, i, sum.args[1])});
    }
    if (!is_op(t, "matmul")) return {};
    // (a b) c = a (b c)
    const Term& left = resolved(t.args[0]);
    if (is_op(left, "matmul") && is_matrix(left.args[1]) && is_matrix(t.args[1]))
        return op_term("matmul", {left.args[0], op_term("matmul", {left.args[1], t.args[1]})});
    return {};
}

// What is beside the axis that is summed over, on either side: its name, and the product without it.
std::optional<std::pair<Term, std::string>> ElementReader::inside_of_product(const Term& t) {
    auto along_last = [&](const Term& y, const Term& s) {
        if (y.form != Form::Variable || s.form != Form::Variable || s.slot < 0) return false;
        const std::string a = variable(y), c = variable(s);
        return facts_.says(fmt::format("varies_only_along({}, -(rank({}), 1), rank({}))", c, a, a)) &&
               facts_.says(fmt::format("same_dims_after({}, {})", a, c));
    };
    if (!is_op(t, "matmul")) return {};
    if (auto parts = factored(t.args[0], along_last))
        return std::pair(with_operand(t, 0, parts->first), variable(parts->second));
    auto rows = [&](const Term& y, const Term& s) {
        const Term& r = resolved(s);
        return is_matrix(y) && is_op(r, "reshape") && r.args[0].form == Form::Variable &&
               facts_.text(r.args[1]) == "[-1, 1]" && facts_.says_of("varies_only_along", {facts_.text(r.args[0])});
    };
    if (auto parts = factored(t.args[1], rows))
        return std::pair(with_operand(t, 1, parts->first), facts_.text(resolved(parts->second).args[0]));
    return {};
}

std::optional<Term> ElementReader::product_written_out(const Term& t) {
    if (!is_op(t, "gemm") && !is_op(t, "matmul")) return {};
    if (t.rest_slot >= 0 || t.args.size() > 3) return {};
    if (t.args.size() == 3) {
        if (!is_op(t, "gemm") || t.args[2].optional || !facts_.attribute(t, "beta").empty()) return {};
        Term bare = t;
        bare.bound_slot = -1;
        bare.args.pop_back();
        return op_term("add", {bare, t.args[2]});
    }
    if (const Term* alpha = named_attribute(t, "alpha"); alpha && !facts_.attribute(t, "alpha").empty()) {
        if ((alpha->form == Form::Call && !is_narrow(t)) || !is_float_product(t)) return {};
        Term bare = t;
        bare.bound_slot = -1;
        const Term by = *alpha;
        std::erase_if(bare.attrs, [](const auto& a) { return a.first == "alpha"; });
        return op_term("mul", {bare, by});
    }
    return taken_out_of_product(t);
}

// ---- convolutions

bool ElementReader::has_one_group(const Term& t) const { return facts_.attribute(t, "group").empty(); }

bool ElementReader::is_per_channel(const Term& c, const Term& w) const {
    return c.form == Form::Variable && c.slot >= 0 && w.form == Form::Variable &&
           facts_.says(fmt::format("varies_only_along({}, 1, rank({}))", variable(c), variable(w)));
}

// A bias as what it adds to each element: c itself, where it is c as a vector.
Term ElementReader::bias_of(const Term& given, const Term& w, bool transposed, bool whole) {
    const Term& t = resolved(given);
    if (t.form == Form::Op && is_one_of(t.op->name, {"add", "mul"}) && !is_row(t)) {
        // Beside a bias that has them all, one that is the same for all of them is spread by the sum itself.
        const auto alone = [&](size_t other) { return whole && resolved(t.args[other]).form != Form::Variable; };
        return op_term(t.op->name.c_str(),
                       {bias_of(t.args[0], w, transposed, alone(1)), bias_of(t.args[1], w, transposed, alone(0))});
    }
    // One for each filter, no more.
    const std::string filters = fmt::format("[dim({}, {})]", facts_.text(w), transposed ? 1 : 0);
    const bool spread = is_op(t, "expand") && facts_.text(t.args[1]) == filters;
    const Term& vector = spread ? resolved(t.args[0]) : t;
    if ((spread || !whole) && is_op(vector, "reshape") && facts_.text(vector.args[1]) == "[-1]" &&
        is_per_channel(vector.args[0], w))
        return call_term("beside", {vector.args[0], w});
    return call_term("channel", {given});
}

std::optional<Term> ElementReader::conv_written_out(const Term& t) {
    const bool transposed = is_op(t, "conv_transpose");
    if ((!is_op(t, "conv") && !transposed) || t.args.size() > 3) return {};
    if (t.args.size() == 3 && !t.args[2].optional) {
        Term bare = t;
        bare.bound_slot = -1;
        bare.args.pop_back();
        const Term& w = resolved(t.args[1]);
        return op_term("add", {bare, bias_of(t.args[2], is_op(w, "mul") ? w.args[0] : w, transposed)});
    }
    if (t.args.size() != 2) return {};
    // Filters scaled one by one. Those of a transposed convolution lie second, group after group.
    auto by_filter = [&](const Term& w, const Term& s) {
        const Term& r = resolved(s);
        if (w.form != Form::Variable || !is_op(r, "reshape")) return false;
        const std::string n = fmt::format("rank({})", variable(w)), list = facts_.text(r.args[1]);
        return transposed ? has_one_group(t) && list == fmt::format("join([1, -1], repeat(1, -({}, 2)))", n)
                          : list == fmt::format("join([-1], repeat(1, -({}, 1)))", n);
    };
    if (auto parts = factored(t.args[1], by_filter)) {
        const Term& vector = resolved(resolved(parts->second).args[0]);
        if (is_row(vector)) return op_term("mul", {with_operand(t, 1, parts->first), call_term("channel", {vector})});
        if (is_per_channel(vector, parts->first)) return op_term("mul", {with_operand(t, 1, parts->first), vector});
    }
    // A sum for each channel, where nothing is padded.
    const Term& sum = resolved(t.args[0]);
    const Term& w = t.args[1];
    const std::string pads = facts_.attribute(t, "pads");
    const Term* auto_pad = named_attribute(t, "auto_pad");
    if (!transposed && is_op(sum, "add") && is_per_channel(sum.args[1], w) && has_one_group(t) && auto_pad &&
        auto_pad->name == "NOTSET" &&
        facts_.says(fmt::format("same_dims_after({}, {})", facts_.text(sum.args[0]), facts_.text(sum.args[1]))) &&
        facts_.says(fmt::format("or(not(given({})), all_equal({}, 0))", pads, pads))) {
        Rules law = *read_rules(
            "law: conv(c, w) => conv(c, w, reduce_sum(mul(w, "
            "reshape(c, join([1, -1], repeat(1, rank(w) - 2)))), "
            "drop(up_to(rank(w)), 1), keepdims=0))",
            "law");
        std::map<int, Term> slots;
        for (size_t i = 0; i < law[0].variables.size(); ++i)
            slots[static_cast<int>(i)] = law[0].variables[i].name == "c" ? sum.args[1] : w;
        Term bias = law[0].replacement[0].args[2];
        auto fill = [&](auto& self, Term& x) -> void {
            if (x.form == Form::Variable) {
                x = slots.at(x.slot);
                return;
            }
            for (Term& a : x.args) self(self, a);
        };
        fill(fill, bias);
        return op_term("add", {with_operand(t, 0, sum.args[0]), call_term("channel", {bias})});
    }
    return {};
}

std::optional<std::pair<Term, std::string>> ElementReader::inside_of_conv(const Term& t) {
    if (!is_op(t, "conv") || t.args.size() < 2) return {};
    const Term& w = resolved(t.args[1]);
    const Term& filters = w.form == Form::Variable ? w : is_op(w, "mul") ? w.args[0] : w;
    auto scaled = [&](const Term& x, const Term& c) {
        if (x.form != Form::Variable || c.form != Form::Variable || c.slot < 0 || filters.form != Form::Variable)
            return false;
        const std::string n = variable(c);
        if (facts_.says(fmt::format("==(count({}), 1)", n)))
            return facts_.says(fmt::format("<=(rank({}), rank({}))", n, variable(filters)));
        return is_per_channel(c, filters) && has_one_group(t) &&
               facts_.says(fmt::format("same_dims_after({}, {})", variable(x), n));
    };
    if (auto parts = factored(t.args[0], scaled))
        return std::pair(with_operand(t, 0, parts->first), variable(parts->second));
    auto by_input = [&](const Term& y, const Term& s) {
        const Term& r = resolved(s);
        if (y.form != Form::Variable || !is_op(r, "reshape") || r.args[0].form != Form::Variable) return false;
        const std::string list = facts_.text(r.args[1]);
        if (list == "[]") return facts_.one_element(variable(r.args[0]));
        return has_one_group(t) && is_per_channel(r.args[0], y) &&
               list == fmt::format("join([1, -1], repeat(1, -(rank({}), 2)))", variable(y));
    };
    if (auto parts = factored(t.args[1], by_input))
        return std::pair(with_operand(t, 1, parts->first), facts_.text(resolved(parts->second).args[0]));
    return {};
}

// A part of the columns or filters of a product, where they were joined of two.
std::optional<Term> ElementReader::part_of_joined(const Term& t) {
    if (!is_op(t, "slice") || t.args.size() != 5 || facts_.text(t.args[4]) != "[1]") return {};
    const Term& y = resolved(t.args[0]);
    if (y.form != Form::Op || !is_one_of(y.op->name, {"matmul", "gemm", "conv"}) || y.args.size() < 2) return {};
    const Term& joined = resolved(y.args[1]);
    if (!is_op(joined, "concat") || joined.args.size() != 2) return {};
    const Term &b = joined.args[0], &c = joined.args[1];
    if (b.form != Form::Variable || c.form != Form::Variable) return {};
    const std::string transposed = is_op(y, "gemm") ? facts_.attribute(y, "transB") : "";
    if (!transposed.empty() && transposed != "1") return {};
    const bool rows = is_op(y, "conv") || transposed == "1";
    const std::string axis = rows ? "0" : "1", from = facts_.text(t.args[1]), to = facts_.text(t.args[2]);
    if (is_op(y, "conv") && !has_one_group(y)) return {};
    if (is_op(y, "matmul")) {
        if (!is_matrix(b) || !is_matrix(c) || y.args[0].form != Form::Variable) return {};
        const std::string a = variable(y.args[0]);
        if (!facts_.says(fmt::format(">=(rank({}), 2)", a)) ||
            facts_.text(t.args[3]) != fmt::format("[-(rank({}), 1)]", a))
            return {};
    } else if (facts_.text(t.args[3]) != "[1]") {
        return {};
    }
    const std::string n = fmt::format("dim({}, {})", variable(b), axis);
    const std::string m = fmt::format("+({}, dim({}, {}))", n, variable(c), axis);
    if (joined.attrs.empty() || facts_.text(joined.attrs[0].second) != axis) return {};
    const bool first = from == "[0]" && to == fmt::format("[{}]", n);
    if (!first && (from != fmt::format("[{}]", n) || to != fmt::format("[{}]", m))) return {};
    Term out = with_operand(y, 1, first ? b : c);
    if (y.args.size() == 3) {
        const Term& bias = resolved(y.args[2]);
        if (!is_op(bias, "concat") || bias.args.size() != 2 || bias.attrs.empty() ||
            facts_.text(bias.attrs[0].second) != "0")
            return {};
        for (size_t i : {0u, 1u}) {
            const std::string v = facts_.text(bias.args[i]), of = facts_.text(joined.args[i]);
            if (is_op(y, "gemm") && !(facts_.says(fmt::format("==(rank({}), 1)", v)) &&
                                      facts_.says(fmt::format("==(dim({}, 0), dim({}, {}))", v, of, axis))))
                return {};
        }
        out.args[2] = bias.args[first ? 0 : 1];
    }
    return out;
}

// Rows that were counted as one axis while they were multiplied.
std::optional<Term> ElementReader::rows_of_product(const Term& t) {
    if (!is_op(t, "reshape") || t.bound_slot < 0) return {};
    const Term& y = resolved(t.args[0]);
    if (!is_op(y, "gemm") && !is_op(y, "matmul")) return {};
    const Term& flat = resolved(y.args[0]);
    const Term& w = y.args[1];
    if (!is_op(flat, "reshape") || flat.args[0].form != Form::Variable || w.form != Form::Variable || y.rest_slot >= 0)
        return {};
    const std::string trans = facts_.attribute(y, "transB"), x = variable(flat.args[0]);
    if (!facts_.attribute(y, "transA").empty() || !facts_.attribute(y, "alpha").empty() ||
        !facts_.attribute(y, "beta").empty() || (!trans.empty() && trans != "1"))
        return {};
    const int inner = trans == "1" ? 1 : 0;
    const bool kept = facts_.says(fmt::format("==(dim({}, -1), dim({}, {}))", x, variable(w), inner)) &&
                      facts_.says(fmt::format("==(rank({}), 2)", variable(w))) &&
                      facts_.says(fmt::format(">=(rank({}), 2)", x)) &&
                      facts_.says(fmt::format("==(dims({}), join(take(dims({}), -1), [dim({}, {})]))",
                                              facts_.name(t.bound_slot), x, variable(w), 1 - inner));
    if (!kept) return {};
    Term right = w;
    if (trans == "1") {
        right = op_term("transpose", {w});
        right.attrs.emplace_back(
            "perm", (*read_rules("law: transpose(x, perm=[1, 0]) => x", "law"))[0].pattern[0].attrs[0].second);
    }
    Term product = op_term("matmul", {flat.args[0], right});
    if (y.args.size() == 2) return product;
    if (y.args[2].form != Form::Variable || !facts_.says(fmt::format("==(rank({}), 1)", variable(y.args[2]))))
        return {};
    return op_term("add", {product, y.args[2]});
}

// A product as a number of its own: its operands, and what stands beside the axis that is summed over.
Term ElementReader::product_leaf(Term t, Path path) {
    std::set<std::string> inside;
    for (bool more = true; more;) {
        more = false;
        std::optional<std::pair<Term, std::string>> part = inside_of_product(t);
        if (!part) part = inside_of_conv(t);
        if (part && inside.insert(part->second).second) {
            t = part->first;
            more = true;
        }
    }
    std::string name;
    const bool flipped = !path.empty() && path.back().kind == Step::Kind::Transpose && path.back().text == "[1, 0]";
    if (name = product_name(t, flipped, false); !name.empty() && flipped) path.pop_back();
    if (!name.empty() && t.args.size() == 3 && flipped) throw NoElement{"a transposed product and its bias"};
    if (name.empty()) name = fmt::format("{}({}, {})", t.op->name, whole(t.args[0], false), whole(t.args[1], false));
    for (size_t i = 2; i < t.args.size(); ++i) name += ", " + whole(t.args[i], false);
    out_.reorders = true;
    return leaf(fmt::format("{}[{}]{} inside {}", name, facts_.attributes(t, {"transA", "transB"}), path_text(path),
                            fmt::join(inside, " ")),
                is_float_product(t) ? "float" : "", partial(t));
}
bool ElementReader::is_float_product(const Term& t) const {
    return std::any_of(t.args.begin(), t.args.end(), [&](const Term& given) {
        const Term& a = resolved(given);
        if (a.form == Form::Op && elementwise(a)) return is_float_product(a);
        if (a.form == Form::Op && is_one_of(a.op->name, {"transpose", "reshape", "matmul", "gemm", "conv"}))
            return is_float_product(a);
        if (a.form != Form::Variable || a.slot < 0) return false;
        return constraint_of(variable(a), rule_.variables[static_cast<size_t>(a.slot)].constraint) == "float";
    });
}

// The running statistics, channel by channel.
std::optional<Term> ElementReader::norm_written_out(const Term& t) const {
    if (!is_op(t, "batch_normalization") || t.output || t.args.size() != 5 || t.rest_slot >= 0) return {};
    const Term* epsilon = named_attribute(t, "epsilon");
    if (!epsilon || !facts_.attribute(t, "training_mode").empty()) return {};
    const bool rows = is_matrix(t.args[0]);
    auto channel = [&](size_t i) { return rows ? t.args[i] : call_term("channel", {t.args[i]}); };
    Term root = op_term("sqrt", {op_term("add", {channel(4), *epsilon})});
    Term normal = op_term("div", {op_term("sub", {t.args[0], channel(3)}), root});
    return op_term("add", {op_term("mul", {normal, channel(1)}), channel(2)});
}

}  // namespace tessera::checker
