// Scalar expressions: immutable, shared, compared by structure. A dimension is an i64 expression over named symbols; an
// op's body is an expression over index variables and loads. Building an i64 expression canonicalizes it (simplify.h),
// so equal dimensions usually have equal expressions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"

namespace tessera {

enum class ExprKind : uint8_t {
    Const,     // integers and bools in `integer`, floats in `real`
    Var,       // a named symbol or an index variable, always i64
    Load,      // one element of input number `slot`, at args (one i64 expression for each dimension)
    // Arithmetic in the node's dtype; integers wrap. Float arithmetic may be evaluated in higher precision.
    Add,       // i64: n-ary and canonical; other dtypes: binary
    Sub, Mul,  // i64 has no Sub: a - b is a + (-1)*b
    Div,       // floats: IEEE; integers: truncates toward zero, x/0 is 0
    FloorDiv,  // i64 only, rounds toward minus infinity, x/0 is 0
    Mod,       // has the sign of the divisor (Python's %); x mod 0 is 0 for integers
    Rem,       // has the sign of the dividend (C's % and fmod); x rem 0 is 0 for integers
    Min, Max,  // i64: n-ary and canonical; other dtypes: binary; float: NaN if either is NaN
    Pow,
    BitAnd, BitOr, BitXor, Shl, Shr,  // integers; Shr is logical for unsigned, arithmetic for signed; a shift >= width is 0
    // Comparisons and logic, with bool results.
    Lt, Le, Eq, Ne, And, Or,
    Not,       // bool
    BitNot, Neg,
    Call,      // `fn` of args, in the node's dtype
    Cast,      // to the node's dtype, as ONNX Cast: float to int truncates, out of range wraps; to bool is != 0
    CastSaturate,  // to the node's dtype: out of range saturates to the nearest finite value (f8, quantization)
    Select,    // args: condition, then, otherwise; the branch not taken is not evaluated: it may load out of bounds
    Reduce,    // `reduce_op` of args[0] over axes; an empty range gives the identity
};

enum class Fn : uint8_t {
    Abs, Sign, Floor, Ceil, Round /* half to even */, Trunc, Sqrt, Exp, Log, Log1p, Expm1,
    Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Erf,
    IsNan, IsInf,           // of a float; bool
    // Functions of two arguments from here on.
    Atan2,
    DotI8,    // the dot product of the four signed bytes of two i32
    DotU8I8,  // the same with unsigned bytes in the first i32
};
inline size_t arity(Fn fn) { return fn >= Fn::Atan2 ? 2 : 1; }
inline bool is_dot(Fn fn) { return fn >= Fn::DotI8; }
std::string_view fn_name(Fn fn);
std::optional<Fn> fn_from_name(std::string_view name);

enum class ReduceOp : uint8_t { Sum, Prod, Min, Max };

class ExprNode;

class Expr {
   public:
    Expr() : Expr(int64_t{0}) {}
    Expr(int value) : Expr(static_cast<int64_t>(value)) {}
    Expr(int64_t value);  // an i64 constant
    explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}

    ExprKind kind() const;
    DType dtype() const;
    size_t hash() const;
    const std::vector<Expr>& args() const;
    const Expr& arg(size_t i) const { return args()[i]; }
    const ExprNode& node() const { return *node_; }
    const ExprNode* get() const { return node_.get(); }

    bool is(ExprKind k) const { return kind() == k; }
    std::optional<int64_t> as_int() const;  // the value of an i64 constant
    bool is_int(int64_t value) const { return as_int() == value; }

    // Structural equality; for dimensions, "provably the same size". (eq() builds a comparison.)
    bool same(const Expr& other) const;
    friend bool operator==(const Expr& a, const Expr& b) { return a.same(b); }

   private:
    std::shared_ptr<const ExprNode> node_;
};

using Dim = Expr;

// A reduction axis: var runs over [0, extent).
struct ReduceAxis {
    Expr var, extent;
};

class ExprNode {
   public:
    ExprKind kind;
    DType dtype;
    Fn fn{};                       // Call
    ReduceOp reduce_op{};          // Reduce
    int slot = 0;                  // Load: the input's number
    int64_t integer = 0;           // Const
    double real = 0;               // Const of a float dtype
    std::string name;              // Var
    // Bounds, both inclusive. Var: given (a size symbol has low = 0); other i64 nodes: set by make_expr.
    std::optional<int64_t> low, high;
    std::vector<Expr> args;
    std::vector<ReduceAxis> axes;  // Reduce
    // Set by make_expr.
    size_t hash = 0;
    uint32_t depth = 0;            // length of the longest path to a leaf
    bool reads = false;            // contains a Load or a Reduce: a run-time value, whose arithmetic may wrap
};
Expr make_expr(ExprNode node);  // sets hash and bounds, without simplification

inline ExprKind Expr::kind() const { return node_->kind; }
inline DType Expr::dtype() const { return node_->dtype; }
inline size_t Expr::hash() const { return node_->hash; }
inline const std::vector<Expr>& Expr::args() const { return node_->args; }

// Leaves.
Expr symbol(std::string name);                                   // a size, at least 0
Expr index_var(std::string name, std::optional<int64_t> extent); // runs over [0, extent)
Expr real_const(double value, DType dtype = DType::f64);
Expr int_const(int64_t value, DType dtype);                      // any integer dtype or bool; 0 of strings and complex
Expr constant(double value, DType dtype);                        // of any dtype (truncated for integers)
Expr load(int slot, DType dtype, std::vector<Expr> indices);
Expr infinity(DType dtype, bool negative = false);               // floats: inf; integers: the largest (smallest) value

// Arithmetic: both sides have the same dtype, except that an i64 constant takes the other side's dtype (x + 1, x * 2).
Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr operator/(const Expr& a, const Expr& b);  // Div
Expr operator-(const Expr& a);
Expr floor_div(const Expr& a, const Expr& b);
Expr ceil_div(const Expr& a, const Expr& b);
Expr mod(const Expr& a, const Expr& b);
Expr rem(const Expr& a, const Expr& b);
Expr min(const Expr& a, const Expr& b);
Expr max(const Expr& a, const Expr& b);
Expr clamp(const Expr& x, const Expr& low, const Expr& high);
Expr pow(const Expr& a, const Expr& b);
Expr bit(ExprKind kind, const Expr& a, const Expr& b);  // BitAnd, BitOr, BitXor, Shl, Shr
Expr bit_not(const Expr& a);

// Comparisons and logic.
Expr lt(const Expr& a, const Expr& b);
Expr le(const Expr& a, const Expr& b);
Expr gt(const Expr& a, const Expr& b);
Expr ge(const Expr& a, const Expr& b);
Expr eq(const Expr& a, const Expr& b);
Expr ne(const Expr& a, const Expr& b);
Expr logical_and(const Expr& a, const Expr& b);
Expr logical_or(const Expr& a, const Expr& b);
Expr logical_not(const Expr& a);

Expr call(Fn fn, std::vector<Expr> args);
Expr cast(const Expr& x, DType dtype);
Expr cast_saturate(const Expr& x, DType dtype);
Expr select(const Expr& condition, const Expr& then, const Expr& otherwise);

Expr reduce(ReduceOp op, std::vector<ReduceAxis> axes, const Expr& value);
inline Expr sum(std::vector<ReduceAxis> axes, const Expr& v) { return reduce(ReduceOp::Sum, std::move(axes), v); }
inline Expr prod(std::vector<ReduceAxis> axes, const Expr& v) { return reduce(ReduceOp::Prod, std::move(axes), v); }
inline Expr reduce_min(std::vector<ReduceAxis> axes, const Expr& v) { return reduce(ReduceOp::Min, std::move(axes), v); }
inline Expr reduce_max(std::vector<ReduceAxis> axes, const Expr& v) { return reduce(ReduceOp::Max, std::move(axes), v); }

// The size that both broadcast to: b if a is 1, a if b is 1.
Expr broadcast_dim(const Expr& a, const Expr& b);

// Traversal. `rewrite` maps each node bottom-up: `f` receives the node with its arguments already rewritten.
using Bindings = std::map<std::string, Expr>;  // by variable name
Expr substitute(const Expr& e, const Bindings& bindings);
Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f);
void visit(const Expr& e, const std::function<void(const Expr&)>& f);  // each distinct node once, children first
std::vector<std::string> free_symbols(const Expr& e);                  // names, sorted

// Whether e contains var.
bool depends_on(const Expr& e, const Expr& var);
// The stride of e in var: its increment when var grows by one; nullopt if not constant. Does not look into loads.
std::optional<Expr> step_of(const Expr& e, const Expr& var);
// The slots that e loads, without duplicates.
std::vector<int> loaded_slots(const Expr& e);
// Replaces each load by f of it, after mapping its indices. (`rewrite` would also call f on a load that simplification
// leaves in place of another node.)
Expr map_loads(const Expr& e, const std::function<Expr(const Expr& load)>& f);

// The same node with other arguments, simplified.
Expr with_args(const Expr& e, std::vector<Expr> args);

// Constant bounds of an i64 expression, from the bounds of its variables; empty if unknown.
struct Bounds {
    std::optional<int64_t> low, high;
};
Bounds bounds(const Expr& e);

// The value of an i64 expression with every symbol bound; nullopt on overflow or an unbound symbol.
using SymbolValues = std::map<std::string, int64_t>;
std::optional<int64_t> evaluate_int(const Expr& e, const SymbolValues& symbols);

std::string to_string(const Expr& e);                        // N*2 + 1, floordiv(N, 2), x0[i, k] * x1[k, j]
std::optional<Expr> parse_dim(std::string_view text);        // parses i64 expressions of that syntax
// Parses a size as other tools write it, with exact fractions: floor(height/2 - 1/2) + 1, Max(1, N), N//2. A fractional
// result is rounded down. Nothing for invalid formulas and other functions.
std::optional<Expr> parse_formula(std::string_view text);

struct ExprHash {
    size_t operator()(const Expr& e) const { return e.hash(); }
};

}  // namespace tessera
