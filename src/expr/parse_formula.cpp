// Sizes as exporters write them: floor(height/2 - 1/2) + 1, Max(1, N), 2*N//3. Everything is exact: a quotient stays
// one until floor or ceiling makes it whole.
#include <charconv>

#include "expr/expr.h"

namespace tessera {
namespace {

constexpr int kMaxFormulaDepth = 64;
constexpr int kMaxFormulaParts = 256;  // names, numbers and operators
constexpr int64_t kMaxPower = 8;

// top / bottom; bottom is above 0.
struct Ratio {
    Expr top = 0, bottom = 1;
};
using MaybeRatio = std::optional<Ratio>;

Ratio operator+(const Ratio& a, const Ratio& b) {
    if (a.bottom == b.bottom) return {a.top + b.top, a.bottom};
    return {a.top * b.bottom + b.top * a.bottom, a.bottom * b.bottom};
}
Ratio operator-(const Ratio& a) { return {-a.top, a.bottom}; }
Ratio operator*(const Ratio& a, const Ratio& b) { return {a.top * b.top, a.bottom * b.bottom}; }

// Sizes are above 0 where they divide; a constant may be below.
MaybeRatio quotient(const Ratio& a, const Ratio& b) {
    auto n = b.top.as_int();
    if (n && *n == 0) return std::nullopt;
    if (n && *n < 0) return Ratio{-(a.top * b.bottom), a.bottom * -b.top};
    return Ratio{a.top * b.bottom, a.bottom * b.top};
}

Expr floor_of(const Ratio& a) { return a.bottom.is_int(1) ? a.top : floor_div(a.top, a.bottom); }
Expr ceiling_of(const Ratio& a) { return a.bottom.is_int(1) ? a.top : ceil_div(a.top, a.bottom); }

class FormulaParser {
  public:
    explicit FormulaParser(std::string_view text) : text_(text) {}

    std::optional<Expr> whole() {
        MaybeRatio r = sum();
        if (!r || peek() != '\0' || at_ < text_.size()) return std::nullopt;
        return floor_of(*r);
    }

  private:
    std::string_view text_;
    size_t at_ = 0;
    int depth_ = 0, parts_ = 0;

    char peek() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool take(std::string_view token) {
        peek();
        if (text_.substr(at_, token.size()) != token) return false;
        at_ += token.size();
        return true;
    }

    MaybeRatio sum() {
        if (++depth_ > kMaxFormulaDepth) return std::nullopt;
        MaybeRatio left = product();
        while (left) {
            const bool plus = take("+");
            if (!plus && !take("-")) break;
            MaybeRatio right = product();
            if (!right) return right;
            left = *left + (plus ? *right : -*right);
        }
        --depth_;
        return left;
    }

    MaybeRatio product() {
        MaybeRatio left = unary();
        while (left) {
            const bool floors = take("//"), divides = !floors && take("/"), remainder = !divides && take("%");
            if (!floors && !divides && !remainder && !take("*")) break;
            MaybeRatio right = unary();
            if (!right) return right;
            if (remainder) {
                left = remainder_of(*left, *right);
            } else if (floors || divides) {
                left = quotient(*left, *right);
                if (left && floors) left = Ratio{floor_of(*left)};
            } else {
                left = *left * *right;
            }
        }
        return left;
    }

    MaybeRatio unary() {
        if (++parts_ > kMaxFormulaParts) return std::nullopt;
        if (take("-")) {
            MaybeRatio r = unary();
            return r ? MaybeRatio(-*r) : r;
        }
        return power();
    }

    MaybeRatio power() {
        MaybeRatio base = primary();
        if (!base || !take("**")) return base;
        MaybeRatio exponent = unary();
        if (!exponent || !exponent->bottom.is_int(1)) return std::nullopt;
        auto n = exponent->top.as_int();
        if (!n || *n < 0 || *n > kMaxPower) return std::nullopt;
        Ratio result{1};
        for (int64_t i = 0; i < *n; ++i) result = result * *base;
        return result;
    }

    static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
    static bool is_digit(char c) { return c >= '0' && c <= '9'; }

    MaybeRatio primary() {
        const char c = peek();
        if (c == '(') {
            ++at_;
            MaybeRatio r = sum();
            return r && take(")") ? r : std::nullopt;
        }
        if (is_digit(c)) return number();
        if (!is_letter(c)) return std::nullopt;
        const size_t begin = at_;
        while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.')) ++at_;
        const std::string_view name = text_.substr(begin, at_ - begin);
        if (peek() != '(') return Ratio{symbol(std::string(name))};
        ++at_;
        std::vector<Ratio> args;
        do {
            MaybeRatio r = sum();
            if (!r) return r;
            args.push_back(std::move(*r));
        } while (take(","));
        if (!take(")")) return std::nullopt;
        return apply(name, args);
    }

    // 3, 0.5: decimals are fractions too.
    MaybeRatio number() {
        int64_t value = 0, scale = 1;
        auto digits = [&](bool after_point) {
            for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
                if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
                    __builtin_add_overflow(value, int64_t{text_[at_] - '0'}, &value))
                    return false;
                if (after_point && __builtin_mul_overflow(scale, int64_t{10}, &scale)) return false;
            }
            return true;
        };
        if (!digits(false)) return std::nullopt;
        if (at_ < text_.size() && text_[at_] == '.') {
            ++at_;
            if (!digits(true)) return std::nullopt;
        }
        if (at_ < text_.size() && is_letter(text_[at_])) return std::nullopt;
        while (scale > 1 && value % 10 == 0) {
            value /= 10;
            scale /= 10;
        }
        return Ratio{value, scale};
    }

    static MaybeRatio remainder_of(const Ratio& a, const Ratio& b) {
        if (!a.bottom.is_int(1) || !b.bottom.is_int(1) || b.top.is_int(0)) return std::nullopt;
        return Ratio{mod(a.top, b.top)};
    }

    static MaybeRatio apply(std::string_view name, const std::vector<Ratio>& args) {
        if (name == "Max" || name == "Min" || name == "max" || name == "min") {
            Ratio result = args[0];
            for (size_t i = 1; i < args.size(); ++i) {
                const Expr a = result.top * args[i].bottom, b = args[i].top * result.bottom;
                result = {name[1] == 'a' ? max(a, b) : min(a, b), result.bottom * args[i].bottom};
            }
            return result;
        }
        if (args.size() == 1) {
            if (name == "floor" || name == "trunc" || name == "TruncToInt" || name == "FloorToInt")
                return Ratio{floor_of(args[0])};
            if (name == "ceiling" || name == "ceil" || name == "CeilToInt") return Ratio{ceiling_of(args[0])};
            if (name == "int" || name == "Identity" || name == "ToFloat") return args[0];
            return std::nullopt;
        }
        if (args.size() != 2) return std::nullopt;
        if (name == "Mod" || name == "PythonMod" || name == "mod") return remainder_of(args[0], args[1]);
        const MaybeRatio q = quotient(args[0], args[1]);
        if (!q) return q;
        if (name == "FloorDiv" || name == "floordiv" || name == "CleanDiv") return Ratio{floor_of(*q)};
        if (name == "CeilDiv" || name == "cdiv") return Ratio{ceiling_of(*q)};
        if (name == "IntTrueDiv" || name == "FloatTrueDiv") return q;
        return std::nullopt;
    }
};

}  // namespace

std::optional<Expr> parse_formula(std::string_view text) { return FormulaParser(text).whole(); }

}  // namespace tessera
