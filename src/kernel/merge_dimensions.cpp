#include "kernel/clean_up.h"

namespace tessera {

void merge_dimensions(Kernel&) {}

}  // namespace tessera
