// The named sets of ops, in the form that read_op_set takes.
#include "discover/enumerate/op_set.h"

namespace tessera {
namespace {

// The operators of TASO's paper: element-wise sum and product, scale, relu, product and transpose of matrices, concat,
// split (of what has an even size), convolutions with and without relu, grouped ones, enlarged weights, pools,
// identities (of products and convolutions, the kernel that averages, and 1).
constexpr std::string_view kTaso = R"(
world matrices
sizes m=4 k=3 n=5 p=2; m=3 k=2 n=1 p=5; m=1 k=4 n=3 p=3
var x y z: [m, k]
var w v: [k, n]
var u: [n, p]
var s t: []
constant e: [k, k]: eye_like(e)
constant : 1.0

world images
sizes b=1 c=3 k=4 h=3 l=4; b=2 c=2 k=3 h=4 l=2; b=1 c=1 k=2 h=2 l=3
var x y z: [b, c, h, l]
var w v: [k, c, 3, 3]
var p q: [k, c, 1, 1]
var r: [c, k, 1, 1]
var s: []
constant e: [c, c]: unsqueeze(eye_like(e), [2, 3])
constant d: [c, c]: div(expand(unsqueeze(eye_like(d), [2, 3]), [1, 1, 3, 3]), 9.0)
constant : 1.0

op x, y: add(x, y) if same_dims(x, y) and rank(x) > 0
op x, y: mul(x, y) if same_dims(x, y)
op x, s: mul(x, s) if rank(s) == 0 and rank(x) > 0
op x: relu(x) if rank(x) > 0
op x: transpose(x, perm=[1, 0])
op x, y: matmul(x, y) if rank(x) == 2
op x, y: concat(x, y, axis=0)
op x, y: concat(x, y, axis=1)
op x: split.0(x, axis=0, num_outputs=2) if dim(x, 0) % 2 == 0
op x: split.1(x, axis=0, num_outputs=2) if dim(x, 0) % 2 == 0
op x: split.0(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: split.1(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0

// Convolutions of images, whose sizes are not those of a kernel, with kernels of 1x1 and 3x3.
op x, w: conv(x, w) if dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, strides=[2, 2]) if dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, pads=[1, 1, 1, 1]) if dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, pads=[1, 1, 1, 1], strides=[2, 2]) if dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: relu(conv(x, w)) if dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: relu(conv(x, w, pads=[1, 1, 1, 1])) if dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, group=2) if dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 2) != 3 and dim(x, 1) % 2 == 0 and dim(w, 0) % 2 == 0
op x, w: conv(x, w, group=2, pads=[1, 1, 1, 1]) if dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3 and dim(x, 1) % 2 == 0 and dim(w, 0) % 2 == 0
op w: pad(w, [0, 0, 1, 1, 0, 0, 1, 1]) if rank(w) == 4 and dim(w, 2) == 1
op x: average_pool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1) if rank(x) == 4 and dim(x, 2) != 3 and dim(x, 2) != 1
op x: max_pool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]) if rank(x) == 4 and dim(x, 2) != 3 and dim(x, 2) != 1
)";

// Beyond TASO: general transposes and reshapes, slices, pads, broadcasts, sums over axes, differences, quotients,
// signs, exp and rsqrt, products of stacks of matrices, dilated convolutions.
constexpr std::string_view kExtended = R"(
world matrices
sizes m=2 k=3 n=4; m=3 k=2 n=1; m=4 k=3 n=2
var x y z: [m, k]
var w v: [k, n]
var r: [1, k]
var c: [m, 1]
var s: []
constant : 1.0

world stacks
sizes b=2 m=3 k=2 n=4; b=3 m=2 k=4 n=1
var x y: [b, m, k]
var w v: [b, k, n]
var u: [k, n]
var s: []

world images
sizes b=1 c=2 k=3 h=4 l=5; b=2 c=1 k=2 h=5 l=3
var x y: [b, c, h, l]
var w v: [k, c, 3, 3]
var p: [k, c, 1, 1]
var s: []

op x, y: add(x, y) if fits_into(y, x)
op x, y: sub(x, y) if fits_into(y, x)
op x, y: mul(x, y) if fits_into(y, x)
op x, y: div(x, y) if fits_into(y, x)
op x: neg(x)
op x: exp(x)
op x: rsqrt(x) if rank(x) == 2
op x: relu(x) if rank(x) > 0
op x: transpose(x, perm=[1, 0])
op x: transpose(x, perm=[0, 2, 1])
op x: transpose(x, perm=[1, 0, 2])
op x, y: matmul(x, y) if rank(x) > 1 and rank(y) > 1 and rank(x) < 4
op x, y: matmul(transpose(x, perm=[1, 0]), y) if rank(y) == 2
op x, y: matmul(x, transpose(y, perm=[1, 0])) if rank(x) == 2
op x, y: matmul(x, transpose(y, perm=[0, 2, 1])) if rank(x) == 3
op x, y: concat(x, y, axis=0) if rank(x) < 4
op x, y: concat(x, y, axis=1)
op x: split.0(x, axis=0, num_outputs=2) if rank(x) < 4 and dim(x, 0) % 2 == 0
op x: split.1(x, axis=0, num_outputs=2) if rank(x) < 4 and dim(x, 0) % 2 == 0
op x: split.0(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: split.1(x, axis=1, num_outputs=2) if dim(x, 1) % 2 == 0
op x: reduce_sum(x, [0], keepdims=1) if rank(x) < 4
op x: reduce_sum(x, [1], keepdims=1)
op x: reduce_sum(x, [2], keepdims=1) if rank(x) == 3
op x: reduce_sum(x, [2, 3], keepdims=1) if rank(x) == 4
op x: flatten(x, axis=2) if rank(x) == 3
op x: reshape(x, [0, -1]) if rank(x) == 3
op x: slice(x, [0], [1], [0]) if rank(x) < 4
op x: slice(x, [0], [1], [1])
op x: pad(x, [0, 1, 0, 0]) if rank(x) == 2
op x: pad(x, [0, 0, 1, 1, 0, 0, 1, 1]) if rank(x) == 4
op x, w: conv(x, w) if rank(x) == 4 and dim(w, 2) == 1 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w) if rank(x) == 4 and dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, pads=[1, 1, 1, 1]) if rank(x) == 4 and dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, pads=[1, 1, 1, 1], strides=[2, 2]) if rank(x) == 4 and dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op x, w: conv(x, w, pads=[2, 2, 2, 2], dilations=[2, 2]) if rank(x) == 4 and dim(w, 2) == 3 and dim(x, 2) != 1 and dim(x, 2) != 3
op x: average_pool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1) if rank(x) == 4 and dim(x, 2) != 3 and dim(x, 2) != 1
op x: max_pool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1]) if rank(x) == 4 and dim(x, 2) != 3 and dim(x, 2) != 1
)";

// Small worlds for ops that are named one by one.
constexpr std::string_view kWorlds = R"(
world matrices
sizes m=2 k=3 n=4; m=3 k=2 n=1
var x y z: [m, k]
var w: [k, n]
var s: []
constant : 1.0

world stacks
sizes b=2 m=3 k=4; b=3 m=2 k=1
var x y: [b, m, k]
var w: [b, k, m]
var s: []

world images
sizes b=1 c=2 k=3 h=3 l=4; b=2 c=1 k=2 h=4 l=2
var x y: [b, c, h, l]
var w v: [k, c, 3, 3]
var s: []
)";

}  // namespace

std::string_view op_set_text(std::string_view name) {
    if (name == "taso") return kTaso;
    if (name == "extended") return kExtended;
    if (name == "worlds") return kWorlds;
    return {};
}

}  // namespace tessera
