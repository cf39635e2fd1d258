#include "base/usable_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tessera {
namespace fs = std::filesystem;
namespace {

// Of one folder, in cores; 0: none.
double quota_of(const fs::path& folder) {
    double quota = 0, period = 0;
    std::string text;
    if (std::ifstream file(folder / "cpu.max"); file >> text >> period) {
        quota = text == "max" ? 0 : std::atof(text.c_str());
    } else {
        std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
        if (!(quota_file >> quota) || !(period_file >> period)) return 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

double smaller(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

// Of a group and those around it. A container may see its own group as the uppermost, and not find the path it has.
double quota_around(const fs::path& mount, const std::string& group) {
    double least = quota_of(mount);
    fs::path folder = mount;
    for (const fs::path& part : fs::path(group).relative_path()) {
        folder /= part;
        least = smaller(least, quota_of(folder));
    }
    return least;
}

// 0: the system does not say.
int affinity_cores() {
    for (int most = 1024; most <= 1 << 20; most *= 4) {
        cpu_set_t* set = CPU_ALLOC(most);
        if (!set) return 0;
        const size_t bytes = CPU_ALLOC_SIZE(most);
        const bool known = sched_getaffinity(0, bytes, set) == 0;  // fails where there are more cores than `most`
        const int cores = known ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (known) return cores;
    }
    return 0;
}

}  // namespace

double group_quota(const fs::path& root) {
    double least = 0;
    const fs::path mounts = root / "sys/fs/cgroup";
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {  // number:controllers:path
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
        if (controllers.empty()) {  // version 2, alone or beside version 1
            least = smaller(least, quota_around(mounts, group));
            least = smaller(least, quota_around(mounts / "unified", group));
        } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
            least = smaller(least, quota_around(mounts / controllers, group));
            least = smaller(least, quota_around(mounts / "cpu", group));
        }
    }
    return least;
}

int count_cores(const fs::path& root) {
    int cores = affinity_cores();
    if (cores <= 0) cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    if (const double quota = group_quota(root); quota > 0)
        cores = std::min(cores, static_cast<int>(std::ceil(std::min(quota, 1e6))));
    return std::max(cores, 1);
}

int usable_cores() {
    static const int cores = [] {
        const char* text = std::getenv("TESSERA_THREADS");
        const int wanted = text ? std::atoi(text) : 0;
        return wanted > 0 ? std::min(wanted, 1024) : count_cores();
    }();
    return cores;
}

}  // namespace tessera
