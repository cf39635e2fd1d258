#include "kernel/ir/enumerate_touches.h"

#include <algorithm>
#include <unordered_map>

#include "expr/simplify.h"
#include "kernel/ir/regions.h"

namespace tessera {
namespace {

constexpr int64_t kMostPoints = 1 << 19;

// Integer expressions over numbered variables, each evaluated many times.
class Evaluator {
  public:
    explicit Evaluator(std::vector<std::string> vars) : vars_(std::move(vars)), values(vars_.size()) {}

    // The number of an expression; none where it has something else than arithmetic on the variables.
    std::optional<size_t> add(const Expr& e) {
        Term t{e.kind(), 0, 0, {}};
        if (e.is(ExprKind::Const)) {
            t.constant = e.node().integer;
        } else if (e.is(ExprKind::Var)) {
            const auto found = std::find(vars_.begin(), vars_.end(), e.node().name);
            if (found == vars_.end()) return {};
            t.var = size_t(found - vars_.begin());
        } else {
            if (!computes(e.kind()) || e.node().reads) return {};
            for (const Expr& arg : e.args()) {
                const auto number = add(arg);
                if (!number) return {};
                t.args.push_back(*number);
            }
        }
        terms_.push_back(std::move(t));
        return terms_.size() - 1;
    }

    int64_t value(size_t number) const {
        const Term& t = terms_[number];
        if (t.kind == ExprKind::Const) return t.constant;
        if (t.kind == ExprKind::Var) return values[t.var];
        int64_t made = value(t.args[0]);
        for (size_t i = 1; i < t.args.size(); ++i) made = combine(t.kind, made, value(t.args[i]));
        return made;
    }

  private:
    struct Term {
        ExprKind kind;
        int64_t constant;
        size_t var;
        std::vector<size_t> args;
    };

    static bool computes(ExprKind k) {
        constexpr ExprKind kKinds[] = {ExprKind::Add, ExprKind::Mul, ExprKind::FloorDiv, ExprKind::Mod,
                                       ExprKind::Min, ExprKind::Max, ExprKind::BitXor,   ExprKind::Lt,
                                       ExprKind::Le,  ExprKind::Eq,  ExprKind::Ne,       ExprKind::And};
        return std::find(std::begin(kKinds), std::end(kKinds), k) != std::end(kKinds);
    }

    static int64_t combine(ExprKind kind, int64_t a, int64_t b) {
        switch (kind) {
            case ExprKind::Add: return a + b;
            case ExprKind::Mul: return a * b;
            case ExprKind::FloorDiv: return b == 0 ? 0 : floor_quotient(a, b);
            case ExprKind::Mod: return b == 0 ? 0 : floor_remainder(a, b);
            case ExprKind::Min: return std::min(a, b);
            case ExprKind::Max: return std::max(a, b);
            case ExprKind::BitXor: return a ^ b;
            case ExprKind::Lt: return a < b;
            case ExprKind::Le: return a <= b;
            case ExprKind::Eq: return a == b;
            case ExprKind::Ne: return a != b;
            default: return a && b;  // And
        }
    }

    const std::vector<std::string> vars_;
    std::vector<Term> terms_;

  public:
    std::vector<int64_t> values;
};

// Dimensions whose indices share variables, on either side.
struct Component {
    std::vector<size_t> dims;
    std::map<std::string, Expr> vars;
};

void add_vars(const Expr& e, std::map<std::string, Expr>& to) {
    visit(e, [&](const Expr& x) {
        if (x.is(ExprKind::Var)) to.emplace(x.node().name, x);
    });
}

std::vector<Component> components(const Touch& a, const Touch& b) {
    std::vector<Component> all;
    for (size_t d = 0; d < a.indices.size(); ++d) {
        Component made{{d}, {}};
        for (const Touch* side : {&a, &b}) add_vars(side->indices[d], made.vars);
        for (size_t c = all.size(); c-- > 0;) {
            const bool shares = std::any_of(all[c].vars.begin(), all[c].vars.end(),
                                            [&](const auto& v) { return made.vars.contains(v.first); });
            if (!shares) continue;
            made.dims.insert(made.dims.end(), all[c].dims.begin(), all[c].dims.end());
            made.vars.insert(all[c].vars.begin(), all[c].vars.end());
            all.erase(all.begin() + std::ptrdiff_t(c));
        }
        all.push_back(std::move(made));
    }
    return all;
}

bool mentioned_beside(const std::vector<Expr>& indices, size_t own, const Expr& var) {
    for (size_t i = 0; i < indices.size(); ++i)
        if (i != own && depends_on(indices[i], var)) return true;
    return false;
}

// An index without a variable that is a digit of its own there: equal indices have equal digits, so that the others
// decide whether they are equal.
std::optional<Expr> without_digit(const Expr& index, const Expr& var, const Expr& step) {
    const auto by = step.as_int();
    const auto &low = var.node().low, &high = var.node().high;
    if (!by || *by < 1 || low != 0 || !high) return {};
    const int64_t above = *by * (*high + 1);
    const Expr rest = substitute(index, {{var.node().name, Expr(0)}});
    Expr lower = 0, higher = 0;
    for (const Expr& part : rest.is(ExprKind::Add) ? rest.args() : std::vector<Expr>{rest}) {
        Expr& side = mod(part, above).is_int(0) ? higher : lower;
        side = side + part;
    }
    const auto within = bounds(lower);
    if (within.low.value_or(-1) < 0 || within.high.value_or(*by) >= *by) return {};
    return lower + floor_div(higher, *high + 1);
}

// Takes variables away from both sides that are digits of one index and stand in no other; gives their names. What
// conditions say about them is lost: there are more points, none fewer.
std::set<std::string> drop_digits(Touch& a, Touch& b) {
    std::set<std::string> dropped;
    for (size_t d = 0; d < a.indices.size(); ++d) {
        std::map<std::string, Expr> vars;
        add_vars(a.indices[d], vars);
        for (const auto& [name, var] : vars) {
            if (mentioned_beside(a.indices, d, var) || mentioned_beside(b.indices, d, var)) continue;
            const auto of_a = step_of(a.indices[d], var), of_b = step_of(b.indices[d], var);
            if (!of_a || !of_b || !(*of_a == *of_b)) continue;
            const auto rest_a = without_digit(a.indices[d], var, *of_a),
                       rest_b = without_digit(b.indices[d], var, *of_b);
            if (!rest_a || !rest_b) continue;
            a.indices[d] = *rest_a, b.indices[d] = *rest_b;
            dropped.insert(name);
        }
    }
    return dropped;
}

// What one side touches of a component: by element, the iteration that does; kSeveral where there are more.
class Points {
  public:
    static constexpr int64_t kSeveral = -1;

    Points(const Component& component, const AtOnce& at_once, const Kernel& kernel)
        : component_(component), at_once_(at_once), kernel_(kernel) {}

    // False where they cannot be listed.
    bool list(const Touch& t, const std::function<void(int64_t element, int64_t iteration)>& found) const {
        std::vector<std::string> names;
        std::vector<Expr> vars;
        int64_t count = 1;
        for (const auto& [name, var] : component_.vars) {
            const auto &low = var.node().low, &high = var.node().high;
            if (!low || !high || *high - *low >= kMostPoints) return false;
            count *= *high - *low + 1;
            if (count > kMostPoints || count <= 0) return false;
            names.push_back(name);
            vars.push_back(var);
        }
        Evaluator evaluator(names);
        std::vector<std::pair<size_t, int64_t>> indices;
        for (size_t d : component_.dims) {
            const auto number = evaluator.add(t.indices[d]);
            const auto size = kernel_.buffers[size_t(t.buffer)].shape[d].as_int();
            if (!number || !size) return false;
            indices.emplace_back(*number, *size);
        }
        std::vector<size_t> conditions;
        for (const Expr& c : t.conditions)
            for (const Expr& each : conjuncts(c))
                if (const auto number = evaluator.add(each)) conditions.push_back(*number);
        for (size_t i = 0; i < vars.size(); ++i) evaluator.values[i] = *vars[i].node().low;
        for (int64_t point = 0; point < count; ++point, next(vars, evaluator.values)) {
            const auto holds = [&](size_t c) { return evaluator.value(c) != 0; };
            if (!std::all_of(conditions.begin(), conditions.end(), holds)) continue;
            int64_t element = 0, iteration = 0;
            for (const auto& [number, size] : indices) {
                const int64_t at = evaluator.value(number);
                if (at < 0 || at >= size) return false;
                element = element * size + at;
            }
            for (size_t i = 0; i < vars.size(); ++i) {
                const int64_t at = evaluator.values[i], low = *vars[i].node().low, high = *vars[i].node().high;
                if (runs_at_once(names[i])) iteration = iteration * (high - low + 1) + at - low;
                // A variable that is the same on both sides says which element is meant as well.
                if (!runs_at_once(names[i]) && !is_own(t, names[i])) element = element * (high - low + 1) + at - low;
            }
            found(element, iteration);
        }
        return true;
    }

  private:
    static void next(const std::vector<Expr>& vars, std::vector<int64_t>& values) {
        for (size_t i = vars.size(); i-- > 0;) {
            if (++values[i] <= *vars[i].node().high) return;
            values[i] = *vars[i].node().low;
        }
    }

    bool runs_at_once(const std::string& name) const {
        return std::any_of(at_once_.vars.begin(), at_once_.vars.end(),
                           [&](const Expr& v) { return v.node().name == name; });
    }

    static bool is_own(const Touch& t, const std::string& name) {
        return std::find(t.own.begin(), t.own.end(), name) != t.own.end();
    }

    const Component& component_;
    const AtOnce& at_once_;
    const Kernel& kernel_;
};

// `covered`: variables that are equal where elements are.
bool apart_by_points(const Touch& a, const Touch& b, const AtOnce& at_once, const Kernel& kernel,
                     std::set<std::string> covered) {
    bool told = true;  // by equal elements, which iteration it is
    for (const Component& component : components(a, b)) {
        const Points points(component, at_once, kernel);
        std::unordered_map<int64_t, int64_t> first;
        const bool listed = points.list(a, [&](int64_t element, int64_t iteration) {
            auto [at, fresh] = first.try_emplace(element, iteration);
            if (!fresh && at->second != iteration) at->second = Points::kSeveral;
        });
        if (!listed) return false;
        bool meets = false, same = true;
        const bool other = points.list(b, [&](int64_t element, int64_t iteration) {
            const auto found = first.find(element);
            if (found == first.end()) return;
            meets = true;
            same &= found->second == iteration;
        });
        if (!other) return false;
        if (!meets) return true;
        told &= same;
        for (const auto& [name, var] : component.vars) covered.insert(name);
    }
    return told && std::all_of(at_once.vars.begin(), at_once.vars.end(), [&](const Expr& v) {
               return covered.contains(v.node().name) || (v.node().low && v.node().low == v.node().high);
           });
}

}  // namespace

bool apart_point_by_point(const Touch& a, const Touch& b, const AtOnce& at_once, const Kernel& kernel) {
    const Buffer& buffer = kernel.buffers[size_t(a.buffer)];
    if (a.anywhere || b.anywhere || !buffer.strides.empty() || a.own != b.own) return false;
    if (apart_by_points(a, b, at_once, kernel, {})) return true;
    Touch fewer_a = a, fewer_b = b;
    std::set<std::string> covered = drop_digits(fewer_a, fewer_b);
    return !covered.empty() && apart_by_points(fewer_a, fewer_b, at_once, kernel, std::move(covered));
}

}  // namespace tessera
