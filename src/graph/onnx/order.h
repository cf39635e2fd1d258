// An order of ONNX nodes in which every value comes before its uses, also those from nested graphs.
#pragma once

#include <vector>

#include "base/error.h"
#include "onnx/model.h"

namespace tessera {

// The file's own order where it serves. E0205 naming the nodes of a cycle.
Result<std::vector<size_t>> definition_order(const std::vector<onnx::Node>& nodes);

}  // namespace tessera
