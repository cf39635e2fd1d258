// Graphs that kernels compute in place of an op's body, because they are faster.
#pragma once

#include "graph/op_def.h"
#include "graph/ops/conv_window.h"

namespace tessera {

class Node;

// The outputs; an empty list where the body is as good.
using ForKernels = Result<std::vector<Value*>> (*)(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
ForKernels for_kernels(const OpDef& op);  // null: it has none
ForKernels for_blocks(const OpDef& op);   // the same for blocks of threads, which read memory less often instead

// The same where a machine multiplies bytes faster than floats: of operands that were dequantized.
ForKernels by_bytes(const OpDef& op);
bool feeds_bytes(const Node& node);  // it dequantizes bytes for nothing but products that are better done with those
// The same of floats of 8 bits, and of 16 bits for sums of single places in f32, which GPUs multiply.
bool feeds_byte_floats(const Node& node);

// Of the op whose first input is resized: the resize comes after it, where it has less to do before.
ForKernels before_resize(const OpDef& op);

// Constants that are divided by the deviation are divided once, ahead of time.
Result<std::vector<Value*>> batch_norm_by_factors(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
Result<std::vector<Value*>> conv_before_resize(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
// For blocks: of 16-bit elements, to at most four channels, which leave the columns of a tile empty.
Result<std::vector<Value*>> conv_of_few_channels(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
Result<std::vector<Value*>> conv_transpose_by_phases(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
Result<std::vector<Value*>> dft_by_products(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
// Sums over the corners around each point, which all channels share.
Result<std::vector<Value*>> grid_sample_by_corners(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
// Large windows along one axis after the other; and windows of lines, which are compared before what is in them.
Result<std::vector<Value*>> max_pool_by_axes(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
// The same of windows that are too large to be read for each of their outputs.
Result<std::vector<Value*>> large_max_pool_by_axes(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
// Linear interpolation between neighbours along one axis after the other; so too the nearest of places that are known.
Result<std::vector<Value*>> resize_by_axes(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
// Min, max, sum and mean of very many operands by some at a time, in their order: a kernel reads so many tensors.
Result<std::vector<Value*>> fold_in_parts(const OpView& op, const std::vector<Value*>& inputs, Builder& b);
Result<std::vector<Value*>> stft_by_products(const OpView& op, const std::vector<Value*>& inputs, Builder& b);

// Of conv_transpose: the window by which the output, if it were convolved, would give the input; `input` is here the
// output's size.
Result<ConvWindow> transposed_window(const OpView& op);
// The ops that a convolution by phases is made of.
std::vector<OpDef> phase_ops();

}  // namespace tessera
