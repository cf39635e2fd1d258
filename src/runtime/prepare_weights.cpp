#include "runtime/prepare_weights.h"

#include "base/check.h"
#include "onnx/file.h"
#include "runtime/memory_plan.h"

namespace tessera {
namespace {

constexpr int64_t kSmall = 4096;  // bytes of a constant that inference may still ask for

class Preparation {
  public:
    Preparation(Program& program, const ProgramLayout& layout, const CompiledModule& module, Device& device,
                int threads, bool keep)
        : program_(program), layout_(layout), module_(module), device_(device), threads_(threads), keep_(keep) {
        weights_.pointers.assign(program.buffers.size(), nullptr);
        temporary_.resize(program.buffers.size());
        of_root_.resize(program.buffers.size());
        for (size_t b = 0; b < program.buffers.size(); ++b) of_root_[root(static_cast<int>(b))].push_back(b);
    }

    Result<Weights> run() {
        stream_ = TRY(device_.make_stream(threads_));
        std::vector<size_t> last(program_.buffers.size(), 0);  // by root: the step that reads it last
        for (size_t s = 0; s < program_.prepare.size(); ++s)
            for (int b : program_.prepare[s].args) last[root(b)] = s;
        TRY(place_prepared());
        for (size_t s = 0; s < program_.prepare.size(); ++s) {
            TRY(step(program_.prepare[s]));
            TRY(stream_->synchronize());  // before what it read goes
            for (int b : program_.prepare[s].args)
                if (last[root(b)] == s && !layout_.in_run[root(b)]) let_go(root(b));
        }
        for (size_t b = 0; b < program_.buffers.size(); ++b) {
            if (layout_.root[b] != static_cast<int>(b)) continue;
            const bool weight = layout_.home[b] == Home::Constant || layout_.home[b] == Home::Prepared;
            if (weight && layout_.in_kernel[b]) TRY(place(b));
            if (weight && !layout_.in_run[b]) let_go(b);
        }
        TRY(stream_->synchronize());
        return std::move(weights_);
    }

  private:
    size_t root(int buffer) const { return static_cast<size_t>(layout_.root[static_cast<size_t>(buffer)]); }

    // One piece of memory for all that stays, so that it is on few and large pages.
    Status place_prepared() {
        std::vector<int64_t> offsets(program_.buffers.size(), -1);
        int64_t total = 0;
        for (size_t b = 0; b < offsets.size(); ++b) {
            if (layout_.root[b] != static_cast<int>(b) || layout_.home[b] != Home::Prepared || !layout_.in_run[b])
                continue;
            offsets[b] = total;
            total += aligned(TRY(bytes_of(b)));
        }
        if (total == 0) return {};
        auto memory = TRY(allocate(total));
        for (size_t b = 0; b < offsets.size(); ++b)
            if (offsets[b] >= 0) weights_.pointers[b] = static_cast<char*>(memory.get()) + offsets[b];
        weights_.bytes += total;
        weights_.memory.push_back(std::move(memory));
        return {};
    }

    Result<int64_t> bytes_of(size_t b) const {
        const ProgramBuffer& buffer = program_.buffers[b];
        auto sizes = TRY(buffer_sizes(buffer, {}));
        CHECK(sizes, "weight \"{}\" has no known size", buffer.name);
        return buffer_bytes(buffer, *sizes);
    }

    Result<std::shared_ptr<void>> allocate(int64_t bytes) {
        auto memory = device_.allocate(bytes);
        if (memory.ok()) return memory;
        auto failed = needed_for(std::move(memory.error()), "the model's weights, of which {} are already allocated",
                                 shown_bytes(weights_.bytes));
        if (device_.shares_memory()) return failed;
        return std::move(failed).hint("use a GPU with more memory, or a model whose weights have fewer bits");
    }

    // A constant where it lies, mapped from its file it may be; fresh memory for what is to be filled.
    Status place(size_t b) {
        if (weights_.pointers[b]) return {};
        const ProgramBuffer& buffer = program_.buffers[b];
        const int64_t bytes = TRY(bytes_of(b));
        const void* data = buffer.tensor ? buffer.tensor->data() : nullptr;
        const bool in_place = data && device_.shares_memory();
        std::shared_ptr<void> memory = in_place ? nullptr : TRY(allocate(bytes));
        if (layout_.in_run[b]) weights_.bytes += bytes;
        if (in_place) {
            weights_.pointers[b] = read_only(data);
            return {};
        }
        weights_.pointers[b] = memory.get();
        if (data) TRY(stream_->copy_to_device(memory.get(), data, bytes));
        if (layout_.in_run[b])
            weights_.memory.push_back(std::move(memory));
        else
            temporary_[b] = std::move(memory);
        return {};
    }

    Status step(const KernelStep& step) {
        BoundStep bound = TRY(bind_step(program_, step, module_, {}));
        CHECK(bound.bound, "preparing {} needs a size", step.label);
        std::vector<void*> args;
        for (size_t k = 0; k < step.args.size(); ++k) {
            const size_t b = root(step.args[k]);
            if (layout_.access[step.kernel].uses(k)) TRY(place(b));
            args.push_back(weights_.pointers[b]);
        }
        TRY(stream_->reserve(most_local_bytes(bound.launches)));
        for (const Launch& launch : bound.launches) TRY(stream_->launch(launch, {args, bound.symbols}));
        return {};
    }

    void let_go(size_t b) {
        weights_.pointers[b] = nullptr;
        temporary_[b].reset();
        if (keep_) return;
        for (size_t i : of_root_[b]) {
            ProgramBuffer& buffer = program_.buffers[i];
            if (!buffer.tensor || buffer.tensor->bytes() <= kSmall) continue;
            onnx::MappedFile::release_pages(buffer.tensor->data(), static_cast<size_t>(buffer.tensor->bytes()));
            if (const Value* v = buffer.value; v && v->is_constant())
                program_.graph->move_constant(
                    *v, Tensor::view(buffer.tensor->dtype(), buffer.tensor->sizes(), nullptr, nullptr));
            buffer.tensor.reset();
        }
    }

    Program& program_;
    const ProgramLayout& layout_;
    const CompiledModule& module_;
    Device& device_;
    std::unique_ptr<Stream> stream_;
    int threads_;
    bool keep_;
    Weights weights_;
    std::vector<std::shared_ptr<const void>> temporary_;  // by root
    std::vector<std::vector<size_t>> of_root_;            // by root: the buffers that lie there
};

}  // namespace

Result<Weights> prepare_weights(Program& program, const ProgramLayout& layout, const CompiledModule& module,
                                Device& device, int threads, bool keep) {
    return Preparation(program, layout, module, device, threads, keep).run();
}

}  // namespace tessera
