// A discovery that was interrupted, or whose work folder was damaged, ends in the same rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "discover/check/check_certificate.h"
#include "discover/discover.h"

namespace tessera::resume_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOps = R"(world rows
sizes m=2 k=3; m=3 k=1
var x y z: [m, k]

world columns
sizes m=2; m=3
var u v: [m]

op x, y: add(x, y)
op x, y: mul(x, y)
op x, y: max(x, y)
op x: relu(x)
op x: neg(x)
)";

class Resume : public testing::Test {
  protected:
    void SetUp() override {
        fs::remove_all(folder_);
        fs::create_directories(folder_);
        std::ofstream(folder_ / "many.ops") << kOps;
    }
    void TearDown() override { fs::remove_all(folder_); }

    // `stop` says at which report it is interrupted.
    Result<Discovery> run(bool with_folder, std::function<bool(const EnumerateOptions::Progress&)> stop = {}) {
        std::atomic<bool> cancel{false};
        DiscoverOptions options;
        options.ops = (folder_ / "many.ops").string();
        options.all = true;
        options.enumerate.max_ops = 2;
        if (with_folder) options.enumerate.work_dir = work().string();
        options.enumerate.cancel = &cancel;
        options.enumerate.progress = [&](const EnumerateOptions::Progress& p) {
            if (stop && stop(p)) cancel = true;
        };
        return discover(options);
    }

    fs::path work() const { return folder_ / "work"; }

    std::string text_of(const fs::path& path) const {
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        return text.str();
    }

    fs::path folder_ = fs::temp_directory_path() / fmt::format("tessera-resume-{}", getpid());
};

void expect_same_rules(const Discovery& a, const Discovery& b) {
    ASSERT_EQ(a.rules.size(), b.rules.size());
    EXPECT_EQ(a.counts.proved, b.counts.proved);
    for (size_t i = 0; i < a.rules.size(); ++i) {
        EXPECT_EQ(to_string(a.rules[i].rule), to_string(b.rules[i].rule));
        EXPECT_EQ(a.rules[i].verdict, b.rules[i].verdict);
    }
}

bool after_some_proofs(const EnumerateOptions::Progress& p) { return p.world == "columns" && p.phase == "levels"; }

TEST_F(Resume, GoesOnWithTheProofs) {
    auto stopped = run(true, after_some_proofs);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code(), Code::E0410);
    EXPECT_THAT(text_of(work() / "rows.proofs"), testing::HasSubstr("= proved"));
    auto resumed = run(true), whole = run(false);
    ASSERT_TRUE(resumed.ok() && whole.ok());
    expect_same_rules(*resumed, *whole);
    EXPECT_TRUE(fs::is_empty(work()));
}

TEST_F(Resume, DoesNotBelieveDamagedNotes) {
    ASSERT_FALSE(run(true, after_some_proofs).ok());
    std::string text = text_of(work() / "rows.proofs");
    for (size_t at = 0; (at = text.find("root 0\n", at)) != std::string::npos; ++at) text.replace(at, 7, "root 7\n");
    std::ofstream(work() / "rows.proofs") << text << "= proved\nhalf of a";
    auto resumed = run(true), whole = run(false);
    ASSERT_TRUE(resumed.ok() && whole.ok());
    expect_same_rules(*resumed, *whole);
    for (const FoundRule& r : resumed->rules)
        if (r.verdict == Proof::Verdict::Proved) {
            Status checked = check_certificate(r.claim, r.certificate);
            EXPECT_TRUE(checked.ok()) << (checked.ok() ? "" : checked.error().to_string());
        }
}

}  // namespace
}  // namespace tessera::resume_test
