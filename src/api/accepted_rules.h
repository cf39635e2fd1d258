// A user's rules, as every command takes them.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "rewrite/rule.h"

namespace tessera {

// The rules of some files. With `refute`, those that are not believed (discover/believe.h) are refused; the folder
// `cache` (as CodeCache::open takes it) remembers which were. E0301 to E0305, E0410, E0605, E0802.
Result<Rules> accepted_rules(const std::vector<std::string>& files, bool refute,
                             const std::optional<std::string>& cache, const std::atomic<bool>* cancel);

}  // namespace tessera
