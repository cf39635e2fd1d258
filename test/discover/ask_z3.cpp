#include "base/random.h"
#include "discover/oracles.h"
#include "discover/prove/comprehension.h"

#ifdef TESSERA_TEST_Z3
#include <z3++.h>
#endif

namespace tessera {

Claim with_numbers(const Claim& claim, const std::vector<std::string>& sizes, int64_t least, uint64_t seed) {
    RandomStream random(seed, "numbers");
    Bindings numbers;
    for (size_t i = 0; i < sizes.size(); ++i)
        numbers.emplace(sizes[i], Expr(least + static_cast<int64_t>(random.bits(i) % 3)));
    Claim out = claim;
    for (auto& [name, shape] : out.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d) shape[d] = substitute(shape[d], numbers);
    for (auto& [name, value] : out.values)
        if (auto* list = std::get_if<std::vector<Expr>>(&value))
            for (Expr& e : *list) e = substitute(e, numbers);
    return out;
}

#ifndef TESSERA_TEST_Z3
bool has_z3() { return false; }
SecondOpinion ask_z3(const checker::Names&, const checker::Conjunction&) { return {}; }
SecondOpinion ask_z3(const Claim&, uint64_t) { return {}; }
#else
namespace {

constexpr unsigned kMilliseconds = 300;  // for one question
constexpr int64_t kMaxPoints = 48;       // of a sum that is written out

struct Beyond {
    std::string why;
};
struct SumOver {  // a size that has to be a number
    std::vector<std::string> sizes;
};

SecondOpinion answer(z3::solver& solver) {
    switch (solver.check()) {
        case z3::unsat: return {Opinion::Agrees};
        case z3::sat: {
            std::string model = fmt::format("{}", Z3_model_to_string(solver.ctx(), solver.get_model()));
            return {Opinion::Disagrees, std::move(model)};
        }
        default: return {Opinion::None, "Z3 does not know"};
    }
}

// A new one now and then, since it keeps what it was asked.
z3::context& shared_context() {
    static std::unique_ptr<z3::context> context;
    static int uses = 0;
    if (!context || ++uses % 64 == 0) context = std::make_unique<z3::context>();
    return *context;
}

z3::solver solver_of(z3::context& context) {
    z3::solver solver(context);
    z3::params params(context);
    params.set("timeout", kMilliseconds);
    solver.set(params);
    return solver;
}

z3::expr least(const z3::expr& a, const z3::expr& b) { return z3::ite(a <= b, a, b); }
z3::expr largest(const z3::expr& a, const z3::expr& b) { return z3::ite(a >= b, a, b); }

// The checker's arithmetic.
class OfNames {
  public:
    OfNames(z3::context& context, z3::solver& solver, const checker::Names& names)
        : context_(context), solver_(solver), names_(names) {}

    z3::expr sum(const checker::Whole& p) {
        z3::expr out = context_.int_val(0);
        for (const auto& [product, coefficient] : p) {
            z3::expr term = context_.int_val(coefficient);
            for (int a : product) term = term * atom(a);
            out = out + term;
        }
        return out;
    }

  private:
    z3::context& context_;
    z3::solver& solver_;
    const checker::Names& names_;
    std::map<int, z3::expr> known_;

    z3::expr atom(int id) {
        if (auto found = known_.find(id); found != known_.end()) return found->second;
        using Kind = checker::Names::Kind;
        const checker::Names::Entry entry = names_.at(id);
        z3::expr made = context_.int_const(fmt::format("a{}", id).c_str());
        std::vector<z3::expr> parts;
        for (const checker::Whole& p : entry.parts) parts.push_back(sum(p));
        switch (entry.kind) {
            case Kind::Variable: break;
            case Kind::Size: solver_.add(made >= 0); break;
            case Kind::Quotient:
            case Kind::Remainder: {
                const z3::expr rest = entry.kind == Kind::Quotient ? parts[0] - parts[1] * made : made;
                solver_.add(z3::implies(parts[1] >= 1, rest >= 0 && rest < parts[1]));
                break;
            }
            case Kind::Least: made = least(parts[0], parts[1]); break;
            case Kind::Largest: made = largest(parts[0], parts[1]); break;
            case Kind::Choice: {
                z3::expr all = context_.bool_val(true);
                for (size_t i = 2; i < parts.size(); ++i) all = all && parts[i] >= 0;
                made = z3::ite(all, parts[0], parts[1]);
                break;
            }
        }
        known_.emplace(id, made);
        return made;
    }
};

// One side: its value, and what must hold for it to be a number.
class Side {
  public:
    explicit Side(z3::context& context) : context_(context), demands(context) {}

    z3::expr integer(const Expr& e) {
        auto folded = [&](auto&& f) {
            z3::expr out = integer(e.arg(0));
            for (size_t i = 1; i < e.args().size(); ++i) out = f(out, integer(e.arg(i)));
            return out;
        };
        switch (e.kind()) {
            case ExprKind::Const: return context_.int_val(e.node().integer);
            case ExprKind::Var: {
                auto bound = bound_.find(e.node().name);
                return bound != bound_.end() ? context_.int_val(bound->second)
                                             : context_.int_const(e.node().name.c_str());
            }
            case ExprKind::Add: return folded([](const z3::expr& a, const z3::expr& b) { return a + b; });
            case ExprKind::Mul: return folded([](const z3::expr& a, const z3::expr& b) { return a * b; });
            case ExprKind::Min: return folded(least);
            case ExprKind::Max: return folded(largest);
            case ExprKind::FloorDiv:
            case ExprKind::Mod: {
                const z3::expr a = integer(e.arg(0)), b = integer(e.arg(1));
                return z3::ite(b == 0, context_.int_val(0), e.is(ExprKind::Mod) ? z3::mod(a, b) : a / b);
            }
            case ExprKind::Select: return z3::ite(truth(e.arg(0)), integer(e.arg(1)), integer(e.arg(2)));
            default: throw Beyond{"an index that is computed"};
        }
    }

    z3::expr real(const Expr& e) {
        switch (e.kind()) {
            case ExprKind::Const: return constant(e.node());
            case ExprKind::Load: {
                z3::expr_vector at(context_);
                for (const Expr& i : e.args()) at.push_back(integer(i));
                return function(fmt::format("x{}", e.node().slot), at);
            }
            case ExprKind::Add: return real(e.arg(0)) + real(e.arg(1));
            case ExprKind::Sub: return real(e.arg(0)) - real(e.arg(1));
            case ExprKind::Mul: return real(e.arg(0)) * real(e.arg(1));
            case ExprKind::Neg: return -real(e.arg(0));
            case ExprKind::Div: {
                const z3::expr above = real(e.arg(0)), below = real(e.arg(1));
                demand(below != 0);
                return above / below;
            }
            case ExprKind::Min: return least(real(e.arg(0)), real(e.arg(1)));
            case ExprKind::Max: return largest(real(e.arg(0)), real(e.arg(1)));
            case ExprKind::Select: {
                const z3::expr condition = truth(e.arg(0));
                path_.push_back(condition);
                const z3::expr then = real(e.arg(1));
                path_.back() = !condition;
                const z3::expr otherwise = real(e.arg(2));
                path_.pop_back();
                return z3::ite(condition, then, otherwise);
            }
            case ExprKind::Cast:
                if (e.arg(0).dtype() == DType::i64 && !e.arg(0).node().reads) return z3::to_real(integer(e.arg(0)));
                if (e.dtype() == e.arg(0).dtype() || e.dtype() == DType::f64) return real(e.arg(0));
                throw Beyond{"a cast"};
            case ExprKind::Reduce: return reduction(e);
            default: throw Beyond{"a function"};
        }
    }

  private:
    z3::context& context_;
    std::map<std::string, int64_t> bound_;
    std::vector<z3::expr> path_;

  public:
    z3::expr_vector demands;

  private:
    void demand(const z3::expr& what) {
        z3::expr here = context_.bool_val(true);
        for (const z3::expr& p : path_) here = here && p;
        demands.push_back(z3::implies(here, what));
    }

    z3::expr constant(const ExprNode& node) {
        double value = is_float(node.dtype) ? node.real : static_cast<double>(node.integer);
        int64_t below = 1;
        while (value != static_cast<double>(static_cast<int64_t>(value)) && below < (int64_t{1} << 30))
            value *= 2, below *= 2;
        if (!(std::abs(value) < 0x1p50) || value != static_cast<double>(static_cast<int64_t>(value)))
            throw Beyond{"a constant"};
        return context_.real_val(static_cast<int64_t>(value)) / context_.real_val(below);
    }

    z3::expr function(const std::string& name, const z3::expr_vector& at) {
        z3::sort_vector sorts(context_);
        for (unsigned i = 0; i < at.size(); ++i) sorts.push_back(context_.int_sort());
        return context_.function(name.c_str(), sorts, context_.real_sort())(at);
    }

    z3::expr truth(const Expr& c) {
        switch (c.kind()) {
            case ExprKind::Const: return context_.bool_val(c.node().integer != 0);
            case ExprKind::Not: return !truth(c.arg(0));
            case ExprKind::And: return truth(c.arg(0)) && truth(c.arg(1));
            case ExprKind::Or: return truth(c.arg(0)) || truth(c.arg(1));
            case ExprKind::Lt:
            case ExprKind::Le:
            case ExprKind::Eq:
            case ExprKind::Ne: break;
            default: throw Beyond{"a condition on values"};
        }
        if (c.arg(0).dtype() != DType::i64 || c.node().reads) throw Beyond{"a condition on values"};
        const z3::expr a = integer(c.arg(0)), b = integer(c.arg(1));
        return c.is(ExprKind::Lt) ? a < b : c.is(ExprKind::Le) ? a <= b : c.is(ExprKind::Eq) ? a == b : a != b;
    }

    z3::expr reduction(const Expr& e) {
        std::vector<int64_t> extents;
        int64_t points = 1;
        SumOver open;
        for (const ReduceAxis& axis : e.node().axes) {
            std::optional<int64_t> n = axis.extent.as_int();
            if (!n)
                for (std::string& s : free_symbols(axis.extent)) open.sizes.push_back(std::move(s));
            extents.push_back(n.value_or(1));
            points *= std::max<int64_t>(extents.back(), 0);
        }
        if (!open.sizes.empty()) throw open;
        if (points > kMaxPoints) throw Beyond{"a sum that is too long"};
        std::optional<z3::expr> out;
        for (int64_t p = 0; p < points; ++p) {
            int64_t rest = p;
            for (size_t i = extents.size(); i-- > 0;) {
                bound_[e.node().axes[i].var.node().name] = rest % extents[i];
                rest /= extents[i];
            }
            const z3::expr value = real(e.arg(0));
            switch (e.node().reduce_op) {
                case ReduceOp::Sum: out = out ? *out + value : value; break;
                case ReduceOp::Prod: out = out ? *out * value : value; break;
                case ReduceOp::Min: out = out ? least(*out, value) : value; break;
                case ReduceOp::Max: out = out ? largest(*out, value) : value; break;
            }
        }
        for (const ReduceAxis& axis : e.node().axes) bound_.erase(axis.var.node().name);
        if (out) return *out;
        if (e.node().reduce_op == ReduceOp::Sum) return context_.real_val(0);
        throw Beyond{"a maximum of nothing"};
    }
};

SecondOpinion ask_about(const Claim& claim, const std::vector<Comprehension>& roots) {
    SecondOpinion all{Opinion::Agrees};
    for (const Comprehension& root : roots) {
        z3::context& context = shared_context();
        z3::solver solver = solver_of(context);
        Side left(context), right(context);
        for (const std::string& s : size_symbols(claim)) solver.add(context.int_const(s.c_str()) >= 0);
        for (int64_t d = 0; d < root.shape.rank(); ++d) {
            const z3::expr o = context.int_const(fmt::format("_o{}", d).c_str());
            solver.add(o >= 0 && o < left.integer(root.shape[d]));
        }
        const z3::expr l = left.real(root.left), r = right.real(root.right);
        solver.add(left.demands);
        solver.add(l != r || !z3::mk_and(right.demands));
        SecondOpinion here = answer(solver);
        if (here.opinion != Opinion::Agrees) return here;
    }
    return all;
}

}  // namespace

bool has_z3() { return true; }

SecondOpinion ask_z3(const checker::Names& names, const checker::Conjunction& facts) {
    z3::context& context = shared_context();
    z3::solver solver = solver_of(context);
    OfNames of(context, solver, names);
    for (const checker::Whole& f : facts) solver.add(of.sum(f) >= 0);
    return answer(solver);
}

SecondOpinion ask_z3(const Claim& claim, uint64_t seed) {
    Claim numbered = claim;
    bool symbolic = true;
    for (int round = 0; round < 8; ++round) {
        Result<std::vector<Comprehension>> roots = comprehend(numbered);
        if (!roots.ok()) return {Opinion::None, roots.error().message()};
        try {
            SecondOpinion out = ask_about(numbered, *roots);
            out.symbolic = symbolic;
            return out;
        } catch (const SumOver& over) {
            numbered = with_numbers(numbered, over.sizes, 0, seed + static_cast<uint64_t>(round));
            symbolic = false;
        } catch (const Beyond& beyond) {
            return {Opinion::None, beyond.why};
        } catch (const z3::exception& e) {
            return {Opinion::None, e.msg()};
        }
    }
    return {};
}
#endif

}  // namespace tessera
