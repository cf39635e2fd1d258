// Stands in for NCCL where there are no GPUs: ranks are threads of one process, and buffers are in its memory. What the
// library would refuse, or hang on, is an error: collectives that differ between ranks, buffers that overlap otherwise
// than in place, sends that nobody receives. With STAND_IN_NCCL_SAY every call is printed.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

namespace {

constexpr int kInvalidArgument = 4, kInvalidUsage = 5;  // errors of the library's
constexpr int kTypes = 10;
constexpr size_t kBytes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr auto kPatience = std::chrono::seconds(20);

using Id = std::array<char, 128>;

std::mutex nccl_mutex;  // over all that follows
std::condition_variable changed;

// One rank's part of a collective.
struct Call {
    int kind = 0;  // 0: all-reduce, 1: reduce-scatter, 2: all-gather, 3: split
    const char* from = nullptr;
    char* to = nullptr;
    size_t count = 0;
    int type = 0, op = 0;
    int color = 0, key = 0;
    bool same(const Call& o) const {
        return std::tie(kind, count, type, op) == std::tie(o.kind, o.count, o.type, o.op);
    }
};

struct Group {
    int ranks = 0;
    std::map<int, Call> calls;  // of the collective that is being made, by rank
    uint64_t done = 0;          // collectives
    int result = 0;             // of the last one
    std::map<std::pair<int, int>, std::deque<std::vector<char>>> sent;
    std::map<int, std::pair<std::shared_ptr<Group>, int>> split;  // by rank: its group and place there
};
std::map<Id, std::shared_ptr<Group>> groups;

struct Communicator {
    std::shared_ptr<Group> group;
    int rank = 0;
};

template <typename T>
T combined(int op, T a, T b) {
    switch (op) {
        case 0: return T(a + b);
        case 1: return T(a * b);
        case 2: return std::max(a, b);
        default: return std::min(a, b);
    }
}

template <typename T>
void combine(int op, std::vector<char>& into, const char* from) {
    T* to = reinterpret_cast<T*>(into.data());
    const T* terms = reinterpret_cast<const T*>(from);
    for (size_t i = 0; i < into.size() / sizeof(T); ++i) to[i] = combined(op, to[i], terms[i]);
}

bool combine(int type, int op, std::vector<char>& into, const char* from) {
    switch (type) {
        case 0: return combine<int8_t>(op, into, from), true;
        case 1: return combine<uint8_t>(op, into, from), true;
        case 2: return combine<int32_t>(op, into, from), true;
        case 3: return combine<uint32_t>(op, into, from), true;
        case 4: return combine<int64_t>(op, into, from), true;
        case 5: return combine<uint64_t>(op, into, from), true;
        case 7: return combine<float>(op, into, from), true;
        case 8: return combine<double>(op, into, from), true;
        default: return false;  // 16-bit floats
    }
}

// In place as the library wants it, or apart.
bool placed(const Call& c, int rank, int ranks) {
    const size_t bytes = c.count * kBytes[c.type], all = bytes * size_t(ranks);
    const size_t reads = c.kind == 1 ? all : bytes, writes = c.kind == 2 ? all : bytes;
    if (c.from + reads <= c.to || c.to + writes <= c.from) return true;
    if (c.kind == 0) return c.from == c.to;
    return c.kind == 1 ? c.to == c.from + size_t(rank) * bytes : c.from == c.to + size_t(rank) * bytes;
}

int compute(Group& g) {
    const Call& first = g.calls.begin()->second;
    for (const auto& [rank, c] : g.calls) {
        if (!c.same(first)) return kInvalidUsage;
        if (c.kind < 3 && (c.type < 0 || c.type >= kTypes || !placed(c, rank, g.ranks))) return kInvalidArgument;
    }
    if (first.kind == 3) {
        std::map<int, std::set<std::pair<int, int>>> colors;  // key and rank
        for (const auto& [rank, c] : g.calls) colors[c.color].emplace(c.key, rank);
        for (const auto& [color, members] : colors) {
            auto made = std::make_shared<Group>();
            made->ranks = int(members.size());
            int place = 0;
            for (const auto& [key, rank] : members) g.split[rank] = {made, place++};
        }
        return 0;
    }
    const size_t bytes = first.count * kBytes[first.type];
    std::vector<char> all;
    if (first.kind == 2) {
        for (const auto& [rank, c] : g.calls) all.insert(all.end(), c.from, c.from + bytes);
    } else {
        const size_t reads = first.kind == 1 ? bytes * size_t(g.ranks) : bytes;
        for (const auto& [rank, c] : g.calls) {
            if (rank == 0)
                all.assign(c.from, c.from + reads);
            else if (!combine(c.type, c.op, all, c.from))
                return kInvalidArgument;
        }
    }
    for (const auto& [rank, c] : g.calls)
        std::memcpy(c.to, all.data() + (c.kind == 1 ? size_t(rank) * bytes : 0), c.kind == 2 ? all.size() : bytes);
    return 0;
}

// Waits for all ranks; the last one computes.
int meet(const Communicator& own, const Call& call) {
    static const bool say = std::getenv("STAND_IN_NCCL_SAY") != nullptr;
    static const char* const kNames[] = {"all_reduce", "reduce_scatter", "all_gather", "split"};
    if (say)
        std::printf("nccl: %s of %zu, type %d, %d ranks\n", kNames[call.kind], call.count, call.type, own.group->ranks);
    std::unique_lock lock(nccl_mutex);
    Group& g = *own.group;
    g.calls[own.rank] = call;
    const uint64_t number = g.done;
    if (int(g.calls.size()) == g.ranks) {
        g.result = compute(g);
        g.calls.clear();
        ++g.done;
        changed.notify_all();
        return g.result;
    }
    if (!changed.wait_for(lock, kPatience, [&] { return g.done > number; })) return kInvalidUsage;
    return g.result;
}

struct Waiting {
    const Communicator* own;
    char* to;
    size_t bytes;
    int peer;
};
thread_local std::vector<Waiting> to_receive;
thread_local int depth = 0;

int receive(const Waiting& w) {
    std::unique_lock lock(nccl_mutex);
    auto& queue = w.own->group->sent[{w.peer, w.own->rank}];
    if (!changed.wait_for(lock, kPatience, [&] { return !queue.empty(); })) return kInvalidUsage;
    if (queue.front().size() != w.bytes) return kInvalidUsage;
    std::memcpy(w.to, queue.front().data(), w.bytes);
    queue.pop_front();
    return 0;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
    *version = 29900;
    return 0;
}
const char* ncclGetErrorString(int error) {
    return error == kInvalidArgument ? "invalid argument" : error == kInvalidUsage ? "invalid usage" : "no error";
}
int ncclGetUniqueId(Id* id) {
    static int64_t made = 0;
    const std::lock_guard lock(nccl_mutex);
    id->fill(0);
    std::memcpy(id->data(), &++made, sizeof made);
    return 0;
}
int ncclCommInitRank(void** made, int ranks, Id id, int rank) {
    const std::lock_guard lock(nccl_mutex);
    auto& group = groups[id];
    if (!group) group = std::make_shared<Group>();
    if (group->ranks != 0 && group->ranks != ranks) return kInvalidArgument;
    group->ranks = ranks;
    *made = new Communicator{group, rank};
    return 0;
}
int ncclCommSplit(void* all, int color, int key, void** made, void*) {
    const auto& own = *static_cast<Communicator*>(all);
    if (const int failed = meet(own, {.kind = 3, .color = color, .key = key})) return failed;
    const std::lock_guard lock(nccl_mutex);
    const auto& [group, place] = own.group->split.at(own.rank);
    *made = new Communicator{group, place};
    return 0;
}
int ncclCommDestroy(void* communicator) {
    delete static_cast<Communicator*>(communicator);
    return 0;
}
int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, void* communicator, void*) {
    return meet(*static_cast<Communicator*>(communicator),
                {0, static_cast<const char*>(from), static_cast<char*>(to), count, type, op});
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int op, void* communicator, void*) {
    return meet(*static_cast<Communicator*>(communicator),
                {1, static_cast<const char*>(from), static_cast<char*>(to), count, type, op});
}
int ncclAllGather(const void* from, void* to, size_t count, int type, void* communicator, void*) {
    return meet(*static_cast<Communicator*>(communicator),
                {2, static_cast<const char*>(from), static_cast<char*>(to), count, type, 0});
}
int ncclSend(const void* from, size_t count, int type, int peer, void* communicator, void*) {
    if (depth == 0) return kInvalidUsage;  // alone it would wait for a receiver that may wait for us
    const auto& own = *static_cast<Communicator*>(communicator);
    const auto* data = static_cast<const char*>(from);
    const std::lock_guard lock(nccl_mutex);
    own.group->sent[{own.rank, peer}].emplace_back(data, data + count * kBytes[type]);
    changed.notify_all();
    return 0;
}
int ncclRecv(void* to, size_t count, int type, int peer, void* communicator, void*) {
    if (depth == 0) return kInvalidUsage;
    to_receive.push_back(
        {static_cast<Communicator*>(communicator), static_cast<char*>(to), count * kBytes[type], peer});
    return 0;
}
int ncclGroupStart() {
    ++depth;
    return 0;
}
int ncclGroupEnd() {
    if (--depth > 0) return 0;
    int failed = 0;
    for (const Waiting& w : to_receive)
        if (!failed) failed = receive(w);
    to_receive.clear();
    return failed;
}

}  // extern "C"
