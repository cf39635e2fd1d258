// What an accelerator computes of a graph: quantized layers over values in its memory, in the order of execution.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "graph/tensor.h"

namespace tessera::accelerator {

// A tensor [batch, channels, height, width] in memory: blocks of channels, [batch][block][y][x][channel]. Bytes, or the
// int32 sums that the host goes on with.
struct Activation {
    int64_t batch = 1, channels = 1, height = 1, width = 1;
    DType dtype = DType::u8;
    bool matrix = false;  // its tensor is [..., channels] with width rows
    bool operator==(const Activation&) const = default;
};

struct Window {
    int64_t kernel_y = 1, kernel_x = 1, stride_y = 1, stride_x = 1, dilation_y = 1, dilation_x = 1;
    int64_t top = 0, left = 0;  // padding; that on the other sides follows from the output
    bool operator==(const Window&) const = default;
};

// A byte as what it stands for: (byte - zero) * scale.
struct ByteScale {
    float scale = 1;
    int64_t zero = 0;
};

// round((a + b) / y.scale) + y.zero in f32, clamped: what quantizing the sum of two dequantized tensors gives.
struct Sum {
    ByteScale a, b, y;
    int64_t low = 0, high = 255;
};

// round(f32(sum + bias) * scale) + zero, clamped, for bytes; sum + bias for int32. Where `rest` is given, the sum of
// that byte (a) and of value `other` (b).
struct Conv {
    int input = 0, output = 0;
    Window window;
    int64_t groups = 1, input_zero = 0;  // input_zero: the value of padding
    Tensor weights;                      // i8 [output channels, input channels of a group, y, x]
    std::vector<int32_t> bias;           // with what the input's zero point adds
    std::vector<float> scales;           // of each output channel
    int64_t zero = 0, low = 0, high = 255;
    std::optional<Sum> rest = {};
    int other = -1;
};

struct MaxPool {
    int input = 0, output = 0;
    Window window;
};

struct Addition {
    int a = 0, b = 0, output = 0;
    Sum sum;
};

struct Layer {
    std::string name, op;
    std::variant<Conv, MaxPool, Addition> work;
};

struct Network {
    std::vector<Activation> values;
    std::vector<Layer> layers;
    std::vector<int> inputs, outputs;  // values
    // Values that the host computes of another one while it writes it: the windows of a convolution as channels.
    struct Windows {
        int of = 0, value = 0;  // `of`: not in memory itself
        Window window;
        int64_t zero = 0;
    };
    std::vector<Windows> windows;
};

// How many parts of size b cover a.
inline int64_t parts(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t macs(const Conv& conv, const Activation& output);

}  // namespace tessera::accelerator
