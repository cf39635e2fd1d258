#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/numeric.h"
#include "graph/evaluate/strip/plan.h"

namespace tessera::strip {
namespace {

constexpr int kMaxDepth = 2000;

bool add_scaled(Affine& to, const Affine& from, int64_t scale) {
    int64_t product;
    if (__builtin_mul_overflow(from.constant, scale, &product) ||
        __builtin_add_overflow(to.constant, product, &to.constant))
        return false;
    for (const Affine::Term& t : from.terms) {
        if (__builtin_mul_overflow(t.factor, scale, &product)) return false;
        auto at = std::lower_bound(to.terms.begin(), to.terms.end(), t.var,
                                   [](const Affine::Term& x, int var) { return x.var < var; });
        if (at == to.terms.end() || at->var != t.var) {
            if (product != 0) to.terms.insert(at, {t.var, product});
        } else {
            if (__builtin_add_overflow(at->factor, product, &at->factor)) return false;
            if (at->factor == 0) to.terms.erase(at);
        }
    }
    return true;
}

struct Interval {
    __int128 low, high;
};

class Lowering {
  public:
    Lowering(Plan& plan, const std::vector<const Tensor*>& inputs) : plan_(plan), inputs_(inputs) {}

    Result<int> node(const Expr& e) {
        auto found = memo_.find(e);
        if (found != memo_.end() && (plan_.nodes[found->second].vars & ~visible_) == 0) return found->second;
        if (++depth_ > kMaxDepth) return Error(Code::E0409, "an expression nested over {} deep", kMaxDepth);
        int id = TRY(make(e));
        --depth_;
        memo_[e] = id;
        return id;
    }

    // A variable of this name, until unbind. An extent of 1 makes it the constant 0.
    Result<int> bind(const std::string& name, int64_t extent) {
        int var = -1;
        if (extent > 1) {
            if (plan_.extents.size() == kMaxVars) return Error(Code::E0409, "a body of over {} loops", kMaxVars);
            var = static_cast<int>(plan_.extents.size());
            plan_.extents.push_back(extent);
            visible_ |= bit_of(var);
        }
        auto [at, fresh] = names_.try_emplace(name);
        if (!fresh && !at->second.empty() && at->second.back() >= 0) visible_ &= ~bit_of(at->second.back());
        at->second.push_back(var);
        return var;
    }
    void unbind(const std::string& name) {
        std::vector<int>& stack = names_[name];
        if (stack.back() >= 0) visible_ &= ~bit_of(stack.back());
        stack.pop_back();
        if (!stack.empty() && stack.back() >= 0) visible_ |= bit_of(stack.back());
    }

  private:
    Interval range(const Affine& a) const {
        Interval r{a.constant, a.constant};
        for (const Affine::Term& t : a.terms) {
            __int128 reach = static_cast<__int128>(t.factor) * (plan_.extents[t.var] - 1);
            (reach < 0 ? r.low : r.high) += reach;
        }
        return r;
    }
    bool fits(const Affine& a) const {
        Interval r = range(a);
        return r.low >= std::numeric_limits<int64_t>::min() / 4 && r.high <= std::numeric_limits<int64_t>::max() / 4;
    }

    std::optional<Affine> affine(const Expr& e) const {
        if (e.dtype() != DType::i64) return std::nullopt;
        Affine out;
        switch (e.kind()) {
            case ExprKind::Const: out.constant = e.node().integer; return out;
            case ExprKind::Var: {
                auto found = names_.find(e.node().name);
                if (found == names_.end() || found->second.empty()) return std::nullopt;
                if (found->second.back() >= 0) out.terms.push_back({found->second.back(), 1});
                return out;
            }
            case ExprKind::Add:
                for (const Expr& a : e.args()) {
                    auto term = affine(a);
                    if (!term || !add_scaled(out, *term, 1)) return std::nullopt;
                }
                break;
            case ExprKind::Mul: {
                out.constant = 1;
                for (const Expr& a : e.args()) {
                    auto factor = affine(a);
                    if (!factor) return std::nullopt;
                    if (!out.terms.empty()) std::swap(*factor, out);
                    if (!out.terms.empty()) return std::nullopt;
                    Affine product;
                    if (!add_scaled(product, *factor, out.constant)) return std::nullopt;
                    out = std::move(product);
                }
                break;
            }
            case ExprKind::Neg: {
                auto a = affine(e.arg(0));
                if (!a || !add_scaled(out, *a, -1)) return std::nullopt;
                break;
            }
            default: return std::nullopt;
        }
        if (!fits(out)) return std::nullopt;
        return out;
    }

    int constant(DType dtype, double real, int64_t integer) {
        return plan_.add({.op = Op::Const, .dtype = dtype, .real = real, .integer = integer});
    }

    int affine_node(Affine a) {
        if (a.terms.empty()) return constant(DType::i64, 0, a.constant);
        VarSet vars = a.vars();
        return plan_.add({.op = Op::Affine, .dtype = DType::i64, .vars = vars, .affine = std::move(a)});
    }

    Result<int> make(const Expr& e) {
        const ExprNode& n = e.node();
        switch (n.kind) {
            case ExprKind::Const: return constant(n.dtype, n.real, n.integer);
            case ExprKind::Var: {
                auto a = affine(e);
                if (!a) return Error(Code::E0409, "size {} is not known", n.name);
                return affine_node(std::move(*a));
            }
            case ExprKind::Load: return load(n);
            case ExprKind::Select: return select(n);
            case ExprKind::Reduce: return reduce(n);
            case ExprKind::Lt:
            case ExprKind::Le:
            case ExprKind::Eq:
                if (auto id = test(n)) return *id;
                break;
            case ExprKind::Add:
            case ExprKind::Mul:
            case ExprKind::Neg:
                if (auto a = affine(e)) return affine_node(std::move(*a));
                break;
            default: break;
        }
        return apply(n);
    }

    std::optional<int> test(const ExprNode& n) {
        auto a = affine(n.args[0]), b = affine(n.args[1]);
        if (!a || !b || !add_scaled(*b, *a, -1)) return std::nullopt;
        if (n.kind == ExprKind::Lt && __builtin_sub_overflow(b->constant, 1, &b->constant)) return std::nullopt;
        Interval r = range(*b);
        if (!fits(*b)) return std::nullopt;
        bool equals = n.kind == ExprKind::Eq;
        if (r.low > 0 || (!equals && r.low == 0) || (equals && r.low == 0 && r.high == 0))
            return constant(DType::boolean, 0, !equals || r.low == 0);
        if (r.high < 0) return constant(DType::boolean, 0, 0);
        VarSet vars = b->vars();
        return plan_.add(
            {.op = Op::Test, .dtype = DType::boolean, .equals = equals, .vars = vars, .affine = std::move(*b)});
    }

    Result<int> apply(const ExprNode& n) {
        if (!kBodyTypes.has(n.args[0].dtype()) || !kBodyTypes.has(n.dtype))
            return Error(Code::E0409, "cannot compute with {}", dtype_name(n.args[0].dtype()));
        PlanNode node{.op = Op::Apply, .kind = n.kind, .fn = n.fn, .dtype = n.dtype, .from = n.args[0].dtype()};
        int first = TRY(this->node(n.args[0]));
        if (n.args.size() == 1) return finish_apply(std::move(node), {first});
        int id = first;
        for (size_t i = 1; i < n.args.size(); ++i) {  // longer lists fold from the left
            int next = TRY(this->node(n.args[i]));
            id = finish_apply(node, {id, next});
        }
        return id;
    }
    int finish_apply(PlanNode node, std::vector<int> args) {
        for (int a : args) {
            node.vars |= plan_.nodes[a].vars;
            node.fallible |= plan_.nodes[a].fallible;
        }
        node.args = std::move(args);
        return plan_.add(std::move(node));
    }

    Result<int> load(const ExprNode& n) {
        CHECK(n.slot >= 0 && n.slot < static_cast<int>(inputs_.size()) && inputs_[n.slot], "load of input {}", n.slot);
        const Sizes& sizes = inputs_[n.slot]->sizes();
        CHECK(n.args.size() == sizes.size(), "{} indices into {}", n.args.size(), to_string(sizes));
        const bool opaque = !kBodyTypes.has(n.dtype);  // moved by element numbers, which are i64
        CHECK(inputs_[n.slot]->dtype() == (opaque ? DType::i64 : n.dtype), "a load of {} from {}", dtype_name(n.dtype),
              dtype_name(inputs_[n.slot]->dtype()));
        PlanNode node{.op = Op::Load, .dtype = opaque ? DType::i64 : n.dtype, .slot = n.slot};
        if (auto offset = flat_offset(n, *inputs_[n.slot])) {
            node.vars = offset->vars();
            node.affine = std::move(*offset);
            return plan_.add(std::move(node));
        }
        int64_t stride = 1;
        for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; --d) {
            auto index = affine(n.args[d]);
            Affine sum = node.affine;
            if (index && add_scaled(sum, *index, stride) && fits(sum)) {
                Interval r = range(*index);
                if (r.low < 0 || r.high >= sizes[d]) node.checks.push_back({*index, sizes[d], d});
                node.vars |= index->vars();
                node.affine = std::move(sum);
            } else {
                int id = TRY(this->node(n.args[d]));
                node.gathers.push_back({id, stride, sizes[d], d});
                node.vars |= plan_.nodes[id].vars;
            }
            // Wraps only for a tensor without elements, where no index is in bounds.
            stride = static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(sizes[d]));
        }
        node.fallible = !node.checks.empty() || !node.gathers.empty();
        return plan_.add(std::move(node));
    }

    // Where indices are not affine one by one but their offset is (a reshape), and all are known to be in bounds.
    std::optional<Affine> flat_offset(const ExprNode& n, const Tensor& t) const {
        bool plain = true;
        for (size_t d = 0; d < n.args.size(); ++d) {
            const ExprNode& index = n.args[d].node();
            if (index.reads || !index.low || !index.high || *index.low < 0 || *index.high >= t.sizes()[d])
                return std::nullopt;
            plain = plain && (index.kind == ExprKind::Const || index.kind == ExprKind::Var);
        }
        if (plain) return std::nullopt;
        Expr offset = 0;
        for (size_t d = 0; d < n.args.size(); ++d) offset = offset * t.sizes()[d] + n.args[d];
        auto a = affine(offset);
        if (!a) return std::nullopt;
        Interval r = range(*a);
        return r.low >= 0 && r.high < t.elements() ? a : std::nullopt;
    }

    Status conjuncts(const Expr& e, std::vector<int>& out) {
        if (e.is(ExprKind::And)) {
            for (const Expr& a : e.args()) TRY(conjuncts(a, out));
            return {};
        }
        out.push_back(TRY(node(e)));
        return {};
    }

    Result<int> select(const ExprNode& n) {
        std::vector<int> conditions;
        TRY(conjuncts(n.args[0], conditions));
        PlanNode node{.op = Op::Select, .dtype = n.dtype};
        int mask = -1;
        for (int c : conditions) {
            const PlanNode& condition = plan_.nodes[c];
            if (condition.op == Op::Const && !condition.integer) return this->node(n.args[2]);
            if (condition.op == Op::Const) continue;
            if (condition.op == Op::Test) {
                if (std::find(node.tests.begin(), node.tests.end(), c) == node.tests.end()) node.tests.push_back(c);
                node.vars |= condition.vars;
                continue;
            }
            PlanNode both{.op = Op::Apply, .kind = ExprKind::And, .dtype = DType::boolean, .from = DType::boolean};
            mask = mask < 0 ? c : finish_apply(std::move(both), {mask, c});
        }
        int then = TRY(this->node(n.args[1]));
        if (node.tests.empty() && mask < 0) return then;
        int otherwise = TRY(this->node(n.args[2]));
        node.args = {then, otherwise, mask};
        for (int a : node.args) {
            if (a < 0) continue;
            node.vars |= plan_.nodes[a].vars;
            node.fallible |= plan_.nodes[a].fallible;
        }
        return plan_.add(std::move(node));
    }

    Result<int> reduce(const ExprNode& n) {
        if (!kBodyTypes.has(n.dtype)) return Error(Code::E0409, "cannot compute with {}", dtype_name(n.dtype));
        PlanNode node{.op = Op::Reduce, .reduce_op = n.reduce_op, .dtype = n.dtype};
        std::vector<int64_t> extents;
        for (const ReduceAxis& axis : n.axes) {
            auto extent = axis.extent.as_int();
            if (!extent) return Error(Code::E0409, "size {} is not known", to_string(axis.extent));
            if (*extent <= 0) return identity(n.reduce_op, n.dtype);
            extents.push_back(*extent);
        }
        for (size_t i = 0; i < n.axes.size(); ++i) {
            int var = TRY(bind(n.axes[i].var.node().name, extents[i]));
            if (var >= 0) node.axes.push_back(var);
        }
        int value = TRY(this->node(n.args[0]));
        for (size_t i = n.axes.size(); i-- > 0;) unbind(n.axes[i].var.node().name);
        if (node.axes.empty()) return value;
        node.args = {value};
        node.vars = plan_.nodes[value].vars;
        for (int a : node.axes) node.vars &= ~bit_of(a);
        node.fallible = plan_.nodes[value].fallible;
        node.compensated = n.reduce_op == ReduceOp::Sum && n.dtype == DType::f64;
        return plan_.add(std::move(node));
    }

    int identity(ReduceOp op, DType dtype) {
        constexpr double kInf = std::numeric_limits<double>::infinity();
        switch (op) {
            case ReduceOp::Sum: return constant(dtype, 0, 0);
            case ReduceOp::Prod: return constant(dtype, 1, 1);
            case ReduceOp::Min: return constant(dtype, kInf, is_float(dtype) ? 0 : int_max(dtype));
            case ReduceOp::Max: return constant(dtype, -kInf, is_float(dtype) ? 0 : int_min(dtype));
        }
        return 0;
    }

    Plan& plan_;
    const std::vector<const Tensor*>& inputs_;
    std::unordered_map<Expr, int, ExprHash> memo_;
    std::unordered_map<std::string, std::vector<int>> names_;  // to variables, innermost last; -1: always 0
    VarSet visible_ = 0;
    int depth_ = 0;
};

}  // namespace

int64_t Affine::factor(int var) const {
    for (const Term& t : terms)
        if (t.var == var) return t.factor;
    return 0;
}

VarSet Affine::vars() const {
    VarSet set = 0;
    for (const Term& t : terms) set |= bit_of(t.var);
    return set;
}

int Plan::add(PlanNode node) {
    nodes.push_back(std::move(node));
    return static_cast<int>(nodes.size()) - 1;
}

int64_t Plan::extent_of(VarSet vars) const {
    int64_t product = 1;
    for (size_t v = 0; v < extents.size(); ++v)
        if (has_var(vars, static_cast<int>(v)) && __builtin_mul_overflow(product, extents[v], &product))
            return std::numeric_limits<int64_t>::max();
    return product;
}

Result<Plan> lower(const Expr& body, const std::vector<std::string>& indices, const Sizes& sizes,
                   const std::vector<const Tensor*>& inputs) {
    Plan plan;
    for (const Tensor* t : inputs) plan.slots.push_back(t ? Slot{t->dtype(), t->data(), t->sizes()} : Slot{});
    Lowering lowering(plan, inputs);
    for (size_t d = 0; d < sizes.size(); ++d) {
        int var = TRY(lowering.bind(indices[d], sizes[d]));
        if (var >= 0) plan.outputs.push_back(var);
    }
    plan.root = TRY(lowering.node(body));
    return plan;
}

int64_t work_of(const Plan& plan) {
    int64_t work = 0;
    for (const PlanNode& n : plan.nodes) {
        VarSet vars = n.vars;
        for (int a : n.axes) vars |= bit_of(a) | plan.nodes[n.args[0]].vars;
        if (__builtin_add_overflow(work, plan.extent_of(vars), &work)) return std::numeric_limits<int64_t>::max();
    }
    return work;
}

}  // namespace tessera::strip
