#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "runtime/collectives/transport.h"

namespace tessera::shard {
namespace {

// What all ranks of one process share.
struct Post {
    struct Letter {
        uint64_t number, name;
        std::vector<char> bytes;
    };
    std::mutex mutex;
    std::condition_variable arrived;
    std::map<std::pair<int64_t, int64_t>, std::deque<Letter>> letters;  // by sender and receiver
    std::optional<std::pair<int64_t, std::string>> stopped;             // who, and why
};

class ThreadTransport : public Transport {
  public:
    ThreadTransport(std::shared_ptr<Post> post, int64_t rank, int64_t ranks)
        : post_(std::move(post)), rank_(rank), ranks_(ranks) {}
    int64_t rank() const override { return rank_; }
    int64_t ranks() const override { return ranks_; }

    Status start(Exchange& e) override {
        e.header = next_header(e.name);
        const std::lock_guard lock(post_->mutex);
        for (Message& m : e.sends)
            post_->letters[{rank_, m.peer}].push_back({e.header.number, e.header.name, std::move(m.bytes)});
        post_->arrived.notify_all();
        return {};
    }

    Status finish(Exchange& e) override {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience());
        std::unique_lock lock(post_->mutex);
        for (Message& m : e.receives) {
            auto& box = post_->letters[{m.peer, rank_}];
            // Letters of a rank have rising numbers: after one with a higher number, the expected one does not come.
            auto at = box.end();
            const auto here = [&] {
                at = std::find_if(box.begin(), box.end(), [&](const auto& l) { return l.number >= e.header.number; });
                return at != box.end();
            };
            const bool in_time = post_->arrived.wait_until(lock, deadline, [&] { return here() || post_->stopped; });
            if (at == box.end())
                return in_time ? stopped(post_->stopped->first, post_->stopped->second) : silent(m.peer, e.name);
            if (at->number != e.header.number || at->name != e.header.name || at->bytes.size() != m.bytes.size())
                return disagrees(m.peer, e.name);
            m.bytes = std::move(at->bytes);
            box.erase(at);
        }
        return {};
    }

    void stop(const Error& error) override {
        const std::lock_guard lock(post_->mutex);
        if (!post_->stopped) post_->stopped.emplace(rank_, error.message());
        post_->arrived.notify_all();
    }

  private:
    std::shared_ptr<Post> post_;
    int64_t rank_, ranks_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> thread_transports(int64_t ranks) {
    auto post = std::make_shared<Post>();
    std::vector<std::unique_ptr<Transport>> all;
    for (int64_t r = 0; r < ranks; ++r) all.push_back(std::make_unique<ThreadTransport>(post, r, ranks));
    return all;
}

}  // namespace tessera::shard
