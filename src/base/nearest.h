// The candidate that a misspelt name most likely meant, for hints.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// Empty where none is near: at most a third of the letters differ.
std::string nearest(std::string_view wanted, const std::vector<std::string_view>& candidates);

}  // namespace tessera
