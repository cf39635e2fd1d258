#include "search/prove.h"
#include "search/check_certificate.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

const char* const kHold[] = {
    R"(add-comm: add(x, y)
        => add(y, x)
        where x: [M,N], y: [M,N])",
    R"(mul-dist: mul(x, add(y, z))
        => add(mul(x, y), mul(x, z))
        where x: [M,N], y: [M,N], z: [M,N])",
    R"(double: add(x, x)
        => mul(x, 2.0)
        where x: [M])",
    R"(square: mul(add(x, y), add(x, y))
        => add(add(mul(x, x), mul(y, y)), mul(2.0, mul(x, y)))
        where x: [M], y: [M])",
    R"(mm-assoc: matmul(matmul(x, y), z)
        => matmul(x, matmul(y, z))
        where x: [M,K], y: [K,L], z: [L,N])",
    R"(mm-dist: matmul(x, add(y, z))
        => add(matmul(x, y), matmul(x, z))
        where x: [M,K], y: [K,N], z: [K,N])",
    R"(mm-tr: transpose(matmul(x, y), perm=[1,0])
        => matmul(transpose(y, perm=[1,0]), transpose(x, perm=[1,0]))
        where x: [M,K], y: [K,N])",
    R"(tr-tr: transpose(transpose(x, perm=[1,0]), perm=[1,0])
        => x
        where x: [M,K])",
    R"(relu-tr: relu(transpose(x, perm=[1,0]))
        => transpose(relu(x), perm=[1,0])
        where x: [M,K])",
    R"(mm-concat: concat(matmul(x, y), matmul(x, z), axis=1)
        => matmul(x, concat(y, z, axis=1))
        where x: [M,K], y: [K,N], z: [K,L])",
    R"(mm-concat2: matmul(concat(x, z, axis=1), concat(y, w, axis=0))
        => add(matmul(x, y), matmul(z, w))
        where x: [M,K], z: [M,L], y: [K,N], w: [L,N])",
    R"(mm-rows: concat(matmul(x, y), matmul(z, y), axis=0)
        => matmul(concat(x, z, axis=0), y)
        where x: [M,K], y: [K,N], z: [L,K])",
    R"(concat-relu: concat(relu(x), relu(y), axis=1)
        => relu(concat(x, y, axis=1))
        where x: [M,K], y: [M,N])",
    R"(concat-tr: concat(transpose(x, perm=[1,0]), transpose(y, perm=[1,0]), axis=0)
        => transpose(concat(x, y, axis=1), perm=[1,0])
        where x: [M,K], y: [M,N])",
    R"(concat-add: add(concat(x, y, axis=1), concat(z, w, axis=1))
        => concat(add(x, z), add(y, w), axis=1)
        where x: [M,K], y: [M,N], z: [M,K], w: [M,N])",
    R"(concat-exch: concat(concat(x, y, axis=0), concat(z, w, axis=0), axis=1)
        => concat(concat(x, z, axis=1), concat(y, w, axis=1), axis=0)
        where x: [A,C], y: [B,C], z: [A,D], w: [B,D])",
    R"(split-concat: split.0(concat(x, y, axis=1), [3, 5], axis=1)
        => x
        where x: [M,3], y: [M,5])",
    R"(siblings: (matmul(x, y), matmul(x, z))
        => split(matmul(x, concat(y, z, axis=1)), [dim(y, 1), dim(z, 1)], axis=1)
        where x: [M,K], y: [K,N], z: [K,L])",
    R"(scale: matmul(mul(x, s), y)
        => mul(matmul(x, y), s)
        where x: [M,K], y: [K,N], s: [])",
    R"(exp-tr: exp(transpose(add(x, y), perm=[1,0]))
        => transpose(exp(add(y, x)), perm=[1,0])
        where x: [M,K], y: [M,K])",
    R"(sum-mm: reduce_sum(matmul(x, y), [1], keepdims=0)
        => reshape(matmul(x, reduce_sum(y, [1])), [-1])
        where x: [M,K], y: [K,N])",
    R"(conv-concat-out: concat(conv(x, w, pads=[1,1,1,1]), conv(x, v, pads=[1,1,1,1]), axis=1)
        => conv(x, concat(w, v, axis=0), pads=[1,1,1,1])
        where x: [N,C,H,W], w: [O,C,3,3], v: [P,C,3,3])",
    R"(conv-concat-in: add(conv(x, w, pads=[1,1,1,1]), conv(y, v, pads=[1,1,1,1]))
        => conv(concat(x, y, axis=1), concat(w, v, axis=1), pads=[1,1,1,1])
        where x: [N,C,H,W], y: [N,D,H,W], w: [O,C,3,3], v: [O,D,3,3])",
    R"(conv-concat-batch: concat(conv(x, w), conv(y, w), axis=0)
        => conv(concat(x, y, axis=0), w)
        where x: [N,C,H,W], y: [M,C,H,W], w: [O,C,3,3])",
    R"(conv-add: conv(x, add(w, v))
        => add(conv(x, w), conv(x, v))
        where x: [N,C,H,W], w: [O,C,3,3], v: [O,C,3,3])",
    R"(conv-symk: conv(x, add(w, v), pads=[1,1,1,1], strides=[2,2])
        => add(conv(x, w, pads=[1,1,1,1], strides=[2,2]), conv(x, v, pads=[1,1,1,1], strides=[2,2]))
        where x: [N,C,H,W], w: [O,C,K,L], v: [O,C,K,L])",
    R"(enlarge: conv(x, w)
        => conv(x, pad(w, [0,0,1,1,0,0,1,1]), pads=[1,1,1,1])
        where x: [N,C,H,W], w: [O,C,1,1])",
    R"(enlarge3: conv(x, w, pads=[1,1,1,1])
        => conv(x, pad(w, [0,0,1,1,0,0,1,1]), pads=[2,2,2,2])
        where x: [N,C,H,W], w: [O,C,3,3])",
    R"(enlarge-s2: conv(x, w, auto_pad="SAME_UPPER", strides=[2,2])
        => conv(x, pad(w, [0,0,1,1,0,0,1,1]), auto_pad="SAME_UPPER", strides=[2,2])
        where x: [N,C,H,W], w: [O,C,3,3])",
    R"(group-par: concat(conv(x, w), conv(y, v), axis=1)
        => conv(concat(x, y, axis=1), concat(w, v, axis=0), group=2)
        where x: [N,C,H,W], y: [N,C,H,W], w: [O,C,3,3], v: [O,C,3,3])",
    R"(mp-concat: concat(max_pool(x, kernel_shape=[3,3], pads=[1,1,1,1]), max_pool(y, kernel_shape=[3,3], pads=[1,1,1,1]), axis=1)
        => max_pool(concat(x, y, axis=1), kernel_shape=[3,3], pads=[1,1,1,1])
        where x: [N,C,H,W], y: [N,D,H,W])",
    R"(ap-concat: concat(average_pool(x, kernel_shape=[3,3], pads=[1,1,1,1]), average_pool(y, kernel_shape=[3,3], pads=[1,1,1,1]), axis=1)
        => average_pool(concat(x, y, axis=1), kernel_shape=[3,3], pads=[1,1,1,1])
        where x: [N,C,H,W], y: [N,D,H,W])",
    R"(relu-conv-concat: concat(relu(conv(x, w)), relu(conv(x, v)), axis=1)
        => relu(conv(x, concat(w, v, axis=0)))
        where x: [N,C,H,W], w: [O,C,3,3], v: [P,C,3,3])",
    R"(conv-conv-1: conv(conv(x, w), v)
        => conv(x, reshape(matmul(reshape(v, [0,0]), reshape(w, [0,0])), [dim(v,0), dim(w,1), 1, 1]))
        where x: [N,C,H,W], w: [O,C,1,1], v: [P,O,1,1])",
};

const char* const kDoNotHold[] = {
    R"(bad1: matmul(x, y)
        => matmul(y, x)
        where x: [N,N], y: [N,N])",
    R"(bad2: transpose(x, perm=[1,0])
        => x
        where x: [N,N])",
    R"(bad3: relu(add(x, y))
        => add(relu(x), relu(y))
        where x: [N], y: [N])",
    R"(bad5: concat(x, y, axis=0)
        => concat(y, x, axis=0)
        where x: [N], y: [N])",
    R"(bad6: mul(x, x)
        => x
        where x: [N])",
    R"(bad7: exp(add(x, y))
        => add(exp(x), exp(y))
        where x: [N], y: [N])",
    R"(group-bad: concat(conv(x, w, group=2), conv(x, v, group=2), axis=1)
        => conv(x, concat(w, v, axis=0), group=2)
        where x: [N,2*C,H,W], w: [2*O,C,3,3], v: [2*P,C,3,3])",
    R"(ap-conv-bad: conv(average_pool(x, kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1), w, pads=[1,1,1,1])
        => average_pool(conv(x, w, pads=[1,1,1,1]), kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1)
        where x: [N,C,H,W], w: [C,C,3,3])",
    R"(enlarge-same-upper-stride-2: conv(x, w, auto_pad="SAME_UPPER", strides=[2,2])
        => conv(x, pad(w, [0,0,1,1,0,0,1,1]), auto_pad="SAME_UPPER", strides=[2,2])
        where x: [N,C,H,W], w: [O,C,1,1])",
    R"(average-pool-as-conv-excluded: average_pool(x, kernel_shape=[3,3], pads=[1,1,1,1])
        => average_pool(x, kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1)
        where x: [N,C,H,W])",
    R"(inner-sizes-differ: matmul(x, y)
        => mul(matmul(x, y), 1.0)
        where x: [M,K], y: [L,N])",
    R"(square-only: matmul(x, transpose(x, perm=[1,0]))
        => matmul(transpose(x, perm=[1,0]), x)
        where x: [N,N])",
    R"(relu-of-max-pool-in-padding: relu(max_pool(x, kernel_shape=[2,2], pads=[2,2,2,2]))
        => max_pool(relu(x), kernel_shape=[2,2], pads=[2,2,2,2])
        where x: [N,C,H,W])",
    R"(batch-concat-other-axis: concat(matmul(x, y), matmul(x, z), axis=0)
        => matmul(x, concat(y, z, axis=1))
        where x: [K,K], y: [K,K], z: [K,K])",
};

TEST(Prove, WhatHoldsForAllSizes) {
    for (const char* text : kHold) {
        Result<Claim> claim = read_claim(text);
        ASSERT_TRUE(claim.ok()) << claim.error().to_string();
        Result<Proof> proof = prove(*claim);
        ASSERT_TRUE(proof.ok()) << proof.error().to_string();
        EXPECT_TRUE(proof->proved()) << text << "\n" << proof->reason;
        Status checked = check_certificate(*claim, proof->certificate);
        EXPECT_TRUE(checked.ok()) << checked.error().to_string() << "\n" << proof->certificate.text;
    }
}

TEST(Prove, NothingThatDoesNotHold) {
    for (const char* text : kDoNotHold) {
        Result<Claim> claim = read_claim(text);
        ASSERT_TRUE(claim.ok()) << claim.error().to_string();
        Result<Proof> proof = prove(*claim);
        EXPECT_FALSE(proof.ok() && proof->proved()) << text << "\n" << proof->certificate.text;
    }
}

}  // namespace
}  // namespace tessera
