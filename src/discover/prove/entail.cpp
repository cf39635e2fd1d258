#include "discover/prove/entail.h"

#include <algorithm>
#include <optional>

#include "base/gcd.h"
#include "base/hash.h"
#include "expr/simplify.h"

namespace tessera::prover {
namespace {

constexpr size_t kMaxRows = 600, kUsualRows = 24;

// Rows of e >= 0 over the products in the facts, one column for each. Of rows with the same coefficients, that with the
// smallest constant counts.
class System {
  public:
    bool impossible = false;
    int64_t made = 0;  // rows, by elimination

    explicit System(const Guards& facts) {
        for (const Poly& f : facts)
            for (const Mono& m : f.terms)
                if (m.key) keys_.push_back(m.key);
        std::sort(keys_.begin(), keys_.end());
        keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
        width_ = keys_.size();
        for (const uint64_t key : keys_) hashes_.push_back(mix(0, key));
        row_.resize(width_);
        signs_.resize(width_);
        coefficients_.reserve((facts.size() + kUsualRows) * width_);
        rows_.reserve(facts.size() + kUsualRows);
        for (const Poly& f : facts) {
            std::fill(row_.begin(), row_.end(), 0);
            for (const Mono& m : f.terms)
                if (m.key) row_[column(m.key)] = m.coefficient;
            add(f.constant());
            if (impossible) return;
        }
    }

    bool solve() {
        while (!impossible && !rows_.empty()) {
            if (rows_.size() > kMaxRows) return false;
            const Signs* best = nullptr;
            for (const Signs& signs : signs_)
                if ((signs.above || signs.below) && (!best || signs.cost() < best->cost())) best = &signs;
            eliminate(static_cast<size_t>(best - signs_.data()));
        }
        return impossible;
    }

  private:
    struct Row {
        int64_t constant = 0;
        uint64_t hash = 0;  // that of the opposite row is its negative
    };
    std::vector<uint64_t> keys_, hashes_;  // of the columns
    size_t width_ = 0;
    std::vector<Row> rows_;
    std::vector<int64_t> coefficients_;  // of the rows, one after the other
    std::vector<int64_t> row_;           // that add takes
    struct Signs {
        long above = 0, below = 0;
        long cost() const { return above * below - above - below; }
    };
    std::vector<Signs> signs_;  // in each column
    std::vector<int64_t> old_;  // the rows of the column that is eliminated

    size_t column(uint64_t key) const {
        return static_cast<size_t>(std::lower_bound(keys_.begin(), keys_.end(), key) - keys_.begin());
    }

    void count(const int64_t* row, long rows) {
        Signs* signs = signs_.data();
        for (const int64_t* const end = row + width_; row != end; ++row, ++signs)
            if (*row) (*row > 0 ? signs->above : signs->below) += rows;
    }

    // Adds row_ with this constant. A common divisor of the coefficients tightens the constant.
    void add(int64_t constant) {
        int64_t g = 0;
        int64_t* const row = row_.data();
        for (size_t c = 0; c < width_ && g != 1; ++c)
            if (row[c]) g = row[c] == 1 || row[c] == -1 ? 1 : gcd_of(g, row[c]);
        if (g == 0) {
            impossible = constant < 0;
            return;
        }
        if (g != 1) {
            constant = floor_quotient(constant, g);
            for (int64_t& c : row_) c /= g;
        }
        uint64_t hash = 0;
        for (size_t c = 0; c < width_; ++c)
            if (row[c]) hash += hashes_[c] * static_cast<uint64_t>(row[c]);
        bool known = false;
        for (size_t r = 0; r < rows_.size(); ++r) {
            const int64_t* const other = &coefficients_[r * width_];
            if (rows_[r].hash == hash && std::equal(row_.begin(), row_.end(), other)) {
                constant = rows_[r].constant = std::min(rows_[r].constant, constant);
                known = true;
                break;
            }
        }
        for (size_t r = 0; r < rows_.size(); ++r) {
            if (rows_[r].hash != -hash) continue;
            const int64_t* const other = &coefficients_[r * width_];
            bool opposite = plus(rows_[r].constant, constant) < 0;
            for (size_t c = 0; c < width_ && opposite; ++c) opposite = row_[c] == -other[c];
            impossible = impossible || opposite;  // they leave no room between them
        }
        if (known || impossible) return;
        rows_.push_back({constant, hash});
        count(row_.data(), 1);
        coefficients_.insert(coefficients_.end(), row_.begin(), row_.end());
    }

    void eliminate(size_t column) {
        old_.clear();  // each with its constant behind it
        std::vector<size_t> up, down;
        size_t kept = 0, taken = 0;
        for (size_t r = 0; r < rows_.size(); ++r) {
            const int64_t* const row = &coefficients_[r * width_];
            if (row[column] == 0) {
                if (kept != r) {
                    std::copy(row, row + width_, &coefficients_[kept * width_]);
                    rows_[kept] = rows_[r];
                }
                ++kept;
                continue;
            }
            (row[column] > 0 ? up : down).push_back(taken++);
            count(row, -1);
            old_.insert(old_.end(), row, row + width_);
            old_.push_back(rows_[r].constant);
        }
        rows_.resize(kept);
        coefficients_.resize(kept * width_);
        for (const size_t i : up)
            for (const size_t j : down) {
                const int64_t *const p = &old_[i * (width_ + 1)], *const q = &old_[j * (width_ + 1)];
                const int64_t a = p[column], b = -q[column], g = gcd_of(a, b), times_p = b / g, times_q = a / g;
                int64_t* const row = row_.data();
                for (size_t c = 0; c < width_; ++c)
                    row[c] = p[c] || q[c] ? plus(times(p[c], times_p), times(q[c], times_q)) : 0;
                ++made;
                add(plus(times(p[width_], times_p), times(q[width_], times_q)));
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
        auto not_negative = [&](const Mono& m) {
            const Product product = atoms_of(m.key);
            return m.coefficient > 0 && std::all_of(product.begin(), product.end(), [&](int id) {
                       return atoms[id].kind == Atom::Kind::Var && atoms[id].size;
                   });
        };
        if (p.constant() >= 1 && std::all_of(p.terms.begin(), p.terms.end(), not_negative)) return true;
        // Without quotients, so that this ends.
        Guards rows = facts;
        for (int id : ids)
            if (atoms[id].kind == Atom::Kind::Var && atoms[id].size) rows.push_back(Poly::atom(id));
        rows.push_back(-p);
        return System(rows).solve();
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
    if (System(given).impossible) return true;
    Guards facts = given;
    describe(atoms, facts);
    multiply(atoms, facts);
    System system(facts);
    const bool contradiction = system.solve();
    atoms.rows_left -= system.made;
    atoms.rows_made += system.made;
    if (contradiction) return true;
    if (atoms.rows_left < 0) throw Unsupported{"too much arithmetic about sizes"};
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
    atoms.stop_where_hopeless();
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
