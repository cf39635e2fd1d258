// Index arithmetic of the prover: integer polynomials over variables and over quotients, remainders, minima, maxima and
// choices that are not resolved. A polynomial is sorted and without zero coefficients, so equal ones compare equal.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "expr/index_bound.h"

namespace tessera::prover {

// Thrown inside src/search where a claim is beyond the prover, and caught by prove().
struct Unsupported {
    std::string why;
};

inline int64_t plus(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r)) throw Unsupported{"a number beyond 64 bits"};
    return r;
}
inline int64_t times(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r)) throw Unsupported{"a number beyond 64 bits"};
    return r;
}

// coefficient * product of up to four atoms, whose numbers are packed into `key`, the largest first. 0: no atoms.
struct Mono {
    uint64_t key;
    int64_t coefficient;
    bool operator==(const Mono&) const = default;
    auto operator<=>(const Mono&) const = default;
};

// The terms of a polynomial: few as a rule, which then stand in it.
class Monos {
  public:
    Monos() = default;
    Monos(const Monos& o) { assign(o); }
    Monos(Monos&& o) noexcept { take(o); }
    Monos& operator=(const Monos& o) {
        if (this != &o) {
            size_ = 0;
            assign(o);
        }
        return *this;
    }
    Monos& operator=(Monos&& o) noexcept {
        if (this != &o) {
            delete[] many_;
            take(o);
        }
        return *this;
    }
    ~Monos() { delete[] many_; }

    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    Mono* begin() { return data(); }
    Mono* end() { return data() + size_; }
    const Mono* begin() const { return data(); }
    const Mono* end() const { return data() + size_; }
    Mono& operator[](size_t i) { return data()[i]; }
    const Mono& operator[](size_t i) const { return data()[i]; }
    void push_back(const Mono& m) {
        const Mono copy = m;
        if (size_ == capacity_) reserve(2 * size_t{size_});
        data()[size_++] = copy;
    }
    void reserve(size_t capacity) {
        if (capacity <= capacity_) return;
        Mono* more = new Mono[capacity];
        std::copy(begin(), end(), more);
        delete[] many_;
        many_ = more;
        capacity_ = static_cast<uint32_t>(capacity);
    }
    void erase_first() {
        std::copy(begin() + 1, end(), begin());
        --size_;
    }
    bool operator==(const Monos& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }
    auto operator<=>(const Monos& o) const {
        return std::lexicographical_compare_three_way(begin(), end(), o.begin(), o.end());
    }

  private:
    static constexpr uint32_t kFew = 5;
    uint32_t size_ = 0, capacity_ = kFew;
    Mono few_[kFew];
    Mono* many_ = nullptr;

    Mono* data() { return many_ ? many_ : few_; }
    const Mono* data() const { return many_ ? many_ : few_; }
    void assign(const Monos& o) {
        reserve(o.size_);
        std::copy(o.begin(), o.end(), begin());
        size_ = o.size_;
    }
    void take(Monos& o) {
        size_ = o.size_;
        capacity_ = o.capacity_;
        many_ = o.many_;
        if (!many_) std::copy(o.few_, o.few_ + size_, few_);
        o.size_ = 0;
        o.capacity_ = kFew;
        o.many_ = nullptr;
    }
};

struct Poly {
    Monos terms;  // sorted by key
    Poly() = default;
    Poly(int64_t constant) {
        if (constant) terms.push_back({0, constant});
    }
    static Poly atom(int id) {
        Poly p;
        p.terms.push_back({static_cast<uint64_t>(id), 1});
        return p;
    }
    int64_t constant() const { return !terms.empty() && terms[0].key == 0 ? terms[0].coefficient : 0; }
    bool is_constant() const { return terms.empty() || (terms.size() == 1 && terms[0].key == 0); }
    int64_t coefficient(uint64_t key) const;
    bool operator==(const Poly&) const = default;
    auto operator<=>(const Poly&) const = default;
};
struct PolyHash {
    size_t operator()(const Poly& p) const;
};
Poly combined(const Poly& a, int64_t by_a, const Poly& b, int64_t by_b);  // by_a a + by_b b
Poly operator+(const Poly& a, const Poly& b);
Poly operator-(const Poly& a, const Poly& b);
Poly operator-(const Poly& a);
Poly operator*(const Poly& a, const Poly& b);

// The atoms of one product, the smallest first.
struct Product {
    std::array<int, 4> ids;
    size_t count = 0;
    explicit Product(uint64_t key) {
        for (; key; key >>= 16) ids[count++] = static_cast<int>(key & 0xffff);
    }
    size_t size() const { return count; }
    int* begin() { return ids.data(); }
    int* end() { return ids.data() + count; }
    const int* begin() const { return ids.data(); }
    const int* end() const { return ids.data() + count; }
    int operator[](size_t i) const { return ids[i]; }
    void erase(int* at) { std::copy(at + 1, end(), at), --count; }
};
inline Product atoms_of(uint64_t key) { return Product(key); }
uint64_t multiply_keys(uint64_t a, uint64_t b);

// A conjunction of e >= 0; a disjunction of conjunctions that exclude one another.
using Guards = std::vector<Poly>;
using Cases = std::vector<Guards>;

struct Atom {
    enum class Kind { Var, Div, Mod, Min, Max, Select };
    Kind kind;
    bool size = false;       // a variable that is a size: at least 0
    std::string name;        // of a variable
    std::vector<Poly> args;  // Select: then, otherwise, and the conjunction
};

// The atoms of one proof.
class Atoms {
  public:
    int variable(const std::string& name, bool size = false);
    const Atom& operator[](int id) const { return all_[static_cast<size_t>(id)]; }
    Poly make(Atom::Kind kind, std::vector<Poly> args);
    Poly convert(const Expr& e);  // variables by name; those unknown are sizes
    Cases when(const Expr& condition, bool holds);

    using Map = std::map<int, Poly>;  // by variable or other atom
    Poly substitute(const Poly& p, const Map& map);
    bool mentions(const Poly& p, int id) const;                // also inside other atoms
    void collect(const Poly& p, std::vector<int>& ids) const;  // all atoms, inside ones first
    std::string print(const Poly& p) const;

    // The cached result of `collect`, and a hash other than its key in the cache.
    struct Description {
        std::vector<int> ids;
        uint64_t hash = 0;
        uint64_t some = 0;  // a bit for each of them, by its number modulo 64
        bool names(int id) const {
            return (some >> (id & 63) & 1) && std::find(ids.begin(), ids.end(), id) != ids.end();
        }
    };
    const Description& describe(const Poly& p);
    // Conjunctions that were found contradictory, by two hashes of their contents.
    std::map<std::pair<uint64_t, uint64_t>, bool> contradictions;
    // What may still be asked of them; beyond it the claim is beyond the prover.
    int64_t questions_left = std::numeric_limits<int64_t>::max();
    int64_t rows_left = 200'000;  // that may be made to answer them
    int64_t rows_made = 0;
    std::function<bool()> give_up;  // called once, where a proof takes long
    Deadline until;
    void stop_when_late() const {
        if (until.passed()) throw Unsupported{"there was no more time"};
    }
    void stop_where_hopeless() {
        constexpr int64_t kLong = 2'000;
        if (!give_up || rows_made < kLong) return;
        if (std::exchange(give_up, {})()) throw Unsupported{"numbers refute it"};
    }

  private:
    std::vector<Atom> all_{{}};  // 0 is none
    std::map<std::string, int> names_;
    std::map<std::pair<Atom::Kind, std::vector<Poly>>, int> made_;
    std::unordered_map<Poly, Description, PolyHash> described_;
};

}  // namespace tessera::prover
