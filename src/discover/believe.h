// Whether a rule is believed, for every command that asks: two lines that share no code have to agree. Its certificate,
// where there is one, replays, and the refuter finds no counterexample at a fixed effort.
#pragma once

#include "discover/claim/certificate.h"
#include "rewrite/refute/refute.h"

namespace tessera {

// What the refuter spends on each rule, whatever machine it runs on and however many there are.
RefuteOptions refuter_effort(const std::atomic<bool>* cancel = nullptr);

struct Belief {
    bool proved = false;  // by its certificate; otherwise only tested
    Verdict verdict = {};
};

// E0305 where the certificate does not hold or the refuter does not, E0802 where the one holds and the other does not,
// E0410. A rule without a certificate, or listed as one, has the refuter only, and must not say that it is proved.
Result<Belief> believe(const Rule& rule, const Certificates& certificates, const RefuteOptions& effort);

// For a rule that was just proved: E0802 where the refuter has a counterexample, E0410.
Result<Verdict> confirm(const Rule& rule, std::string_view proof, const RefuteOptions& effort);

// `believe` for each rule, on all threads: the first error in the order of the file.
Status believe_all(const Rules& rules, const Certificates& certificates, const std::atomic<bool>* cancel);

}  // namespace tessera
