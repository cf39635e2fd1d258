// What one run at a time uses: its arena and stream of a device, and where every buffer is just now. Kept between runs,
// so that a run of sizes met before allocates nothing but its outputs' handles.
#pragma once

#include <mutex>

#include "runtime/run_plan.h"

namespace tessera {

// Recycles output memory: what the caller releases is reused by later runs.
class OutputMemory : public std::enable_shared_from_this<OutputMemory> {
  public:
    // Of the process; where `on_device`, of the device.
    explicit OutputMemory(Device& device, bool on_device = false) : device_(device), on_device_(on_device) {}
    // Device memory is reused only on the stream that it was taken for: work on others may still use it.
    Result<std::shared_ptr<void>> take(int64_t bytes, const void* stream = nullptr);

  private:
    static constexpr size_t kMostKept = 16;
    struct Piece {
        int64_t bytes;
        const void* stream;
        std::shared_ptr<void> memory;
    };
    void give_back(Piece piece);
    Device& device_;
    const bool on_device_;
    std::mutex mutex_;
    std::vector<Piece> free_;
};

// Whether a kernel can read it in place: it is in host memory, aligned to its elements as every allocated array is.
inline bool usable(const Tensor& t) {
    return t.data() && reinterpret_cast<uintptr_t>(t.data()) % dtype_bytes(t.dtype()) == 0;
}

// The same on a GPU, where kernels access 16 bytes at a time.
inline bool usable_on_gpu(const Tensor& t) { return t.data() && reinterpret_cast<uintptr_t>(t.data()) % 16 == 0; }

// What was captured of a plan's steps.
struct Replay {
    std::shared_ptr<const RunPlan> plan;
    bool ran = false;                             // in this context
    std::unique_ptr<Recording> recording;         // of all steps, once they have run before
    std::vector<void*> pointers;                  // by root, as they are there
    std::vector<std::pair<size_t, size_t>> uses;  // roots that each run places, and the steps that use them
    std::vector<size_t> launches;                 // by step: which is its first
};

struct RunContext {
    ~RunContext();
    static Result<std::unique_ptr<RunContext>> make(Device& device, int threads);
    bool fits(const Device& on, int with_threads) const { return &device == &on && threads == with_threads; }
    // Made ready for a run by this plan: arena and scratch are large enough, pointers into the arena and to weights are
    // set, those that each run sets are null.
    Status prepare(std::shared_ptr<const RunPlan> next, const ProgramLayout& layout, const std::vector<void*>& weights);
    // Enqueues the run on the caller's stream, or on its own if there is none. E0501, without effect, if that stream is
    // being captured.
    Status borrow(std::optional<void*> others);
    // Of another device than the kernels', made ready for the plan: its stream, and pointers into its arena.
    Status reserve_on(size_t number, Device& other, const ProgramLayout& layout, const Program& program);
    Stream& stream_on(size_t number) { return *others_[number].stream; }
    // From here on it is.
    Status work_on_borrowed();
    // The run continues asynchronously; the next user of the context waits for it.
    Status leave();
    // A buffer of the run lies there.
    void* point(size_t root, void* memory);
    // Memory for a buffer whose size a step defined.
    Result<void*> place(size_t root, int64_t bytes);
    // Copies a tensor that kernels cannot read in place into the context.
    Result<void*> stage(size_t root, const Tensor& t);
    void forget_sizes();  // that steps defined, with the memory placed for them, so that the steps can run again
    void clear();         // lets go of everything that belongs to the run just done

    Device& device;
    const int threads;
    const std::unique_ptr<Stream> own_stream;
    Stream* stream;  // of this run
    std::shared_ptr<const RunPlan> plan;
    Replay* replay = nullptr;                                     // of the plan
    std::vector<void*> pointers;                                  // by root
    std::vector<std::optional<Datum>> data;                       // by root: inputs, outputs, results of host steps
    std::vector<BoundStep> late;                                  // by step: those of sizes that a step defined, as the
                                                                  // last run had them
    std::vector<void*> args;                                      // of the step in progress
    std::vector<int64_t> values;                                  // its symbols
    SymbolValues symbols;                                         // as far as known
    std::shared_ptr<const void> mark = std::make_shared<char>();  // owner of tensors that lie in this context

  private:
    RunContext(Device& on, int with_threads, std::unique_ptr<Stream> with)
        : device(on), threads(with_threads), own_stream(std::move(with)), stream(own_stream.get()), arena_(on) {}
    static constexpr size_t kMostReplays = 8;  // of sizes that were met last
    Status grow(const RunPlan& next);
    Replay& replay_of(const std::shared_ptr<const RunPlan>& next);

    struct Other {
        Device* device;
        std::unique_ptr<Stream> stream;
        Arena arena;
    };
    std::vector<Other> others_;  // by number in Program::devices
    std::unique_ptr<Stream> borrowed_;
    void* borrowed_handle_ = nullptr;
    bool borrows_ = false;               // this run
    std::shared_ptr<const Event> done_;  // the next user of the context waits for it
    bool pending_ = false;               // it is
    int64_t scratch_bytes_ = 0;
    std::vector<std::unique_ptr<Replay>> replays_;  // newest use last
    Arena arena_;
    std::vector<Arena> staged_;  // by root: copies, and what was placed
    std::vector<size_t> placed_;
};

// Contexts that no run has just now. Programs that share them compute in the same memory, one after the other.
class RunMemory {
  public:
    Result<std::unique_ptr<RunContext>> take(Device& device, int threads);
    void give_back(std::unique_ptr<RunContext> context);

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<RunContext>> free_;
};

// Takes a context for as long as it lives.
class Borrowed {
  public:
    Borrowed(std::unique_ptr<RunContext> context, RunMemory& from) : context_(std::move(context)), from_(from) {}
    ~Borrowed() { from_.give_back(std::move(context_)); }
    Borrowed(const Borrowed&) = delete;
    RunContext& operator*() { return *context_; }
    RunContext* operator->() { return context_.get(); }

  private:
    std::unique_ptr<RunContext> context_;
    RunMemory& from_;
};

}  // namespace tessera
