#include "discover/prove/cancel.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::prover {
namespace {

// Of a search inside another one.
constexpr int kStepsInside = 1000;
constexpr int64_t kRowsInside = 20'000;

std::string signature_of(const Factor& f) {
    switch (f.kind) {
        case Factor::Kind::Load: return "load " + std::to_string(f.slot);
        case Factor::Kind::Number: return "number";
        case Factor::Kind::Call: return f.name + std::to_string(f.args.size());
        case Factor::Kind::Extreme: return f.name;
    }
    return {};
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
    search_.atoms.stop_when_late();
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
    } while (cancel_one() || split_undecided() || use_signs() || (search_.write_out && write_out()));
    for (Numbered& n : ready_) left_.push_back(std::move(n.term));
    return left_.empty();
}

// What does not cancel as it is may do so in cases.
bool Cancel::split_undecided() {
    if (split_choices_) return false;
    split_choices_ = true;
    bool some = false;
    std::vector<Numbered> kept;
    for (Numbered& n : ready_) {
        some = some || n.undecided;
        (n.undecided ? waiting_ : kept).push_back(std::move(n));
    }
    ready_ = std::move(kept);
    std::reverse(waiting_.begin(), waiting_.end());
    return some;
}

// A search inside another one: if it takes too long, it fails, and the other goes on.
bool Cancel::within_budget(const std::function<bool()>& search) {
    const int steps = search_.steps_left, its_steps = std::min(steps, kStepsInside);
    const int64_t rows = atoms_.rows_left, its_rows = std::min(rows, kRowsInside);
    search_.steps_left = its_steps;
    atoms_.rows_left = its_rows;
    bool found = false;
    try {
        found = search();
    } catch (const Unsupported&) {
        if (search_.steps_left >= 0 && atoms_.rows_left >= 0) throw;
    }
    search_.steps_left = steps - (its_steps - std::max(search_.steps_left, 0));
    atoms_.rows_left = rows - (its_rows - std::max<int64_t>(atoms_.rows_left, 0));
    return found;
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

bool Cancel::cancel_one() {
    for (size_t i = 0; i < ready_.size(); ++i)
        for (size_t j = i + 1; j < ready_.size(); ++j) {
            bool up = ready_[i].term.coefficient.numerator > 0, other = ready_[j].term.coefficient.numerator > 0;
            if (up != other && ready_[i].sorted == ready_[j].sorted && cancel(i, j)) return true;
        }
    return false;
}

// Where one sum runs over values of which another has one, apart from the rest: the term at that value.
bool Cancel::write_out() {
    for (size_t i = 0; i < ready_.size(); ++i)
        for (size_t j = 0; j < ready_.size(); ++j) {
            const Summand &t = ready_[i].term, &u = ready_[j].term;
            const bool up = t.coefficient.numerator > 0, other = u.coefficient.numerator > 0;
            if (up == other || t.variables.size() <= u.variables.size() || ready_[i].signature != ready_[j].signature)
                continue;
            for (size_t k = 0; k < t.factors.size(); ++k)
                for (size_t d = 0; d < std::min(t.factors[k].index.size(), u.factors[k].index.size()); ++d)
                    if (write_out_at(i, t.factors[k].index[d], u.factors[k].index[d])) return true;
        }
    return false;
}

// The sum's term where a variable of it, `index`, has this value.
bool Cancel::write_out_at(size_t i, const Poly& index, const Poly& value) {
    Numbered n = ready_[i];
    if (!value.is_constant() ||
        std::none_of(n.term.variables.begin(), n.term.variables.end(), [&](int v) { return index == Poly::atom(v); }))
        return false;
    const Poly above = index - value;
    Facts there = facts(n.term);
    there.add(above);
    there.add(-above);
    if (there.contradictory()) return false;
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(i));
    for (const Poly& side : {above, -above}) {
        if (facts(n.term).implies(side)) continue;
        auto [yes, no] = split(n, side);
        waiting_.push_back(std::move(no));
        n = std::move(yes);
    }
    waiting_.push_back(std::move(n));
    return true;
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
            if (within_budget([&] { return Cancel(search_, known, proof, depth_ + 1).run(difference); })) {
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
                    Product ids = atoms_of(m.key);
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
