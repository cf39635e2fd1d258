// A program without one of its tokens, or without one end of it.
#pragma once

#include "kernel/accelerator/check_program.h"

namespace tessera::accelerator_test {

using Program = std::vector<accelerator::Instruction>;

inline Program without_push(Program program, const accelerator::TokenPair& t) {
    accelerator::Tokens& push = program[t.push].tokens;
    (t.to > t.from ? push.push_next : push.push_previous) = false;
    return program;
}

inline Program without_pop(Program program, const accelerator::TokenPair& t) {
    accelerator::Tokens& pop = program[t.pop].tokens;
    (t.to > t.from ? pop.pop_previous : pop.pop_next) = false;
    return program;
}

inline Program without(Program program, const accelerator::TokenPair& t) {
    return without_pop(without_push(std::move(program), t), t);
}

}  // namespace tessera::accelerator_test
