// Computes and what they are lowered to, run by the interpreter.
#pragma once

#include "kernel/sample_computes.h"

namespace tessera::sample {

// A tensor for each parameter; integers are small and not negative.
std::vector<Tensor> random_parameters(const Compute& compute, const SymbolValues& symbols);
// Interprets; tensors beyond those given are made as the kernel's parameters say.
void run_kernel(const Kernel& kernel, std::vector<Tensor>& params, const SymbolValues& symbols);
void run_lowered(const Lowered& lowered, std::vector<Tensor>& params, const SymbolValues& symbols);
double distance(const Tensor& a, const Tensor& b);  // the largest difference, relative to values above 1

}  // namespace tessera::sample
