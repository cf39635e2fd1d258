// How likely it is that two sides that differ were taken for equal: what is found and not proved is tested, with this
// bound.
#pragma once

#include <optional>

#include "discover/claim/claim.h"

namespace tessera {

struct TestBound {
    int sizes = 0;                     // assignments of sizes at which both sides were evaluated in the field
    std::optional<double> per_size{};  // log2 of the chance that a difference at one of them shows nowhere. Empty: none
                                       // can be given, because a maximum or a comparison is taken
};
TestBound test_bound(const Claim& claim, int sizes);
std::string to_string(const TestBound& bound);

// Whether random numbers of several signs and magnitudes tell the sides apart, at random sizes, on floats. Nothing
// where no sizes were found that both sides take.
std::optional<bool> floats_differ(const Claim& claim);

// The same at a few sizes only: false means little.
bool floats_soon_differ(const Claim& claim);

}  // namespace tessera
