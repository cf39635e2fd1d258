// Scalar and integer expressions: immutable, shared, compared by structure. A dimension is an i64 expression over named
// symbols; an op's body is an expression over index variables and loads. Building an i64 expression canonicalises it
// (see simplify.h), so that equal dimensions are usually equal expressions.
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
    Const,     // i64/bool value in integer(), float value in real(); an int const of another dtype uses integer()
    Var,       // a named symbol or an index variable, always i64
    Load,      // one element of input number slot(), at args() (one i64 expression a dimension)
    // Arithmetic in the node's dtype; integers wrap. Float arithmetic may be carried out in higher precision.
    Add,       // i64: n-ary and canonical; other dtypes: binary
    Sub, Mul,  // i64 has no Sub: a - b is a + (-1)*b
    Div,       // floats: IEEE; integers: truncates toward zero, x/0 is 0
    FloorDiv,  // i64 only, rounds to minus infinity, x/0 is 0
    Mod,       // the sign of the divisor (Python's %); x mod 0 is 0 for integers
    Rem,       // the sign of the dividend (C's % and fmod); x rem 0 is 0 for integers
    Min, Max,  // i64: n-ary and canonical; other dtypes: binary; float: NaN if either is NaN
    Pow,
    BitAnd, BitOr, BitXor, Shl, Shr,  // integers; Shr is logical for unsigned, arithmetic for signed; a shift >= width is 0
    // Comparisons and logic give bool.
    Lt, Le, Eq, Ne, And, Or,
    Not,       // bool
    BitNot, Neg,
    Call,      // fn() of args(), in the node's dtype
    Cast,      // to the node's dtype, as ONNX Cast: float to int truncates, out of range wraps; to bool is != 0
    CastSaturate,  // to the node's dtype: out of range clamps to the nearest finite value (f8, quantization)
    Select,    // args: condition, then, otherwise; the branch not taken is not evaluated (its loads may be out of bounds)
    Reduce,    // reduce_op() of args()[0] over axes(); an empty range gives the identity
};

enum class Fn : uint8_t {
    Abs, Sign, Floor, Ceil, Round /* half to even */, Trunc, Sqrt, Exp, Log, Log1p, Expm1,
    Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Erf,
    IsNan, IsInf,           // bool of a float
    // Of two arguments, like all after it.
    Atan2,
    DotI8,    // the sum of the four products of the bytes of two i32, as signed ones
    DotU8I8,  // those of the first as unsigned ones
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

    // The same structure; for dimensions "provably the same size". (Use eq() to build a comparison.)
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
    // Known bounds, both inclusive. Var: given (a size symbol has low = 0); other i64 nodes: set by make_expr.
    std::optional<int64_t> low, high;
    std::vector<Expr> args;
    std::vector<ReduceAxis> axes;  // Reduce
    // Set by make_expr.
    size_t hash = 0;
    uint32_t depth = 0;            // the longest way down to a leaf
    bool reads = false;            // there is a Load or a Reduce in it: a run-time value, whose arithmetic may wrap
};
Expr make_expr(ExprNode node);  // as it is, hashed, without simplification

inline ExprKind Expr::kind() const { return node_->kind; }
inline DType Expr::dtype() const { return node_->dtype; }
inline size_t Expr::hash() const { return node_->hash; }
inline const std::vector<Expr>& Expr::args() const { return node_->args; }

// Leaves.
Expr symbol(std::string name);                                   // a named size, at least 0
Expr index_var(std::string name, std::optional<int64_t> extent); // runs over [0, extent)
Expr real_const(double value, DType dtype = DType::f64);
Expr int_const(int64_t value, DType dtype);                      // any integer dtype or bool; 0 of strings and complex
Expr constant(double value, DType dtype);                        // of whatever class dtype is (int types: truncated)
Expr load(int slot, DType dtype, std::vector<Expr> indices);
Expr infinity(DType dtype, bool negative = false);               // floats: inf; integers: the largest (smallest) value

// Arithmetic: both sides have one dtype, except that an i64 constant takes the other side's dtype (x + 1, x * 2).
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

// The size that both broadcast to: a where b is 1, b where a is 1.
Expr broadcast_dim(const Expr& a, const Expr& b);

// Traversal. `rewrite` maps each node bottom-up; `f` gets the node with its arguments already rewritten.
using Bindings = std::map<std::string, Expr>;  // by variable name
Expr substitute(const Expr& e, const Bindings& bindings);
Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f);
void visit(const Expr& e, const std::function<void(const Expr&)>& f);  // each distinct node once, children first
std::vector<std::string> free_symbols(const Expr& e);                  // names, sorted

// Whether e contains var.
bool depends_on(const Expr& e, const Expr& var);
// The step that e takes when var grows by one; nullopt where it is not the same everywhere. Looks into no Load.
std::optional<Expr> step_of(const Expr& e, const Expr& var);
// The slots that e loads, each once.
std::vector<int> loaded_slots(const Expr& e);
// The expression with f of each of its loads, their indices mapped already, in their place. (`rewrite` would call f
// also on a load that is all that simplification leaves of a node.)
Expr map_loads(const Expr& e, const std::function<Expr(const Expr& load)>& f);

// The same node with other arguments, simplified again.
Expr with_args(const Expr& e, std::vector<Expr> args);

// Constant bounds of an i64 expression, from the bounds of its variables; empty where unknown.
struct Bounds {
    std::optional<int64_t> low, high;
};
Bounds bounds(const Expr& e);

// The value of an i64 expression with every symbol bound; nullopt on overflow or an unbound symbol.
using SymbolValues = std::map<std::string, int64_t>;
std::optional<int64_t> evaluate_int(const Expr& e, const SymbolValues& symbols);

std::string to_string(const Expr& e);                        // N*2 + 1, floordiv(N, 2), x0[i, k] * x1[k, j]
std::optional<Expr> parse_dim(std::string_view text);        // the i64 part of that syntax
// A size as other tools write it, in exact fractions: floor(height/2 - 1/2) + 1, Max(1, N), N//2. What is left of a
// fraction at the end is rounded down. Nothing for other functions, and for what is no formula.
std::optional<Expr> parse_formula(std::string_view text);

struct ExprHash {
    size_t operator()(const Expr& e) const { return e.hash(); }
};

}  // namespace tessera
