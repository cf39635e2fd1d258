#include "runtime/devices/staged_copies.h"

#include <algorithm>
#include <cstring>

#include "base/thread_pool.h"

namespace tessera {
namespace {

constexpr int64_t kLong = 1 << 20, kPiece = 4 << 20, kShare = 256 << 10;  // bytes; of what one thread copies at once
constexpr int kMemoryType = 2;                                            // attribute of a pointer
constexpr unsigned kUntimed = 2;                                          // of an event

}  // namespace

StagedCopies::~StagedCopies() {
    const auto inside = device_.enter();
    for (const Piece& piece : pieces_)
        if (piece.copied) driver_.cuEventDestroy(piece.copied);
}

bool StagedCopies::takes(const void* from, int64_t bytes) const {
    if (bytes < kLong) return false;
    int type = 0;
    return driver_.cuPointerGetAttribute(&type, kMemoryType, reinterpret_cast<cuda::Pointer>(from)) != 0;
}

Result<StagedCopies::Piece*> StagedCopies::next_piece() {
    Piece& piece = pieces_[next_++ % pieces_.size()];
    if (piece.copied) {
        TRY(driver_.check(driver_.cuEventSynchronize(piece.copied), "waiting for a copy"));
    } else {
        piece.memory = TRY(device_.allocate_for_copies(kPiece));
        TRY(driver_.check(driver_.cuEventCreate(&piece.copied, kUntimed), "making an event"));
    }
    return &piece;
}

Status StagedCopies::copy(void* to, const void* from, int64_t bytes) {
    Team team;
    for (int64_t at = 0; at < bytes; at += kPiece) {
        Piece& piece = *TRY(next_piece());
        const int64_t size = std::min(kPiece, bytes - at);
        const char* source = static_cast<const char*>(from) + at;
        char* target = static_cast<char*>(piece.memory.get());
        team.each((size + kShare - 1) / kShare, [&](int64_t share, int) {
            const int64_t first = share * kShare;
            std::memcpy(target + first, source + first, static_cast<size_t>(std::min(kShare, size - first)));
        });
        TRY(driver_.check(driver_.cuMemcpyHtoDAsync(reinterpret_cast<cuda::Pointer>(to) + cuda::Pointer(at), target,
                                                    static_cast<size_t>(size), stream_),
                          "copying to its memory"));
        TRY(driver_.check(driver_.cuEventRecord(piece.copied, stream_), "recording an event"));
    }
    return {};
}

}  // namespace tessera
