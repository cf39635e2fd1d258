// An ONNX model as a graph. Nodes are brought to the newest form of their op, model-local functions are inlined,
// initialisers and Constant nodes become constants that stay where they lie in the file. Names are the model's. Types
// are those that inference finds, with the rank that the file declares where inference finds none. A strict import also
// takes declared sizes where inference leaves them open.
#pragma once

#include <filesystem>
#include <memory>

#include "graph/graph.h"
#include "onnx/model.h"

namespace tessera {

struct FromOnnxOptions {
    size_t max_inlined_nodes = 1'000'000;  // nodes that inlining functions may make; E0108 above
    int max_depth = 64;                    // graphs in graphs and functions in functions; E0109 above
    bool strict = false;                   // refuse what is otherwise used with a warning
    std::vector<Warning>* warnings = nullptr;
    bool* declared = nullptr;              // set where a rank or size is as declared
};

Result<std::unique_ptr<Graph>> from_onnx(const onnx::Model& model, const FromOnnxOptions& options = {});
Result<std::unique_ptr<Graph>> load_onnx(const std::filesystem::path& path, const FromOnnxOptions& options = {});

}  // namespace tessera
