// One root of a claim: the difference of both sides, which the prover's laws reduce. Output indices are cut into
// quotient and remainder where a term needs it. What is not reduced to 0 is kept: it says where the sides may differ.
#pragma once

#include "base/decision.h"
#include "discover/prove/cancel.h"
#include "discover/prove/prove.h"

namespace tessera::prover {

class RootProof {
  public:
    RootProof(const Comprehension& c, const ProveOptions& options);

    // Whether both sides are equal everywhere; adds the certificate's steps. Throws Unsupported.
    Decision run(std::vector<std::string>& steps);

    // After run: an output index that became high * divisor + low.
    struct Cut {
        int variable;
        Poly divisor;
        int high, low;
    };
    Atoms& atoms() { return atoms_; }
    const std::vector<Cut>& cuts() const { return cuts_; }
    const Sum& left() const { return left_; }    // what remains of the difference
    const Facts& base() const { return base_; }  // of sizes and of output indices, cut ones included

  private:
    Atoms atoms_;
    Search search_;
    Facts base_;
    bool write_out_;
    Sum difference_, left_;
    std::vector<Cut> cuts_;

    bool run_written_out(const std::vector<std::string>& header, std::vector<std::string>& steps);
    void cut(const CutOutput& where, std::vector<std::string>& header);
};

}  // namespace tessera::prover
