// The files of a bundle that people read: its header, an example that uses it, and how they are built.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model.h"

namespace tessera {

inline constexpr uint32_t kBundleVersion = 1;
inline constexpr std::string_view kWeightsMagic = "TESSERAW";

struct BundleText {
    std::string name, model, target, code_file;
    uint64_t id = 0;
    std::vector<Port> inputs, outputs;
    int64_t weight_bytes = 0, arena_bytes = 0;
    int threads = 1;
};

// The type of C that holds an element; empty: none does.
std::string c_type(DType dtype);

std::string bundle_header(const BundleText& bundle);
std::string bundle_example(const BundleText& bundle);
std::string bundle_makefile(const BundleText& bundle);

// As the header computes it: of whole words of 8 bytes, starting from the sum before.
uint64_t bundle_checksum(std::string_view words, uint64_t sum = 0);

}  // namespace tessera
