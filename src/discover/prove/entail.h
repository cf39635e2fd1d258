// What follows from a conjunction of e >= 0 over the integers: by elimination of variables (Fourier and Motzkin), after
// what is known of sizes, quotients, minima and products with sizes has been added. No is "cannot tell".
#pragma once

#include "discover/prove/index.h"

namespace tessera::prover {

class Facts {
  public:
    explicit Facts(Atoms& atoms) : atoms_(&atoms) {}
    void add(const Poly& p) { known_.push_back(p); }
    void add(const Guards& g) { known_.insert(known_.end(), g.begin(), g.end()); }
    const Guards& all() const { return known_; }

    bool contradictory() const;
    bool implies(const Poly& p) const;  // p >= 0
    bool refutes(const Poly& p) const { return implies(-p - Poly(1)); }
    bool equal(const Poly& a, const Poly& b) const { return a == b || (implies(a - b) && implies(b - a)); }

  private:
    Atoms* atoms_;
    Guards known_;
};

}  // namespace tessera::prover
