// The number of cores that this process may use, as limited by its CPU affinity and its cgroups' CPU quota.
#pragma once

#include <filesystem>

namespace tessera {

// TESSERA_THREADS if set, else count_cores(); evaluated once.
int usable_cores();

// At least 1. `root` is the folder that contains /proc and /sys.
int count_cores(const std::filesystem::path& root = "/");

// The smallest CPU quota of the cgroups (v1 or v2) that contain this process, in cores; 0: there is none.
double group_quota(const std::filesystem::path& root = "/");

}  // namespace tessera
