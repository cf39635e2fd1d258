// Structs to protobuf bytes, and to files that appear whole or not at all. Weights too large for one protobuf go to a
// file beside the model, read where they lie and never gathered in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "onnx/model.h"

namespace tessera::onnx {

inline constexpr uint64_t kMaxProtobufBytes = (uint64_t{1} << 31) - 1;  // what protobuf libraries read

struct WriteOptions {
    // Payloads of at least this many bytes go to the data file. Negative: none, unless the model would not fit
    // otherwise.
    int64_t external_from = -1;
    std::string data_name;  // the data file's name; by default the model's with ".data" added
    uint64_t max_protobuf_bytes = kMaxProtobufBytes;
};

// E0214 when it would be longer than a protobuf can be: use a file. External data is taken along.
Result<std::string> write_model(const Model& model);
// External data the model was read with is taken along: what is written depends on no other file. E0105.
Status write_model_file(const Model& model, const std::filesystem::path& path, const WriteOptions& options = {});

std::string write_tensor(const Tensor& tensor);
std::string write_sequence(const Sequence& sequence);
std::string write_optional(const Optional& optional);

}  // namespace tessera::onnx
