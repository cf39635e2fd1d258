#include "runtime/collectives/nccl.h"

#include <dlfcn.h>

#include <mutex>

namespace tessera::shard {
namespace {

using Communicator = void*;

// name(arguments): each gives a number, 0 where all went well. Entry points are those of NCCL 2.18.
#define TESSERA_NCCL_ENTRIES(X)                                                                                     \
    X(ncclGetVersion, (int* version))                                                                               \
    X(ncclGetUniqueId, (NcclId * id))                                                                               \
    X(ncclCommInitRank, (Communicator * made, int ranks, NcclId id, int rank))                                      \
    X(ncclCommSplit, (Communicator all, int color, int key, Communicator* made, void* configuration))               \
    X(ncclCommDestroy, (Communicator communicator))                                                                 \
    X(ncclAllReduce,                                                                                                \
      (const void* from, void* to, size_t count, int type, int op, Communicator communicator, void* stream))        \
    X(ncclReduceScatter,                                                                                            \
      (const void* from, void* to, size_t count, int type, int op, Communicator communicator, void* stream))        \
    X(ncclAllGather, (const void* from, void* to, size_t count, int type, Communicator communicator, void* stream)) \
    X(ncclSend, (const void* from, size_t count, int type, int peer, Communicator communicator, void* stream))      \
    X(ncclRecv, (void* to, size_t count, int type, int peer, Communicator communicator, void* stream))              \
    X(ncclGroupStart, ())                                                                                           \
    X(ncclGroupEnd, ())

struct Library {
#define TESSERA_NCCL_DECLARE(name, arguments) int(*name) arguments = nullptr;
    TESSERA_NCCL_ENTRIES(TESSERA_NCCL_DECLARE)
#undef TESSERA_NCCL_DECLARE
    const char* (*ncclGetErrorString)(int error) = nullptr;

    Status check(int result, const std::string& doing) const {
        if (result == 0) return {};
        return Error(Code::E0702, "NCCL failed while {}: {}", doing, ncclGetErrorString(result))
            .hint("NCCL_DEBUG=WARN in the environment makes NCCL say more");
    }
};

Result<Library> load_now() {
    const auto unusable = [](const std::string& why) {
        return Error(Code::E0701, "NCCL cannot be used: {}", why).hint("install libnccl2, 2.18 or newer");
    };
    void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!handle) return unusable(dlerror());
    Library library;
    std::string missing;
    auto entry = [&](const char* name) {
        void* found = dlsym(handle, name);
        if (!found) missing = name;
        return found;
    };
#define TESSERA_NCCL_FIND(name, arguments) library.name = reinterpret_cast<int(*) arguments>(entry(#name));
    TESSERA_NCCL_ENTRIES(TESSERA_NCCL_FIND)
#undef TESSERA_NCCL_FIND
    library.ncclGetErrorString = reinterpret_cast<const char* (*)(int)>(entry("ncclGetErrorString"));
    if (!missing.empty()) return unusable(fmt::format("libnccl.so.2 has no {}: it is older than 2.18", missing));
    return library;
}

Result<const Library*> nccl() {
    static std::once_flag once;
    static std::optional<Result<Library>> library;
    std::call_once(once, [] { library.emplace(load_now()); });
    if (!library->ok()) return library->error();
    return &**library;
}

constexpr int kBytes = 1;  // ncclUint8

// The library's number of an element type that it reduces.
int type_number(DType dtype) {
    static const std::map<DType, int> kNumbers = {
        {DType::i8, 0},  {DType::u8, kBytes}, {DType::i32, 2}, {DType::u32, 3}, {DType::i64, 4},
        {DType::u64, 5}, {DType::f16, 6},     {DType::f32, 7}, {DType::f64, 8}, {DType::bf16, 9}};
    return kNumbers.at(dtype);
}

int op_number(ReduceOp op) {
    switch (op) {
        case ReduceOp::Sum: return 0;
        case ReduceOp::Prod: return 1;
        case ReduceOp::Max: return 2;
        case ReduceOp::Min: return 3;
    }
    return 0;
}

}  // namespace

Result<NcclId> make_nccl_id() {
    const Library* library = TRY(nccl());
    NcclId id{};
    TRY(library->check(library->ncclGetUniqueId(&id), "making a run's identifier"));
    return id;
}

std::string nccl_version() {
    auto library = nccl();
    int version = 0;
    if (!library.ok() || (*library)->ncclGetVersion(&version) != 0) return {};
    return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

Result<std::unique_ptr<NcclRank>> NcclRank::join(const Mesh& mesh, int64_t rank, const NcclId& id,
                                                 const std::vector<std::vector<size_t>>& axes) {
    const Library* library = TRY(nccl());
    auto made = std::unique_ptr<NcclRank>(new NcclRank);
    Communicator all = nullptr;
    TRY(library->check(library->ncclCommInitRank(&all, int(mesh.ranks()), id, int(rank)), "joining the other ranks"));
    made->groups_[{}] = all;
    for (const std::vector<size_t>& a : axes) {
        if (made->groups_.contains(a)) continue;
        Communicator group = nullptr;
        const int64_t color = mesh.group(rank, a)[0];
        TRY(library->check(library->ncclCommSplit(all, int(color), int(rank), &group, nullptr),
                           fmt::format("joining the ranks along {}", axis_names(mesh, a))));
        made->groups_[a] = group;
    }
    return made;
}

NcclRank::~NcclRank() {
    for (const auto& [axes, communicator] : groups_) (*nccl())->ncclCommDestroy(communicator);
}

Status NcclRank::run(const Wire& wire, const LocalProgram& program, size_t first_buffer,
                     const std::function<void*(int)>& buffer, void* stream) const {
    const Library& library = **nccl();
    const auto about = [&](int id) { return program.buffers[size_t(id) - first_buffer]; };
    const auto bytes = [&](int id) { return size_t(about(id).elements) * dtype_bytes(about(id).dtype); };
    Communicator group = groups_.at(wire.axes);
    switch (wire.kind) {
        case Wire::Kind::AllReduce:
            return library.check(
                library.ncclAllReduce(buffer(wire.from), buffer(wire.to), size_t(about(wire.to).elements),
                                      type_number(about(wire.to).dtype), op_number(wire.op), group, stream),
                wire.name);
        case Wire::Kind::ReduceScatter:
            return library.check(
                library.ncclReduceScatter(buffer(wire.from), buffer(wire.to), size_t(about(wire.to).elements),
                                          type_number(about(wire.to).dtype), op_number(wire.op), group, stream),
                wire.name);
        case Wire::Kind::AllGather:
            return library.check(
                library.ncclAllGather(buffer(wire.from), buffer(wire.to), bytes(wire.from), kBytes, group, stream),
                wire.name);
        case Wire::Kind::SendReceive: break;
    }
    TRY(library.check(library.ncclGroupStart(), wire.name));
    for (const auto& [rank, id] : wire.sends)
        TRY(library.check(library.ncclSend(buffer(id), bytes(id), kBytes, int(rank), group, stream), wire.name));
    for (const auto& [rank, id] : wire.receives)
        TRY(library.check(library.ncclRecv(buffer(id), bytes(id), kBytes, int(rank), group, stream), wire.name));
    return library.check(library.ncclGroupEnd(), wire.name);
}

}  // namespace tessera::shard
