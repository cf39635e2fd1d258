// Text through the reader of kernels and back.
#include <cstddef>
#include <cstdint>

#include "fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tessera::exercise_kernels({reinterpret_cast<const char*>(data), size});
    return 0;
}
