// How ranks exchange bytes. Every collective is one exchange or two: each rank sends some bytes to some ranks and
// receives from some. All ranks make the same exchanges in the same order; one that does not is found by its name.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace tessera::shard {

struct Message {
    int64_t peer = 0;
    std::vector<char> bytes;  // to receive: as many as are expected
};

// The beginning of every message: which exchange it is of, and how many bytes follow.
struct MessageHeader {
    uint64_t number = 0, name = 0, bytes = 0;
    bool operator==(const MessageHeader&) const = default;
};

// One that may be under way.
struct Exchange {
    std::string name;
    std::vector<Message> sends, receives;
    MessageHeader header = {};  // the transport's
    std::shared_ptr<void> under_way = {};
};

class Transport {
  public:
    virtual ~Transport() = default;
    virtual int64_t rank() const = 0;
    virtual int64_t ranks() const = 0;
    // Sends, and expects what comes. Every exchange that starts is finished, in any order.
    virtual Status start(Exchange& exchange) = 0;
    // Waits for what comes. E0702 where a rank stopped, is silent for longer than the limit, or makes another exchange:
    // it says which rank.
    virtual Status finish(Exchange& exchange) = 0;
    Status exchange(const std::string& name, const std::vector<Message>& sends, std::vector<Message>& receives);
    // Tells the others that this rank cannot go on; their exchanges fail with this error.
    virtual void stop(const Error& error) = 0;

    void set_patience(double seconds) { patience_ = seconds; }
    double patience() const { return patience_; }  // of an exchange

  protected:
    using Header = MessageHeader;
    Header next_header(const std::string& name);
    Error disagrees(int64_t peer, const std::string& name) const;
    Error silent(int64_t peer, const std::string& name) const;
    Error ended(int64_t peer, const std::string& name) const;
    Error suspended(int64_t peer, const std::string& name) const;
    Error stopped(int64_t peer, const std::string& why) const;

  private:
    double patience_ = 6;
    uint64_t exchanges_ = 0;
};

// Ranks that are threads of this process.
std::vector<std::unique_ptr<Transport>> thread_transports(int64_t ranks);

// This process as one of those that mpirun started. Loads Open MPI, once in a process. E0701 where there is none.
Result<std::unique_ptr<Transport>> mpi_transport(double patience);

// E0702 unless all ranks have the same words under the same names ("model", "mesh"): it says which rank differs in
// what.
Status agree(Transport& transport, const std::vector<std::pair<std::string, std::string>>& facts);

}  // namespace tessera::shard
