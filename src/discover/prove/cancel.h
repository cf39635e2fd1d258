// The prover's search: shows that a sum of guarded products is zero, by laws that the certificate names. Terms are
// numbered from 1; what a law makes gets the next numbers.
#pragma once

#include <functional>
#include <set>

#include "discover/prove/entail.h"
#include "discover/prove/normalise.h"

namespace tessera::prover {

// Thrown where an output index has to be cut into a quotient and a remainder first; prove() does so and starts again.
struct CutOutput {
    int variable;
    Poly divisor;
};

// What all searches of one proof share.
struct Search {
    Atoms& atoms;
    std::set<int> outputs;     // index variables of the output element
    bool cut_outputs = false;  // where a quotient of one is left, ask for it to be cut
    bool cut_wanted = false;   // there was one
    bool write_out = false;    // ProveOptions has it
    static constexpr int kSteps = 3000;
    int steps_left = kSteps;
    int next_variable = 0;  // of those that a cut makes: _c1, _c2, ...
};

class Cancel {
  public:
    Cancel(Search& search, Facts base, std::vector<std::string>& steps, int depth)
        : search_(search), atoms_(search.atoms), base_(std::move(base)), steps_(steps), depth_(depth) {}

    // Whether the sum was reduced to zero; otherwise left() has the remaining terms.
    bool run(const Sum& terms);
    // Whether every point of one list of alternatives is among those of another.
    bool run_inside(const Sum& points, const Sum& others, bool largest);
    const Sum& left() const { return left_; }

  private:
    struct Numbered {
        int id;
        Summand term;
        std::vector<std::string> signature;  // of its factors, in their order
        std::vector<std::string> sorted;
        bool undecided = false;  // settled without the cases that it has to be split into
    };
    using Perm = std::vector<size_t>;

    Search& search_;
    Atoms& atoms_;
    Facts base_;
    std::vector<std::string>& steps_;
    int depth_;
    int next_id_ = 0;
    std::vector<Numbered> ready_;
    std::vector<Numbered> waiting_;
    bool split_choices_ = false;  // see split_undecided
    Sum left_;

    Facts facts(const Summand& t) const;
    void step(std::string text);
    Numbered numbered(int id, Summand t) const;

    void settle(Numbered n);  // waiting to ready
    bool split_undecided();
    bool within_budget(const std::function<bool()>& search);
    bool eliminate_point(Numbered& n);
    bool drop_unused_sum(Numbered& n);
    enum class Outcome { Nothing, Changed, Split, Undecided };
    Outcome resolve(Numbered& n, int atom);
    Outcome resolve_quotient(Numbered& n, int atom);
    Outcome lift_guards(Numbered& n);
    Outcome collapse(Numbered& n);
    Outcome square(Numbered& n);
    Outcome unit(Numbered& n);
    std::optional<std::vector<const Sum*>> live_points(const Factor& extreme, const Facts& known) const;
    void replace_by(const Numbered& n, std::vector<size_t> factors, const std::vector<Sum>& sums);
    bool is_inside(const Numbered& n, const Summand& other, size_t which, bool largest);
    bool included(const Factor& extreme, const Sum& others, const Facts& known, std::vector<std::string>& proof);
    void cut(Numbered& n, int variable, const Poly& divisor);
    std::pair<Numbered, Numbered> split(const Numbered& n, const Poly& guard);
    void substitute(Summand& t, const Atoms::Map& map);

    bool write_out();
    bool write_out_at(size_t i, const Poly& index, const Poly& value);
    bool use_signs();
    bool negate(size_t i, size_t k);
    bool shift(size_t i, size_t k);

    bool cancel_one();
    bool cancel(size_t i, size_t j);
    bool cancel_as(size_t i, size_t j, const Perm& perm);
    bool solve(const Summand& t, const Summand& u, const Perm& perm, Atoms::Map& map,
               std::vector<std::pair<Poly, Poly>>& equations);
    bool unimodular(const Summand& t, const Summand& u, const Atoms::Map& map) const;
    bool arguments_agree(const Summand& t, const Summand& u, const Perm& perm, const Facts& known,
                         std::vector<std::string>& proof);
};

}  // namespace tessera::prover
