// The safetensors format: named tensors behind a JSON header, with text beside them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "graph/tensor.h"

namespace tessera {

struct NamedTensors {
    std::vector<std::pair<std::string, Tensor>> tensors;
    std::map<std::string, std::string> metadata;
};

// E0110 for anything malformed. The tensors share the mapped file.
Result<NamedTensors> read_safetensors(const std::filesystem::path& path);
// Appears whole or not at all. E0213 for an element type that the format lacks.
Status write_safetensors(const NamedTensors& what, const std::filesystem::path& path);

}  // namespace tessera
