// Text through the parser, the printer, the exporter and the evaluator.
#include <cstddef>
#include <cstdint>

#include "fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tessera::exercise_text({reinterpret_cast<const char*>(data), size});
    return 0;
}
