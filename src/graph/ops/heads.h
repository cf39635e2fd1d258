// What the kinds of attention share: heads, and key heads that serve several query heads.
#pragma once

#include "graph/builder.h"
#include "graph/op_view.h"

namespace tessera {

inline bool differ(const Dim& a, const Dim& b) { return a.as_int() && b.as_int() && a != b; }

// How many query heads share each key head.
Result<int64_t> head_group(const OpView& op, const Dim& query_heads, const Dim& key_heads);

// Each head along `axis` repeated `times`, side by side; the number of heads is known where times is not 1.
Value* repeat_heads(Builder& b, Value* x, const Dim& heads, int64_t times, int64_t axis);

}  // namespace tessera
