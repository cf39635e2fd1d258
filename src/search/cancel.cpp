#include "search/cancel.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::prover {
namespace {

std::string signature_of(const Factor& f) {
    switch (f.kind) {
        case Factor::Kind::Load: return "load " + std::to_string(f.slot);
        case Factor::Kind::Number: return "number";
        case Factor::Kind::Call: return f.name + std::to_string(f.args.size());
        case Factor::Kind::Extreme: return f.name;
    }
    return {};
}

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

void loads_inside(const Sum& s, std::vector<const Factor*>& out) {
    for (const Summand& t : s)
        for (const Factor& f : t.factors) {
            if (f.kind == Factor::Kind::Load) out.push_back(&f);
            for (const Sum& a : f.args) loads_inside(a, out);
        }
}

}  // namespace

Facts Cancel::facts(const Summand& t) const {
    Facts f = base_;
    f.add(t.guards);
    return f;
}

void Cancel::step(std::string text) {
    if (--search_.steps_left < 0) throw Unsupported{"too many steps"};
    steps_.push_back(std::string(static_cast<size_t>(depth_) * 2, ' ') + std::move(text));
}

Cancel::Numbered Cancel::numbered(int id, Summand t) const {
    Numbered n{id, std::move(t), {}, {}};
    for (const Factor& f : n.term.factors) n.signature.push_back(signature_of(f));
    n.sorted = n.signature;
    std::sort(n.sorted.begin(), n.sorted.end());
    return n;
}

bool Cancel::run(const Sum& terms) {
    for (const Summand& t : terms) waiting_.push_back(numbered(++next_id_, t));
    std::reverse(waiting_.begin(), waiting_.end());
    do {
        while (!waiting_.empty()) {
            Numbered n = std::move(waiting_.back());
            waiting_.pop_back();
            settle(std::move(n));
        }
    } while (cancel_one());
    for (Numbered& n : ready_) left_.push_back(std::move(n.term));
    return left_.empty();
}

void Cancel::substitute(Summand& t, const Atoms::Map& map) {
    Sum one{std::move(t)};
    substitute_in(atoms_, one, map);
    t = std::move(one[0]);
}

std::pair<Cancel::Numbered, Cancel::Numbered> Cancel::split(const Numbered& n, const Poly& guard) {
    step(fmt::format("split {} by {}", n.id, atoms_.print(guard)));
    Numbered yes = n, no = n;
    yes.id = ++next_id_;
    no.id = ++next_id_;
    yes.term.guards.push_back(guard);
    no.term.guards.push_back(-guard - Poly(1));
    return {std::move(yes), std::move(no)};
}

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
        for (int id : ids)
            if (atoms_[id].kind != Atom::Kind::Var)
                if ((outcome = resolve(n, id)) != Outcome::Nothing) break;
        if (outcome == Outcome::Nothing) outcome = lift_guards(n);
        if (outcome == Outcome::Nothing) outcome = collapse(n);
        if (outcome == Outcome::Nothing) outcome = square(n);
        if (outcome == Outcome::Split) return;
        if (outcome == Outcome::Nothing) break;
    }
    ready_.push_back(numbered(n.id, std::move(n.term)));
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
        std::vector<int> below = atoms_of(b.terms[0].key);
        for (const Mono& m : a.terms) {
            std::vector<int> above = atoms_of(m.key);
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
    auto [yes, no] = split(n, *undecided);
    waiting_.push_back(std::move(no));
    waiting_.push_back(std::move(yes));
    return Outcome::Split;
}

bool Cancel::cancel_one() {
    for (size_t i = 0; i < ready_.size(); ++i)
        for (size_t j = i + 1; j < ready_.size(); ++j) {
            bool up = ready_[i].term.coefficient.numerator > 0, other = ready_[j].term.coefficient.numerator > 0;
            if (up != other && ready_[i].sorted == ready_[j].sorted && cancel(i, j)) return true;
        }
    return false;
}

bool Cancel::cancel(size_t i, size_t j) {
    if (ready_[i].term.variables.size() < ready_[j].term.variables.size()) std::swap(i, j);
    const Numbered &t = ready_[i], &u = ready_[j];
    const size_t n = t.signature.size();
    Perm perm(n);
    std::vector<bool> taken(n);
    int tries = 0;
    std::function<bool(size_t)> place = [&](size_t k) {
        if (k == n) return ++tries <= 24 && cancel_as(i, j, perm);
        for (size_t c = 0; c < n && tries < 24; ++c) {
            if (taken[c] || t.signature[k] != u.signature[c]) continue;
            taken[c] = true;
            perm[k] = c;
            if (place(k + 1)) return true;
            taken[c] = false;
        }
        return false;
    };
    return place(0);
}

// u's variables by those of t, from equal indices.
bool Cancel::solve(const Summand& t, const Summand& u, const Perm& perm, Atoms::Map& map,
                   std::vector<std::pair<Poly, Poly>>& equations) {
    std::vector<std::pair<Poly, Poly>> hints;
    for (size_t k = 0; k < perm.size(); ++k) {
        const Factor &a = t.factors[k], &b = u.factors[perm[k]];
        if (a.index.size() != b.index.size() || a.args.size() != b.args.size()) return false;
        for (size_t d = 0; d < a.index.size(); ++d) equations.emplace_back(a.index[d], b.index[d]);
        for (size_t x = 0; x < a.args.size(); ++x) {
            std::vector<const Factor*> left, right;
            loads_inside(a.args[x], left);
            loads_inside(b.args[x], right);
            for (size_t m = 0; m < std::min(left.size(), right.size()); ++m)
                for (size_t d = 0; left[m]->slot == right[m]->slot && d < left[m]->index.size(); ++d)
                    hints.emplace_back(left[m]->index[d], right[m]->index[d]);
        }
    }
    auto visible = [&](const Poly& p, const Summand& owner) {
        std::vector<int> ids;
        atoms_.collect(p, ids);
        for (int id : ids) {
            const Atom& a = atoms_[id];
            if (a.kind != Atom::Kind::Var || a.size || search_.outputs.contains(id)) continue;
            bool own = std::find(owner.variables.begin(), owner.variables.end(), id) != owner.variables.end();
            bool outer = false;
            for (const Poly& g : base_.all()) outer |= atoms_.mentions(g, id);
            if (!own && !outer) return false;
        }
        return true;
    };
    // First with a variable alone, so that it is not solved for through one that others fix.
    for (int alone = 1; alone >= 0; --alone)
        for (bool progress = true; progress;) {
            progress = false;
            for (const auto* list : {&equations, &hints})
                for (const auto& [left, right] : *list) {
                    if (list == &hints && (!visible(left, t) || !visible(right, u))) continue;
                    int solved = 0;
                    int open = 0;
                    for (int v : u.variables)
                        if (!map.contains(v) && atoms_.mentions(right, v)) {
                            ++open;
                            int64_t c = right.coefficient(static_cast<uint64_t>(v));
                            if (c == 1 || c == -1) solved = v;
                        }
                    if (!solved || (alone && open != 1) || map.contains(solved)) continue;
                    int64_t c = right.coefficient(static_cast<uint64_t>(solved));
                    Poly others = right - Poly(c) * Poly::atom(solved);
                    if (atoms_.mentions(others, solved) || open != 1) continue;
                    Atoms::Map known = map;
                    Poly value = left - atoms_.substitute(others, known);
                    map.emplace(solved, c == 1 ? value : -value);
                    progress = true;
                }
        }
    // What only guards mention, in order.
    std::vector<int> unused;
    for (int v : t.variables) {
        bool used = false;
        for (const auto& [key, value] : map) used |= atoms_.mentions(value, v);
        if (!used) unused.push_back(v);
    }
    size_t next = 0;
    for (int v : u.variables)
        if (!map.contains(v)) {
            if (next == unused.size()) return false;
            map.emplace(v, Poly::atom(unused[next++]));
        }
    return true;
}

// Whether the map takes the integers onto the integers, one to one.
bool Cancel::unimodular(const Summand& t, const Summand& u, const Atoms::Map& map) const {
    const size_t n = t.variables.size();
    if (n != u.variables.size()) return false;
    std::vector<std::vector<int64_t>> m(n, std::vector<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
        Poly rest = map.at(u.variables[i]);
        for (size_t j = 0; j < n; ++j) {
            m[i][j] = rest.coefficient(static_cast<uint64_t>(t.variables[j]));
            rest = rest - Poly(m[i][j]) * Poly::atom(t.variables[j]);
        }
        for (int v : t.variables)
            if (atoms_.mentions(rest, v)) return false;
    }
    for (size_t c = 0; c < n; ++c) {  // by rows, with Euclid's steps
        for (size_t r = c + 1; r < n; ++r)
            while (m[r][c] != 0) {
                int64_t q = m[c][c] / m[r][c];
                for (size_t k = 0; k < n; ++k) m[c][k] -= q * m[r][k];
                std::swap(m[c], m[r]);
            }
        if (m[c][c] != 1 && m[c][c] != -1) return false;
    }
    return true;
}

bool Cancel::arguments_agree(const Summand& t, const Summand& u, const Perm& perm, const Facts& known,
                             std::vector<std::string>& proof) {
    const std::string margin(static_cast<size_t>(depth_) * 2, ' ');
    for (size_t k = 0; k < perm.size(); ++k)
        for (size_t x = 0; x < t.factors[k].args.size(); ++x) {
            const Sum &mine = t.factors[k].args[x], &theirs = u.factors[perm[k]].args[x];
            Sum difference = mine, other = negated(theirs);
            difference.insert(difference.end(), other.begin(), other.end());
            const size_t before = proof.size();
            proof.push_back(margin + "{");
            if (Cancel(search_, known, proof, depth_ + 1).run(difference)) {
                proof.push_back(margin + "}");
                continue;
            }
            if (t.factors[k].kind != Factor::Kind::Extreme) return false;
            proof.resize(before);
            if (!included(t.factors[k], theirs, known, proof) || !included(u.factors[perm[k]], mine, known, proof))
                return false;
        }
    return true;
}

bool Cancel::included(const Factor& extreme, const Sum& others, const Facts& known, std::vector<std::string>& proof) {
    const std::string margin(static_cast<size_t>(depth_) * 2, ' ');
    proof.push_back(margin + "[");
    if (!Cancel(search_, known, proof, depth_ + 1).run_inside(extreme.args[0], others, extreme.name == "max"))
        return false;
    proof.push_back(margin + "]");
    return true;
}

bool Cancel::run_inside(const Sum& points, const Sum& others, bool largest) {
    for (const Summand& t : points) waiting_.push_back(numbered(++next_id_, t));
    std::reverse(waiting_.begin(), waiting_.end());
    while (!waiting_.empty()) {
        Numbered n = std::move(waiting_.back());
        waiting_.pop_back();
        settle(std::move(n));
        for (const Numbered& ready : ready_) {
            bool found = false;
            for (size_t j = 0; j < others.size() && !found; ++j) found = is_inside(ready, others[j], j, largest);
            if (!found) return false;
        }
        ready_.clear();
    }
    return true;
}

// A value for each variable of the other, by which it is this point, or a number beyond that which this point is.
bool Cancel::is_inside(const Numbered& n, const Summand& other, size_t which, bool largest) {
    Atoms::Map solved;
    std::vector<std::pair<Poly, Poly>> equations;
    if (n.term.factors.size() != 1 || other.factors.size() != 1) return false;
    solve(n.term, other, {0}, solved, equations);
    Facts known = facts(n.term);
    auto number = [](const Sum& s) -> std::optional<Rational> {
        if (s.empty()) return Rational{0, 1};
        bool plain = s.size() == 1 && s[0].variables.empty() && s[0].guards.empty() && s[0].factors.empty();
        return plain ? std::optional(s[0].coefficient) : std::nullopt;
    };
    // What the values leave open may be anything that the guards allow.
    for (int64_t open = 0; open < (solved.size() < other.variables.size() ? 3 : 1); ++open) {
        Atoms::Map map = solved;
        for (int v : other.variables) map.try_emplace(v, Poly(open));
        Summand there = other;
        substitute(there, map);
        if (!std::all_of(there.guards.begin(), there.guards.end(), [&](const Poly& g) { return known.implies(g); }))
            continue;
        std::vector<std::string> values, proof;
        for (int v : other.variables) values.push_back(fmt::format("{} = {}", atoms_[v].name, atoms_.print(map.at(v))));
        std::optional<Rational> mine = number(n.term.factors[0].args[0]), theirs = number(there.factors[0].args[0]);
        if (mine && theirs) {
            Rational more = *theirs + Rational{-mine->numerator, mine->denominator};
            if (largest ? more.numerator < 0 : more.numerator > 0) continue;
            step(fmt::format("beyond {} {} with {}", n.id, which, fmt::join(values, "; ")));
            return true;
        }
        if (!arguments_agree(n.term, there, {0}, known, proof)) continue;
        step(fmt::format("inside {} {} with {}", n.id, which, fmt::join(values, "; ")));
        steps_.insert(steps_.end(), proof.begin(), proof.end());
        return true;
    }
    return false;
}

// The term with some of its factors replaced by a product of sums.
void Cancel::replace_by(const Numbered& n, std::vector<size_t> factors, const std::vector<Sum>& sums) {
    Sum made{n.term};
    std::sort(factors.rbegin(), factors.rend());
    for (size_t k : factors) made[0].factors.erase(made[0].factors.begin() + static_cast<std::ptrdiff_t>(k));
    for (const Sum& s : sums) {
        Sum next;
        for (const Summand& t : made)
            for (const Summand& v : s) {
                next.push_back(t);
                Summand& to = next.back();
                to.coefficient = to.coefficient * v.coefficient;
                to.variables.insert(to.variables.end(), v.variables.begin(), v.variables.end());
                to.guards.insert(to.guards.end(), v.guards.begin(), v.guards.end());
                to.factors.insert(to.factors.end(), v.factors.begin(), v.factors.end());
            }
        made = std::move(next);
    }
    for (Summand& t : made) waiting_.push_back(numbered(++next_id_, std::move(t)));
}

// The values of a maximum's points, where each is certain to be there or not to be there, and one only.
std::optional<std::vector<const Sum*>> Cancel::live_points(const Factor& extreme, const Facts& known) const {
    std::vector<const Sum*> live;
    for (const Summand& point : extreme.args[0]) {
        bool refuted = false, implied = point.variables.empty();
        for (const Poly& g : point.guards) {
            refuted = refuted || known.refutes(g);
            implied = implied && !refuted && known.implies(g);
        }
        if (refuted) continue;
        if (!implied) return {};
        live.push_back(&point.factors[0].args[0]);
    }
    return live;
}

// A maximum or minimum of which one point is not below (above) the others is that value.
Cancel::Outcome Cancel::collapse(Numbered& n) {
    for (size_t k = 0; k < n.term.factors.size(); ++k) {
        const Factor& f = n.term.factors[k];
        if (f.kind != Factor::Kind::Extreme || f.args[0].size() > 8) continue;
        Facts known = facts(n.term);
        std::optional<std::vector<const Sum*>> live = live_points(f, known);
        if (!live || live->empty()) continue;
        for (size_t j = 0; j < f.args[0].size(); ++j) {
            if (std::find(live->begin(), live->end(), &f.args[0][j].factors[0].args[0]) == live->end()) continue;
            // Only numbers, and what is written the same, are compared.
            const Sum& value = f.args[0][j].factors[0].args[0];
            auto is_number = [](const Sum& s) {
                return s.empty() || (s.size() == 1 && s[0].variables.empty() && s[0].factors.empty());
            };
            if (!std::all_of(live->begin(), live->end(),
                             [&](const Sum* s) { return *s == value || (is_number(*s) && is_number(value)); }))
                break;
            const Sum only{f.args[0][j]};
            std::vector<std::string> proof;
            if (!included(f, only, known, proof)) continue;
            step(fmt::format("collapse {} {} {}", n.id, k, j));
            steps_.insert(steps_.end(), proof.begin(), proof.end());
            replace_by(n, {k}, {value});
            return Outcome::Split;
        }
    }
    return Outcome::Nothing;
}

// r * r = r * p + r * q - p * q for the larger or smaller r of p and q.
Cancel::Outcome Cancel::square(Numbered& n) {
    for (size_t k = 0; k < n.term.factors.size(); ++k)
        for (size_t l = k + 1; l < n.term.factors.size(); ++l) {
            const Factor &r = n.term.factors[k], &other = n.term.factors[l];
            if (r.kind != Factor::Kind::Extreme || other.kind != r.kind || other.name != r.name) continue;
            Facts known = facts(n.term);
            std::optional<std::vector<const Sum*>> live = live_points(other, known);  // their variables go with it
            if (!live || live->size() != 2) continue;
            std::vector<std::string> proof;
            Summand left{{}, {}, {}, {r}}, right{{}, {}, {}, {other}};
            if (!arguments_agree(left, right, {0}, known, proof)) continue;
            step(fmt::format("square {} {} {}", n.id, k, l));
            steps_.insert(steps_.end(), proof.begin(), proof.end());
            const Sum p = *(*live)[0], q = *(*live)[1];
            replace_by(n, {l}, {p});
            replace_by(n, {l}, {q});
            replace_by(n, {k, l}, {p, negated(q)});
            return Outcome::Split;
        }
    return Outcome::Nothing;
}

bool Cancel::cancel_as(size_t i, size_t j, const Perm& perm) {
    Numbered t = ready_[i], u = ready_[j];
    Atoms::Map map;
    std::vector<std::pair<Poly, Poly>> equations;
    if (!solve(t.term, u.term, perm, map, equations)) return false;
    if (t.term.variables.size() > u.term.variables.size()) {
        // u sums over what t has cut: cut it too.
        for (int v : u.term.variables) {
            const Poly& value = map.at(v);
            for (int w : t.term.variables)
                for (const Mono& m : value.terms) {
                    std::vector<int> ids = atoms_of(m.key);
                    auto found = std::find(ids.begin(), ids.end(), w);
                    if (found == ids.end() || (ids.size() == 1 && (m.coefficient == 1 || m.coefficient == -1)))
                        continue;
                    ids.erase(found);
                    Poly divisor = m.coefficient < 0 ? -m.coefficient : m.coefficient;
                    bool sizes = true;
                    for (int f : ids) {
                        divisor = divisor * Poly::atom(f);
                        sizes &= atoms_[f].kind == Atom::Kind::Var && atoms_[f].size;
                    }
                    if (!sizes || !facts(u.term).implies(divisor - Poly(1))) continue;
                    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(j));
                    cut(u, v, divisor);
                    waiting_.push_back(std::move(u));
                    return true;
                }
        }
        return false;
    }
    if (!unimodular(t.term, u.term, map)) return false;
    Summand renamed = u.term;
    substitute(renamed, map);
    renamed.variables = t.term.variables;
    Facts joint = facts(t.term);
    joint.add(renamed.guards);
    if (joint.contradictory()) return false;
    for (size_t k = 0; k < perm.size(); ++k)
        for (size_t d = 0; d < t.term.factors[k].index.size(); ++d)
            if (!joint.equal(t.term.factors[k].index[d], renamed.factors[perm[k]].index[d])) return false;
    std::vector<std::string> proof;
    if (!arguments_agree(t.term, renamed, perm, joint, proof)) return false;

    // They agree where both are: cut off the rest.
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(std::max(i, j)));
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(std::min(i, j)));
    if (!t.term.variables.empty()) {
        std::vector<std::string> names, values;
        for (int v : t.term.variables) names.push_back(atoms_[v].name);
        for (int v : u.term.variables)
            values.push_back(fmt::format("{} = {}", atoms_[v].name, atoms_.print(map.at(v))));
        step(fmt::format("rename {} over {} with {}", u.id, fmt::join(names, " "), fmt::join(values, "; ")));
    }
    u.term = std::move(renamed);
    auto restrict_to = [&](Numbered& n, const Guards& guards) {
        for (const Poly& g : guards) {
            if (facts(n.term).implies(g)) continue;
            auto [yes, no] = split(n, g);
            n = std::move(yes);
            waiting_.push_back(std::move(no));
        }
    };
    const Guards of_t = t.term.guards, of_u = u.term.guards;
    restrict_to(t, of_u);
    restrict_to(u, of_t);
    step(fmt::format("merge {} {} order {}", t.id, u.id, fmt::join(perm, " ")));
    steps_.insert(steps_.end(), proof.begin(), proof.end());
    t.term.coefficient = t.term.coefficient + u.term.coefficient;
    if (t.term.coefficient.numerator != 0) waiting_.push_back(std::move(t));
    return true;
}

}  // namespace tessera::prover
