#include "kernel/clean_up.h"

namespace tessera {

void partition_loops(Kernel&) {}

}  // namespace tessera
