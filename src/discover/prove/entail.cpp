#include "discover/prove/entail.h"

#include <algorithm>

#include "base/gcd.h"
#include "expr/simplify.h"

namespace tessera::prover {
namespace {

constexpr size_t kMaxRows = 600;

// Divides by the common divisor of the coefficients, which tightens the constant. False: it can never hold.
bool tighten(Poly& p) {
    int64_t g = 0;
    for (const Mono& m : p.terms)
        if (m.key) g = gcd_of(g, m.coefficient);
    if (g == 0) return p.constant() >= 0;
    if (g == 1) return true;
    int64_t c = floor_quotient(p.constant(), g);
    Poly out = c;
    for (const Mono& m : p.terms)
        if (m.key) out.terms.push_back({m.key, m.coefficient / g});
    p = std::move(out);
    return true;
}

// Rows by their coefficients without the constant, of which the smallest counts.
class System {
  public:
    bool impossible = false;

    void add(Poly p) {
        if (impossible) return;
        if (!tighten(p)) {
            impossible = true;
            return;
        }
        if (p.is_constant()) return;
        int64_t c = p.constant();
        if (p.terms[0].key == 0) p.terms.erase(p.terms.begin());
        // Two that leave no room between them.
        Poly opposite = -p;
        if (auto other = rows_.find(opposite); other != rows_.end() && c + other->second < 0) {
            impossible = true;
            return;
        }
        auto [it, fresh] = rows_.try_emplace(std::move(p), c);
        if (!fresh && c < it->second) it->second = c;
    }

    bool solve() {
        while (!impossible && !rows_.empty()) {
            if (rows_.size() > kMaxRows) return false;
            std::map<uint64_t, std::pair<int, int>> counts;
            for (const auto& [p, c] : rows_)
                for (const Mono& m : p.terms) (m.coefficient > 0 ? counts[m.key].first : counts[m.key].second)++;
            uint64_t best = 0;
            long cost = 0;
            for (const auto& [key, n] : counts) {
                long here = static_cast<long>(n.first) * n.second - n.first - n.second;
                if (best == 0 || here < cost) best = key, cost = here;
            }
            eliminate(best);
        }
        return impossible;
    }

  private:
    std::map<Poly, int64_t> rows_;

    void eliminate(uint64_t key) {
        std::vector<std::pair<Poly, int64_t>> above, below;
        for (auto it = rows_.begin(); it != rows_.end();) {
            Poly p = it->first;
            if (it->second) p = p + Poly(it->second);
            int64_t c = p.coefficient(key);
            if (c == 0) {
                ++it;
                continue;
            }
            (c > 0 ? above : below).emplace_back(std::move(p), c > 0 ? c : -c);
            it = rows_.erase(it);
        }
        for (const auto& [p, a] : above)
            for (const auto& [q, b] : below) {
                int64_t g = gcd_of(a, b);
                add(p * Poly(b / g) + q * Poly(a / g));
                if (impossible) return;
            }
    }
};

// What is known of the atoms in `facts`, added to them.
void describe(Atoms& atoms, Guards& facts) {
    std::vector<int> ids;
    for (size_t i = 0; i < facts.size(); ++i) atoms.collect(facts[i], ids);
    auto positive = [&](const Poly& p) {  // at least 1, as far as it is plain
        if (p.is_constant()) return p.constant() >= 1;
        Facts known(atoms);
        known.add(facts);
        // Without quotients, so that this ends.
        System s;
        for (const Poly& f : facts) s.add(f);
        for (int id : ids)
            if (atoms[id].kind == Atom::Kind::Var && atoms[id].size) s.add(Poly::atom(id));
        s.add(-p);
        return s.solve();
    };
    const size_t given = ids.size();
    for (size_t i = 0; i < given; ++i) {
        const Atom a = atoms[ids[i]];
        Poly x = Poly::atom(ids[i]);
        switch (a.kind) {
            case Atom::Kind::Var:
                if (a.size) facts.push_back(x);
                break;
            case Atom::Kind::Div:
                if (positive(a.args[1])) {
                    Poly rest = a.args[0] - a.args[1] * x;
                    facts.push_back(rest);
                    facts.push_back(a.args[1] - Poly(1) - rest);
                }
                break;
            case Atom::Kind::Mod:
                if (positive(a.args[1])) {
                    facts.push_back(x);
                    facts.push_back(a.args[1] - Poly(1) - x);
                }
                break;
            case Atom::Kind::Min:
                for (const Poly& p : a.args) facts.push_back(p - x);
                break;
            case Atom::Kind::Max:
                for (const Poly& p : a.args) facts.push_back(x - p);
                break;
            case Atom::Kind::Select: break;
        }
    }
}

// For each product of a size and something else, the facts about that something times the size.
void multiply(const Atoms& atoms, Guards& facts) {
    std::vector<std::pair<int, uint64_t>> products;  // size, the rest
    for (const Poly& p : facts)
        for (const Mono& m : p.terms) {
            std::vector<int> ids = atoms_of(m.key);
            if (ids.size() < 2) continue;
            for (size_t i = 0; i < ids.size(); ++i) {
                if (atoms[ids[i]].kind != Atom::Kind::Var || !atoms[ids[i]].size) continue;
                uint64_t rest = 0;
                for (size_t j = 0; j < ids.size(); ++j)
                    if (j != i) rest = multiply_keys(rest, static_cast<uint64_t>(ids[j]));
                std::pair<int, uint64_t> product{ids[i], rest};
                if (std::find(products.begin(), products.end(), product) == products.end()) products.push_back(product);
            }
        }
    if (products.empty()) return;
    std::vector<Poly> more;
    for (const auto& [size, rest] : products)
        for (const Poly& f : facts) {
            if (f.coefficient(rest) == 0) continue;
            bool plain = true;
            for (const Mono& m : f.terms) plain &= atoms_of(m.key).size() < 3;
            if (!plain) continue;
            Poly p = f * Poly::atom(size);
            if (std::find(more.begin(), more.end(), p) == more.end()) more.push_back(std::move(p));
        }
    facts.insert(facts.end(), more.begin(), more.end());
}

bool infeasible(Atoms& atoms, Guards facts) {
    {
        System quick;
        for (const Poly& f : facts) quick.add(f);
        if (quick.impossible) return true;
    }
    describe(atoms, facts);
    multiply(atoms, facts);
    System s;
    for (const Poly& f : facts) s.add(f);
    return s.solve();
}

// The facts that have atoms in common with that at `from`, directly or through others, taken out of `facts`. What
// contradicts itself does so within one such group.
Guards take_group(Guards& facts, std::vector<std::vector<int>>& ids, size_t from) {
    std::vector<bool> reached;
    Guards group;
    std::vector<size_t> open{from};
    std::vector<bool> taken(facts.size());
    taken[from] = true;
    while (!open.empty()) {
        size_t i = open.back();
        open.pop_back();
        group.push_back(facts[i]);
        for (int id : ids[i]) {
            if (static_cast<size_t>(id) >= reached.size()) reached.resize(static_cast<size_t>(id) + 1);
            if (reached[static_cast<size_t>(id)]) continue;
            reached[static_cast<size_t>(id)] = true;
            for (size_t j = 0; j < facts.size(); ++j)
                if (!taken[j] && std::find(ids[j].begin(), ids[j].end(), id) != ids[j].end()) {
                    taken[j] = true;
                    open.push_back(j);
                }
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < facts.size(); ++i)
        if (!taken[i]) {
            std::swap(facts[kept], facts[i]);
            std::swap(ids[kept++], ids[i]);
        }
    facts.resize(kept);
    ids.resize(kept);
    return group;
}

std::vector<std::vector<int>> atoms_of_each(const Atoms& atoms, const Guards& facts) {
    std::vector<std::vector<int>> ids(facts.size());
    for (size_t i = 0; i < facts.size(); ++i) atoms.collect(facts[i], ids[i]);
    return ids;
}

}  // namespace

bool Facts::contradictory() const {
    Guards facts = known_;
    std::vector<std::vector<int>> ids = atoms_of_each(*atoms_, facts);
    while (!facts.empty())
        if (infeasible(*atoms_, take_group(facts, ids, 0))) return true;
    return false;
}

bool Facts::implies(const Poly& p) const {
    if (p.is_constant()) return p.constant() >= 0;
    Guards facts = known_;
    facts.push_back(-p - Poly(1));
    std::vector<std::vector<int>> ids = atoms_of_each(*atoms_, facts);
    return infeasible(*atoms_, take_group(facts, ids, facts.size() - 1));
}

}  // namespace tessera::prover
