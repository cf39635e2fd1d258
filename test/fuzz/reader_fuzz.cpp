// Any bytes as a model and as values: an error or structs, whose tensors decode or say why not, and which write back.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "onnx/read.h"
#include "onnx/tensor_data.h"
#include "onnx/write.h"

using namespace tessera::onnx;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string_view bytes(reinterpret_cast<const char*>(data), size);
    if (auto model = read_model(bytes); model.ok()) {
        for (const Tensor& tensor : model->graph.initializers) (void)tensor_data(tensor).ok();
        for (const SparseTensor& tensor : model->graph.sparse_initializers) (void)dense_data(tensor).ok();
        if (auto written = write_model(*model); written.ok()) CHECK(read_model(*written).ok());
    }
    if (auto tensor = read_tensor(bytes); tensor.ok()) (void)tensor_data(*tensor).ok();
    (void)read_sequence(bytes).ok();
    (void)read_optional(bytes).ok();
    return 0;
}
