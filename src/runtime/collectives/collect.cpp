#include "runtime/collectives/collect.h"

#include <algorithm>
#include <cstring>

#include "runtime/collectives/combine_elements.h"
#include "shard/local_program.h"
#include "shard/pieces.h"

namespace tessera::shard {
namespace {

void append(std::vector<char>& bytes, const Tensor& t) {
    const auto* data = static_cast<const char*>(t.data());
    bytes.insert(bytes.end(), data, data + t.bytes());
}

std::vector<char>& bytes_for(std::vector<Message>& messages, int64_t peer) {
    for (Message& m : messages)
        if (m.peer == peer) return m.bytes;
    messages.push_back({peer, {}});
    return messages.back().bytes;
}

std::string name_of(const Plan& plan, const PlanStep& step, int to) {
    return fmt::format("{} of {}", kind_of(plan, step), plan.held[size_t(to)].value->name());
}

// All of it, combined in two exchanges: each rank of the group combines an equal part, and gives it to the others.
Result<Tensor> combine_all(const CombineStep& step, const Tensor& own, const std::vector<int64_t>& group,
                           const std::string& name, Transport& transport) {
    const auto ranks = int64_t(group.size());
    const auto size = int64_t(dtype_bytes(own.dtype()));
    const int64_t chunk = (own.elements() + ranks - 1) / ranks;
    const auto part = [&](int64_t i) {
        return Interval{std::min(i * chunk, own.elements()), std::min((i + 1) * chunk, own.elements())};
    };
    const auto* data = static_cast<const char*>(own.data());
    int64_t self = 0;
    for (int64_t i = 0; i < ranks; ++i)
        if (group[size_t(i)] == transport.rank()) self = i;
    const Interval mine = part(self);
    std::vector<Message> sends, receives;
    for (int64_t i = 0; i < ranks; ++i) {
        if (i == self) continue;
        sends.push_back({group[size_t(i)], {data + part(i).low * size, data + part(i).high * size}});
        receives.push_back({group[size_t(i)], std::vector<char>(size_t(mine.length() * size))});
    }
    TRY(transport.exchange(name, sends, receives));
    std::vector<const void*> terms;
    for (int64_t i = 0, next = 0; i < ranks; ++i)
        terms.push_back(i == self ? data + mine.low * size : receives[size_t(next++)].bytes.data());
    std::vector<char> combined(size_t(mine.length() * size));
    combine_elements(step.op, own.dtype(), terms, mine.length(), combined.data());
    for (Message& m : sends) m.bytes = combined;
    for (size_t i = 0, next = 0; i < group.size(); ++i)
        if (int64_t(i) != self) receives[next++].bytes.resize(size_t(part(int64_t(i)).length() * size));
    TRY(transport.exchange(name + ", shared", sends, receives));
    Tensor out = TRY(Tensor::zeros(own.dtype(), own.sizes()));
    auto* to = static_cast<char*>(out.mutable_data());
    for (int64_t i = 0, next = 0; i < ranks; ++i) {
        const std::vector<char>& bytes = i == self ? combined : receives[size_t(next++)].bytes;
        std::copy(bytes.begin(), bytes.end(), to + part(i).low * size);
    }
    return out;
}

}  // namespace

Result<Tensor> move_tensor(const Plan& plan, const MoveStep& step, const Tensor& own, Transport& transport) {
    const Placement &from = plan.held[size_t(step.from)].boxes, &to = plan.held[size_t(step.to)].boxes;
    const int64_t rank = transport.rank();
    const auto element = int64_t(dtype_bytes(own.dtype()));
    const Box &held = from[size_t(rank)], &need = to[size_t(rank)];
    std::vector<Message> sends, receives;
    for (int64_t r = 0; r < transport.ranks(); ++r) {
        if (r == rank) continue;
        for (const Piece& p : pieces_for(plan.mesh, r, from, to[size_t(r)]))
            if (p.from == rank) append(bytes_for(sends, r), TRY(cut(own, held, p.box)));
    }
    const std::vector<Piece> pieces = pieces_for(plan.mesh, rank, from, need);
    for (const Piece& p : pieces) {
        std::vector<char>& bytes = bytes_for(receives, p.from);
        bytes.resize(bytes.size() + size_t(volume(p.box) * element));
    }
    TRY(transport.exchange(name_of(plan, step, step.to), sends, receives));
    Tensor out = TRY(Tensor::zeros(own.dtype(), lengths(need)));
    if (const Box kept = intersect(held, need); volume(kept) > 0) {
        const Tensor part = TRY(cut(own, held, kept));
        paste(out, need, kept, part.data());
    }
    std::unordered_map<int64_t, size_t> at;  // what was read of each message
    for (const Piece& p : pieces) {
        size_t& offset = at[p.from];
        paste(out, need, p.box, bytes_for(receives, p.from).data() + offset);
        offset += size_t(volume(p.box) * element);
    }
    return out;
}

Result<Tensor> combine_tensor(const Plan& plan, const CombineStep& step, const Tensor& own, Transport& transport) {
    const Placement &from = plan.held[size_t(step.from)].boxes, &to = plan.held[size_t(step.to)].boxes;
    const int64_t rank = transport.rank();
    const std::vector<int64_t> group = plan.mesh.group(rank, step.axes);
    const std::string name = name_of(plan, step, step.to);
    if (from == to) return combine_all(step, own, group, name, transport);
    const Box &held = from[size_t(rank)], &need = to[size_t(rank)];
    std::vector<Message> sends, receives;
    std::vector<Tensor> kept = {TRY(cut(own, held, need))};
    for (int64_t r : group) {
        if (r == rank) continue;
        append(bytes_for(sends, r), TRY(cut(own, held, to[size_t(r)])));
        receives.push_back({r, std::vector<char>(size_t(kept[0].bytes()))});
    }
    TRY(transport.exchange(name, sends, receives));
    std::vector<const void*> terms;
    size_t next = 0;
    for (int64_t r : group) terms.push_back(r == rank ? kept[0].data() : receives[next++].bytes.data());
    Tensor out = TRY(Tensor::zeros(own.dtype(), lengths(need)));
    combine_elements(step.op, own.dtype(), terms, out.elements(), out.mutable_data());
    return out;
}

}  // namespace tessera::shard
