// Exchanges between threads: what is wrong is said, by whom, and nobody waits for long.
#include <thread>

#include "runtime/collectives/combine_elements.h"
#include "shard/drawn.h"

namespace tessera::test::shard_transport_test {

using namespace shard;

namespace {

std::vector<char> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// What each of two ranks comes to.
std::vector<Status> both(const std::function<Status(Transport&)>& first,
                         const std::function<Status(Transport&)>& second, double patience = 10) {
    auto ranks = thread_transports(2);
    for (auto& r : ranks) r->set_patience(patience);
    std::vector<Status> results(2);
    std::thread other([&] { results[1] = second(*ranks[1]); });
    results[0] = first(*ranks[0]);
    other.join();
    return results;
}

std::function<Status(Transport&)> exchanges(std::vector<std::string> names, size_t bytes = 3) {
    return [=](Transport& t) -> Status {
        for (const std::string& name : names) {
            std::vector<Message> receives = {{1 - t.rank(), std::vector<char>(bytes)}};
            TRY(t.exchange(name, {{1 - t.rank(), bytes_of(fmt::format("{} 1", t.rank()))}}, receives));
            if (receives[0].bytes != bytes_of(fmt::format("{} 1", 1 - t.rank())))
                return Error(Code::E0407, "other bytes came");
        }
        return {};
    };
}

TEST(ShardTransport, BytesArrive) {
    for (const Status& s : both(exchanges({"a", "b", "c"}), exchanges({"a", "b", "c"})))
        EXPECT_TRUE(s.ok()) << s.error().to_string();
}

TEST(ShardTransport, AnotherOrderIsCaught) {
    const auto results = both(exchanges({"a", "b"}), exchanges({"b", "a"}));
    for (size_t r = 0; r < 2; ++r) {
        ASSERT_FALSE(results[r].ok());
        EXPECT_EQ(results[r].error().code(), Code::E0702);
        EXPECT_NE(results[r].error().message().find(fmt::format("rank {} makes another exchange", 1 - r)),
                  std::string::npos)
            << results[r].error().message();
    }
}

// Starts exchanges in one order and finishes them in another.
std::function<Status(Transport&)> overlapped(std::vector<std::string> started, std::vector<size_t> finished) {
    return [=](Transport& t) -> Status {
        std::vector<Exchange> all;
        for (const std::string& name : started) {
            all.push_back({.name = name,
                           .sends = {{1 - t.rank(), bytes_of(name)}},
                           .receives = {{1 - t.rank(), std::vector<char>(1)}}});
            TRY(t.start(all.back()));
        }
        for (size_t i : finished) {
            TRY(t.finish(all[i]));
            if (all[i].receives[0].bytes != bytes_of(started[i])) return Error(Code::E0407, "other bytes came");
        }
        return {};
    };
}

TEST(ShardTransport, ExchangesFinishInAnyOrder) {
    for (const Status& s : both(overlapped({"a", "b", "c"}, {2, 0, 1}), overlapped({"a", "b", "c"}, {1, 2, 0})))
        EXPECT_TRUE(s.ok()) << s.error().to_string();
}

TEST(ShardTransport, AnotherOrderOfStartsIsCaught) {
    for (const auto& finished : {std::vector<size_t>{0, 1}, {1, 0}}) {
        const auto results = both(overlapped({"a", "b"}, finished), overlapped({"b", "a"}, finished));
        for (const Status& s : results) {
            ASSERT_FALSE(s.ok());
            EXPECT_NE(s.error().message().find("makes another exchange"), std::string::npos) << s.error().message();
        }
    }
}

TEST(ShardTransport, AnExchangeThatIsLeftOutIsCaught) {
    const auto results = both(overlapped({"a", "b"}, {1, 0}), overlapped({"b"}, {0}), 0.2);
    ASSERT_FALSE(results[1].ok());
    EXPECT_NE(results[1].error().message().find("makes another exchange"), std::string::npos);
}

TEST(ShardTransport, AnotherSizeIsCaught) {
    const auto results = both(exchanges({"a"}), exchanges({"a"}, 4));
    ASSERT_FALSE(results[1].ok());
    EXPECT_EQ(results[1].error().code(), Code::E0702);
}

TEST(ShardTransport, ASilentRankIsNamed) {
    const auto results = both(exchanges({"a", "b"}), exchanges({"a"}), 0.05);
    ASSERT_FALSE(results[0].ok());
    EXPECT_NE(results[0].error().message().find("nothing came from rank 1"), std::string::npos)
        << results[0].error().message();
}

TEST(ShardTransport, ARankThatStopsEndsTheOthers) {
    const auto results = both(exchanges({"a", "b"}), [](Transport& t) -> Status {
        t.stop(Error(Code::E0408, "rank 1: out of memory"));
        return {};
    });
    ASSERT_FALSE(results[0].ok());
    EXPECT_EQ(results[0].error().message(), "rank 0: rank 1 stopped: out of memory");
}

TEST(ShardTransport, DisagreementsAreNamed) {
    const auto facts = [](std::string model, std::string mesh) {
        return [=](Transport& t) { return agree(t, {{"model", model}, {"mesh", mesh}}); };
    };
    for (const Status& s : both(facts("m", "a=2"), facts("m", "a=2"))) EXPECT_TRUE(s.ok());
    const auto results = both(facts("m", "a=2"), facts("m", "b=2"));
    ASSERT_FALSE(results[0].ok());
    EXPECT_EQ(results[0].error().message(), "rank 0: rank 1 has another mesh");
}

TEST(ShardTransport, ElementsAreCombinedAsTheirTypesAre) {
    const std::vector<uint8_t> a = {250, 3}, b = {10, 200};
    std::vector<uint8_t> out(2);
    const auto combined = [&](ReduceOp op) {
        combine_elements(op, DType::u8, {a.data(), b.data()}, 2, out.data());
        return out;
    };
    EXPECT_EQ(combined(ReduceOp::Sum), (std::vector<uint8_t>{4, 203}));
    EXPECT_EQ(combined(ReduceOp::Max), (std::vector<uint8_t>{250, 200}));
    EXPECT_EQ(combined(ReduceOp::Min), (std::vector<uint8_t>{10, 3}));
    const std::vector<float> x = {1, NAN}, y = {NAN, 2};
    std::vector<float> z(2);
    for (ReduceOp op : {ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum}) {
        combine_elements(op, DType::f32, {x.data(), y.data()}, 2, z.data());
        EXPECT_TRUE(std::isnan(z[0]) && std::isnan(z[1]));
    }
}

}  // namespace
}  // namespace tessera::test::shard_transport_test
