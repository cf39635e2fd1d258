// A user's rules are checked once, and then remembered by the text of the rules and of their certificates.
#include "api/accepted_rules.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/code_cache.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrue = "twice [exact]: relu(relu(x)) => relu(x)\n";
constexpr const char* kFalse = "twice [exact]: relu(relu(x)) => neg(x)\n";

class AcceptedRules : public testing::Test {
  protected:
    void SetUp() override {
        const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
        folder_ = fs::path(testing::TempDir()) / ("accepted-rules-" + name);
        fs::remove_all(folder_);
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    std::string path(const std::string& name) const { return (folder_ / name).string(); }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ / name, std::ios::binary) << text;
    }
    bool accepts(const std::atomic<bool>* cancel = nullptr) const {
        return accepted_rules({path("my.rules")}, true, path("cache"), cancel).ok();
    }
    // Checking would be cancelled; what is remembered is not checked.
    bool remembers() const {
        const std::atomic<bool> cancel{true};
        return accepts(&cancel);
    }
    std::vector<fs::path> entries() const {
        std::vector<fs::path> found;
        for (const CodeCache::Entry& e : CodeCache(folder_ / "cache", int64_t{1} << 30).entries())
            found.push_back(e.path);
        return found;
    }

  private:
    fs::path folder_;
};

TEST_F(AcceptedRules, AreCheckedOnce) {
    write("my.rules", kTrue);
    EXPECT_FALSE(remembers());
    EXPECT_TRUE(accepts());
    EXPECT_TRUE(remembers());
}

TEST_F(AcceptedRules, AreCheckedAgainAfterAnyEdit) {
    write("my.rules", kTrue);
    ASSERT_TRUE(accepts());
    write("my.rules", std::string(kTrue) + "\n");
    EXPECT_FALSE(remembers());
    write("my.rules", kFalse);
    EXPECT_FALSE(accepts());
    EXPECT_FALSE(accepts());  // a refusal is not remembered as a belief
    EXPECT_EQ(entries().size(), 1u);
    write("my.rules", kTrue);
    EXPECT_TRUE(remembers());
    write("my.cert", "rule twice\nelements\nend\n");
    EXPECT_FALSE(remembers());
}

// The texts of rules and certificates cannot be shifted from one file to the other.
TEST_F(AcceptedRules, ACertificateIsNoRule) {
    const std::string more = "// more\n";
    write("my.rules", kTrue + more);
    ASSERT_TRUE(accepts());
    write("my.rules", kTrue);
    write("my.cert", more);
    EXPECT_FALSE(remembers());
}

// Whoever finds two texts with one digest has not gained a belief: an entry holds the text itself.
TEST_F(AcceptedRules, AnEntryForAnotherTextIsNotBelieved) {
    write("my.rules", kTrue);
    ASSERT_TRUE(accepts());
    const std::string name = entries().at(0).stem();
    ASSERT_TRUE(CodeCache(path("cache"), int64_t{1} << 30).store(name, "another text").ok());
    EXPECT_FALSE(remembers());
}

TEST_F(AcceptedRules, ADamagedEntryIsNotBelieved) {
    write("my.rules", kTrue);
    ASSERT_TRUE(accepts());
    std::fstream entry(entries().at(0), std::ios::in | std::ios::out | std::ios::binary);
    entry.seekp(-1, std::ios::end);
    entry.put('!');
    entry.close();
    EXPECT_FALSE(remembers());
}

TEST_F(AcceptedRules, WithoutACacheNothingIsRemembered) {
    write("my.rules", kTrue);
    ASSERT_TRUE(accepted_rules({path("my.rules")}, true, "", nullptr).ok());
    EXPECT_FALSE(remembers());
}

}  // namespace
}  // namespace tessera
