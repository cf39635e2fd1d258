// How many cores this process may use: those of its affinity, as far as the CPU quota of its control groups goes.
#pragma once

#include <filesystem>

namespace tessera {

// TESSERA_THREADS where it is set, else count_cores(); asked once.
int usable_cores();

// At least 1. `root` is where /proc and /sys lie.
int count_cores(const std::filesystem::path& root = "/");

// The smallest quota of the control groups around this process, of version 1 or 2, in cores; 0: there is none.
double group_quota(const std::filesystem::path& root = "/");

}  // namespace tessera
