// Text with a slip in it, for rules and certificates.
#pragma once

#include <string>

#include "base/random.h"

namespace tessera {

// A token of the text changed: a number, an operator, a name for another of the text, or two tokens exchanged.
std::string corrupted(const std::string& text, const RandomStream& random, uint64_t& drawn);

}  // namespace tessera
