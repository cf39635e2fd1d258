#include "search/claim.h"

#include <fmt/ranges.h>

namespace tessera {

Rule to_rule(const Claim& claim) { return claim.rule; }

std::string to_string(const Claim& claim) {
    std::vector<std::string> shapes;
    for (const auto& [name, shape] : claim.shapes) shapes.push_back(fmt::format("{}: {}", name, shape));
    return fmt::format("{} where {}", to_string(claim.rule), fmt::join(shapes, ", "));
}

}  // namespace tessera
