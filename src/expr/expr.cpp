#include "expr/expr.h"

#include <array>
#include <bit>
#include <unordered_set>

#include "base/check.h"
#include "base/hash.h"
#include "expr/simplify.h"

namespace tessera {
namespace {

constexpr int64_t kFirstSmall = -16, kLastSmall = 1024;
constexpr uint32_t kDeep = 64;

// A node on the heap. The nodes under a deep one are released from a list, not from nested destructors.
struct OwnedNode : ExprNode {
    explicit OwnedNode(ExprNode&& node) : ExprNode(std::move(node)) {}
    OwnedNode(const OwnedNode&) = delete;
    OwnedNode& operator=(const OwnedNode&) = delete;
    ~OwnedNode() {
        if (depth < kDeep) return;
        thread_local std::vector<Expr>* pending = nullptr;
        if (pending) {
            hand_children_to(*pending);
            return;
        }
        std::vector<Expr> list;
        pending = &list;
        hand_children_to(list);
        while (!list.empty()) {
            Expr last = std::move(list.back());
            list.pop_back();
        }
        pending = nullptr;
    }

  private:
    void hand_children_to(std::vector<Expr>& list) {
        for (Expr& e : args) list.push_back(std::move(e));
        for (ReduceAxis& axis : axes) {
            list.push_back(std::move(axis.var));
            list.push_back(std::move(axis.extent));
        }
    }
};

ExprNode constant_node(int64_t value, DType dtype) {
    ExprNode node{};
    node.kind = ExprKind::Const;
    node.dtype = dtype;
    node.integer = value;
    return node;
}

const Expr& small_constant(int64_t value) {
    static const auto* table = [] {
        auto* all = new std::vector<Expr>;
        for (int64_t v = kFirstSmall; v <= kLastSmall; ++v) all->push_back(make_expr(constant_node(v, DType::i64)));
        return all;
    }();
    return (*table)[static_cast<size_t>(value - kFirstSmall)];
}

bool same_fields(const ExprNode& a, const ExprNode& b) {
    return a.hash == b.hash && a.kind == b.kind && a.dtype == b.dtype && a.fn == b.fn && a.reduce_op == b.reduce_op &&
           a.slot == b.slot && a.integer == b.integer &&
           std::bit_cast<uint64_t>(a.real) == std::bit_cast<uint64_t>(b.real) && a.args.size() == b.args.size() &&
           a.axes.size() == b.axes.size() && a.name == b.name;
}

struct PairHash {
    size_t operator()(const std::pair<const ExprNode*, const ExprNode*>& p) const {
        return mix(reinterpret_cast<uintptr_t>(p.first), reinterpret_cast<uintptr_t>(p.second));
    }
};

// Pairs already met are equal or will be found unequal, so after a while they are remembered: shared nodes cost once.
bool same_deep(const ExprNode* a, const ExprNode* b) {
    constexpr size_t kRememberAfter = 256;
    std::vector<std::pair<const ExprNode*, const ExprNode*>> stack{{a, b}};
    std::unordered_set<std::pair<const ExprNode*, const ExprNode*>, PairHash> met;
    auto push = [&](const Expr& x, const Expr& y) {
        if (x.get() != y.get()) stack.emplace_back(x.get(), y.get());
    };
    for (size_t steps = 0; !stack.empty(); ++steps) {
        auto [x, y] = stack.back();
        stack.pop_back();
        if (!same_fields(*x, *y)) return false;
        if (steps > kRememberAfter && !x->args.empty() && !met.insert({x, y}).second) continue;
        for (size_t i = 0; i < x->args.size(); ++i) push(x->args[i], y->args[i]);
        for (size_t i = 0; i < x->axes.size(); ++i) {
            push(x->axes[i].var, y->axes[i].var);
            push(x->axes[i].extent, y->axes[i].extent);
        }
    }
    return true;
}

// A sum comes first, so that a product of sums reads, and multiplies, from the left.
int rank(ExprKind kind) {
    if (kind == ExprKind::Const) return -2;
    return kind == ExprKind::Add ? -1 : static_cast<int>(kind);
}

template <typename T>
int three_way(const T& a, const T& b) {
    return a < b ? -1 : b < a ? 1 : 0;
}

int compare_fields(const ExprNode& a, const ExprNode& b) {
    if (int c = three_way(rank(a.kind), rank(b.kind))) return c;
    if (int c = a.name.compare(b.name)) return c;
    if (int c = three_way(a.integer, b.integer)) return c;
    if (int c = three_way(a.dtype, b.dtype)) return c;
    if (int c = three_way(std::bit_cast<uint64_t>(a.real), std::bit_cast<uint64_t>(b.real))) return c;
    if (int c = three_way(a.fn, b.fn)) return c;
    if (int c = three_way(a.reduce_op, b.reduce_op)) return c;
    if (int c = three_way(a.slot, b.slot)) return c;
    if (int c = three_way(a.args.size(), b.args.size())) return c;
    return three_way(a.axes.size(), b.axes.size());
}

}  // namespace

Expr make_expr(ExprNode node) {
    uint64_t h = mix(static_cast<uint64_t>(node.kind) | static_cast<uint64_t>(node.dtype) << 8 |
                         static_cast<uint64_t>(node.fn) << 16 | static_cast<uint64_t>(node.reduce_op) << 24 |
                         static_cast<uint64_t>(node.slot) << 32,
                     static_cast<uint64_t>(node.integer));
    if (node.real != 0) h = mix(h, std::bit_cast<uint64_t>(node.real));
    if (!node.name.empty()) h = mix(h, hash_bytes(node.name.data(), node.name.size()));
    node.depth = 0;
    node.reads = node.kind == ExprKind::Load || node.kind == ExprKind::Reduce;
    auto add_child = [&](const Expr& e) {
        h = mix(h, e.hash());
        node.depth = std::max(node.depth, e.node().depth + 1);
        node.reads |= e.node().reads;
    };
    for (const Expr& e : node.args) add_child(e);
    for (const ReduceAxis& axis : node.axes) {
        add_child(axis.var);
        add_child(axis.extent);
    }
    node.hash = h;
    if (node.kind != ExprKind::Var) {
        Bounds b = node_bounds(node);
        node.low = b.low;
        node.high = b.high;
    }
    return Expr(std::shared_ptr<const ExprNode>(std::make_shared<OwnedNode>(std::move(node))));
}

Expr make_node(ExprKind kind, DType dtype, std::vector<Expr> args) {
    ExprNode node{};
    node.kind = kind;
    node.dtype = dtype;
    node.args = std::move(args);
    return make_expr(std::move(node));
}

Expr::Expr(int64_t value) {
    node_ = value >= kFirstSmall && value <= kLastSmall ? small_constant(value).node_
                                                        : make_expr(constant_node(value, DType::i64)).node_;
}

std::optional<int64_t> Expr::as_int() const {
    if (kind() == ExprKind::Const && dtype() == DType::i64) return node_->integer;
    return std::nullopt;
}

bool Expr::same(const Expr& other) const {
    const ExprNode *a = get(), *b = other.get();
    if (a == b) return true;
    if (!same_fields(*a, *b)) return false;
    return a->args.empty() || same_deep(a, b);
}

int compare_structure(const Expr& first, const Expr& second) {
    const Expr *a = &first, *b = &second;
    while (true) {
        if (a->get() == b->get()) return 0;
        if (int c = compare_fields(a->node(), b->node())) return c;
        if (a->same(*b)) return 0;
        const ExprNode &x = a->node(), &y = b->node();
        const Expr *next_a = nullptr, *next_b = nullptr;
        auto look = [&](const Expr& p, const Expr& q) {
            if (next_a || p.same(q)) return;
            next_a = &p;
            next_b = &q;
        };
        for (size_t i = 0; i < x.args.size(); ++i) look(x.args[i], y.args[i]);
        for (size_t i = 0; i < x.axes.size(); ++i) {
            look(x.axes[i].var, y.axes[i].var);
            look(x.axes[i].extent, y.axes[i].extent);
        }
        if (!next_a) return 0;
        a = next_a;
        b = next_b;
    }
}

Expr symbol(std::string name) {
    ExprNode node{};
    node.kind = ExprKind::Var;
    node.dtype = DType::i64;
    node.name = std::move(name);
    node.low = 0;
    return make_expr(std::move(node));
}

Expr index_var(std::string name, std::optional<int64_t> extent) {
    ExprNode node{};
    node.kind = ExprKind::Var;
    node.dtype = DType::i64;
    node.name = std::move(name);
    node.low = 0;
    // An empty range never runs, so that nothing needs to hold in it.
    if (extent) node.high = std::max<int64_t>(*extent - 1, 0);
    return make_expr(std::move(node));
}

Expr real_const(double value, DType dtype) {
    CHECK(is_float(dtype), "a real constant of dtype {}", dtype_name(dtype));
    ExprNode node{};
    node.kind = ExprKind::Const;
    node.dtype = dtype;
    node.real = value;
    return make_expr(std::move(node));
}

Expr make_bool(bool value) {
    static const auto* both = new std::array<Expr, 2>{make_expr(constant_node(0, DType::boolean)),
                                                      make_expr(constant_node(1, DType::boolean))};
    return (*both)[value];
}

Expr int_const(int64_t value, DType dtype) {
    if (dtype == DType::i64) return Expr(value);
    if (dtype == DType::boolean) return make_bool(value != 0);
    if (dtype == DType::string || is_complex(dtype)) {
        CHECK(value == 0, "a constant of dtype {} that is not its zero", dtype_name(dtype));
        return make_expr(constant_node(0, dtype));
    }
    CHECK(is_int(dtype), "an integer constant of dtype {}", dtype_name(dtype));
    return make_expr(constant_node(wrap_to(dtype, value), dtype));
}

Expr constant(double value, DType dtype) {
    if (is_float(dtype)) return real_const(value, dtype);
    if (dtype == DType::boolean) return make_bool(value != 0);
    constexpr double kTwo63 = 9223372036854775808.0;
    if (dtype == DType::u64 && value >= kTwo63)
        return int_const(static_cast<int64_t>(value < 2 * kTwo63 ? static_cast<uint64_t>(value) : UINT64_MAX), dtype);
    if (!(value < kTwo63)) return int_const(value >= kTwo63 ? INT64_MAX : 0, dtype);  // NaN gives 0
    return int_const(value < -kTwo63 ? INT64_MIN : static_cast<int64_t>(value), dtype);
}

Expr load(int slot, DType dtype, std::vector<Expr> indices) {
    for (const Expr& i : indices) CHECK(i.dtype() == DType::i64, "an index of dtype {}", dtype_name(i.dtype()));
    ExprNode node{};
    node.kind = ExprKind::Load;
    node.dtype = dtype;
    node.slot = slot;
    node.args = std::move(indices);
    return make_expr(std::move(node));
}

Expr infinity(DType dtype, bool negative) {
    if (is_float(dtype)) {
        double inf = std::numeric_limits<double>::infinity();
        return real_const(negative ? -inf : inf, dtype);
    }
    if (dtype == DType::boolean) return make_bool(!negative);
    CHECK(is_int(dtype), "infinity of dtype {}", dtype_name(dtype));
    int bits = dtype_bits(dtype);
    if (is_unsigned_int(dtype)) return int_const(negative ? 0 : -1, dtype);
    int64_t largest = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
    return int_const(negative ? -largest - 1 : largest, dtype);
}

}  // namespace tessera
