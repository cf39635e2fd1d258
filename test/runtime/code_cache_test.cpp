#include "runtime/code_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/output_file.h"
#include "runtime/target_key.h"

namespace tessera::code_cache_test {
namespace {

namespace fs = std::filesystem;

class CodeCacheTest : public testing::Test {
  protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() / fmt::format("tessera-cache-{}-{}", getpid(), counter_++);
        fs::remove_all(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    CodeCache open() {
        auto cache = CodeCache::open(folder_.string());
        EXPECT_TRUE(cache.ok());
        return *cache;
    }
    fs::path entry(const std::string& key) const { return folder_ / (key + ".tsro"); }

    fs::path folder_;
    static inline int counter_ = 0;
};

TEST_F(CodeCacheTest, KeysDependOnEveryPart) {
    EXPECT_EQ(code_key({"a", "b"}), code_key({"a", "b"}));
    EXPECT_NE(code_key({"a", "b"}), code_key({"ab"}));
    EXPECT_NE(code_key({"a", "b"}), code_key({"b", "a"}));
    EXPECT_NE(code_key({"a", ""}), code_key({"a"}));
    EXPECT_EQ(code_key({}).size(), 32u);
    EXPECT_EQ(code_key({std::string(100000, 'a')}).size(), 32u);
}

TEST(TargetKey, NamesTheProcessorAndTheOptions) {
    const Machine machine = *describe_target("host");
    const std::vector<std::string> host = target_parts({}), here = machine_parts({});
    EXPECT_EQ(std::count(host.begin(), host.end(), "host"), 0);
    EXPECT_FALSE(host[0].empty());  // the triple
    EXPECT_NE(host, target_parts({.target = "x86_64-sse4"}));
    EXPECT_NE(target_parts({.target = "x86_64-avx2"}), target_parts({.target = "x86_64-avx512"}));
    EXPECT_NE(host, target_parts({.flush_subnormals = true}));
    ASSERT_EQ(here.size(), host.size() + 1);
    EXPECT_NE(here.back().find(std::to_string(machine.l2_bytes)), std::string::npos);
}

TEST_F(CodeCacheTest, FindsWhatWasStored) {
    CodeCache cache = open();
    const std::string key = code_key({"x"}), code = std::string("code\0with zeros", 15);
    EXPECT_FALSE(cache.find(key));
    ASSERT_TRUE(cache.store(key, code).ok());
    EXPECT_EQ(cache.find(key), code);
    EXPECT_FALSE(cache.find(code_key({"y"})));
}

TEST_F(CodeCacheTest, DropsWhatIsDamagedOrForeign) {
    CodeCache cache = open();
    const std::string key = code_key({"x"}), other = code_key({"y"}), code(1000, 'c');
    auto damage = [&](const std::function<void(std::string&)>& f) {
        ASSERT_TRUE(cache.store(key, code).ok());
        std::ifstream file(entry(key), std::ios::binary);
        std::string text((std::istreambuf_iterator<char>(file)), {});
        f(text);
        ASSERT_TRUE(write_file(entry(key), text).ok());
        EXPECT_FALSE(cache.find(key));
        EXPECT_FALSE(fs::exists(entry(key)));
    };
    damage([](std::string& t) { t.resize(t.size() - 1); });
    damage([](std::string& t) { t.resize(10); });
    damage([](std::string& t) { t.clear(); });
    damage([](std::string& t) { t[500] ^= 1; });
    damage([](std::string& t) { t[0] ^= 1; });
    damage([](std::string& t) { t += "more"; });
    damage([](std::string& t) { t = "#!/bin/sh\n"; });
    ASSERT_TRUE(cache.store(other, code).ok());  // an entry under another's name
    fs::rename(entry(other), entry(key));
    EXPECT_FALSE(cache.find(key));
    ASSERT_TRUE(cache.store(key, code).ok());
    EXPECT_EQ(cache.find(key), code);
}

TEST_F(CodeCacheTest, TheLeastRecentlyUsedGo) {
    fs::create_directories(folder_);
    CodeCache cache(folder_, 3500);
    const std::string code(1000, 'c');
    auto age = [&](const std::string& key, int minutes) {
        fs::last_write_time(entry(key), fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
    };
    std::string keys[4];
    for (int i = 0; i < 3; ++i) {
        keys[i] = code_key({std::to_string(i)});
        ASSERT_TRUE(cache.store(keys[i], code).ok());
        age(keys[i], 10 - i);
    }
    std::ofstream(folder_ / "notes.txt") << "not ours";
    std::ofstream(entry(keys[0]).string() + ".abcdef") << "half written";
    EXPECT_TRUE(cache.find(keys[0]));  // used just now
    keys[3] = code_key({"3"});
    ASSERT_TRUE(cache.store(keys[3], code).ok());
    EXPECT_TRUE(fs::exists(entry(keys[0])));
    EXPECT_FALSE(fs::exists(entry(keys[1])));
    EXPECT_TRUE(fs::exists(entry(keys[3])));
    EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));
    ASSERT_TRUE(cache.store(code_key({"large"}), std::string(5000, 'c')).ok());  // is not kept
    EXPECT_TRUE(fs::exists(entry(keys[3])));
}

TEST_F(CodeCacheTest, AFolderThatCannotBeUsed) {
    std::ofstream(folder_) << "a file";
    auto cache = CodeCache::open(folder_.string());
    ASSERT_FALSE(cache.ok());
    EXPECT_EQ(cache.error().code(), Code::E0605);
    fs::remove(folder_);
    EXPECT_FALSE(CodeCache::open("/proc/tessera").ok());  // where even root cannot make a folder
}

TEST_F(CodeCacheTest, NotAskedForByNameItIsNoError) {
    std::ofstream(folder_) << "a file";
    setenv("TESSERA_CACHE", folder_.c_str(), 1);
    auto cache = CodeCache::open({});
    ASSERT_TRUE(cache.ok());
    EXPECT_FALSE(cache->find(code_key({"x"})));
    EXPECT_FALSE(cache->store(code_key({"x"}), "code").ok());
    setenv("TESSERA_CACHE", "", 1);
    EXPECT_FALSE(CodeCache::open({})->enabled());
    unsetenv("TESSERA_CACHE");
    EXPECT_FALSE(CodeCache::open("")->enabled());
    fs::remove(folder_);
}

TEST_F(CodeCacheTest, ManyAtOnce) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&] {
            CodeCache cache(folder_, 5000);
            fs::create_directories(folder_);
            for (int i = 0; i < 20; ++i) {
                const std::string key = code_key({std::to_string(i % 7)}), code(1000, char('a' + i % 7));
                (void)cache.store(key, code);
                EXPECT_EQ(cache.find(key).value_or(code), code);
            }
        });
    for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace tessera::code_cache_test
