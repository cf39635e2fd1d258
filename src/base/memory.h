// One budget for tensor memory, so that nothing a file says can exhaust the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/error.h"
#include "tessera/memory.h"

namespace tessera {

inline constexpr int64_t kBlockAlignment = 64;

inline int64_t aligned(int64_t bytes) { return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment; }

// Zeroed, aligned to kBlockAlignment, counted against the limit until released. Over the limit: E0408.
Result<std::shared_ptr<void>> allocate_bytes(int64_t bytes);

}  // namespace tessera
