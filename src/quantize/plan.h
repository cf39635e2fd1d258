// Decides which nodes of a graph compute with integers, and the scale and zero point of each value between them.
#pragma once

#include <unordered_map>

#include "quantize/choose_range.h"
#include "quantize/profile.h"

namespace tessera {

enum class OpKind : uint8_t {
    Layer,        // convolutions and matrix products
    Elementwise,  // computed on integers if all inputs are quantized
    Movement,     // moves or selects elements: the output has the input's scale
    Rectifier,    // Relu and Clip, which the range of their output implies
    Other,        // stays in floating point
};
OpKind kind_of(const Node& node);
bool is_f32(const Value* v);
int64_t channel_axis(const Node& layer);  // of the input channels in a layer's first input

struct PlannedLayer {
    Node* node;
    Value* result;    // its output, after the rectifiers that are fused with it
    std::string why;  // not quantized; empty: it is
};

struct QuantizationPlan {
    std::vector<PlannedLayer> layers;  // in order
    std::vector<Node*> elementwise;    // with their constant inputs to quantize
    std::vector<Value*> values;        // to quantize, in order
    std::unordered_map<const Value*, QuantParams> params;
    std::unordered_map<const Value*, bool> everywhere;  // all uses read the quantized value
};

std::string layer_name(const Node& node);  // its name, or that of its output
std::string op_label(const Node& node);    // the ONNX operator

// E0501 if the profile lacks a value, or a pattern of options.keep matches nothing.
Result<QuantizationPlan> plan_quantization(Graph& graph, const Profile& profile, const QuantizeOptions& options);

}  // namespace tessera
