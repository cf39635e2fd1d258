// Text to graph, where inputs become constants whose elements lie in memory.
#pragma once

#include <map>
#include <string>

#include "graph/text/parse.h"

namespace tessera {

// As parse; E0210 where a constant does not fit the input's type.
Result<std::unique_ptr<Graph>> parse_with_constants(std::string_view text, const ParseOptions& options,
                                                    const std::map<std::string, Tensor>& constants);

}  // namespace tessera
