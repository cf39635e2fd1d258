// Tries to refute a rule: draws graphs that it matches, applies it with the engine, and compares both sides in a prime
// field (field.h), on floats, on integers and, for rules that claim to be exact, bit by bit on special values too. A
// rule that no graph, or hardly any, could be drawn for is not tested, which is no better than refuted.
#pragma once

#include <atomic>

#include "rewrite/rule.h"

namespace tessera {

struct RefuteOptions {
    uint64_t seed = 0;
    int instances = 100;    // graphs that the rule matches
    int64_t draws = 20000;  // graphs drawn before it is given up, however few matched
    double seconds = 60;    // likewise, of the thread's CPU time; a verdict that ran into this is not repeatable
    bool minimise = true;   // the counterexample
    const std::atomic<bool>* cancel = nullptr;
};

// Both sides on one graph where they differ.
struct Counterexample {
    std::string left, right;                                  // graphs in the text form
    std::vector<std::pair<std::string, std::string>> inputs;  // name, elements
    std::string how;         // "floats", "integers", "special values", "the field", "types"
    std::string difference;  // "y[0,1] is 2.0 on the left and -2.0 on the right"
    std::string to_string() const;
};

struct Verdict {
    enum class Kind { Holds, Refuted, Untested };
    Kind kind = Kind::Untested;
    std::string rule;
    uint64_t seed = 0;
    int64_t draws = 0;
    int instances = 0;                                              // that matched, and were changed
    int by_field = 0, by_floats = 0, by_integers = 0, by_bits = 0;  // of those, compared so
    int beyond_field = 0;  // the field said otherwise, through functions it does not know
    std::optional<Counterexample> counterexample = {};
    std::string to_string() const;  // one line, and the counterexample
};
std::string_view name_of(Verdict::Kind kind);  // "holds", "refuted", "untested"

// E0410 where it was cancelled.
Result<Verdict> refute(const Rule& rule, const RefuteOptions& options = {});

// E0305 at the rule's location, with the counterexample, unless the rule holds.
Status as_status(const Rule& rule, const Verdict& verdict);

}  // namespace tessera
