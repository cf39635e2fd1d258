// The two sides of a rule on one graph: values for its inputs, and whether the sides agree on them.
#pragma once

#include "graph/evaluate/evaluate.h"
#include "rewrite/refute/computed_types.h"
#include "rewrite/refute/sample.h"
#include "rewrite/rule.h"

namespace tessera {

enum class Values {
    Ordinary,  // of both signs, around 1
    Whole,     // small integers
    Positive,  // between 0 and 1, and above
    Special,   // with NaN, infinities, zeros of either sign, denormals, ties, the smallest and the largest
    Extreme,   // integers with the smallest and the largest; floats as Ordinary
    Wide,      // over the whole range of the narrowest float type
    Large,     // up to thousands and around the numbers of the rule; where that overflows, it is no difference
    Broad,     // floats around 1, thousands or millions
};

struct Sides {
    const Sample* sample;
    const Graph* left;   // sample->graph
    const Graph* right;  // after the rule
    Exactness exactness;
    bool bitwise;                   // compare bits
    bool may_overflow = false;      // what is not finite on the right only is no difference
    bool float_attributes = false;  // an op has some: they are f32, whatever the tensors are
    ComputedTypes computed = {};    // of the left side
};

struct Comparison {
    enum class Outcome { Agree, Differ, Nothing };  // Nothing: the left side has no comparable values
    Outcome outcome = Outcome::Nothing;
    std::string difference = {};
    bool has_floats = false;  // among what was compared
    bool undefined = false;   // the left side gave a NaN or an infinity
    bool floats_differ = false;
    int64_t elements = 0;  // of all outputs
};

Inputs draw_inputs(const Sample& sample, Values values, Draw& draw);

Comparison compare_values(const Sides& sides, const Inputs& inputs);

// Whether sides that differ in narrow floats agree in f64, or in f32 where an op that approximates has no such form:
// then they differ by how each was rounded on the way.
bool agree_when_wider(const Sides& sides, const Inputs& inputs);

// The same in f64, with the numbers of the rule as it names them: what narrow floats round away counts. Nothing where
// an op has no such form.
Comparison compare_wider(const Sides& sides, const Inputs& inputs);

// How many elements the right side, in f32, has wrong by more than rounding what the left side computes with explains.
struct Losses {
    int64_t elements = 0, lost = 0;
    std::string difference = {};  // one of them
};
Losses losses_by_cancellation(const Sides& sides, const Inputs& inputs);

// In the field; `beyond` is set where they differ through functions that the field does not know.
Comparison compare_in_field(const Sides& sides, Draw& draw, bool& beyond);

}  // namespace tessera
