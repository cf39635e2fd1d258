// Random quantized layers as graphs in integer form, and what a machine computes of them.
#pragma once

#include <random>

#include "graph/builder.h"
#include "kernel/accelerator/compile/compile_network.h"
#include "kernel/accelerator/compile/find_layers.h"
#include "kernel/accelerator/simulate.h"

namespace tessera::accelerator_test {

class RandomGraph {
  public:
    explicit RandomGraph(uint64_t seed) : random_(seed), b_(graph_) {}

    Graph& graph() { return graph_; }
    Builder& builder() { return b_; }
    int64_t upto(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
    bool chance(int percent) { return upto(1, 100) <= percent; }
    DType byte_type() { return chance(70) ? DType::u8 : DType::i8; }

    Value* input(DType t, Sizes sizes);
    Tensor tensor(DType t, Sizes sizes);  // of random bits
    Value* zero(DType t) {
        return chance(30) ? constant(t, 0) : constant(t, t == DType::u8 ? upto(0, 255) : upto(-128, 127));
    }
    Value* constant(DType t, int64_t value);
    Value* scale(double about) { return b_.constant(Tensor::scalar(float(about * double(upto(50, 200)) / 100))); }

    // A convolution [n, c, h, w] -> [n, outputs, ...]: kernel, stride, padding, groups as given.
    struct ConvSizes {
        int64_t outputs, kernel_y = 3, kernel_x = 3, stride = 1, dilation = 1, groups = 1;
        std::vector<int64_t> pads = {1, 1, 1, 1};
    };
    Value* conv(Value* x, const ConvSizes& sizes, DType to);
    Value* sums(Value* x, const ConvSizes& sizes);  // int32, with a bias
    Value* max_pool(Value* x, int64_t kernel, int64_t stride, int64_t pad);
    Value* add(Value* a, Value* b, DType to, bool relu);
    Value* clip(Value* x);
    Value* product(Value* x, int64_t columns, bool bias);

  private:
    std::mt19937_64 random_;
    Graph graph_;
    Builder b_;
};

// One layer, or a few of them with residual additions, as an output of the graph; false where the drawn sizes give
// none.
void random_convolution(RandomGraph& r);
void random_pool(RandomGraph& r);
void random_product(RandomGraph& r);
bool random_network(RandomGraph& r);

using Inputs = std::vector<std::pair<std::string, Tensor>>;
Inputs random_inputs(RandomGraph& random);

// The outputs by the model of the machine; `cycles` and others of the simulation where it is given.
Result<std::vector<Tensor>> run_on(const accelerator::Machine& machine, const Graph& graph, const Inputs& inputs,
                                   int contexts = 2, accelerator::Simulation* simulation = nullptr);
// Fails where it differs from the evaluator in one bit.
void expect_as_evaluated(const accelerator::Machine& machine, RandomGraph& random, int contexts = 2);

}  // namespace tessera::accelerator_test
