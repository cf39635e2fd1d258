#include "runtime/run_context.h"

#include <algorithm>

namespace tessera {

Result<std::shared_ptr<void>> OutputMemory::take(int64_t bytes, const void* stream) {
    std::optional<Piece> piece;
    {
        std::lock_guard lock(mutex_);
        auto fits = std::find_if(free_.begin(), free_.end(),
                                 [&](const Piece& p) { return p.bytes == bytes && p.stream == stream; });
        if (fits != free_.end()) {
            piece = std::move(*fits);
            free_.erase(fits);
        }
    }
    if (!piece)
        piece =
            Piece{bytes, stream, on_device_ ? TRY(device_.allocate(bytes)) : TRY(device_.allocate_for_copies(bytes))};
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
    stream = own_stream.get();
    if (pending_) TRY(stream->wait(*done_));
    if (plan != next) {
        plan.reset();
        replay = nullptr;
        TRY(grow(*next));
        replay = &replay_of(next);
        plan = std::move(next);
        pointers = weights;
        for (size_t b = 0; b < count; ++b)
            if (plan->offsets[b] >= 0 && layout.home[b] == Home::Arena) pointers[b] = arena_.data() + plan->offsets[b];
        data.resize(count);
        late.assign(plan->steps.size(), {});
        staged_.resize(count, Arena(device));
        args.resize(layout.most_args);
    }
    symbols = plan->symbols;
    return {};
}

Status RunContext::reserve_on(size_t number, Device& other, const ProgramLayout& layout, const Program& program) {
    if (number == others_.size()) others_.push_back({&other, TRY(other.make_stream(threads)), Arena(other)});
    Other& own = others_[number];
    if (own.device != &other) own = {&other, TRY(other.make_stream(threads)), Arena(other)};
    TRY(own.arena.reserve(plan->device_bytes[number]));
    for (size_t b = 0; b < layout.root.size(); ++b)
        if (plan->offsets[b] >= 0 && program.buffers[b].device == static_cast<int>(number) + 1)
            pointers[b] = own.arena.data() + plan->offsets[b];
    return {};
}

// Recordings hold addresses: they go where memory moves.
Status RunContext::grow(const RunPlan& next) {
    if (next.block_bytes <= arena_.bytes() && arena_.data() && next.scratch_bytes <= scratch_bytes_) return {};
    if (pending_) TRY(done_->wait());
    replays_.clear();
    if (Status room = arena_.reserve(next.block_bytes); !room.ok())
        return needed_for(std::move(room.error()), "the intermediate results of a run");
    TRY(own_stream->reserve(next.scratch_bytes));
    scratch_bytes_ = std::max(scratch_bytes_, next.scratch_bytes);
    return {};
}

Replay& RunContext::replay_of(const std::shared_ptr<const RunPlan>& next) {
    auto found = std::find_if(replays_.begin(), replays_.end(), [&](const auto& r) { return r->plan == next; });
    if (found == replays_.end()) {
        if (replays_.size() == kMostReplays) replays_.erase(replays_.begin());
        replays_.push_back(std::make_unique<Replay>());
        replays_.back()->plan = next;
    } else {
        std::rotate(found, found + 1, replays_.end());
    }
    return *replays_.back();
}

Status RunContext::borrow(std::optional<void*> others) {
    borrows_ = others && !device.shares_memory();
    if (!borrows_) return {};
    if (!borrowed_ || borrowed_handle_ != *others) {
        borrowed_ = TRY(device.borrow_stream(*others));
        borrowed_handle_ = *others;
    }
    if (!TRY(borrowed_->captured_by_others())) return {};
    return Error(Code::E0501, "a model cannot run on a stream that is being captured")
        .hint("run it outside of the capture: Tessera captures and replays models itself");
}

Status RunContext::work_on_borrowed() {
    if (!borrows_) return {};
    TRY(borrowed_->reserve(plan->scratch_bytes));
    stream = borrowed_.get();
    return pending_ ? stream->wait(*done_) : Status();
}

Status RunContext::leave() {
    if (done_)
        TRY(stream->record(*done_));
    else
        done_ = TRY(stream->record());
    pending_ = true;
    return {};
}

RunContext::~RunContext() {
    if (pending_) (void)done_->wait();  // before its memory and its code go
}

void* RunContext::point(size_t root, void* memory) {
    placed_.push_back(root);
    return pointers[root] = memory;
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
    return point(root, staged_[root].data());
}

Result<void*> RunContext::stage(size_t root, const Tensor& t) {
    TRY(staged_[root].reserve(t.bytes()));
    if (t.gpu() == kNoGpu)
        TRY(stream->copy_to_device(staged_[root].data(), t.data(), t.bytes()));
    else
        TRY(stream->copy_on_device(staged_[root].data(), t.data(), t.bytes()));
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
