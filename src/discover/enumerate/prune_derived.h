// Pairs that others already give: the left term is an instance of a known pair's side, and what that pair makes of it
// is an earlier term of the same class. By induction on that order every term of a class is reached from its
// representative by known pairs, so that dropping the rest loses nothing.
#pragma once

#include "discover/enumerate/enumerate.h"

namespace tessera {

class KnownPairs {
  public:
    explicit KnownPairs(Enumeration& terms) : terms_(terms) {}

    void add(const TermPair& pair);
    bool derives(const TermPair& pair) const;
    size_t size() const { return rewrites_.size(); }

  private:
    struct Rewrite {
        TermNode from, to;
    };
    using Bindings = std::vector<TermId>;
    struct Goal {
        const TermNode* pattern;
        TermId term;
    };
    template <typename Done>
    bool match(std::vector<Goal> goals, Bindings bindings, const Done& done) const;
    std::optional<TermId> build(const TermNode& pattern, const Bindings& bindings) const;
    std::optional<TermNode> build_root(const TermNode& pattern, const Bindings& bindings) const;

    Enumeration& terms_;
    std::vector<Rewrite> rewrites_;
    std::unordered_map<uint64_t, std::vector<int>> by_ops_;  // the root's op and, where they are ops, its operands'
};

// The pairs that the ones before them, and known ones, do not give: the smaller and the more general first, by the
// occurrences of ops. Those are added.
std::vector<TermPair> irredundant(Enumeration& terms, std::vector<TermPair> pairs, KnownPairs& known, int threads);

}  // namespace tessera
