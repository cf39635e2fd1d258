// The pieces of text that kernels and computes share.
#pragma once

#include "expr/text.h"
#include "kernel/ir/kernel.h"

namespace tessera {

SlotNames buffer_names(const std::vector<Buffer>& buffers);  // which must outlive it
std::string list_text(const std::vector<Expr>& exprs, const SlotNames& names);
std::string declaration(const Buffer& buffer, const SlotNames& names);  // a: f32[M, 64]
std::string heading(const std::string& name, const std::vector<std::string>& symbols,
                    const std::vector<Buffer>& buffers, size_t params);    // matmul(M) (a: f32[M, 64]) {
std::string access_text(const Access& access, const SlotNames& names);     // a[i, k]
std::string_view assignment_text(const std::optional<ReduceOp>& combine);  // =, +=, *=, min=, max=

// One statement with all in it, or its first line alone.
std::string to_string(const Stmt& s, const std::vector<Buffer>& buffers);
std::string first_line(const Stmt& s, const std::vector<Buffer>& buffers);

}  // namespace tessera
