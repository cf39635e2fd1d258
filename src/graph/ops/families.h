// The op families, each defined in one file. all_ops() is their concatenation.
#pragma once

#include <vector>

#include "graph/op_def.h"

namespace tessera {

std::vector<OpDef> activation_ops();
std::vector<OpDef> arg_reduce_ops();
std::vector<OpDef> arithmetic_ops();
std::vector<OpDef> attention_ops();
std::vector<OpDef> attention_tile_ops();
std::vector<OpDef> cast_ops();
std::vector<OpDef> compare_ops();
std::vector<OpDef> constant_ops();
std::vector<OpDef> contraction_ops();
std::vector<OpDef> control_ops();
std::vector<OpDef> conv_ops();
std::vector<OpDef> expression_ops();
std::vector<OpDef> gather_ops();
std::vector<OpDef> grid_ops();
std::vector<OpDef> gradient_ops();
std::vector<OpDef> image_ops();
std::vector<OpDef> integer_product_ops();
std::vector<OpDef> loss_ops();
std::vector<OpDef> math_ops();
std::vector<OpDef> ml_ops();
std::vector<OpDef> movement_ops();
std::vector<OpDef> ngram_ops();
std::vector<OpDef> normalization_ops();
std::vector<OpDef> pool_ops();
std::vector<OpDef> quantize_ops();
std::vector<OpDef> random_ops();
std::vector<OpDef> recurrent_ops();
std::vector<OpDef> reduce_ops();
std::vector<OpDef> roi_ops();
std::vector<OpDef> scan_ops();
std::vector<OpDef> scatter_ops();
std::vector<OpDef> sequence_ops();
std::vector<OpDef> shape_ops();
std::vector<OpDef> signal_ops();
std::vector<OpDef> slice_ops();
std::vector<OpDef> softmax_ops();
std::vector<OpDef> sort_ops();
std::vector<OpDef> string_ops();
std::vector<OpDef> suppression_ops();
std::vector<OpDef> tile_ops();
std::vector<OpDef> training_ops();
std::vector<OpDef> winograd_ops();

}  // namespace tessera
