// Damage to a model, from a seed: to its bytes, or to what they mean.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace tessera {

// A few bytes changed, dropped, repeated or cut off.
std::string mutate_bytes(std::string bytes, std::mt19937_64& random);

// Still a well-formed file, but with other attributes, sizes, types, wires or opsets; empty if `bytes` is no model.
std::string mutate_meaning(std::string_view bytes, std::mt19937_64& random);

}  // namespace tessera
