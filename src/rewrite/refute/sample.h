// Random graphs that a rule's pattern is likely to match: built bottom-up from the pattern's terms, with element types,
// sizes, attributes and constants that fit one another. Whether the rule applies is for the engine to say; a drawn
// graph that it does not take is drawn again.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "rewrite/refute/sample_hints.h"
#include "rewrite/refute/sample_op.h"
#include "rewrite/rule.h"

namespace tessera {

struct Sample {
    std::unique_ptr<Graph> graph;              // its outputs are the pattern's roots, in order
    std::map<std::string, Sizes> sizes;        // of its inputs, whose types may be symbolic
    std::map<std::string, Tensor> fixed;       // inputs that make sense with these contents only: a shape, indices
    std::set<std::string> positive;            // inputs whose elements must be above 0
    std::vector<double> numbers_of_rule = {};  // and those of float attributes: right sides make constants of them
    std::vector<double> numbers = {};          // that the rule names or a constant holds: where results may change
};

class Sampler {
  public:
    explicit Sampler(const Rule& rule);
    // Nothing where the choices made did not fit one another.
    std::optional<Sample> draw(Draw& draw, const SampleOptions& options) const;

  private:
    const Rule* rule_;
    Hints hints_;
};

}  // namespace tessera
