// Arbitrary bytes as a .npy file: an error, or a tensor that comes back from the file written of it.
#include "graph/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tessera;
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    for (std::optional<DType> expected :
         {std::optional<DType>(), std::optional(DType::i4), std::optional(DType::f8e5m2)}) {
        auto tensor = read_npy(bytes, expected);
        if (!tensor.ok()) continue;
        auto written = npy_bytes(*tensor);
        if (!written.ok()) continue;  // strings that are not UTF-8
        auto back = read_npy(*written, tensor->dtype());
        CHECK(back.ok() && *back == *tensor);
    }
    return 0;
}
