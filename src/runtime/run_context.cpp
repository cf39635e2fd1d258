#include "runtime/run_context.h"

#include <algorithm>
#include <cstring>

#include "base/memory.h"
#include "runtime/memory_plan.h"

namespace tessera {

Result<std::shared_ptr<void>> OutputMemory::take(int64_t bytes) {
    std::optional<Piece> piece;
    {
        std::lock_guard lock(mutex_);
        auto fits = std::find_if(free_.begin(), free_.end(), [&](const Piece& p) { return p.bytes == bytes; });
        if (fits != free_.end()) {
            piece = std::move(*fits);
            free_.erase(fits);
        }
    }
    if (!piece) piece = Piece{bytes, TRY(allocate_bytes(bytes))};
    void* data = piece->memory.get();
    return std::shared_ptr<void>(data, [piece = std::move(*piece), from = weak_from_this()](void*) mutable {
        if (auto pool = from.lock()) pool->give_back(std::move(piece));
    });
}

void OutputMemory::give_back(Piece piece) {
    std::lock_guard lock(mutex_);
    if (free_.size() == kMostKept) free_.erase(free_.begin());
    free_.push_back(std::move(piece));
}

Status RunContext::prepare(std::shared_ptr<const RunPlan> next, const ProgramLayout& layout,
                           const std::vector<void*>& weights, int threads) {
    const size_t count = layout.root.size();
    if (plan != next) {
        const int64_t need = aligned(next->block_bytes) + threads * next->scratch_bytes;
        if (need > capacity_ || !arena_) {
            arena_.reset();
            plan.reset();
            arena_ = TRY(allocate_bytes(need));
            capacity_ = need;
        }
        plan = std::move(next);
        char* base = static_cast<char*>(arena_.get());
        scratch_ = base + aligned(plan->block_bytes);
        pointers = weights;
        for (size_t b = 0; b < count; ++b)
            if (plan->offsets[b] >= 0) pointers[b] = base + plan->offsets[b];
        data.resize(count);
        late.resize(count);
        staged_.resize(count);
        args.resize(layout.most_args);
    }
    symbols = plan->symbols;
    return {};
}

void RunContext::clear() {
    for (size_t b = 0; b < data.size(); ++b) {
        if (!data[b] && !late[b]) continue;
        data[b].reset();
        late[b].reset();
        pointers[b] = nullptr;
    }
}

Result<void*> RunContext::stage(size_t root, const Tensor& t) {
    const int64_t bytes = t.bytes();
    Staged& staged = staged_[root];
    if (staged.bytes < bytes || !staged.memory) {
        staged.memory.reset();
        staged.memory = TRY(allocate_bytes(bytes));
        staged.bytes = bytes;
    }
    if (bytes) std::memcpy(staged.memory.get(), t.data(), static_cast<size_t>(bytes));
    return staged.memory.get();
}

Result<char*> RunContext::late_scratch(int64_t bytes) {
    if (bytes > late_capacity_) {
        late_scratch_.reset();
        late_scratch_ = TRY(allocate_bytes(bytes));
        late_capacity_ = bytes;
    }
    return static_cast<char*>(late_scratch_.get());
}

}  // namespace tessera
