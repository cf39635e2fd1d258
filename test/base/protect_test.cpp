// A fault of ours below the public API: an error with a reproducer, whatever thread it happens on.
#include "base/protect.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/thread_pool.h"

namespace tessera::protect_test {
namespace {

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// As a CHECK does where it does not abort: the tests themselves run with TESSERA_ABORT=1.
[[noreturn]] void fault(const char* what) { throw InternalError(what); }

TEST(Protect, ReturnsWhatTheFunctionReturns) {
    auto value = protect("test", {}, []() -> Result<int> { return 3; });
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(*value, 3);
    auto error = protect("test", {}, []() -> Result<int> { return Error(Code::E0101, "none"); });
    EXPECT_EQ(error.error().code(), Code::E0101);
}

TEST(Protect, MakesAnErrorOfAFaultAndKeepsTheModel) {
    auto failed = protect("compile", {.name = "model.tsr", .text = [] { return std::string("graph g"); }},
                          []() -> Result<int> { fault("x.cpp:3: a == b"); });
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code(), Code::E0801);
    EXPECT_NE(failed.error().message().find("x.cpp:3: a == b"), std::string::npos);
    const std::string note = failed.error().note();
    ASSERT_TRUE(note.starts_with("reproducer: ")) << note;
    const std::filesystem::path folder = note.substr(12);
    EXPECT_EQ(contents(folder / "model.tsr"), "graph g");
    EXPECT_NE(contents(folder / "message.txt").find("a == b"), std::string::npos);
    EXPECT_NE(contents(folder / "message.txt").find("while: compile"), std::string::npos);
    std::filesystem::remove_all(folder);
}

TEST(Protect, SurvivesAReproducerThatFailsToo) {
    auto failed = protect("run", {.text = []() -> std::string { fault("again"); }}, []() -> Status { fault("first"); });
    ASSERT_FALSE(failed.ok());
    EXPECT_NE(failed.error().message().find("first"), std::string::npos);
    if (failed.error().note().starts_with("reproducer: "))
        std::filesystem::remove_all(failed.error().note().substr(12));
}

TEST(Protect, HasAnotherWayTakenAfterAFault) {
    EXPECT_EQ(*attempt("a way", []() -> Result<int> { return 3; }), 3);
    for (bool outside : {false, true}) {
        auto failed = attempt("a way", [&]() -> Result<int> {
            if (!outside) fault("x.cpp:3: a == b");
            return std::vector<int>{1, 2}.at(2);
        });
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.error().code(), Code::E0801);
        EXPECT_TRUE(failed.error().message().starts_with("a way: "));
        EXPECT_TRUE(failed.error().note().empty()) << "nothing is kept of it";
    }
}

TEST(Protect, TakesMemoryThatIsNotThereForALimit) {
    auto failed = protect("run", {}, []() -> Status { throw std::bad_alloc(); });
    EXPECT_EQ(failed.error().code(), Code::E0408);
}

TEST(Protect, SeesFaultsOfWorkers) {
    Team team;
    for (int round = 0; round < 50; ++round) {
        std::atomic<int> done{0};
        EXPECT_THROW(team.each(1000,
                               [&](int64_t i, int) {
                                   if (i == 700) fault("in a worker");
                                   ++done;
                               }),
                     InternalError);
        EXPECT_LT(done, 1000);
        // The team goes on as if nothing had been.
        done = 0;
        team.each(100, [&](int64_t, int) { ++done; });
        EXPECT_EQ(done, 100);
    }
}

}  // namespace
}  // namespace tessera::protect_test
