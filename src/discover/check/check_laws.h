// Laws of functions of numbers, for all element types that a law names, and rewriting by them: what a rule says of one
// element (check_elements.h) in a form in which both sides may become the same.
#pragma once

#include "discover/check/check_element_types.h"
#include "discover/check/check_elements.h"
#include "discover/claim/claim.h"

namespace tessera::checker {

struct Laws {
    Rules total;       // both sides read the same and are numbers at the same places: for either side of a rule
    Rules of_numbers;  // likewise, where what they read are numbers: NaN is neither less nor the smaller
    Rules widening;    // the right side is a number at more places, or reads less: for the left side of a rule only
};
const Laws& laws();  // as rules, each with its exactness

// A term of one side, or a part of it.
Term rewritten_by_laws(const Term& t, const ElementRule& element);

// Both sides rewritten until no law applies; the least exact law that was used.
Exactness rewrite_by_laws(ElementRule& element);

// Whether two sides are equal polynomials with integer coefficients: then they are for integers of any width, which
// wrap.
bool equal_polynomials(const Term& a, const Term& b);

// Whether two sides choose the same of the same numbers, by maxima and minima, whatever the numbers are. Such terms are
// equal in every order where they are with 0 and 1 for the numbers, as the conditions allow.
bool equal_choices(const Term& a, const Term& b, const Rule& rule);

// Whether integers may be compared with a number that stands for several of them as a double.
bool names_large_integer(const Rule& rule);
bool has_casts(const Rule& rule);
bool of_integers(const Rule& rule);  // whether all that it computes with are integers
bool of_floats(const Rule& rule);    // whether something may be a float
// Checks that an element that may be undefined also makes the left side undefined if the right side reads it. E0305.
Status check_partial(const ElementRule& element);
// What is left to prove for floats, as a claim about numbers. E0305 where others than floats are possible.
Result<Claim> claim_of(const ElementRule& element);

bool may_swap(const Term& t);  // operands, without a change of bits
// A term in one way of writing: operands that may change places are in order.
std::string ordered_text(const Term& t, const Rule& rule);

}  // namespace tessera::checker
