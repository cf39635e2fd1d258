#include "rewrite/rules/make_function.h"

namespace tessera::functions {

std::vector<RuleFunction> arithmetic() {
    return {
        make(
            "+", "the sum", +[](Expr a, Expr b) { return std::optional(a + b); }),
        make(
            "+", "the sum", +[](double a, double b) { return std::optional(a + b); }),
        make(
            "+", "element by element",
            +[](Ints a, Ints b) { return zip(a, b, [](auto& x, auto& y) { return x + y; }); }),
        make(
            "-", "the difference", +[](Expr a, Expr b) { return std::optional(a - b); }),
        make(
            "-", "the difference", +[](double a, double b) { return std::optional(a - b); }),
        make(
            "-", "element by element",
            +[](Ints a, Ints b) { return zip(a, b, [](auto& x, auto& y) { return x - y; }); }),
        make(
            "*", "the product", +[](Expr a, Expr b) { return std::optional(a * b); }),
        make(
            "*", "the product", +[](double a, double b) { return std::optional(a * b); }),
        make(
            "*", "element by element",
            +[](Ints a, Ints b) { return zip(a, b, [](auto& x, auto& y) { return x * y; }); }),
        make(
            "/", "the quotient, rounded down; not known for 0",
            +[](Expr a, Expr b) -> std::optional<Expr> {
                if (same(b, Expr(0)) != false) return {};
                return floor_div(a, b);
            }),
        make(
            "/", "the quotient", +[](double a, double b) { return std::optional(a / b); }),
        make(
            "%", "what the division leaves",
            +[](Expr a, Expr b) -> std::optional<Expr> {
                if (same(b, Expr(0)) != false) return {};
                return mod(a, b);
            }),
        make(
            "negate", "-a", +[](Expr a) { return std::optional(Expr(0) - a); }),
        make(
            "negate", "-a", +[](double a) { return std::optional(-a); }),
        make(
            "==", "equal for all sizes", +[](Expr a, Expr b) { return same(a, b); }),
        make(
            "==", "equal for all sizes", +[](Ints a, Ints b) { return same(a, b); }),
        make(
            "==", "equal", +[](double a, double b) { return std::optional(a == b); }),
        make(
            "==", "equal", +[](std::string a, std::string b) { return std::optional(a == b); }),
        make(
            "==", "equal", +[](DType a, DType b) { return std::optional(a == b); }),
        make(
            "==", "the same value", +[](Value* a, Value* b) { return std::optional(a == b); }),
        make(
            "==", "both true or both false", +[](bool a, bool b) { return std::optional(a == b); }),
        make(
            "!=", "different for all sizes", +[](Expr a, Expr b) { return negate(same(a, b)); }),
        make(
            "!=", "different for all sizes", +[](Ints a, Ints b) { return negate(same(a, b)); }),
        make(
            "!=", "different", +[](double a, double b) { return std::optional(a != b); }),
        make(
            "!=", "different", +[](std::string a, std::string b) { return std::optional(a != b); }),
        make(
            "!=", "different", +[](DType a, DType b) { return std::optional(a != b); }),
        make(
            "!=", "not the same value", +[](Value* a, Value* b) { return std::optional(a != b); }),
        make(
            "<", "less for all sizes", +[](Expr a, Expr b) { return less(a, b); }),
        make(
            "<", "less", +[](double a, double b) { return std::optional(a < b); }),
        make(
            "<=", "at most, for all sizes", +[](Expr a, Expr b) { return negate(less(b, a)); }),
        make(
            "<=", "at most", +[](double a, double b) { return std::optional(a <= b); }),
        make(
            ">", "greater for all sizes", +[](Expr a, Expr b) { return less(b, a); }),
        make(
            ">", "greater", +[](double a, double b) { return std::optional(a > b); }),
        make(
            ">=", "at least, for all sizes", +[](Expr a, Expr b) { return negate(less(a, b)); }),
        make(
            ">=", "at least", +[](double a, double b) { return std::optional(a >= b); }),
        make(
            "not", "the opposite", +[](bool a) { return std::optional(!a); }),
        make(
            "and", "both", +[](bool a, bool b) { return std::optional(a && b); }),
        make(
            "or", "one or both", +[](bool a, bool b) { return std::optional(a || b); }),
        make(
            "smaller", "the lesser of two", +[](Expr a, Expr b) { return std::optional(min(a, b)); }),
        make(
            "larger", "the greater of two", +[](Expr a, Expr b) { return std::optional(max(a, b)); }),
        make(
            "smaller", "the lesser of two", +[](double a, double b) { return std::optional(std::fmin(a, b)); }),
        make(
            "larger", "the greater of two", +[](double a, double b) { return std::optional(std::fmax(a, b)); }),
        make(
            "square_root", "of a float", +[](double a) { return std::optional(std::sqrt(a)); }),
    };
}

}  // namespace tessera::functions
