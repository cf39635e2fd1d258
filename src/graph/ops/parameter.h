// Integers that an op takes as an input (starts, pads, axes), as its body reads them: known contents where there are
// any, loads otherwise.
#pragma once

#include "graph/op_def.h"

namespace tessera {

// Nothing where not even their number is known.
std::optional<std::vector<Expr>> parameter(const OpView& op, size_t input);

// Whether parameter() succeeds for each of those inputs that is present; for body_applies.
bool has_parameters(const OpView& op, std::initializer_list<size_t> inputs);

// The value listed for dimension `d`: values[k] where axes[k] (which may count from the end) is d, else `fallback`.
// Without axes, values[d].
Expr listed_for(const std::vector<Expr>& values, const std::optional<std::vector<Expr>>& axes, int64_t d, int64_t rank,
                const Expr& fallback);

// The number of elements of a vector or scalar input, where it is constant.
std::optional<int64_t> parameter_length(const OpView& op, size_t input);

// An index that may count from the end of `extent`, as an i64 in [0, extent) if it was in range.
Expr wrap_index(const Expr& index, const Dim& extent);

}  // namespace tessera
