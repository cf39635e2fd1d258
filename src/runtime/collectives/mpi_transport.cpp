// Open MPI, loaded at run time: no mpi.h, nothing of MPI on the link line. Its handles are addresses of objects that
// the library exports, and a null pointer is MPI_STATUS_IGNORE.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/collectives/peer_watch.h"
#include "runtime/collectives/transport.h"

namespace tessera::shard {
namespace {

using Handle = void*;
constexpr int kAnySource = -1;
constexpr int kHeaderTag = 1, kStopTag = 2, kBytesTag = 3;
constexpr uint64_t kTags = 16384;                           // MPI promises tags up to 32767
constexpr size_t kStopBytes = 1024;                         // of the message of a rank that stops
constexpr size_t kChunk = size_t{1} << 30;                  // bytes of one MPI message, which counts them in an int
constexpr int64_t kRoundsPerLook = 500;                     // of waiting, before the other processes are looked at
constexpr auto kSuspended = std::chrono::seconds(3);        // that a process of this host may be stopped by a signal
constexpr auto kFarewell = std::chrono::milliseconds(300);  // until the others have read why this rank stops

struct MpiStatus {
    int source, tag, error;
    char rest[64];  // more than Open MPI has
};

struct Mpi {
    int (*init)(int*, char***);
    int (*finalize)();
    int (*comm_rank)(Handle, int*);
    int (*comm_size)(Handle, int*);
    int (*isend)(const void*, int, Handle, int, int, Handle, Handle*);
    int (*irecv)(void*, int, Handle, int, int, Handle, Handle*);
    int (*recv)(void*, int, Handle, int, int, Handle, void*);
    int (*testall)(int, Handle*, int*, void*);
    int (*iprobe)(int, int, Handle, int*, void*);
    int (*version)(char*, int*);
    Handle world, byte;
};

Result<Mpi> load_mpi() {
    const auto unusable = [](const std::string& why) {
        return Error(Code::E0701, "Open MPI cannot be used: {}", why)
            .hint("install openmpi-bin and libopenmpi-dev, and start with mpirun -n RANKS tessera ...");
    };
    void* library = nullptr;
    for (const char* name : {"libmpi.so.40", "libmpi.so"})
        if (!library) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!library) return unusable(dlerror());
    Mpi mpi{};
    const std::pair<const char*, void*> symbols[] = {{"MPI_Init", &mpi.init},
                                                     {"MPI_Finalize", &mpi.finalize},
                                                     {"MPI_Comm_rank", &mpi.comm_rank},
                                                     {"MPI_Comm_size", &mpi.comm_size},
                                                     {"MPI_Isend", &mpi.isend},
                                                     {"MPI_Irecv", &mpi.irecv},
                                                     {"MPI_Recv", &mpi.recv},
                                                     {"MPI_Testall", &mpi.testall},
                                                     {"MPI_Iprobe", &mpi.iprobe},
                                                     {"MPI_Get_library_version", &mpi.version},
                                                     {"ompi_mpi_comm_world", &mpi.world},
                                                     {"ompi_mpi_byte", &mpi.byte}};
    for (const auto& [name, place] : symbols) {
        void* found = dlsym(library, name);
        if (!found) return unusable(fmt::format("the library has no {}: it is not Open MPI", name));
        std::memcpy(place, &found, sizeof found);
    }
    return mpi;
}

class MpiTransport : public Transport {
  public:
    explicit MpiTransport(const Mpi& mpi) : mpi_(mpi) {
        int rank = 0, ranks = 1;
        mpi_.comm_rank(mpi_.world, &rank);
        mpi_.comm_size(mpi_.world, &ranks);
        rank_ = rank;
        ranks_ = ranks;
    }
    ~MpiTransport() override {
        if (!failed_) mpi_.finalize();  // otherwise it would wait for the others; mpirun ends them
    }
    int64_t rank() const override { return rank_; }
    int64_t ranks() const override { return ranks_; }

    // Tells the others which process this rank is, so that all notice when one ends.
    Status introduce() {
        std::vector<RankProcess> all(size_t(ranks_), this_process());
        std::vector<Message> sends, receives;
        const auto* own = reinterpret_cast<const char*>(&all[0]);
        for (int64_t r = 0; r < ranks_; ++r) {
            if (r == rank_) continue;
            sends.push_back({r, {own, own + sizeof(RankProcess)}});
            receives.push_back({r, std::vector<char>(sizeof(RankProcess))});
        }
        TRY(exchange("introduction", sends, receives));
        for (const Message& m : receives) std::memcpy(&all[size_t(m.peer)], m.bytes.data(), sizeof(RankProcess));
        watch_.emplace(rank_, all);
        return {};
    }

    Status start(Exchange& e) override {
        e.header = next_header(e.name);
        auto own = std::make_shared<UnderWay>();
        for (const Message& m : e.sends) own->out.push_back({e.header.number, e.header.name, m.bytes.size()});
        own->in.resize(e.receives.size());
        for (size_t i = 0; i < e.receives.size(); ++i)
            receive(&own->in[i], sizeof(Header), e.receives[i].peer, kHeaderTag, own->pending);
        for (size_t i = 0; i < e.sends.size(); ++i) {
            send(&own->out[i], sizeof(Header), e.sends[i].peer, kHeaderTag, own->pending);
            send(e.sends[i].bytes.data(), e.sends[i].bytes.size(), e.sends[i].peer, bytes_tag(e.header), own->pending);
        }
        e.under_way = std::move(own);
        return {};
    }

    Status finish(Exchange& e) override {
        UnderWay& own = *static_cast<UnderWay*>(e.under_way.get());
        // The bytes are received only where the header is the expected one: a longer message than its buffer is fatal.
        TRY(wait(own.pending, e.receives.size(), e.name));
        for (size_t i = 0; i < e.receives.size(); ++i) {
            Message& m = e.receives[i];
            if (own.in[i] != Header{e.header.number, e.header.name, m.bytes.size()})
                return fail(disagrees(m.peer, e.name));
            receive(m.bytes.data(), m.bytes.size(), m.peer, bytes_tag(e.header), own.pending);
        }
        return wait(own.pending, own.pending.size(), e.name);
    }

    void stop(const Error& error) override {
        if (std::exchange(failed_, true)) return;
        last_words_.assign(kStopBytes, '\0');
        error.message().copy(last_words_.data(), kStopBytes - 1);
        std::vector<Pending> pending;
        for (int64_t r = 0; r < ranks_; ++r)
            if (r != rank_) send(last_words_.data(), kStopBytes, r, kStopTag, pending);
        std::this_thread::sleep_for(kFarewell);
    }

  private:
    struct Pending {
        Handle request;
        int64_t peer;
    };
    struct UnderWay {
        std::vector<Header> out, in;
        std::vector<Pending> pending;  // headers to receive first
    };

    // Exchanges that are under way together have tags of their own, so that they can be finished in any order.
    static int bytes_tag(const Header& header) { return kBytesTag + int(header.number % kTags); }

    void send(const void* data, size_t bytes, int64_t peer, int tag, std::vector<Pending>& pending) {
        for (size_t at = 0; at < bytes; at += kChunk) {
            pending.push_back({nullptr, peer});
            mpi_.isend(static_cast<const char*>(data) + at, int(std::min(kChunk, bytes - at)), mpi_.byte, int(peer),
                       tag, mpi_.world, &pending.back().request);
        }
    }
    void receive(void* data, size_t bytes, int64_t peer, int tag, std::vector<Pending>& pending) {
        for (size_t at = 0; at < bytes; at += kChunk) {
            pending.push_back({nullptr, peer});
            mpi_.irecv(static_cast<char*>(data) + at, int(std::min(kChunk, bytes - at)), mpi_.byte, int(peer), tag,
                       mpi_.world, &pending.back().request);
        }
    }

    // At the other processes of this host.
    Status look(const std::string& name, std::optional<std::chrono::steady_clock::time_point>& suspended_since) {
        if (const auto peer = watch_->gone()) return fail(ended(*peer, name));
        const auto peer = watch_->suspended();
        const auto now = std::chrono::steady_clock::now();
        if (!peer) {
            suspended_since.reset();
            return {};
        }
        if (!suspended_since) suspended_since = now;
        return now - *suspended_since < kSuspended ? Status() : fail(suspended(*peer, name));
    }

    // Until the first `count` are done.
    Status wait(std::vector<Pending>& pending, size_t count, const std::string& name) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience());
        std::optional<std::chrono::steady_clock::time_point> suspended_since;
        for (int64_t round = 0;; ++round) {
            size_t open = count;
            for (size_t i = 0; i < count; ++i) {
                int done = 0;
                mpi_.testall(1, &pending[i].request, &done, nullptr);
                if (!done) open = std::min(open, i);
            }
            if (open == count) return {};
            int waiting = 0;
            MpiStatus from{};
            mpi_.iprobe(kAnySource, kStopTag, mpi_.world, &waiting, &from);
            if (waiting) {
                std::string why(kStopBytes, '\0');
                mpi_.recv(why.data(), int(kStopBytes), mpi_.byte, from.source, kStopTag, mpi_.world, nullptr);
                failed_ = true;
                return stopped(from.source, why.c_str());
            }
            if (round % kRoundsPerLook == kRoundsPerLook - 1 && watch_) {
                TRY(look(name, suspended_since));
            }
            if (std::chrono::steady_clock::now() > deadline) return fail(silent(pending[open].peer, name));
            if (round > 100) std::this_thread::sleep_for(std::chrono::microseconds(round > 2000 ? 200 : 0));
        }
    }

    Error fail(Error error) {
        stop(error);
        return error;
    }

    Mpi mpi_;
    int64_t rank_ = 0, ranks_ = 1;
    bool failed_ = false;
    std::string last_words_;  // on their way
    std::optional<PeerWatch> watch_;
};

}  // namespace

Result<std::unique_ptr<Transport>> mpi_transport(double patience) {
    const Mpi mpi = TRY(load_mpi());
    if (mpi.init(nullptr, nullptr) != 0) return Error(Code::E0701, "Open MPI cannot be initialized");
    auto transport = std::make_unique<MpiTransport>(mpi);
    transport->set_patience(patience);
    TRY(transport->introduce());
    return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace tessera::shard
