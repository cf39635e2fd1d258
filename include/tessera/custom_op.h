// Custom operators: a function that infers the types of the outputs, and one that computes them. Once an operator is
// registered, models can use it by domain and name; compiled models call it as a host step.
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

// The type of an input or output. Dimensions are written as in Port::dims: "3", "N", "2*N + 1". A size that is only
// known after the run gets a new name. No dims: the rank is unknown.
struct CustomType {
    DType dtype = DType::f32;
    std::optional<std::vector<std::string>> dims = {};
};

struct CustomOp {
    std::string domain, name;         // as in the model's nodes: "com.example", "Scale"
    size_t inputs = 1, outputs = 1;   // their numbers
    CustomAttrs attrs = {};           // the defaults, which also determine the types
    // Infers the types of the outputs. Called when a model is loaded, and again for new input sizes; must be stateless.
    std::function<Result<std::vector<CustomType>>(const std::vector<CustomType>& inputs, const CustomAttrs& attrs)> types;
    // Computes the outputs. Called concurrently by runs on several threads. If it throws, the run fails with E0407.
    std::function<Result<std::vector<Tensor>>(const std::vector<Tensor>& inputs, const CustomAttrs& attrs)> run;
};

// Registers it for the lifetime of the process. E0204 if the operator exists; E0501 if a function or a name is missing.
Status register_op(CustomOp op);

}  // namespace tessera
