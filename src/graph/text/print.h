// The text form of a graph; parse.h reads it back to an identical one. Small constants stand by value where they are
// defined, larger ones as bytes in base64 at the end or in a weights file beside the text.
#pragma once

#include <filesystem>
#include <string>

#include "graph/graph.h"

namespace tessera {

struct PrintOptions {
    int64_t by_value = 32;     // constants of up to so many elements are written by value
    bool types = true;         // after each node
    std::string weights_file = {};  // file for the larger constants, beside the text
};

// A weights file that is not written, for graphs that are only printed for people.
inline constexpr const char* kWeightsLeftOut = "left out";

std::string print(const Graph& graph, const PrintOptions& options = {});
// The text, and its weights file where there is one. E0105.
Status save_text(const Graph& graph, const std::filesystem::path& path, const PrintOptions& options = {});

}  // namespace tessera
