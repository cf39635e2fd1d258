#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace tessera::usable_cores_test {
namespace {

namespace fs = std::filesystem;

// A folder with /proc/self/cgroup and files of /sys/fs/cgroup.
class FakeRoot {
  public:
    explicit FakeRoot(const std::string& groups) {
        static int count = 0;
        path_ =
            fs::temp_directory_path() / ("tessera-cores-" + std::to_string(getpid()) + "-" + std::to_string(count++));
        write("proc/self/cgroup", groups);
    }
    ~FakeRoot() { fs::remove_all(path_); }
    FakeRoot& group(const std::string& file, const std::string& text) {
        write("sys/fs/cgroup/" + file, text);
        return *this;
    }
    const fs::path& path() const { return path_; }

  private:
    void write(const std::string& file, const std::string& text) {
        fs::create_directories((path_ / file).parent_path());
        std::ofstream(path_ / file) << text << "\n";
    }
    fs::path path_;
};

TEST(UsableCores, QuotaOfVersionTwo) {
    EXPECT_EQ(group_quota(FakeRoot("0::/").group("cpu.max", "150000 100000").path()), 1.5);
    EXPECT_EQ(group_quota(FakeRoot("0::/a/b").group("a/b/cpu.max", "300000 100000").path()), 3);
    EXPECT_EQ(group_quota(FakeRoot("0::/a").group("a/cpu.max", "max 100000").path()), 0);
    EXPECT_EQ(group_quota(FakeRoot("0::/a").group("unified/a/cpu.max", "50000 100000").path()), 0.5);
}

TEST(UsableCores, TheSmallestOfTheGroupsAroundIt) {
    FakeRoot root("0::/a/b");
    root.group("cpu.max", "max 100000").group("a/cpu.max", "200000 100000").group("a/b/cpu.max", "400000 100000");
    EXPECT_EQ(group_quota(root.path()), 2);
}

TEST(UsableCores, QuotaOfVersionOne) {
    const std::string groups = "12:memory:/x\n4:cpu,cpuacct:/docker/1\n1:name=systemd:/x";
    for (const char* mount : {"cpu,cpuacct/docker/1", "cpu/docker/1", "cpu,cpuacct"}) {  // the last: in a container
        FakeRoot root(groups);
        root.group(std::string(mount) + "/cpu.cfs_quota_us", "250000");
        root.group(std::string(mount) + "/cpu.cfs_period_us", "100000");
        EXPECT_EQ(group_quota(root.path()), 2.5) << mount;
    }
    FakeRoot free(groups);
    free.group("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1").group("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000");
    EXPECT_EQ(group_quota(free.path()), 0);
}

TEST(UsableCores, NothingThereIsNoLimit) {
    EXPECT_EQ(group_quota(FakeRoot("").path()), 0);
    EXPECT_EQ(group_quota(FakeRoot("no groups\n::\n0::/a").group("a/cpu.max", "what is this").path()), 0);
    EXPECT_EQ(group_quota("/no/such/folder"), 0);
}

TEST(UsableCores, AtMostTheQuotaAndAtLeastOne) {
    const int all = count_cores(FakeRoot("").path());
    EXPECT_GE(all, 1);
    EXPECT_EQ(count_cores(FakeRoot("0::/").group("cpu.max", "10000 100000").path()), 1);
    EXPECT_EQ(count_cores(FakeRoot("0::/").group("cpu.max", "110000 100000").path()), std::min(all, 2));
    EXPECT_EQ(count_cores(FakeRoot("0::/").group("cpu.max", "99900000 100").path()), all);
}

TEST(UsableCores, FollowsTheAffinity) {
    std::thread([] {
        cpu_set_t before, one;
        ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE; ++i)
            if (CPU_ISSET(i, &before)) {
                CPU_SET(i, &one);
                break;
            }
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        EXPECT_EQ(count_cores(FakeRoot("").path()), 1);
    }).join();
}

}  // namespace
}  // namespace tessera::usable_cores_test
