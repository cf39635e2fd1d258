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

// Equal parts of a tensor, one for each rank of a group.
struct Parts {
    int64_t elements, ranks;
    Interval at(int64_t i) const {
        const int64_t chunk = (elements + ranks - 1) / ranks;
        return {std::min(i * chunk, elements), std::min((i + 1) * chunk, elements)};
    }
};

// All of it, combined in two exchanges: each rank of the group combines an equal part, and gives it to the others.
Result<Collecting> start_combine_all(const CombineStep& step, const Tensor& own, const std::vector<int64_t>& group,
                                     const std::string& name, Transport& transport) {
    const auto ranks = int64_t(group.size());
    const auto size = int64_t(dtype_bytes(own.dtype()));
    const Parts parts{own.elements(), ranks};
    const auto* data = static_cast<const char*>(own.data());
    int64_t self = 0;
    for (int64_t i = 0; i < ranks; ++i)
        if (group[size_t(i)] == transport.rank()) self = i;
    Collecting made{.exchange = {.name = name, .sends = {}, .receives = {}}, .finished = {}};
    for (int64_t i = 0; i < ranks; ++i) {
        if (i == self) continue;
        made.exchange.sends.push_back(
            {group[size_t(i)], {data + parts.at(i).low * size, data + parts.at(i).high * size}});
        made.exchange.receives.push_back({group[size_t(i)], std::vector<char>(size_t(parts.at(self).length() * size))});
    }
    TRY(transport.start(made.exchange));
    made.finished = [=, op = step.op](Exchange& e, Transport& to_all) -> Result<Tensor> {
        const Interval mine = parts.at(self);
        std::vector<const void*> terms;
        for (int64_t i = 0, next = 0; i < ranks; ++i)
            terms.push_back(i == self ? static_cast<const char*>(own.data()) + mine.low * size
                                      : e.receives[size_t(next++)].bytes.data());
        std::vector<char> combined(size_t(mine.length() * size));
        combine_elements(op, own.dtype(), terms, mine.length(), combined.data());
        Exchange shared{.name = name + ", shared", .sends = {}, .receives = {}};
        for (int64_t i = 0; i < ranks; ++i) {
            if (i == self) continue;
            shared.sends.push_back({group[size_t(i)], combined});
            shared.receives.push_back({group[size_t(i)], std::vector<char>(size_t(parts.at(i).length() * size))});
        }
        TRY(to_all.start(shared));
        TRY(to_all.finish(shared));
        Tensor out = TRY(Tensor::zeros(own.dtype(), own.sizes()));
        auto* to = static_cast<char*>(out.mutable_data());
        for (int64_t i = 0, next = 0; i < ranks; ++i) {
            const std::vector<char>& bytes = i == self ? combined : shared.receives[size_t(next++)].bytes;
            std::copy(bytes.begin(), bytes.end(), to + parts.at(i).low * size);
        }
        return out;
    };
    return made;
}

}  // namespace

Result<Tensor> finish(Collecting& collecting, Transport& transport) {
    TRY(transport.finish(collecting.exchange));
    return collecting.finished(collecting.exchange, transport);
}

Result<Collecting> start_move(const Mesh& mesh, const Placement& from, const Placement& to, const std::string& name,
                              const Tensor& own, Transport& transport) {
    const int64_t rank = transport.rank();
    const auto element = int64_t(dtype_bytes(own.dtype()));
    const Box held = from[size_t(rank)], need = to[size_t(rank)];
    Collecting made{.exchange = {.name = name, .sends = {}, .receives = {}}, .finished = {}};
    for (int64_t r = 0; r < transport.ranks(); ++r) {
        if (r == rank) continue;
        for (const Piece& p : pieces_for(mesh, r, from, to[size_t(r)]))
            if (p.from == rank) append(bytes_for(made.exchange.sends, r), TRY(cut(own, held, p.box)));
    }
    const std::vector<Piece> pieces = pieces_for(mesh, rank, from, need);
    for (const Piece& p : pieces) {
        std::vector<char>& bytes = bytes_for(made.exchange.receives, p.from);
        bytes.resize(bytes.size() + size_t(volume(p.box) * element));
    }
    TRY(transport.start(made.exchange));
    made.finished = [=](Exchange& e, Transport&) -> Result<Tensor> {
        if (pieces.empty() && held == need) return own;
        Tensor out = TRY(Tensor::zeros(own.dtype(), lengths(need)));
        if (const Box kept = intersect(held, need); volume(kept) > 0) {
            const Tensor part = TRY(cut(own, held, kept));
            paste(out, need, kept, part.data());
        }
        std::unordered_map<int64_t, size_t> at;  // what was read of each message
        for (const Piece& p : pieces) {
            size_t& offset = at[p.from];
            paste(out, need, p.box, bytes_for(e.receives, p.from).data() + offset);
            offset += size_t(volume(p.box) * element);
        }
        return out;
    };
    return made;
}

Result<Collecting> start_move(const Plan& plan, const MoveStep& step, const Tensor& own, Transport& transport) {
    const Placement &from = plan.held[size_t(step.from)].boxes, &to = plan.held[size_t(step.to)].boxes;
    return start_move(plan.mesh, from, to, name_of(plan, step, step.to), own, transport);
}

Result<Collecting> start_combine(const Plan& plan, const CombineStep& step, const Tensor& own, Transport& transport) {
    const Placement &from = plan.held[size_t(step.from)].boxes, &to = plan.held[size_t(step.to)].boxes;
    const int64_t rank = transport.rank();
    const std::vector<int64_t> group = plan.mesh.group(rank, step.axes);
    const std::string name = name_of(plan, step, step.to);
    if (from == to) return start_combine_all(step, own, group, name, transport);
    const Box &held = from[size_t(rank)], &need = to[size_t(rank)];
    Collecting made{.exchange = {.name = name, .sends = {}, .receives = {}}, .finished = {}};
    const Tensor kept = TRY(cut(own, held, need));
    for (int64_t r : group) {
        if (r == rank) continue;
        append(bytes_for(made.exchange.sends, r), TRY(cut(own, held, to[size_t(r)])));
        made.exchange.receives.push_back({r, std::vector<char>(size_t(kept.bytes()))});
    }
    TRY(transport.start(made.exchange));
    made.finished = [=, op = step.op](Exchange& e, Transport&) -> Result<Tensor> {
        std::vector<const void*> terms;
        size_t next = 0;
        for (int64_t r : group) terms.push_back(r == rank ? kept.data() : e.receives[next++].bytes.data());
        Tensor out = TRY(Tensor::zeros(kept.dtype(), kept.sizes()));
        combine_elements(op, kept.dtype(), terms, out.elements(), out.mutable_data());
        return out;
    };
    return made;
}

}  // namespace tessera::shard
