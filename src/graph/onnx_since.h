// Which version of ONNX brought what.
#pragma once

#include <string>

namespace tessera {

int onnx_since(const std::string& domain, const std::string& name);  // the first opset with an operator of that name
int newest_opset(const std::string& domain);                         // known here
int ir_version_of(int opset);                                        // that came with it; at least 4

}  // namespace tessera
