#include "onnx/operators.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>

namespace tessera::onnx {
namespace {

constexpr Operator kOperators[] = {
#define ONNX_OPSET(version)
#define ONNX_OP(domain, name, versions, retired) {domain, name, versions, retired},
#include "onnx/operators.def"
#undef ONNX_OPSET
#undef ONNX_OP
};
constexpr int kNewestOpset =
#define ONNX_OPSET(version) version
#define ONNX_OP(domain, name, versions, retired)
#include "onnx/operators.def"
#undef ONNX_OPSET
#undef ONNX_OP
    ;

}  // namespace

std::span<const Operator> operators() { return kOperators; }

int first_opset(std::string_view domain, std::string_view name) {
    auto key = [](const Operator& op) { return std::tuple(std::string_view(op.domain), std::string_view(op.name)); };
    auto* end = std::end(kOperators);
    auto* it = std::lower_bound(std::begin(kOperators), end, std::tuple(domain, name),
                                [&](const Operator& op, const auto& wanted) { return key(op) < wanted; });
    return it != end && key(*it) == std::tuple(domain, name) ? std::atoi(it->versions) : 1;
}

int newest_opset(std::string_view domain) {
    if (domain.empty()) return kNewestOpset;
    int newest = 1;
    for (const Operator& op : kOperators) {
        if (op.domain != domain) continue;
        const char* last = std::strrchr(op.versions, ' ');
        newest = std::max(newest, std::atoi(last ? last : op.versions));
    }
    return newest;
}

int ir_version_of(int opset) {
    static constexpr int kFirst[][2] = {{28, 14}, {25, 13}, {24, 12}, {23, 11}, {21, 10},
                                        {19, 9},  {15, 8},  {12, 7},  {11, 6},  {10, 5}};
    for (auto [from, ir] : kFirst)
        if (opset >= from) return ir;
    return 4;  // the first in which an initialiser need not be an input
}

}  // namespace tessera::onnx
