// NumPy's .npy files (versions 1 to 3): either byte order, C or Fortran order, every element type. Types that NumPy
// does not know are stored as raw bytes ('<V2'), as ml_dtypes does, and take their meaning from what is expected.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "graph/tensor.h"

namespace tessera {

// E0110 for anything malformed. `expected` says what raw bytes are; without it two of them are a bf16.
Result<Tensor> read_npy(std::string_view bytes, std::optional<DType> expected = {});
Result<Tensor> read_npy_file(const std::filesystem::path& path, std::optional<DType> expected = {});

Result<std::string> npy_bytes(const Tensor& tensor);

}  // namespace tessera
