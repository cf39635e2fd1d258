// Index arithmetic of the prover: integer polynomials over variables and over quotients, remainders, minima, maxima and
// choices that are not resolved. A polynomial is sorted and without zero coefficients, so equal ones compare equal.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "expr/expr.h"

namespace tessera::prover {

// Thrown inside src/search where a claim is beyond the prover, and caught by prove().
struct Unsupported {
    std::string why;
};

// coefficient * product of up to four atoms, whose numbers are packed into `key`, the largest first. 0: no atoms.
struct Mono {
    uint64_t key;
    int64_t coefficient;
    bool operator==(const Mono&) const = default;
    auto operator<=>(const Mono&) const = default;
};
struct Poly {
    std::vector<Mono> terms;  // sorted by key
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
Poly operator+(const Poly& a, const Poly& b);
Poly operator-(const Poly& a, const Poly& b);
Poly operator-(const Poly& a);
Poly operator*(const Poly& a, const Poly& b);
std::vector<int> atoms_of(uint64_t key);
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

  private:
    std::vector<Atom> all_{{}};  // 0 is none
    std::map<std::string, int> names_;
    std::map<std::pair<Atom::Kind, std::vector<Poly>>, int> made_;
};

}  // namespace tessera::prover
