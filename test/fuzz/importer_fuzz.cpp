// Bytes through the reader, the importer, the printer, the exporter and the evaluator.
#include <cstddef>
#include <cstdint>

#include "fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    tessera::exercise_onnx({reinterpret_cast<const char*>(data), size});
    return 0;
}
