// What can be done with one term by itself.
#include <algorithm>

#include "discover/prove/cancel.h"

namespace tessera::prover {
namespace {

// Polynomials of a term that its own variables and those around it decide: not of what is bound further inside.
template <typename F>
void for_each_inside(const Sum& s, std::set<int>& bound, const F& f) {
    for (const Summand& t : s) {
        std::set<int> fresh;
        for (int v : t.variables)
            if (bound.insert(v).second) fresh.insert(v);
        for (const Poly& g : t.guards) f(g, bound, true);
        for (const Factor& x : t.factors) {
            for (const Poly& p : x.index) f(p, bound, false);
            for (const Sum& a : x.args) for_each_inside(a, bound, f);
        }
        for (int v : fresh) bound.erase(v);
    }
}

}  // namespace

// Brings a term as far as its own guards allow, and puts it among those to be cancelled.
void Cancel::settle(Numbered n) {
    for (;;) {
        // Guards that say nothing, or the same twice.
        Guards kept;
        for (const Poly& g : n.term.guards)
            if (!(g.is_constant() && g.constant() >= 0) && std::find(kept.begin(), kept.end(), g) == kept.end())
                kept.push_back(g);
        n.term.guards = std::move(kept);
        if (n.term.coefficient.numerator == 0 || facts(n.term).contradictory()) {
            step(fmt::format("drop {}", n.id));
            return;
        }
        if (eliminate_point(n) || drop_unused_sum(n)) continue;
        std::vector<int> ids;
        for (const Poly& g : n.term.guards) atoms_.collect(g, ids);
        for (const Factor& f : n.term.factors)
            for (const Poly& p : f.index) atoms_.collect(p, ids);
        std::set<int> bound;
        for (const Factor& f : n.term.factors)
            for (const Sum& a : f.args)
                for_each_inside(a, bound, [&](const Poly& p, const std::set<int>& hidden, bool) {
                    std::vector<int> inner;
                    atoms_.collect(p, inner);
                    for (int id : inner) {
                        Poly whole = Poly::atom(id);
                        bool visible = std::none_of(hidden.begin(), hidden.end(),
                                                    [&](int v) { return atoms_.mentions(whole, v); });
                        if (visible && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
                    }
                });
        Outcome outcome = Outcome::Nothing;
        n.undecided = false;
        for (int id : ids) {
            if (atoms_[id].kind == Atom::Kind::Var) continue;
            outcome = resolve(n, id);
            if (outcome == Outcome::Undecided) {
                n.undecided = true;
                outcome = Outcome::Nothing;
            }
            if (outcome != Outcome::Nothing) break;
        }
        if (outcome == Outcome::Nothing) outcome = lift_guards(n);
        if (outcome == Outcome::Undecided) {
            n.undecided = true;
            outcome = Outcome::Nothing;
        }
        if (outcome == Outcome::Nothing) outcome = collapse(n);
        if (outcome == Outcome::Nothing) outcome = square(n);
        if (outcome == Outcome::Nothing) outcome = unit(n);
        if (outcome == Outcome::Split) return;
        if (outcome == Outcome::Nothing) break;
    }
    const bool undecided = n.undecided;
    ready_.push_back(numbered(n.id, std::move(n.term)));
    ready_.back().undecided = undecided;
}

// A variable that its guards fix takes that value.
bool Cancel::eliminate_point(Numbered& n) {
    Summand& t = n.term;
    for (const Poly& g : t.guards) {
        if (std::find(t.guards.begin(), t.guards.end(), -g) == t.guards.end()) continue;
        for (size_t i = 0; i < t.variables.size(); ++i) {
            int v = t.variables[i];
            int64_t c = g.coefficient(static_cast<uint64_t>(v));
            if (c != 1 && c != -1) continue;
            Poly value = Poly::atom(v) - (c == 1 ? g : -g);
            if (atoms_.mentions(value, v)) continue;
            step(fmt::format("point {} {} = {}", n.id, atoms_[v].name, atoms_.print(value)));
            t.variables.erase(t.variables.begin() + static_cast<std::ptrdiff_t>(i));
            substitute(t, {{v, value}});
            return true;
        }
    }
    return false;
}

// A sum over what nothing mentions is a multiple.
bool Cancel::drop_unused_sum(Numbered& n) {
    Summand& t = n.term;
    for (size_t i = 0; i < t.variables.size(); ++i) {
        int v = t.variables[i];
        bool used = false;
        for (const Factor& f : t.factors) {
            for (const Poly& p : f.index) used |= atoms_.mentions(p, v);
            std::set<int> bound;
            for (const Sum& a : f.args)
                for_each_inside(a, bound,
                                [&](const Poly& p, const std::set<int>&, bool) { used |= atoms_.mentions(p, v); });
        }
        if (used) continue;
        std::optional<Poly> low, high;
        Guards rest;
        bool plain = true;
        for (const Poly& g : t.guards) {
            if (!atoms_.mentions(g, v)) {
                rest.push_back(g);
                continue;
            }
            int64_t c = g.coefficient(static_cast<uint64_t>(v));
            Poly other = g - Poly(c) * Poly::atom(v);
            if ((c != 1 && c != -1) || atoms_.mentions(other, v)) {
                plain = false;
            } else if (c == 1) {
                plain &= !low;
                low = -other;
            } else {
                plain &= !high;
                high = other;
            }
        }
        if (!plain || !low || !high) continue;
        Poly count = *high - *low + Poly(1);
        Facts known = base_;
        known.add(rest);
        if (!count.is_constant() || count.constant() < 0) continue;
        step(fmt::format("count {} {} from {} to {}", n.id, atoms_[v].name, atoms_.print(*low), atoms_.print(*high)));
        t.coefficient = t.coefficient * Rational{count.constant(), 1};
        t.guards = std::move(rest);
        t.variables.erase(t.variables.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
    }
    return false;
}

Cancel::Outcome Cancel::resolve(Numbered& n, int id) {
    const Atom a = atoms_[id];
    if (a.kind == Atom::Kind::Div || a.kind == Atom::Kind::Mod) return resolve_quotient(n, id);
    Facts known = facts(n.term);
    Poly guard;
    std::optional<Poly> value;
    if (a.kind == Atom::Kind::Select) {
        size_t i = 2;
        for (; i < a.args.size() && !value; ++i) {
            if (known.refutes(a.args[i])) {
                value = a.args[1];
            } else if (!known.implies(a.args[i])) {
                guard = a.args[i];
                break;
            }
        }
        if (!value && i == a.args.size()) value = a.args[0];
    } else {
        guard = a.args[1] - a.args[0];  // the first is the smaller
        bool least = a.kind == Atom::Kind::Min;
        if (known.implies(guard))
            value = a.args[least ? 0 : 1];
        else if (known.implies(-guard))
            value = a.args[least ? 1 : 0];
    }
    if (value) {
        step(fmt::format("choose {} {} = {}", n.id, atoms_.print(Poly::atom(id)), atoms_.print(*value)));
        substitute(n.term, {{id, *value}});
        return Outcome::Changed;
    }
    if (!split_choices_) return Outcome::Undecided;
    auto [yes, no] = split(n, guard);
    waiting_.push_back(std::move(no));
    waiting_.push_back(std::move(yes));
    return Outcome::Split;
}

Cancel::Outcome Cancel::resolve_quotient(Numbered& n, int id) {
    const Atom atom = atoms_[id];
    const Poly a = atom.args[0], b = atom.args[1];
    Facts known = facts(n.term);
    if (!known.implies(b - Poly(1))) return Outcome::Nothing;
    // What of a is a multiple of b as it stands.
    Poly whole;
    if (b.terms.size() == 1) {
        Product below = atoms_of(b.terms[0].key);
        for (const Mono& m : a.terms) {
            Product above = atoms_of(m.key);
            bool divides = m.coefficient % b.terms[0].coefficient == 0;
            for (int f : below) {
                auto found = std::find(above.begin(), above.end(), f);
                if (found == above.end())
                    divides = false;
                else
                    above.erase(found);
            }
            if (!divides) continue;
            uint64_t key = 0;
            for (int f : above) key = multiply_keys(key, static_cast<uint64_t>(f));
            Poly part;
            part.terms.push_back({key, m.coefficient / b.terms[0].coefficient});
            whole = whole + part;
        }
    }
    Poly rest = a - whole * b;
    auto at_least = [&](int64_t j) { return known.implies(rest - Poly(j) * b); };
    auto below = [&](int64_t j) { return known.implies(Poly(j) * b - Poly(1) - rest); };
    constexpr int64_t kLow = -4, kHigh = 12;
    auto use = [&](int64_t j) {
        Poly q = whole + Poly(j);
        step(fmt::format("quotient {} {} / {} = {}", n.id, atoms_.print(a), atoms_.print(b), atoms_.print(q)));
        Poly div = atoms_.make(Atom::Kind::Div, {a, b}), mod = atoms_.make(Atom::Kind::Mod, {a, b});
        Atoms::Map map;
        if (div.terms.size() == 1) map.emplace(static_cast<int>(div.terms[0].key), q);
        if (mod.terms.size() == 1) map.emplace(static_cast<int>(mod.terms[0].key), a - q * b);
        substitute(n.term, map);
        return Outcome::Changed;
    };
    if (at_least(0) && below(1)) return use(0);
    int64_t low = kLow;
    if (at_least(low) && below(kHigh)) {
        while (low + 1 < kHigh && at_least(low + 1)) ++low;
        if (below(low + 1)) return use(low);
        auto [yes, no] = split(n, rest - Poly(low + 1) * b);
        waiting_.push_back(std::move(yes));
        waiting_.push_back(std::move(no));
        return Outcome::Split;
    }
    // Cut one of the variables in it.
    for (int v : n.term.variables)
        if (rest.coefficient(static_cast<uint64_t>(v)) == 1) {
            cut(n, v, b);
            return Outcome::Changed;
        }
    for (int v : search_.outputs)
        if (rest.coefficient(static_cast<uint64_t>(v)) == 1) {
            if (search_.cut_outputs) throw CutOutput{v, b};
            search_.cut_wanted = true;
        }
    return Outcome::Nothing;
}

void Cancel::cut(Numbered& n, int v, const Poly& divisor) {
    std::string high = fmt::format("_c{}", ++search_.next_variable), low = fmt::format("_c{}", ++search_.next_variable);
    step(fmt::format("cut {} {} by {} into {} {}", n.id, atoms_[v].name, atoms_.print(divisor), high, low));
    int h = atoms_.variable(high), l = atoms_.variable(low);
    Summand& t = n.term;
    substitute(t, {{v, Poly::atom(h) * divisor + Poly::atom(l)}});
    *std::find(t.variables.begin(), t.variables.end(), v) = h;
    t.variables.push_back(l);
    t.guards.push_back(Poly::atom(l));
    t.guards.push_back(divisor - Poly(1) - Poly::atom(l));
}

// What the guards inside a function decide by the variables around it becomes a case of the whole term.
Cancel::Outcome Cancel::lift_guards(Numbered& n) {
    Facts known = facts(n.term);
    std::optional<Poly> undecided;
    std::set<int> bound;
    for (const Factor& f : n.term.factors)
        for (const Sum& a : f.args)
            for_each_inside(a, bound, [&](const Poly& p, const std::set<int>& hidden, bool guard) {
                if (!guard || undecided || p.is_constant()) return;
                for (int v : hidden)
                    if (atoms_.mentions(p, v)) return;
                if (!known.implies(p) && !known.refutes(p)) undecided = p;
            });
    if (!undecided) return Outcome::Nothing;
    if (!split_choices_) return Outcome::Undecided;
    auto [yes, no] = split(n, *undecided);
    waiting_.push_back(std::move(no));
    waiting_.push_back(std::move(yes));
    return Outcome::Split;
}

}  // namespace tessera::prover
