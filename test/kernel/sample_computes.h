// Computes that networks are made of, for tests and measurements of schedules and code.
#pragma once

#include <array>

#include "kernel/schedule/schedule.h"

namespace tessera::sample {

Compute matmul(Expr m, Expr n, Expr k, bool known);                       // c[m,n] = a[m,k] b[k,n]; b known ahead
Compute linear(Expr m, Expr n, Expr k);                                   // relu(x w^T + bias), w of [n,k] known
Compute batched_matmul(Expr b, Expr m, Expr n, Expr k, bool transposed);  // b of [b,k,n] or, transposed, [b,n,k]
Compute project_to_heads(Expr batch, Expr length, Expr heads, Expr size, Expr k);  // y[batch,heads,length,size]

// Channels last; weights [filters, c, kernel, kernel].
struct ConvSizes {
    int64_t n = 1, h = 1, w = 1, c = 1, filters = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
    bool residual = false;  // relu(conv + bias + x2), otherwise relu(conv + bias)
    bool swish = false;     // not relu but x * sigmoid(x)
    bool planes = false;    // channels first, of the input
};
Compute conv(const ConvSizes& s);
// The same in groups, each with so many of `c` and `filters`; weights known ahead.
Compute grouped_conv(const ConvSizes& s, int64_t groups);
// Weights [c, kernel, kernel], known ahead; relu or, costly, x * sigmoid(x).
Compute depthwise(int64_t h, int64_t w, int64_t c, int64_t kernel, int64_t stride, int64_t pad, bool swish = false);
Compute max_pool(int64_t h, int64_t w, int64_t c, int64_t kernel, int64_t stride, int64_t pad);

Compute reduce_last(Expr rows, Expr n, ReduceOp op);
Compute reduce_middle(Expr outer, Expr n, Expr inner);  // the mean over n
Compute softmax(Expr rows, Expr n);
Compute layer_norm(Expr a, Expr b, Expr n);
Compute add_bias(std::vector<Expr> shape, size_t axis);  // x + bias along that axis, then tanh
Compute transpose(std::vector<Expr> shape, std::vector<size_t> order);
Compute gather_rows(Expr rows, Expr width, Expr picked);

}  // namespace tessera::sample
