// What must hold of every expression of a kernel or a compute: shared by both verifiers.
#pragma once

#include <map>
#include <optional>

#include "kernel/ir/kernel.h"

namespace tessera {

// A variable that may be used, with what it may claim of its bounds.
using VariableBounds = std::map<std::string, Bounds>;

Bounds loop_bounds(const Expr& extent);  // of a variable over [0, extent)
inline Bounds symbol_bounds() { return {0, std::nullopt}; }

// The first rule that e breaks, in words. Loads may be of any buffer for which `readable` holds.
std::optional<std::string> check_expr(const Expr& e, const std::vector<Buffer>& buffers,
                                      const VariableBounds& variables, const std::function<bool(int slot)>& readable);
// The same for an access and its indices.
std::optional<std::string> check_access(const Access& access, const std::vector<Buffer>& buffers,
                                        const VariableBounds& variables, const std::function<bool(int slot)>& readable);

std::optional<std::string> check_sizes(const Buffer& buffer, const VariableBounds& variables);  // shape and strides
// Names of buffers and symbols, element types, shapes and strides; parameters' shapes are over symbols alone.
std::optional<std::string> check_buffers(const std::vector<Buffer>& buffers, size_t params,
                                         const std::vector<std::string>& symbols);

}  // namespace tessera
