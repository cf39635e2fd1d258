// Text to graph: what print.h writes, and what people write by hand (docs/graph.md has the grammar). Types may be left
// out; where they stand they are checked. No text makes it crash, recurse deeply or allocate beyond the text's own
// size.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "graph/graph.h"

namespace tessera {

struct ParseOptions {
    std::string source = "text";   // for messages: source:line:column
    std::filesystem::path folder = {};  // where a weights file may lie; empty: there can be none
    bool without_weights = false;  // constants of the weights file get no elements: their data is null
};

Result<std::unique_ptr<Graph>> parse(std::string_view text, const ParseOptions& options = {});
Result<std::unique_ptr<Graph>> load_text(const std::filesystem::path& path);

}  // namespace tessera
