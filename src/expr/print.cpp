#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "expr/expr.h"
#include "expr/simplify.h"
#include "expr/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxPrinted = 1 << 20;  // shared nodes print once for each use, so that text can outgrow memory
constexpr int kMaxPrintedDepth = 1000;

enum Level { kOr = 1, kAnd, kCompare, kSum, kProduct, kUnary, kPrimary };

bool is_plain(const std::string& name) {
    auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (name.empty() || !letter(name[0]) || name == "true" || name == "false") return false;
    return std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c) || c == '.'; });
}

std::string quoted(const std::string& name) {
    std::string text = "`";
    for (char c : name) {
        auto byte = static_cast<unsigned char>(c);
        if (c == '`' || c == '\\')
            text += fmt::format("\\{}", c);
        else if (byte < 0x20 || byte == 0x7f)
            text += fmt::format("\\x{:02x}", byte);
        else
            text += c;
    }
    return text + "`";
}

std::string plain_or_quoted(const std::string& name) { return is_plain(name) ? name : quoted(name); }

std::string constant_text(const ExprNode& node) {
    if (is_float(node.dtype)) return fmt::format("{}", node.real);
    if (node.dtype == DType::boolean) return node.integer ? "true" : "false";
    if (node.dtype == DType::u64) return fmt::format("{}", static_cast<uint64_t>(node.integer));
    return fmt::format("{}", node.integer);
}

std::string typed_constant_text(const ExprNode& node) {
    std::string text = constant_text(node);
    bool special = is_float(node.dtype) && !std::isfinite(node.real);
    if (is_float(node.dtype) && !special && text.find_first_of(".e") == std::string::npos) text += ".0";
    if (node.dtype == DType::i64 || node.dtype == DType::boolean || node.dtype == DType::f32) return text;
    return fmt::format("{}_{}", text, dtype_name(node.dtype));
}

Level level_of(const ExprNode& node) {
    switch (node.kind) {
        case ExprKind::Or: return kOr;
        case ExprKind::And: return kAnd;
        case ExprKind::Lt:
        case ExprKind::Le:
        case ExprKind::Eq:
        case ExprKind::Ne: return kCompare;
        case ExprKind::Add:
        case ExprKind::Sub: return kSum;
        case ExprKind::Mul: return kProduct;
        case ExprKind::Div: return kProduct;
        case ExprKind::Neg:
        case ExprKind::Not: return kUnary;
        case ExprKind::Const: return node.integer < 0 || std::signbit(node.real) ? kUnary : kPrimary;
        default: return kPrimary;
    }
}

std::string_view function_name(const ExprNode& node) {
    switch (node.kind) {
        case ExprKind::FloorDiv: return "floordiv";
        case ExprKind::Mod: return "mod";
        case ExprKind::Rem: return "rem";
        case ExprKind::Min: return "min";
        case ExprKind::Max: return "max";
        case ExprKind::Pow: return "pow";
        case ExprKind::BitAnd: return "bit_and";
        case ExprKind::BitOr: return "bit_or";
        case ExprKind::BitXor: return "bit_xor";
        case ExprKind::BitNot: return "bit_not";
        case ExprKind::Shl: return "shl";
        case ExprKind::Shr: return "shr";
        case ExprKind::Select: return "select";
        case ExprKind::Call: return fn_name(node.fn);
        case ExprKind::Cast: return dtype_name(node.dtype);
        default: return "";
    }
}

std::string_view reduce_name(ReduceOp op) {
    switch (op) {
        case ReduceOp::Sum: return "sum";
        case ReduceOp::Prod: return "prod";
        case ReduceOp::Min: return "reduce_min";
        case ReduceOp::Max: return "reduce_max";
    }
    return "";
}

class Printer {
  public:
    std::string text;
    const SlotNames* buffers = nullptr;  // then constants say their dtypes too

    void print(const Expr& e, int at_least) {
        if (text.size() > kMaxPrinted || depth_ >= kMaxPrintedDepth) {
            text += "...";
            return;
        }
        ++depth_;
        const ExprNode& node = e.node();
        bool brackets = level_of(node) < at_least;
        if (brackets) text += '(';
        print_node(e, node);
        if (brackets) text += ')';
        --depth_;
    }

  private:
    int depth_ = 0;

    void infix(const Expr& e, int left, std::string_view op, int right) {
        print(e.arg(0), left);
        text += op;
        print(e.arg(1), right);
    }

    void list(const std::vector<Expr>& args) {
        for (size_t i = 0; i < args.size(); ++i) {
            if (i > 0) text += ", ";
            print(args[i], 0);
        }
    }

    // Terms with a minus come last, so that few sums begin with one.
    void sum(const std::vector<Expr>& terms) {
        bool first = true;
        for (bool negative : {false, true})
            for (const Expr& term : terms) {
                bool is_product = term.is(ExprKind::Mul) || term.is(ExprKind::Const);
                int64_t coefficient = is_product ? as_monomial(term).coefficient : 1;
                bool minus = coefficient < 0 && coefficient != INT64_MIN && !is_unfolded(as_monomial(term));
                if (minus != negative) continue;
                if (minus) {
                    text += first ? "-" : " - ";
                    Monomial m = as_monomial(term);
                    if (m.count == 0 || coefficient != -1) {
                        text += fmt::format("{}", -coefficient);
                        if (m.count > 0) text += '*';
                    }
                    factors(m.atoms, m.count);
                } else {
                    if (!first) text += " + ";
                    print(term, kProduct);
                }
                first = false;
            }
    }

    // Of a product that was not expanded or folded the coefficient may be the reason, so that it is read first.
    static bool is_unfolded(const Monomial& m) {
        return m.count > 0 && (m.atoms[0].is(ExprKind::Add) || m.atoms[0].is(ExprKind::Const));
    }

    void factors(const Expr* atoms, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            if (i > 0) text += '*';
            print(atoms[i], kUnary);
        }
    }

    void product(const Expr& e) {
        const std::vector<Expr>& args = e.args();
        bool unfolded = is_unfolded(as_monomial(e));
        if (unfolded && !multiplies_back(e)) {
            text += "product(";
            list(args);
            text += ')';
        } else if (args[0].is_int(-1) && !unfolded) {
            text += '-';
            factors(args.data() + 1, args.size() - 1);
        } else {
            factors(args.data(), args.size());
        }
    }

    // Whether factor times factor, as a reader of the text multiplies, gives this product again.
    bool multiplies_back(const Expr& e) const {
        if (e.node().reads && !buffers) return true;
        Expr product = 1;
        for (const Expr& factor : e.args()) product = product * factor;
        return product.same(e);
    }

    // Of a constant in brackets, which tell it from a negative constant.
    void negative(const Expr& e) {
        text += '-';
        print(e, buffers && e.is(ExprKind::Const) ? kPrimary + 1 : kPrimary);
    }

    void print_node(const Expr& e, const ExprNode& node) {
        bool dimension = node.dtype == DType::i64;
        switch (node.kind) {
            case ExprKind::Const: text += buffers ? typed_constant_text(node) : constant_text(node); return;
            case ExprKind::Var: text += buffers ? name_text(node.name) : plain_or_quoted(node.name); return;
            case ExprKind::Load:
                text += buffers ? (*buffers)(node.slot) + "[" : fmt::format("x{}[", node.slot);
                list(node.args);
                text += ']';
                return;
            case ExprKind::Add: return dimension ? sum(node.args) : infix(e, kSum, " + ", kProduct);
            case ExprKind::Mul: return dimension ? product(e) : infix(e, kProduct, " * ", kUnary);
            case ExprKind::Sub: return infix(e, kSum, " - ", kProduct);
            case ExprKind::Div: return infix(e, kProduct, " / ", kUnary);
            case ExprKind::Lt: return infix(e, kSum, " < ", kSum);
            case ExprKind::Le: return infix(e, kSum, " <= ", kSum);
            case ExprKind::Eq: return infix(e, kSum, " == ", kSum);
            case ExprKind::Ne: return infix(e, kSum, " != ", kSum);
            case ExprKind::And: return infix(e, kAnd, " && ", kCompare);
            case ExprKind::Or: return infix(e, kOr, " || ", kAnd);
            case ExprKind::Neg: return negative(e.arg(0));
            case ExprKind::Not: text += '!'; return print(e.arg(0), kUnary);
            case ExprKind::Reduce:
                text += fmt::format("{}(", reduce_name(node.reduce_op));
                for (const ReduceAxis& axis : node.axes) {
                    print(axis.var, kSum);
                    text += " < ";
                    print(axis.extent, kSum);
                    text += ", ";
                }
                print(e.arg(0), 0);
                text += ')';
                return;
            case ExprKind::CastSaturate: text += fmt::format("saturate_{}(", dtype_name(node.dtype)); break;
            default: text += fmt::format("{}(", function_name(node)); break;
        }
        list(node.args);
        text += ')';
    }
};

}  // namespace

std::string name_text(const std::string& name) {
    auto number = [&](std::string_view word) { return name == word || name.starts_with(std::string(word) + "_"); };
    return number("inf") || number("nan") ? quoted(name) : plain_or_quoted(name);
}

std::string to_string(const Expr& e, const SlotNames& buffers) {
    Printer printer;
    printer.buffers = &buffers;
    printer.print(e, 0);
    return std::move(printer.text);
}

std::string to_string(const Expr& e) {
    Printer printer;
    printer.print(e, 0);
    return std::move(printer.text);
}

}  // namespace tessera
