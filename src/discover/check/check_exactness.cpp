#include "discover/check/check_exactness.h"

#include <bit>
#include <cmath>

#include "discover/check/check_arithmetic.h"
#include "discover/check/check_statement.h"

namespace tessera {
namespace checker {
namespace {

constexpr int kSteps = 2000;

// Two elements of values of one graph, op by op. An op rounds what it gives, once; one that only chooses among numbers,
// or changes their sign, has nothing to round and is looked through.
class SameBits {
  public:
    explicit SameBits(Names& names) : names_(names) {}

    // The same bits wherever the facts hold. False where that does not show.
    bool same(Value* left, Value* right, const std::vector<Expr>& at, const Conjunction& facts) {
        return same(element(left, at), element(right, at), facts);
    }

  private:
    Names& names_;
    int steps_ = 0;
    std::vector<Value*> values_;  // that a load's slot stands for

    // A value's element as a load whose slot is the value's number here; what is known is put in.
    Expr element(Value* v, const std::vector<Expr>& at) {
        if (std::optional<Result<Expr>> known = known_element(v, at)) {
            if (!known->ok()) throw Refused{known->error().message()};
            return **known;
        }
        size_t slot = 0;
        while (slot < values_.size() && values_[slot] != v) ++slot;
        if (slot == values_.size()) values_.push_back(v);
        return load(static_cast<int>(slot), v->type().tensor().dtype, at);
    }

    Value* value_of(const Expr& load) const { return values_[static_cast<size_t>(load.node().slot)]; }
    bool is_computed(const Expr& e) const { return e.is(ExprKind::Load) && value_of(e)->kind() == Value::Kind::Result; }

    // What an op computes for one element, of elements of its inputs.
    Expr computed(const Expr& load) {
        Value* v = value_of(load);
        Node& node = *v->node();
        const OpDef& op = node.op();
        if (!op.body || (op.body_applies && !op.body_applies(node.view()))) throw Refused{"an op without a body"};
        OpView view = node.view();
        view.for_output(v->index());
        const Expr body = op.body(view, Indices(load.args()));
        visit(body, [](const Expr& e) {
            if (e.is(ExprKind::Reduce)) throw Refused{"the order of a sum or an extremum is the kernel's"};
        });
        return map_loads(body, [&](const Expr& inner) {
            return element(node.input(static_cast<size_t>(inner.node().slot)), inner.args());
        });
    }

    static bool is_number(const Expr& e, double value) {
        return e.is(ExprKind::Const) && is_float(e.dtype()) && e.node().real == value;
    }

    // x * 1, -(-x), max(max(x, c), c) and min alike have the bits of what is inside.
    static Expr plain(Expr e) {
        for (;;) {
            if (e.is(ExprKind::Mul) && is_number(e.arg(1), 1))
                e = Expr(e.arg(0));
            else if (e.is(ExprKind::Mul) && is_number(e.arg(0), 1))
                e = Expr(e.arg(1));
            else if (e.is(ExprKind::Neg) && e.arg(0).is(ExprKind::Neg))
                e = Expr(e.arg(0).arg(0));
            else if ((e.is(ExprKind::Max) || e.is(ExprKind::Min)) && e.arg(0).kind() == e.kind() &&
                     e.arg(1).is(ExprKind::Const) && e.arg(0).arg(1) == e.arg(1))
                e = Expr(e.arg(0));
            else
                return e;
        }
    }

    // Whether it gives a number that is no element of its inputs, nor one's opposite or absolute value.
    static bool rounds(const Expr& body) {
        bool found = false;
        std::function<void(const Expr&)> walk = [&](const Expr& any) {
            const Expr e = plain(any);
            if (found || e.is(ExprKind::Load) || e.is(ExprKind::Const) || !is_float(e.dtype())) return;
            switch (e.kind()) {
                case ExprKind::Select: walk(e.arg(1)), walk(e.arg(2)); return;
                case ExprKind::Neg:
                case ExprKind::Max:
                case ExprKind::Min:
                    for (const Expr& a : e.args()) walk(a);
                    return;
                case ExprKind::Call:
                    found = e.node().fn != Fn::Abs;
                    if (!found) walk(e.arg(0));
                    return;
                default: found = true;
            }
        };
        walk(body);
        return found;
    }

    // With what rounds nothing put in for its loads.
    Expr seen_through(const Expr& e) {
        if (++steps_ > kSteps) throw Refused{"too many steps"};
        return plain(map_loads(e, [&](const Expr& inner) {
            if (!is_computed(inner)) return inner;
            const Expr body = computed(inner);
            return rounds(body) ? inner : seen_through(body);
        }));
    }

    bool same(const Expr& left, const Expr& right, const Conjunction& facts) {
        if (++steps_ > kSteps) return false;
        const Expr l = seen_through(left), r = seen_through(right);
        if (chooses(l)) return in_each_case(l, facts, [&](const Expr& e, const auto& f) { return same(e, r, f); });
        if (chooses(r)) return in_each_case(r, facts, [&](const Expr& e, const auto& f) { return same(l, e, f); });
        if (l.kind() != r.kind() || l.dtype() != r.dtype() || l.args().size() != r.args().size()) return false;
        switch (l.kind()) {
            case ExprKind::Const:
                return std::bit_cast<uint64_t>(l.node().real) == std::bit_cast<uint64_t>(r.node().real) &&
                       l.node().integer == r.node().integer;
            case ExprKind::Load: return same_element(l, r, facts);
            case ExprKind::Add:
            case ExprKind::Mul:
                return arguments(l, r, facts) || (same(l.arg(0), r.arg(1), facts) && same(l.arg(1), r.arg(0), facts));
            case ExprKind::Call: return l.node().fn == r.node().fn && arguments(l, r, facts);
            case ExprKind::Cast:
                if (l.arg(0).dtype() != r.arg(0).dtype()) return false;
                if (l.arg(0).dtype() == DType::i64 && !l.arg(0).node().reads && !r.arg(0).node().reads)
                    return names_.equal(facts, names_.read(l.arg(0)), names_.read(r.arg(0)));
                return arguments(l, r, facts);
            case ExprKind::Neg:
            case ExprKind::Sub:
            case ExprKind::Div:
            case ExprKind::Pow:
            case ExprKind::Max:
            case ExprKind::Min:
            case ExprKind::Select:
            case ExprKind::Lt:
            case ExprKind::Le:
            case ExprKind::Eq:
            case ExprKind::Not:
            case ExprKind::And:
            case ExprKind::Or: return arguments(l, r, facts);
            default: return false;
        }
    }

    // One element of an input, or two results that are rounded alike.
    bool same_element(const Expr& l, const Expr& r, const Conjunction& facts) {
        if (is_computed(l) != is_computed(r)) return false;
        if (!is_computed(l)) {
            if (value_of(l) != value_of(r)) return false;
            for (size_t d = 0; d < l.args().size(); ++d)
                if (!names_.equal(facts, names_.read(l.arg(d)), names_.read(r.arg(d)))) return false;
            return true;
        }
        return same(computed(l), computed(r), facts);
    }

    // A choice by indices alone, of numbers.
    static bool chooses(const Expr& e) {
        if (!e.is(ExprKind::Select) || !is_float(e.dtype()) || e.arg(0).node().reads) return false;
        bool floats = false;
        visit(e.arg(0), [&](const Expr& part) { floats = floats || is_float(part.dtype()); });
        return !floats;
    }

    template <typename Same>
    bool in_each_case(const Expr& choice, const Conjunction& facts, const Same& same) {
        for (bool holds : {true, false})
            for (const Conjunction& c : names_.read(choice.arg(0), holds)) {
                Conjunction here = facts;
                here.insert(here.end(), c.begin(), c.end());
                if (!names_.impossible(here) && !same(choice.arg(holds ? 1 : 2), here)) return false;
            }
        return true;
    }

    bool arguments(const Expr& l, const Expr& r, const Conjunction& facts) {
        for (size_t i = 0; i < l.args().size(); ++i)
            if (!same(l.arg(i), r.arg(i), facts)) return false;
        return true;
    }
};

bool same_bits(Value* left, Value* right) {
    const Shape& shape = left->type().tensor().shape;
    Names names;
    Conjunction facts;
    for (int64_t d = 0; d < shape.rank(); ++d) {
        const Whole index{{{names.declare("_o" + std::to_string(d), Names::Kind::Variable)}, 1}};
        facts.push_back(index);
        facts.push_back(plus(plus(names.read(shape[d]), constant_whole(-1)), index, -1));
    }
    return SameBits(names).same(left, right, output_indices(shape), facts);
}

// A number that stands for one float only: 0.1 stands for what rounds to it, and 0 for both zeros.
bool one_float(const Term& literal) {
    if (literal.number == 0) return literal.has_point;
    return static_cast<double>(static_cast<float>(literal.number)) == literal.number;
}

bool literals_are_floats(const Term& term) {
    for (const Term& a : term.args)
        if (a.form == Term::Form::Number ? !one_float(a) : a.form == Term::Form::Op && !literals_are_floats(a))
            return false;
    for (const auto& [name, value] : term.attrs)
        if (value.form == Term::Form::Number && value.kind == TermKind::Float && value.number == 0) return false;
    return true;
}

}  // namespace
}  // namespace checker

Exactness exactness_of(const Claim& claim) {
    for (const Term& t : claim.rule.pattern)
        if (!checker::literals_are_floats(t)) return Exactness::Reassociates;
    bool exact = true;
    Status read =
        checker::read_sides(claim, [&](Graph&, const std::vector<Value*>& left, const std::vector<Value*>& right) {
            try {
                for (size_t i = 0; i < left.size(); ++i) exact = exact && checker::same_bits(left[i], right[i]);
            } catch (const checker::Refused&) {
                exact = false;
            }
            return Status();
        });
    return read.ok() && exact ? Exactness::Exact : Exactness::Reassociates;
}

}  // namespace tessera
