// What ONNX has: every operator with the versions that changed it. operators.def is made from the onnx package.
#pragma once

#include <span>
#include <string_view>

namespace tessera::onnx {

struct Operator {
    const char *domain, *name;
    const char* versions;  // "1 6 13": the opsets that changed it, the first brought it
    bool retired;
};
std::span<const Operator> operators();  // by domain and name

int first_opset(std::string_view domain, std::string_view name);  // 1 for what is not an operator
int newest_opset(std::string_view domain);                        // 1 for a domain that is not ONNX's
int ir_version_of(int opset);                                     // that came with it; at least 4

}  // namespace tessera::onnx
