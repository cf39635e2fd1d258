// An ONNX model as a graph. Nodes are brought to the newest form of their op, model-local functions are inlined,
// initialisers and Constant nodes become constants that stay where they lie in the file. Names are the model's.
#pragma once

#include <filesystem>
#include <memory>

#include "graph/graph.h"
#include "onnx/model.h"

namespace tessera {

struct FromOnnxOptions {
    size_t max_inlined_nodes = 1'000'000;  // nodes that inlining functions may make; E0108 above
    int max_depth = 64;                    // graphs in graphs and functions in functions; E0109 above
};

Result<std::unique_ptr<Graph>> from_onnx(const onnx::Model& model, const FromOnnxOptions& options = {});
Result<std::unique_ptr<Graph>> load_onnx(const std::filesystem::path& path, const FromOnnxOptions& options = {});

}  // namespace tessera
