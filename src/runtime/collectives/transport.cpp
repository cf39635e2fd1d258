#include "runtime/collectives/transport.h"

#include <algorithm>
#include <cstring>

#include "base/digest.h"

namespace tessera::shard {

Transport::Header Transport::next_header(const std::string& name) {
    return {exchanges_++, digest_bytes(name.data(), name.size()).low, 0};
}

Status Transport::exchange(const std::string& name, const std::vector<Message>& sends, std::vector<Message>& receives) {
    Exchange one{.name = name, .sends = sends, .receives = std::move(receives)};
    TRY(start(one));
    TRY(finish(one));
    receives = std::move(one.receives);
    return {};
}

Error Transport::disagrees(int64_t peer, const std::string& name) const {
    return Error(Code::E0702, "rank {}: rank {} makes another exchange than {}", rank(), peer, name)
        .hint("all ranks must run the same program");
}

Error Transport::silent(int64_t peer, const std::string& name) const {
    return Error(Code::E0702, "rank {}: nothing came from rank {} for {:g} s, in {}", rank(), peer, patience_, name)
        .hint("--patience sets how long to wait");
}

Error Transport::ended(int64_t peer, const std::string& name) const {
    return Error(Code::E0702, "rank {}: rank {} has ended: its process is gone, in {}", rank(), peer, name)
        .hint("it was killed, or crashed: see what it printed, and the system's log for lack of memory");
}

Error Transport::suspended(int64_t peer, const std::string& name) const {
    return Error(Code::E0702, "rank {}: rank {} is suspended: a signal has stopped its process, in {}", rank(), peer,
                 name)
        .hint("SIGSTOP and the like stop a process until SIGCONT");
}

Error Transport::stopped(int64_t peer, const std::string& why) const {
    const std::string own = fmt::format("rank {}: ", peer);  // which its error may begin with
    return Error(Code::E0702, "rank {}: rank {} stopped: {}", rank(), peer,
                 why.substr(why.starts_with(own) ? own.size() : 0));
}

namespace {

// The first rank whose digest at this place is not the one that most have; of equally many, not the one of rank 0.
std::optional<int64_t> odd_one(const std::vector<std::pair<int64_t, const char*>>& ranks, size_t at) {
    const auto same = [at](const char* a, const char* b) { return std::memcmp(a + at, b + at, sizeof(Digest)) == 0; };
    const auto count = [&](const char* a) {
        return std::count_if(ranks.begin(), ranks.end(), [&](const auto& r) { return same(r.second, a); });
    };
    const char* usual = ranks[0].second;
    for (const auto& [rank, digests] : ranks)
        if (count(digests) > count(usual)) usual = digests;
    for (const auto& [rank, digests] : ranks)
        if (!same(digests, usual)) return rank;
    return {};
}

}  // namespace

Status agree(Transport& transport, const std::vector<std::pair<std::string, std::string>>& facts) {
    std::vector<char> own;
    for (const auto& [name, word] : facts) {
        const Digest d = digest_bytes(word.data(), word.size());
        const auto* bytes = reinterpret_cast<const char*>(&d);
        own.insert(own.end(), bytes, bytes + sizeof d);
    }
    std::vector<Message> sends, receives;
    for (int64_t r = 0; r < transport.ranks(); ++r) {
        if (r == transport.rank()) continue;
        sends.push_back({r, own});
        receives.push_back({r, std::vector<char>(own.size())});
    }
    TRY(transport.exchange("agreement", sends, receives));
    std::vector<std::pair<int64_t, const char*>> all = {{transport.rank(), own.data()}};
    for (const Message& m : receives) all.emplace_back(m.peer, m.bytes.data());
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < facts.size(); ++i)
        if (const auto odd = odd_one(all, i * sizeof(Digest)))
            return Error(Code::E0702, "rank {}: rank {} has another {}", transport.rank(), *odd, facts[i].first)
                .hint("start all ranks with the same program, model, mesh and options");
    return {};
}

}  // namespace tessera::shard
