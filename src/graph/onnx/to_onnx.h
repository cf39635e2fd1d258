// A graph as an ONNX model that onnx.checker accepts, names kept. Constants become initialisers that share their
// memory.
#pragma once

#include <filesystem>

#include "graph/graph.h"
#include "onnx/model.h"
#include "onnx/write.h"

namespace tessera {

struct ToOnnxOptions {
    int opset = 0;  // of the default domain; 0: the model's own where every node has a form there, else the next
    bool value_info = true;  // types of intermediate values too
};

// E0214 where a node has no form in the opset asked for.
Result<onnx::Model> to_onnx(const Graph& graph, const ToOnnxOptions& options = {});
Status save_onnx(const Graph& graph, const std::filesystem::path& path, const ToOnnxOptions& options = {},
                 const onnx::WriteOptions& write = {});

}  // namespace tessera
