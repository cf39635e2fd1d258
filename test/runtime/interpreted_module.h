// Kernels as a module of launches that interpret them: the runtime without machine code. One program at a time.
#pragma once

#include <array>
#include <utility>

#include "base/check.h"
#include "llvm/compile_kernels.h"

namespace tessera::test {

class InterpretedModule : public CompiledModule {
  public:
    static constexpr size_t kMost = 1024;

    explicit InterpretedModule(const std::vector<Kernel>& list) {
        CHECK(list.size() <= kMost);
        shared() = list;
        for (size_t i = 0; i < list.size(); ++i) {
            KernelLaunch launch;
            launch.function = functions(std::make_index_sequence<kMost>())[i];
            launch.extent = 1;
            kernels_.push_back({{launch}});
        }
    }
    const std::string& object() const override { return object_; }

  private:
    static std::vector<Kernel>& shared() {
        static std::vector<Kernel> kernels;
        return kernels;
    }

    static void run_kernel(const Kernel& kernel, void* const* buffers, const int64_t* symbols) {
        SymbolValues values;
        for (size_t i = 0; i < kernel.symbols.size(); ++i) values[kernel.symbols[i]] = symbols[i];
        std::vector<Tensor> tensors;
        for (size_t i = 0; i < kernel.params; ++i) {
            Sizes sizes;
            for (const Expr& d : kernel.buffers[i].shape) sizes.push_back(*evaluate_int(d, values));
            tensors.push_back(Tensor::view(kernel.buffers[i].dtype, sizes, buffers[i], nullptr));
        }
        Status done = interpret(kernel, tensors, values);
        CHECK(done.ok(), "{}", done.error().to_string());
    }

    template <size_t I>
    static void run(void* const* buffers, const int64_t* symbols, int64_t, int64_t, char*) {
        run_kernel(shared()[I], buffers, symbols);
    }

    template <size_t... I>
    static std::array<LaunchFunction, kMost> functions(std::index_sequence<I...>) {
        return {&run<I>...};
    }

    std::string object_;
};

}  // namespace tessera::test
