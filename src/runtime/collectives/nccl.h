// NCCL, loaded at run time: no header and no library of NVIDIA's is needed to build. One rank's communicators, one for
// each group of ranks that a program's collectives have.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "shard/local_program.h"

namespace tessera::shard {

using NcclId = std::array<char, 128>;  // of a run, the same on all its ranks

Result<NcclId> make_nccl_id();  // E0701 where the library is not installed
std::string nccl_version();     // 2.18.3; empty where the library is not installed

class NcclRank {
  public:
    // Waits for the other ranks, each with a GPU of its own that is the calling thread's. `axes`: of the groups, in the
    // same order on all ranks. E0702 where the library says so.
    static Result<std::unique_ptr<NcclRank>> join(const Mesh& mesh, int64_t rank, const NcclId& id,
                                                  const std::vector<std::vector<size_t>>& axes);
    ~NcclRank();
    NcclRank(const NcclRank&) = delete;
    NcclRank& operator=(const NcclRank&) = delete;

    // In the order of the stream, on memory of the GPU: buffer(id) is where it begins.
    Status run(const Wire& wire, const LocalProgram& program, size_t first_buffer,
               const std::function<void*(int)>& buffer, void* stream) const;

  private:
    NcclRank() = default;
    std::map<std::vector<size_t>, void*> groups_;  // communicators, by axes; that of all ranks has none
};

}  // namespace tessera::shard
