// What an einsum's equation says, where it is a product of two stacks of matrices or a transposition.
#include "rewrite/rules/make_function.h"

namespace tessera::functions {
namespace {

struct Equation {
    std::vector<std::string> operands;
    std::string result;
};

std::optional<Equation> parse(const std::string& text) {
    Equation e;
    std::string plain;
    for (char c : text)
        if (c != ' ') plain += c;
    size_t arrow = plain.find("->");
    if (arrow == std::string::npos || plain.find('.') != std::string::npos) return {};
    e.result = plain.substr(arrow + 2);
    std::string left = plain.substr(0, arrow);
    for (size_t at = 0; at <= left.size();) {
        size_t comma = std::min(left.find(',', at), left.size());
        e.operands.push_back(left.substr(at, comma - at));
        at = comma + 1;
    }
    auto repeats = [](std::string labels) {
        std::sort(labels.begin(), labels.end());
        return std::adjacent_find(labels.begin(), labels.end()) != labels.end();
    };
    if (repeats(e.result) || std::any_of(e.operands.begin(), e.operands.end(), repeats)) return {};
    return e;
}

bool has(const std::string& labels, char c) { return labels.find(c) != std::string::npos; }

std::optional<Ints> places(const std::string& wanted, const std::string& labels) {
    Ints out;
    for (char c : wanted) {
        size_t at = labels.find(c);
        if (at == std::string::npos) return {};
        out.push_back(static_cast<int64_t>(at));
    }
    return out;
}

// Labels of a product by their part in it: those of the stack in the result's order, then rows, inner and columns.
struct Product {
    Equation equation;
    std::string stack, rows, inner, columns;
};

std::optional<Product> product(const std::string& text) {
    std::optional<Equation> e = parse(text);
    if (!e || e->operands.size() != 2) return {};
    Product p{*e, {}, {}, {}, {}};
    const std::string &x = e->operands[0], &y = e->operands[1];
    for (char c : e->result) {
        if (has(x, c) && has(y, c)) p.stack += c;
        if (has(x, c) && !has(y, c)) p.rows += c;
        if (!has(x, c) && has(y, c)) p.columns += c;
        if (!has(x, c) && !has(y, c)) return {};
    }
    for (char c : x)
        if (!has(e->result, c)) {
            if (!has(y, c)) return {};
            p.inner += c;
        }
    for (char c : y)
        if (!has(e->result, c) && !has(x, c)) return {};
    if (p.rows.size() != 1 || p.inner.size() != 1 || p.columns.size() != 1) return {};
    return p;
}

}  // namespace

std::vector<RuleFunction> einsum() {
    return {
        make(
            "einsum_is_matmul", "whether the equation is a product of two stacks of matrices",
            +[](std::string e) { return std::optional(product(e).has_value()); }),
        make(
            "einsum_left", "how the first operand is transposed for matmul",
            +[](std::string e) -> std::optional<Ints> {
                std::optional<Product> p = product(e);
                if (!p) return {};
                return places(p->stack + p->rows + p->inner, p->equation.operands[0]);
            }),
        make(
            "einsum_right", "how the second operand is transposed for matmul",
            +[](std::string e) -> std::optional<Ints> {
                std::optional<Product> p = product(e);
                if (!p) return {};
                return places(p->stack + p->inner + p->columns, p->equation.operands[1]);
            }),
        make(
            "einsum_result", "how matmul's result is transposed",
            +[](std::string e) -> std::optional<Ints> {
                std::optional<Product> p = product(e);
                if (!p) return {};
                return places(p->equation.result, p->stack + p->rows + p->columns);
            }),
        make(
            "einsum_sizes_agree", "whether labels that two operands share have one size",
            +[](std::string e, Ints x, Ints y) -> std::optional<bool> {
                std::optional<Equation> q = parse(e);
                if (!q || q->operands.size() != 2 || q->operands[0].size() != x.size() ||
                    q->operands[1].size() != y.size())
                    return {};
                for (size_t i = 0; i < x.size(); ++i)
                    if (size_t at = q->operands[1].find(q->operands[0][i]); at != std::string::npos)
                        if (std::optional<bool> one = same(x[i], y[at]); one != true) return one;
                return true;
            }),
        make(
            "einsum_transpose", "the permutation that an equation of one operand is",
            +[](std::string e) -> std::optional<Ints> {
                std::optional<Equation> q = parse(e);
                if (!q || q->operands.size() != 1 || q->operands[0].size() != q->result.size()) return {};
                return places(q->result, q->operands[0]);
            }),
    };
}

}  // namespace tessera::functions
