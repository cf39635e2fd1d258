#include "runtime/run_context.h"

#include <algorithm>

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
    if (!piece) piece = Piece{bytes, TRY(device_.allocate_for_copies(bytes))};
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

Result<std::unique_ptr<RunContext>> RunContext::make(Device& device, int threads) {
    auto stream = TRY(device.make_stream(threads));
    return std::unique_ptr<RunContext>(new RunContext(device, threads, std::move(stream)));
}

Status RunContext::prepare(std::shared_ptr<const RunPlan> next, const ProgramLayout& layout,
                           const std::vector<void*>& weights) {
    const size_t count = layout.root.size();
    if (plan != next) {
        plan.reset();
        recording.reset();
        runs = 0;
        TRY(arena_.reserve(next->block_bytes));
        TRY(stream->reserve(next->scratch_bytes));
        plan = std::move(next);
        pointers = weights;
        for (size_t b = 0; b < count; ++b)
            if (plan->offsets[b] >= 0) pointers[b] = arena_.data() + plan->offsets[b];
        data.resize(count);
        late.assign(plan->steps.size(), {});
        staged_.resize(count, Arena(device));
        args.resize(layout.most_args);
    }
    symbols = plan->symbols;
    return {};
}

void RunContext::clear() {
    for (size_t b = 0; b < data.size(); ++b) {
        if (!data[b]) continue;
        data[b].reset();
        pointers[b] = nullptr;
    }
    forget_sizes();
}

void RunContext::forget_sizes() {
    for (size_t b : placed_) pointers[b] = nullptr;
    placed_.clear();
    if (plan) symbols = plan->symbols;
}

Result<void*> RunContext::place(size_t root, int64_t bytes) {
    TRY(staged_[root].reserve(bytes));
    placed_.push_back(root);
    return staged_[root].data();
}

Result<void*> RunContext::stage(size_t root, const Tensor& t) {
    TRY(staged_[root].reserve(t.bytes()));
    TRY(stream->copy_to_device(staged_[root].data(), t.data(), t.bytes()));
    return staged_[root].data();
}

Result<std::unique_ptr<RunContext>> RunMemory::take(Device& device, int threads) {
    std::lock_guard lock(mutex_);
    auto fits = std::find_if(free_.rbegin(), free_.rend(), [&](const auto& c) { return c->fits(device, threads); });
    if (fits == free_.rend()) return RunContext::make(device, threads);
    auto context = std::move(*fits);
    free_.erase(std::next(fits).base());
    return context;
}

void RunMemory::give_back(std::unique_ptr<RunContext> context) {
    context->clear();
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(context));
}

std::shared_ptr<RunMemory> make_run_memory() { return std::make_shared<RunMemory>(); }

}  // namespace tessera
