#include <algorithm>
#include <charconv>

#include "expr/expr.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

constexpr int kMaxDepth = 256;
constexpr size_t kMaxText = 1 << 16;
constexpr int kMaxParts = 8192;  // names, numbers and operators

using Parsed = std::optional<Expr>;

// Whether an arithmetic constructor takes these two.
bool match(const Expr& a, const Expr& b) {
    if (a.dtype() == b.dtype()) return is_int(a.dtype()) || is_float(a.dtype());
    return (a.as_int() && (is_int(b.dtype()) || is_float(b.dtype()))) ||
           (b.as_int() && (is_int(a.dtype()) || is_float(a.dtype())));
}
bool is_bool(const Expr& e) { return e.dtype() == DType::boolean; }

class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}

    Parsed whole() {
        Parsed e = either();
        skip_space();
        if (!e || at_ != text_.size() || e->dtype() != DType::i64) return std::nullopt;
        return e;
    }

  private:
    std::string_view text_;
    size_t at_ = 0;
    int depth_ = 0, parts_ = 0;

    void skip_space() {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
            ++at_;
    }
    bool take(std::string_view token) {
        skip_space();
        if (text_.substr(at_, token.size()) != token) return false;
        at_ += token.size();
        return true;
    }
    char peek() {
        skip_space();
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    static bool is_digit(char c) { return c >= '0' && c <= '9'; }
    static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

    Parsed either() {
        if (depth_ >= kMaxDepth) return std::nullopt;
        ++depth_;
        Parsed left = both();
        while (left && take("||")) {
            Parsed right = both();
            if (!right || !is_bool(*left) || !is_bool(*right)) return std::nullopt;
            left = logical_or(*left, *right);
        }
        --depth_;
        return left;
    }

    Parsed both() {
        Parsed left = comparison();
        while (left && take("&&")) {
            Parsed right = comparison();
            if (!right || !is_bool(*left) || !is_bool(*right)) return std::nullopt;
            left = logical_and(*left, *right);
        }
        return left;
    }

    Parsed comparison() {
        Parsed left = sum();
        if (!left) return left;
        using Build = Expr (*)(const Expr&, const Expr&);
        constexpr std::pair<std::string_view, Build> kOperators[] = {{"==", eq}, {"!=", ne}, {"<=", le},
                                                                     {">=", ge}, {"<", lt},  {">", gt}};
        for (const auto& [token, build] : kOperators) {
            if (!take(token)) continue;
            Parsed right = sum();
            if (!right) return right;
            bool bools = is_bool(*left) && is_bool(*right) && (token == "==" || token == "!=");
            if (!bools && !match(*left, *right)) return std::nullopt;
            return build(*left, *right);
        }
        return left;
    }

    Parsed sum() {
        Parsed first = product();
        if (!first) return first;
        std::vector<Expr> terms{*first};
        while (true) {
            bool plus = take("+");
            if (!plus && !take("-")) break;
            Parsed next = product();
            if (!next || !match(terms[0], *next)) return std::nullopt;
            if (terms[0].dtype() == DType::i64 && next->dtype() == DType::i64)
                terms.push_back(plus ? *next : -*next);
            else
                terms = {plus ? add_up(terms) + *next : add_up(terms) - *next};
        }
        return add_up(terms);
    }

    // In pairs, so that a long sum is not merged term by term.
    static Expr add_up(std::vector<Expr> terms) {
        for (; terms.size() > 1; terms.resize((terms.size() + 1) / 2)) {
            for (size_t i = 0; i + 1 < terms.size(); i += 2) terms[i / 2] = terms[i] + terms[i + 1];
            if (terms.size() % 2) terms[terms.size() / 2] = terms.back();
        }
        return terms[0];
    }

    Parsed product() {
        Parsed left = unary();
        while (left) {
            bool times = take("*");
            if (!times && !take("/")) break;
            Parsed right = unary();
            if (!right || !match(*left, *right)) return std::nullopt;
            left = times ? *left * *right : *left / *right;
        }
        return left;
    }

    Parsed unary() {
        if (++parts_ > kMaxParts || depth_ >= kMaxDepth) return std::nullopt;
        char c = peek();
        if (c == '-' && !(at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
            ++at_;
            ++depth_;
            Parsed e = unary();
            --depth_;
            if (!e || is_bool(*e)) return std::nullopt;
            return -*e;
        }
        if (c == '!' && text_.substr(at_, 2) != "!=") {
            ++at_;
            ++depth_;
            Parsed e = unary();
            --depth_;
            if (!e || !is_bool(*e)) return std::nullopt;
            return logical_not(*e);
        }
        return primary(c);
    }

    Parsed primary(char c) {
        if (c == '(') {
            ++at_;
            Parsed e = either();
            if (!e || !take(")")) return std::nullopt;
            return e;
        }
        if (c == '-' || is_digit(c)) return number();
        if (c == '`') return quoted_symbol();
        if (!is_letter(c)) return std::nullopt;
        size_t begin = at_;
        while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
        std::string_view name = text_.substr(begin, at_ - begin);
        if (peek() == '(') {
            ++at_;
            return function(name);
        }
        if (name == "true" || name == "false") return int_const(name == "true", DType::boolean);
        return symbol(std::string(name));
    }

    Parsed number() {
        int64_t value = 0;
        auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (error != std::errc()) return std::nullopt;
        at_ = static_cast<size_t>(end - text_.data());
        if (at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.')) return std::nullopt;
        return Expr(value);
    }

    Parsed quoted_symbol() {
        std::string name;
        for (++at_; at_ < text_.size(); ++at_) {
            char c = text_[at_];
            if (c == '`') {
                ++at_;
                return symbol(std::move(name));
            }
            if (c != '\\') {
                name += c;
                continue;
            }
            if (++at_ >= text_.size()) return std::nullopt;
            if (text_[at_] == 'x') {
                if (at_ + 2 >= text_.size()) return std::nullopt;
                uint8_t byte = 0;
                const char* digits = text_.data() + at_ + 1;
                auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
                if (error != std::errc() || end != digits + 2) return std::nullopt;
                name += static_cast<char>(byte);
                at_ += 2;
            } else if (text_[at_] == '\\' || text_[at_] == '`') {
                name += text_[at_];
            } else {
                return std::nullopt;
            }
        }
        return std::nullopt;
    }

    Parsed function(std::string_view name) {
        std::vector<Expr> args;
        do {
            Parsed e = either();
            if (!e) return e;
            args.push_back(std::move(*e));
        } while (take(","));
        if (!take(")")) return std::nullopt;
        return apply(name, std::move(args));
    }

    static Parsed apply(std::string_view name, std::vector<Expr> args) {
        if (args.size() == 1) return apply_to_one(name, args[0]);
        if (name == "select") {
            if (args.size() != 3 || !is_bool(args[0])) return std::nullopt;
            if (!match(args[1], args[2]) && !(is_bool(args[1]) && is_bool(args[2]))) return std::nullopt;
            return select(args[0], args[1], args[2]);
        }
        for (const Expr& a : args)
            if (!match(args[0], a)) return std::nullopt;
        if (name == "min" || name == "max") {
            Expr result = args[0];
            for (size_t i = 1; i < args.size(); ++i)
                result = name == "min" ? min(result, args[i]) : max(result, args[i]);
            return result;
        }
        if (name == "product") return as_it_stands(std::move(args));
        if (args.size() != 2) return std::nullopt;
        const Expr &a = args[0], &b = args[1];
        bool dimensions = a.dtype() == DType::i64 && b.dtype() == DType::i64;
        bool integers = is_int(a.dtype()) && is_int(b.dtype());
        if (name == "floordiv") return dimensions ? Parsed(floor_div(a, b)) : std::nullopt;
        if (name == "mod") return mod(a, b);
        if (name == "rem") return rem(a, b);
        if (name == "pow") return pow(a, b);
        if (!integers) return std::nullopt;
        constexpr std::pair<std::string_view, ExprKind> kBits[] = {{"bit_and", ExprKind::BitAnd},
                                                                   {"bit_or", ExprKind::BitOr},
                                                                   {"bit_xor", ExprKind::BitXor},
                                                                   {"shl", ExprKind::Shl},
                                                                   {"shr", ExprKind::Shr}};
        for (const auto& [bit_name, kind] : kBits)
            if (name == bit_name) return bit(kind, a, b);
        return std::nullopt;
    }

    // A product that was left unexpanded, and that multiplying its factors would not give again.
    static Parsed as_it_stands(std::vector<Expr> factors) {
        for (const Expr& f : factors)
            if (f.dtype() != DType::i64 || f.is_int(0)) return std::nullopt;
        return make_node(ExprKind::Mul, DType::i64, std::move(factors));
    }

    static Parsed apply_to_one(std::string_view name, const Expr& x) {
        if (std::optional<DType> dtype = dtype_from_name(name)) {
            if (*dtype == DType::string || is_complex(*dtype)) return std::nullopt;
            return cast(x, *dtype);
        }
        if (is_bool(x)) return std::nullopt;
        if (name == "bit_not") return is_int(x.dtype()) ? Parsed(bit_not(x)) : std::nullopt;
        std::optional<Fn> fn = fn_from_name(name);
        if (!fn || *fn == Fn::Atan2) return std::nullopt;
        return call(*fn, {x});
    }
};

}  // namespace

std::optional<Expr> parse_dim(std::string_view text) {
    if (text.size() > kMaxText) return std::nullopt;
    return Parser(text).whole();
}

}  // namespace tessera
