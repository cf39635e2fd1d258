#include "discover/prove/entail.h"

#include <algorithm>

#include "base/gcd.h"
#include "base/hash.h"
#include "expr/simplify.h"

namespace tessera::prover {
namespace {

constexpr size_t kMaxRows = 600, kUsualRows = 24;

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

// A row of which the constant stands apart.
struct Row {
    Poly p;
    int64_t constant = 0;
    uint64_t hash = 0;  // that of -p is its negative
};

uint64_t linear_hash(const Poly& p) {
    uint64_t h = 0;
    for (const Mono& m : p.terms) h += mix(0, m.key) * static_cast<uint64_t>(m.coefficient);
    return h;
}

// Rows by their coefficients without the constant, of which the smallest counts.
class System {
  public:
    bool impossible = false;

    System() { rows_.reserve(kUsualRows); }

    void add(Poly p) {
        if (impossible) return;
        if (!tighten(p)) {
            impossible = true;
            return;
        }
        if (p.is_constant()) return;
        const int64_t c = p.constant();
        if (p.terms[0].key == 0) p.terms.erase_first();
        const uint64_t hash = linear_hash(p);
        for (Row& row : rows_) {
            if (row.hash == hash && row.p == p) {
                row.constant = std::min(row.constant, c);
                check_opposite(p, row.constant, hash);
                return;
            }
        }
        if (check_opposite(p, c, hash)) rows_.push_back({std::move(p), c, hash});
    }

    bool solve() {
        std::vector<Count> counts;
        while (!impossible && !rows_.empty()) {
            if (rows_.size() > kMaxRows) return false;
            counts.clear();
            for (const Row& row : rows_)
                for (const Mono& m : row.p.terms) {
                    auto at =
                        std::find_if(counts.begin(), counts.end(), [&](const Count& n) { return n.key == m.key; });
                    if (at == counts.end()) at = counts.insert(counts.end(), Count{m.key});
                    ++(m.coefficient > 0 ? at->above : at->below);
                }
            const Count* best = nullptr;
            for (const Count& n : counts)
                if (!best || n.cost() < best->cost() || (n.cost() == best->cost() && n.key < best->key)) best = &n;
            eliminate(best->key);
        }
        return impossible;
    }

  private:
    struct Count {
        uint64_t key;
        long above = 0, below = 0;
        long cost() const { return above * below - above - below; }
    };
    std::vector<Row> rows_;
    std::vector<std::pair<Poly, int64_t>> above_, below_;  // of the variable that is eliminated

    // Two that leave no room between them.
    bool check_opposite(const Poly& p, int64_t c, uint64_t hash) {
        for (const Row& row : rows_) {
            if (row.hash != -hash || row.p.terms.size() != p.terms.size()) continue;
            if (row.constant + c < 0 && row.p == -p) impossible = true;
        }
        return !impossible;
    }

    void eliminate(uint64_t key) {
        above_.clear();
        below_.clear();
        size_t kept = 0;
        for (Row& row : rows_) {
            const int64_t c = row.p.coefficient(key);
            if (c == 0) {
                if (&rows_[kept] != &row) rows_[kept] = std::move(row);
                ++kept;
                continue;
            }
            (c > 0 ? above_ : below_)
                .emplace_back(row.constant ? row.p + Poly(row.constant) : std::move(row.p), c > 0 ? c : -c);
        }
        rows_.resize(kept);
        for (const auto& [p, a] : above_)
            for (const auto& [q, b] : below_) {
                int64_t g = gcd_of(a, b);
                add(combined(p, b / g, q, a / g));
                if (impossible) return;
            }
    }
};

// What is known of the atoms in `facts`, added to them.
void describe(Atoms& atoms, Guards& facts) {
    std::vector<int> ids;
    for (const Poly& f : facts)
        for (int id : atoms.describe(f).ids)
            if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    auto positive = [&](const Poly& p) {  // at least 1, as far as it is plain
        if (p.is_constant()) return p.constant() >= 1;
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
        const Atom& a = atoms[ids[i]];
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
            Product ids = atoms_of(m.key);
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

bool infeasible(Atoms& atoms, const Guards& given) {
    {
        System quick;
        for (const Poly& f : given) quick.add(f);
        if (quick.impossible) return true;
    }
    Guards facts = given;
    describe(atoms, facts);
    multiply(atoms, facts);
    System s;
    for (const Poly& f : facts) s.add(f);
    if (s.solve()) return true;
    // A maximum is one of its parts.
    std::vector<int> ids;
    for (const Poly& f : given)
        for (int id : atoms.describe(f).ids)
            if (atoms[id].kind == Atom::Kind::Max) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    for (const int id : ids) {
        const Poly first = atoms[id].args[0] - Poly::atom(id), second = atoms[id].args[1] - Poly::atom(id);
        if (std::find(given.begin(), given.end(), first) != given.end() ||
            std::find(given.begin(), given.end(), second) != given.end())
            continue;
        Guards one = given, other = given;
        one.push_back(first);
        other.push_back(second);
        return infeasible(atoms, one) && infeasible(atoms, other);
    }
    return false;
}

struct Fact {
    const Poly* poly;
    const Atoms::Description* what;
};

// The facts that have atoms in common with that at `from`, directly or through others, taken out of `facts`. What
// contradicts itself does so within one such group.
std::vector<Fact> take_group(std::vector<Fact>& facts, size_t from) {
    thread_local std::vector<uint8_t> reached, taken;  // kept, for this is asked most of all
    thread_local std::vector<size_t> open;
    reached.clear();
    taken.assign(facts.size(), 0);
    open.assign(1, from);
    std::vector<Fact> group;
    group.reserve(facts.size());
    taken[from] = 1;
    while (!open.empty()) {
        size_t i = open.back();
        open.pop_back();
        group.push_back(facts[i]);
        for (int id : facts[i].what->ids) {
            if (static_cast<size_t>(id) >= reached.size()) reached.resize(static_cast<size_t>(id) + 1);
            if (reached[static_cast<size_t>(id)]) continue;
            reached[static_cast<size_t>(id)] = 1;
            for (size_t j = 0; j < facts.size(); ++j)
                if (!taken[j] && facts[j].what->names(id)) {
                    taken[j] = 1;
                    open.push_back(j);
                }
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < facts.size(); ++i)
        if (!taken[i]) facts[kept++] = facts[i];
    facts.resize(kept);
    return group;
}

bool group_infeasible(Atoms& atoms, const std::vector<Fact>& group) {
    std::pair<uint64_t, uint64_t> key{group.size(), 0};
    for (const Fact& f : group) {
        key.first += f.what->hash;
        key.second += mix(f.what->hash, 1);
    }
    auto [it, fresh] = atoms.contradictions.try_emplace(key, false);
    if (!fresh) return it->second;
    if (--atoms.questions_left < 0) throw Unsupported{"too many questions about sizes"};
    atoms.stop_when_late();
    Guards facts;
    facts.reserve(group.size());
    for (const Fact& f : group) facts.push_back(*f.poly);
    return it->second = infeasible(atoms, std::move(facts));
}

std::vector<Fact> described(Atoms& atoms, const Guards& known) {
    std::vector<Fact> facts;
    facts.reserve(known.size() + 1);
    for (const Poly& p : known) facts.push_back({&p, &atoms.describe(p)});
    return facts;
}

}  // namespace

bool Facts::contradictory() const {
    std::vector<Fact> facts = described(*atoms_, known_);
    while (!facts.empty())
        if (group_infeasible(*atoms_, take_group(facts, 0))) return true;
    return false;
}

bool Facts::implies(const Poly& p) const {
    if (p.is_constant()) return p.constant() >= 0;
    std::vector<Fact> facts = described(*atoms_, known_);
    const Poly negation = -p - Poly(1);
    facts.push_back({&negation, &atoms_->describe(negation)});
    return group_infeasible(*atoms_, take_group(facts, facts.size() - 1));
}

}  // namespace tessera::prover
