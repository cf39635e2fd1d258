// Counts what a run allocates once its sizes have been met. Sanitizers have their own operator new, and go without.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "graph/text/parse.h"
#include "kernel/from_graph/from_graph.h"
#include "runtime/loaded_program.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
thread_local long allocations = 0;
thread_local size_t largest = 0;
}  // namespace

void* operator new(size_t bytes) {
    ++allocations;
    largest = std::max(largest, bytes);
    if (void* p = std::malloc(bytes)) return p;
    throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace tessera {
namespace {

// Launches that do nothing.
class EmptyModule : public CompiledModule {
  public:
    explicit EmptyModule(size_t kernels) {
        KernelLaunch launch;
        launch.function = [](void* const*, const int64_t*, int64_t, int64_t, char*) {};
        launch.extent = 100;
        launch.scratch_bytes = 1000;
        launch.parallel = true;
        kernels_.assign(kernels, {{launch}});
    }
    const std::string& object() const override { return object_; }

  private:
    std::string object_;
};

std::pair<long, size_t> allocations_of_a_run(int nodes) {
    std::string text = "graph main(x: f32[N,64]) {\n  v0 = exp(x)\n";
    for (int i = 1; i < nodes; ++i) text += fmt::format("  v{} = {}(v{})\n", i, i % 2 ? "relu" : "tanh", i - 1);
    text += fmt::format("  return v{}\n}}", nodes - 1);
    auto graph = parse(text);
    EXPECT_TRUE(graph.ok()) << graph.error().to_string();
    LowerOptions lower;
    lower.fuse = false;
    auto program = from_graph(std::shared_ptr<const Graph>(std::move(*graph)), lower);
    EXPECT_EQ(program->steps.size(), size_t(nodes));
    auto module = std::make_shared<EmptyModule>(program->kernels.size());
    auto loaded = LoadedProgram::load(std::move(*program), module);
    const NamedData inputs = {{"x", *Tensor::zeros(DType::f32, {1000, 64})}};
    for (int i = 0; i < 3; ++i) EXPECT_TRUE((*loaded)->run(inputs).ok());
    allocations = 0;
    largest = 0;
    EXPECT_TRUE((*loaded)->run(inputs).ok());
    return {allocations, largest};
}

TEST(Allocation, ARunAllocatesNothingButHandles) {
    auto [few, small] = allocations_of_a_run(2);
    auto [many, same] = allocations_of_a_run(40);
    EXPECT_EQ(few, many);  // nothing for each step
    EXPECT_LE(many, 20);
    EXPECT_LE(same, 256u);
    EXPECT_EQ(small, same);
}

}  // namespace
}  // namespace tessera

#endif
