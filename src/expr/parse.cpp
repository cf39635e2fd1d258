#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "expr/expr.h"
#include "expr/simplify.h"
#include "expr/text.h"

namespace tessera {
namespace {

constexpr int kMaxParsedDepth = 256;
constexpr size_t kMaxParsed = 1 << 16;
constexpr int kMaxDimParts = 8192;  // names, numbers and operators
constexpr int kMaxKernelParts = 1 << 18;

using Parsed = std::optional<Expr>;

bool is_number(DType t) { return is_int(t) || is_float(t); }
bool is_bool(const Expr& e) { return e.dtype() == DType::boolean; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

// Whether an arithmetic constructor takes these two.
bool match(const Expr& a, const Expr& b) {
    if (a.dtype() == b.dtype()) return is_number(a.dtype());
    return (a.as_int() && is_number(b.dtype())) || (b.as_int() && is_number(a.dtype()));
}

// A name in backticks, from the first of them on.
std::optional<std::string> read_quoted(std::string_view text, size_t& at) {
    std::string name;
    for (++at; at < text.size(); ++at) {
        char c = text[at];
        if (c == '`') {
            ++at;
            return name;
        }
        if (c != '\\') {
            name += c;
            continue;
        }
        if (++at >= text.size()) return std::nullopt;
        if (text[at] == 'x') {
            if (at + 2 >= text.size()) return std::nullopt;
            uint8_t byte = 0;
            const char* digits = text.data() + at + 1;
            auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
            if (error != std::errc() || end != digits + 2) return std::nullopt;
            name += static_cast<char>(byte);
            at += 2;
        } else if (text[at] == '\\' || text[at] == '`') {
            name += text[at];
        } else {
            return std::nullopt;
        }
    }
    return std::nullopt;
}

// A constant as kernels write it: 3, 3_i32, 1.5, 1e-05_f64, -inf_f16.
Parsed constant_from_text(std::string_view text) {
    DType dtype = DType::i64;
    bool suffix = false;
    if (size_t at = text.find('_'); at != std::string_view::npos) {
        std::optional<DType> named = dtype_from_name(text.substr(at + 1));
        if (!named || !is_number(*named)) return std::nullopt;
        dtype = *named;
        suffix = true;
        text = text.substr(0, at);
    }
    const char *begin = text.data(), *end = begin + text.size();
    auto whole = [&](std::from_chars_result r) { return r.ec == std::errc() && r.ptr == end; };
    int64_t integer = 0;
    if (dtype == DType::u64) {
        uint64_t bits = 0;
        if (!whole(std::from_chars(begin, end, bits))) return std::nullopt;
        return int_const(static_cast<int64_t>(bits), dtype);
    }
    if (is_int(dtype) && whole(std::from_chars(begin, end, integer))) {
        if (wrap_to(dtype, integer) != integer) return std::nullopt;
        return int_const(integer, dtype);
    }
    double real = 0;
    if ((suffix && !is_float(dtype)) || !whole(std::from_chars(begin, end, real))) return std::nullopt;
    if (!suffix && text.find_first_of(".enai") == std::string_view::npos) return std::nullopt;  // an i64 too large
    return real_const(real, suffix ? dtype : DType::f32);
}

class Parser {
  public:
    explicit Parser(std::string_view text) : text_(text) {}
    Parser(std::string_view text, size_t at, const ExprNames& names) : text_(text), names_(&names), at_(at) {}

    ExprText kernel_expr() {
        Parsed e = either();
        if (!e && problem_.empty()) fail(at_, "this is no expression");
        if (e) skip_space();
        return {e, e ? at_ : problem_at_, std::move(problem_), undefined_};
    }

    Parsed whole() {
        Parsed e = either();
        skip_space();
        if (!e || at_ != text_.size() || e->dtype() != DType::i64) return std::nullopt;
        return e;
    }

  private:
    std::string_view text_;
    const ExprNames* names_ = nullptr;  // a kernel's; without them only dimensions are read
    size_t at_ = 0;
    int depth_ = 0, parts_ = 0;
    std::string problem_;
    size_t problem_at_ = 0;
    bool undefined_ = false;
    std::vector<Expr> reduced_;  // the variables of the reductions around

    // The first problem is the innermost.
    std::nullopt_t fail(size_t at, std::string problem) {
        if (problem_.empty()) {
            problem_ = std::move(problem);
            problem_at_ = at;
        }
        return std::nullopt;
    }
    std::nullopt_t misfit(size_t at, std::string_view what, const Expr& a, const Expr& b) {
        return fail(at, fmt::format("{} of {} and {}", what, dtype_name(a.dtype()), dtype_name(b.dtype())));
    }
    // Kernels compute with bools too: min, max, and what is bitwise.
    bool fit(const Expr& a, const Expr& b) const { return match(a, b) || (names_ && is_bool(a) && is_bool(b)); }

    void skip_space() {
        for (; at_ < text_.size(); ++at_) {
            char c = text_[at_];
            if (c == ' ' || c == '\t' || c == '\n' || c == '\r') continue;
            if (!names_ || text_.substr(at_, 2) != "//") return;
            at_ = std::min(text_.find('\n', at_), text_.size() - 1);
        }
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

    Parsed either() {
        if (depth_ >= kMaxParsedDepth) return fail(at_, "an expression nested too deeply");
        ++depth_;
        Parsed left = both();
        while (left && take("||")) {
            size_t at = at_;
            Parsed right = both();
            if (!right) return right;
            if (!is_bool(*left) || !is_bool(*right)) return misfit(at, "||", *left, *right);
            left = logical_or(*left, *right);
        }
        --depth_;
        return left;
    }

    Parsed both() {
        Parsed left = comparison();
        while (left && take("&&")) {
            size_t at = at_;
            Parsed right = comparison();
            if (!right) return right;
            if (!is_bool(*left) || !is_bool(*right)) return misfit(at, "&&", *left, *right);
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
            size_t at = at_;
            Parsed right = sum();
            if (!right) return right;
            bool bools = is_bool(*left) && is_bool(*right) && (token == "==" || token == "!=");
            if (!bools && !match(*left, *right)) return misfit(at, "a comparison", *left, *right);
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
            size_t at = at_;
            Parsed next = product();
            if (!next) return next;
            if (!match(terms[0], *next)) return misfit(at, "a sum", terms[0], *next);
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
            size_t at = at_;
            Parsed right = unary();
            if (!right) return right;
            if (!match(*left, *right)) return misfit(at, times ? "a product" : "a quotient", *left, *right);
            left = times ? *left * *right : *left / *right;
        }
        return left;
    }

    Parsed unary() {
        if (++parts_ > (names_ ? kMaxKernelParts : kMaxDimParts) || depth_ >= kMaxParsedDepth)
            return fail(at_, "an expression too large or nested too deeply");
        char c = peek();
        if (c == '-' && !number_follows(at_ + 1)) {
            ++at_;
            ++depth_;
            Parsed e = unary();
            --depth_;
            if (!e) return e;
            if (is_bool(*e)) return fail(at_, "the negative of a bool");
            return -*e;
        }
        if (c == '!' && text_.substr(at_, 2) != "!=") {
            ++at_;
            ++depth_;
            Parsed e = unary();
            --depth_;
            if (!e) return e;
            if (!is_bool(*e)) return fail(at_, "! of what is no bool");
            return logical_not(*e);
        }
        return primary(c);
    }

    Parsed primary(char c) {
        if (c == '(') {
            ++at_;
            Parsed e = either();
            if (e && !take(")")) return fail(at_, "expected ')'");
            return e;
        }
        if (c == '-' || number_follows(at_)) return names_ ? kernel_number() : number();
        size_t begin = at_;
        if (c == '`') {
            std::optional<std::string> name = read_quoted(text_, at_);
            if (!name) return fail(begin, "a name in backticks that does not end, or with an unknown escape");
            return variable_or_load(begin, *name);
        }
        if (!is_letter(c)) return fail(at_, "expected an expression");
        while (at_ < text_.size() && is_word(text_[at_])) ++at_;
        std::string_view name = text_.substr(begin, at_ - begin);
        if (peek() == '(') {
            ++at_;
            return function(begin, name);
        }
        if (name == "true" || name == "false") return int_const(name == "true", DType::boolean);
        return variable_or_load(begin, std::string(name));
    }

    Parsed variable_or_load(size_t begin, const std::string& name) {
        if (!names_) return symbol(name);
        if (peek() == '[') return element(begin, name);
        for (size_t i = reduced_.size(); i-- > 0;)
            if (reduced_[i].node().name == name) return reduced_[i];
        Parsed var = names_->variable(name);
        return var ? var : undefined(begin, "variable", name);
    }

    std::nullopt_t undefined(size_t begin, std::string_view what, const std::string& name) {
        undefined_ |= problem_.empty();
        return fail(begin, fmt::format("there is no {} {} here", what, name_text(name)));
    }

    Parsed element(size_t begin, const std::string& name) {
        auto buffer = names_->buffer(name);
        if (!buffer) return undefined(begin, "buffer", name);
        ++at_;
        std::vector<Expr> indices;
        while (!take("]")) {
            if (!indices.empty() && !take(",")) return fail(at_, "expected ',' or ']'");
            size_t at = at_;
            Parsed index = either();
            if (!index) return index;
            if (index->dtype() != DType::i64) return fail(at, "an index that is no i64");
            indices.push_back(std::move(*index));
        }
        return load(buffer->first, buffer->second, std::move(indices));
    }

    bool number_follows(size_t at) const {
        if (at >= text_.size()) return false;
        if (is_digit(text_[at]) || !names_) return is_digit(text_[at]);
        std::string_view rest = text_.substr(at);
        if (!rest.starts_with("inf") && !rest.starts_with("nan")) return false;
        return rest.size() == 3 || rest[3] == '_' || !is_word(rest[3]);
    }

    Parsed kernel_number() {
        size_t begin = at_, end = at_ + (text_[at_] == '-');
        auto exponent = [&] { return (text_[end] == '-' || text_[end] == '+') && text_[end - 1] == 'e'; };
        while (end < text_.size() && (is_word(text_[end]) || exponent())) ++end;
        at_ = end;
        Parsed value = constant_from_text(text_.substr(begin, end - begin));
        return value ? value : fail(begin, fmt::format("'{}' is no constant", text_.substr(begin, end - begin)));
    }

    Parsed number() {
        int64_t value = 0;
        auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (error != std::errc()) return std::nullopt;
        at_ = static_cast<size_t>(end - text_.data());
        if (at_ < text_.size() && (is_letter(text_[at_]) || text_[at_] == '.')) return std::nullopt;
        return Expr(value);
    }

    // sum(k < 3, j < N, value): axes, each with its extent, then what is reduced.
    Parsed reduction(ReduceOp op) {
        std::vector<ReduceAxis> axes;
        const size_t outer = reduced_.size();
        while (true) {
            skip_space();
            const size_t begin = at_;
            std::optional<std::string> name = read_name(text_, at_);
            if (!name || !take("<") || (at_ < text_.size() && text_[at_] == '=')) {
                at_ = begin;
                break;
            }
            Parsed extent = sum();
            if (!extent) return extent;
            if (extent->dtype() != DType::i64) return fail(begin, "an extent that is no i64");
            if (!take(",")) return fail(at_, "expected ','");
            axes.push_back({index_var(*name, extent->as_int()), *extent});
            reduced_.push_back(axes.back().var);
        }
        const size_t at = at_;
        Parsed value = either();
        if (!value) return value;
        reduced_.resize(outer);
        if (axes.empty()) return fail(at, "a reduction over no axis");
        if (!is_number(value->dtype()) && !is_bool(*value)) return fail(at, "a reduction of what is no number");
        if (!take(")")) return fail(at_, "expected ')'");
        return reduce(op, std::move(axes), *value);
    }

    Parsed function(size_t begin, std::string_view name) {
        constexpr std::pair<std::string_view, ReduceOp> kReductions[] = {{"sum", ReduceOp::Sum},
                                                                         {"prod", ReduceOp::Prod},
                                                                         {"reduce_min", ReduceOp::Min},
                                                                         {"reduce_max", ReduceOp::Max}};
        for (const auto& [text, op] : kReductions)
            if (names_ && name == text) return reduction(op);
        std::vector<Expr> args;
        do {
            Parsed e = either();
            if (!e) return e;
            args.push_back(std::move(*e));
        } while (take(","));
        if (!take(")")) return fail(at_, "expected ',' or ')'");
        Parsed e = apply(name, std::move(args));
        return e ? e : fail(begin, fmt::format("there is no function {} of such arguments", name));
    }

    Parsed apply(std::string_view name, std::vector<Expr> args) {
        if (args.size() == 1) return apply_to_one(name, args[0]);
        if (name == "select") {
            if (args.size() != 3 || !is_bool(args[0])) return std::nullopt;
            if (!match(args[1], args[2]) && !(is_bool(args[1]) && is_bool(args[2]))) return std::nullopt;
            return select(args[0], args[1], args[2]);
        }
        for (const Expr& a : args)
            if (!fit(args[0], a)) return std::nullopt;
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
        bool integers = names_ ? !is_float(a.dtype()) && !is_float(b.dtype()) : is_int(a.dtype()) && is_int(b.dtype());
        if (name == "floordiv") return dimensions ? Parsed(floor_div(a, b)) : std::nullopt;
        if (name == "mod") return mod(a, b);
        if (name == "rem") return rem(a, b);
        if (name == "pow") return pow(a, b);
        if (std::optional<Fn> fn = fn_from_name(name); names_ && fn && arity(*fn) == 2)
            return is_dot(*fn) && a.dtype() != DType::i32 ? std::nullopt : Parsed(call(*fn, {a, b}));
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

    Parsed apply_to_one(std::string_view name, const Expr& x) {
        if (std::optional<DType> dtype = dtype_from_name(name)) {
            if (*dtype == DType::string || is_complex(*dtype)) return std::nullopt;
            return cast(x, *dtype);
        }
        if (names_ && name.starts_with("saturate_"))
            if (std::optional<DType> dtype = dtype_from_name(name.substr(9)); dtype && is_number(*dtype))
                return cast_saturate(x, *dtype);
        if (is_bool(x) && !names_) return std::nullopt;
        if (name == "bit_not") return !is_float(x.dtype()) ? Parsed(bit_not(x)) : std::nullopt;
        std::optional<Fn> fn = fn_from_name(name);
        if (!fn || arity(*fn) != 1) return std::nullopt;
        return call(*fn, {x});
    }
};

}  // namespace

std::optional<std::string> read_name(std::string_view text, size_t& at) {
    if (at < text.size() && text[at] == '`') return read_quoted(text, at);
    if (at >= text.size() || !is_letter(text[at])) return std::nullopt;
    size_t begin = at;
    while (at < text.size() && is_word(text[at])) ++at;
    return std::string(text.substr(begin, at - begin));
}

ExprText parse_expr(std::string_view text, size_t at, const ExprNames& names) {
    return Parser(text, at, names).kernel_expr();
}

std::optional<Expr> parse_dim(std::string_view text) {
    if (text.size() > kMaxParsed) return std::nullopt;
    return Parser(text).whole();
}

}  // namespace tessera
