// The index arithmetic of sliding windows over the spatial dimensions of an [N, C, D1, ..., Dn] tensor: what strides,
// dilations, pads, auto_pad and ceil_mode (those that the op has) say, as output sizes and input positions.
#pragma once

#include "graph/op_view.h"

namespace tessera {

struct WindowAxis {
    Dim input, kernel, output;
    Expr stride = 1, dilation = 1;
    Expr pad_begin, pad_end;

    Expr extent() const { return (kernel - 1) * dilation + 1; }  // of the dilated kernel
    Expr last() const { return input + pad_begin + pad_end - extent(); }  // where the last window may start
    bool fits() const { return last().as_int().value_or(0) >= 0; }  // false: known to be larger than the padded input
    // The input position under window offset k of output position o; out of bounds in the padding.
    Expr position(const Expr& o, const Expr& k) const { return o * stride + k * dilation - pad_begin; }
};

struct ConvWindow {
    std::vector<WindowAxis> axes;

    Shape output() const;
    std::vector<ReduceAxis> offsets(const OpView& op) const;  // one reduction axis over each of the kernel's
    // Input positions for the output's spatial indices and the window's offsets.
    Indices positions(const Indices& o, const std::vector<ReduceAxis>& k) const;
};

// The variables of reduction axes, as indices.
Indices vars(const std::vector<ReduceAxis>& axes);

// A list attribute with `count` entries in [low, 2^30], or that many times `fallback` where it is not given.
Result<std::vector<int64_t>> window_ints(const OpView& op, const char* attr, size_t count, int64_t low,
                                         int64_t fallback);

// While one exists, in its thread, the attribute values that `add` returned stand for symbolic sizes: strides,
// dilations and pads that are symbols, for proofs that hold for all values.
class SymbolicWindows {
   public:
    SymbolicWindows();
    ~SymbolicWindows();
    SymbolicWindows(const SymbolicWindows&) = delete;
    int64_t add(const Expr& size);
    Expr meaning(int64_t value) const;  // the size that add() returned `value` for; else `value`
    static SymbolicWindows* current();

   private:
    std::vector<Expr> sizes_;
    SymbolicWindows* outer_;
};

// The window of a kernel over the spatial dimensions of an input.
Result<ConvWindow> conv_window(const OpView& op, const Shape& input, const Shape& kernel);

// Convolution of inputs number x [N, C, ...] and w [M, C/group, ...]: its window, the whole output shape, and the sum
// of term(x, w) over channels and window, where x reads as `outside` in the padding.
Result<ConvWindow> weight_window(const OpView& op, size_t x, size_t w);
Result<Shape> conv_shape(const OpView& op, size_t x, size_t w);
Expr conv_sum(const OpView& op, size_t x, size_t w, const Indices& o, const Expr& outside,
              const std::function<Expr(const Expr& x, const Expr& w)>& term);

// As OpDef::canonical of convolutions, whose weights are input w, and of pools: pads as numbers instead of auto_pad, and
// no strides, dilations and pads that are as where nothing is said.
void canonical_conv(const OpView& op, AttrMap& attrs, size_t w);
void canonical_pool(const OpView& op, AttrMap& attrs);

}  // namespace tessera
