// Layers of two networks, compiled, on the model of a machine and on its RTL.
#pragma once

#include "kernel/accelerator/machine.h"

namespace tessera::accelerator {

// ResNet-18's and MobileNet-v1's layers at their full sizes with random weights; images of `part` of each side's
// pixels. Prints a table; the number of layers that are wrong.
int compare_layers(const Machine& machine, int part);

}  // namespace tessera::accelerator
