// Accelerators that are simulated by their model in C++ (kernel/accelerator/simulate.h). Every code brings the
// description of its machine.
#pragma once

#include "runtime/devices/device.h"

namespace tessera {

Device& simulated_accelerator();
Device& accelerator_rtl();  // by their RTL (rtl_simulator.h): slower, and the truth

}  // namespace tessera
