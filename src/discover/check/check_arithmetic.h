// The certificate checker's integer arithmetic: polynomials over names and over quotients, minima and choices, and what
// follows from a conjunction of p >= 0. Written apart from the prover's (index.h, entail.h), and simpler.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "expr/index_bound.h"

namespace tessera::checker {

struct Refused {
    std::string why;
};

using Product = std::vector<int>;          // atoms, sorted; empty: the constant
using Whole = std::map<Product, int64_t>;  // without zeros

Whole constant_whole(int64_t value);
Whole plus(const Whole& a, const Whole& b, int64_t scale = 1);  // a + scale * b
Whole times(const Whole& a, const Whole& b);

using Conjunction = std::vector<Whole>;  // each at least 0

class Names {
  public:
    enum class Kind { Variable, Size, Quotient, Remainder, Least, Largest, Choice };
    struct Entry {
        Kind kind;
        std::string name;
        std::vector<Whole> parts;
    };
    int declare(const std::string& name, Kind kind);  // the one of that name where there is one
    int find(const std::string& name) const;          // -1 if it does not exist
    const Entry& at(int atom) const { return entries_[static_cast<size_t>(atom)]; }
    Whole atom(Kind kind, std::vector<Whole> parts);

    Whole read(const Expr& e);  // an index or a size; what is not declared is a size
    std::vector<Conjunction> read(const Expr& condition, bool holds);
    Whole parse(std::string_view text);  // as the certificate writes it

    Whole replace(const Whole& p, const std::map<int, Whole>& by);
    void atoms_in(const Whole& p, std::set<int>& found) const;  // also inside atoms
    bool occurs(int atom, const Whole& p) const;

    bool impossible(const Conjunction& facts);
    bool follows(const Conjunction& facts, const Whole& p);
    bool equal(const Conjunction& facts, const Whole& a, const Whole& b);

    // Told of every conjunction of this thread that is found impossible, so that a test can ask a solver too.
    static thread_local std::function<void(const Names&, const Conjunction&)> observer;

  private:
    std::vector<Entry> entries_;
    std::map<std::string, int> by_name_;
    std::map<std::pair<Kind, std::vector<Whole>>, int> by_parts_;
    std::map<Conjunction, bool> answers_;  // of group_impossible: an atom never changes
    std::string_view text_;
    int depth_ = 0;  // of functions that are being read

    bool group_impossible(const Conjunction& facts);
    void skip();
    bool take(std::string_view symbol);
    Whole parse_sum();
    Whole parse_product();
    Whole parse_atom();
};

}  // namespace tessera::checker
