// Attributes as the language of rules writes them.
#pragma once

#include <fmt/ranges.h>

#include "graph/graph.h"
#include "graph/op_def.h"

namespace tessera {

inline std::optional<std::string> attr_text(const Attr& attr) {
    if (auto* i = std::get_if<int64_t>(&attr)) return std::to_string(*i);
    if (auto* l = std::get_if<std::vector<int64_t>>(&attr)) return fmt::format("[{}]", fmt::join(*l, ", "));
    if (auto* s = std::get_if<std::string>(&attr)) return fmt::format("\"{}\"", *s);
    return {};
}

// It says how to compute, not what.
inline bool is_hint(const Node& node, const std::string& attr) {
    const AttrDef* def = node.op().attr(attr);
    return def && def->is_hint;
}

}  // namespace tessera
