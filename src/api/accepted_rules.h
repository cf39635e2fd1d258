// A user's rules, as every command takes them.
#pragma once

#include <atomic>

#include "rewrite/rule.h"

namespace tessera {

// The rules of some files. With `refute`, those that are not believed (discover/believe.h) are refused. E0301 to E0305,
// E0410, E0802.
Result<Rules> accepted_rules(const std::vector<std::string>& files, bool refute, const std::atomic<bool>* cancel);

}  // namespace tessera
