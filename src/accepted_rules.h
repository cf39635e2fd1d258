// A user's rules, as every command takes them.
#pragma once

#include <atomic>

#include "rewrite/rule.h"

namespace tessera {

// The rules of some files. With `refute`, one whose certificate stands beside its file and holds is believed; any other
// is refused where a counterexample is found. E0301 to E0305, E0410.
Result<Rules> accepted_rules(const std::vector<std::string>& files, bool refute, const std::atomic<bool>* cancel);

}  // namespace tessera
