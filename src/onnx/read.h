// Protobuf bytes to structs. Whatever the bytes say, the answer is a struct or an Error: no crash, no deep recursion,
// and memory in proportion to the bytes there are. As in protobuf, of a field given twice the last number or string
// counts, messages merge, lists append, and unknown fields are skipped; a wrong wire type is an error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "onnx/model.h"

namespace tessera::onnx {

inline constexpr int kMaxDepth = 100;  // messages inside messages: protobuf's own limit
// What structs may take beside the payloads, given the size of the file (else E0108). Two bytes can name a struct of
// hundreds; exporters stay far below this.
constexpr size_t max_struct_bytes(size_t file_bytes) {
    constexpr size_t kLeast = size_t{64} << 20, kMost = size_t{1} << 30;
    return file_bytes > kMost / 32 ? kMost : std::min(kMost, kLeast + 32 * file_bytes);
}

// Payloads view the mapped file and keep it mapped.
Result<Model> read_model_file(const std::filesystem::path& path);
// Payloads view `bytes` and share `owner`; without an owner the caller keeps the bytes alive.
Result<Model> read_model(std::string_view bytes, std::shared_ptr<const void> owner = nullptr);

// Values, as in the .pb files beside a model.
Result<Tensor> read_tensor(std::string_view bytes, std::shared_ptr<const void> owner = nullptr);
Result<Sequence> read_sequence(std::string_view bytes, std::shared_ptr<const void> owner = nullptr);
Result<Optional> read_optional(std::string_view bytes, std::shared_ptr<const void> owner = nullptr);
Result<Tensor> read_tensor_file(const std::filesystem::path& path);
Result<Sequence> read_sequence_file(const std::filesystem::path& path);
Result<Optional> read_optional_file(const std::filesystem::path& path);

}  // namespace tessera::onnx
