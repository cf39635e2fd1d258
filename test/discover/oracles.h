// Second opinions on what the checker believes, from tools that share nothing with it: Z3 on conjunctions of integers
// and on claims whose sums are written out, isl on the index maps of sums of products. Where a tool is not installed
// it has no opinion.
#pragma once

#include <string>

#include "discover/check/check_arithmetic.h"
#include "discover/claim/claim.h"

namespace tessera {

enum class Opinion { Agrees, Disagrees, None };

struct SecondOpinion {
    Opinion opinion = Opinion::None;
    std::string why = {};  // a counterexample, or why there is no opinion
    bool symbolic = true;  // no size was made a number for it
};

bool has_z3();
bool has_isl();

// Whether no integers satisfy all of it, as the checker says.
SecondOpinion ask_z3(const checker::Names& names, const checker::Conjunction& facts);
// Whether both sides are the same numbers, and the right side divides by 0 only where the left does. Sizes that are
// summed over become small numbers, which `seed` draws.
SecondOpinion ask_z3(const Claim& claim, uint64_t seed);
// Whether both graphs give the same elements for all inputs of these sizes, with those that are fixed as they are.
SecondOpinion ask_z3(const Graph& left, const Graph& right, const std::map<std::string, Sizes>& sizes,
                     const std::map<std::string, Tensor>& fixed);
// Whether both sides sum the same products of the same elements. Sizes that others are multiplied with or divided by
// become small numbers.
SecondOpinion ask_isl(const Claim& claim, uint64_t seed);

// The claim with these sizes as numbers from `least` on, drawn.
Claim with_numbers(const Claim& claim, const std::vector<std::string>& sizes, int64_t least, uint64_t seed);

}  // namespace tessera
