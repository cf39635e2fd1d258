// Kernels are verified where they are made, in debug builds and in tests: a pass that breaks a rule is found there, and
// not by what its kernel computes.
#pragma once

#include "kernel/ir/kernel.h"

namespace tessera {

// In debug builds; in others, where the environment has TESSERA_VERIFY=1. 0 switches it off.
bool verifies_kernels();

// Where kernels are verified, one that breaks a rule is our mistake: names the pass and leaves the kernel as
// reproducer.
void check_verified(const Kernel& kernel, const char* pass);

}  // namespace tessera
