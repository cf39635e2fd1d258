// Operators of your own: a function on tensors, with one that says their types. Models may use them from then on, by
// domain and name; compiled models call the function as a step on the CPU.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tessera/error.h"
#include "tessera/tensor.h"

namespace tessera {

using CustomAttr = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                                std::vector<std::string>, Tensor>;
using CustomAttrs = std::map<std::string, CustomAttr>;

// The type of an input or output. Dimensions are as in Port::dims: "3", "N", "2*N + 1". A size that only a run decides
// is a name of its own; none: not even the rank is known.
struct CustomType {
    DType dtype = DType::f32;
    std::optional<std::vector<std::string>> dims = {};
};

struct CustomOp {
    std::string domain, name;         // as the model's nodes name it: "com.example", "Scale"
    size_t inputs = 1, outputs = 1;   // how many
    CustomAttrs attrs = {};           // with their defaults, which also say their types
    // The types of the outputs. Called when a model is loaded and for other sizes; must not keep state.
    std::function<Result<std::vector<CustomType>>(const std::vector<CustomType>& inputs, const CustomAttrs& attrs)> types;
    // The outputs. Runs of several threads call it at once. An exception is an error of the run, E0407.
    std::function<Result<std::vector<Tensor>>(const std::vector<Tensor>& inputs, const CustomAttrs& attrs)> run;
};

// For the rest of the process. E0204: there is such an operator already; E0501: a function or a name is missing.
Status register_op(CustomOp op);

}  // namespace tessera
