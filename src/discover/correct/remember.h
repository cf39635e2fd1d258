// Rules of a target as text, and back: what was found for a content is found again without looking. What is read back
// is believed no more than what is new: certificates are replayed, and what holds at its sizes only is tested again.
#pragma once

#include "discover/correct/mutate.h"

namespace tessera {

// What the rules of a target depend on. Names of nodes are not among it.
std::string remembered_key(const MutationTarget& target, const MutateOptions& options);

std::string remembered_text(const std::string& key, const std::vector<MutantRule>& rules);

// Nothing where the text is of another key, is damaged, or claims what does not hold.
std::optional<std::vector<MutantRule>> read_remembered(const std::string& key, const std::string& text,
                                                       const std::vector<std::string>& where);

}  // namespace tessera
