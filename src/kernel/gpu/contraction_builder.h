// Common parts of contraction kernels: their axes, the kernel being built, the steps along k, and the
// epilogue.
#pragma once

#include "kernel/gpu/contraction_kernel.h"
#include "kernel/gpu/gpu_loops.h"

namespace tessera {

class ContractionBuilder {
  protected:
    // `sum` has a batch axis, where there is one, then rows and columns; so has `out`, which makes of each sum what is
    // stored. `inner` is the axis of the reduction that tiles are taken along. With several parts, blocks of their own
    // add up each part of the steps, and a second launch all of them.
    ContractionBuilder(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch, size_t inner,
                       int64_t parts = 1);

    int add(std::string name, DType dtype, const std::vector<int64_t>& sizes, Scope scope = Scope::Shared);

    const Expr& rows() const { return sum_.axes[row_axis_].extent; }
    const Expr& columns() const { return sum_.axes[column_axis_].extent; }
    const ReduceAxis& inner() const { return sum_.reduce[inner_]; }
    // The loops over blocks around what one of them does, and what follows.
    TiledKernel in_blocks(Stmt body, const BlockTile& tile);

    // The axes that are stepped through, the last one fastest: what lies between their steps is read again soon.
    Bindings stepped(const Expr& step) const;
    // Executes `first` if there is at least one step.
    static Stmt before_steps(const Expr& steps, Stmt first);
    // An operand at a place.
    Expr at(const Expr& operand, size_t axis, const Expr& side, const Expr& k, const Expr& step) const;

    struct Finished {
        std::vector<Expr> to;  // indices of the output
        Expr value;
    };
    Finished finished(const Expr& row, const Expr& column, const Expr& own) const;
    // The same for one part of a split-K product, stored with the partial sums.
    Finished finished_part(const Expr& row, const Expr& column, const Expr& own) const;
    // Whether steps of this depth divide k evenly. Otherwise the last part extends beyond the end of k.
    bool parts_are_even(int64_t depth) const;
    int to_buffer() const { return parts_ > 1 ? partial_ : out_.buffer; }

    const Compute& compute_;
    const Stage &sum_, &out_;
    const size_t inner_;
    std::optional<size_t> batch_axis_;
    size_t row_axis_ = 0, column_axis_ = 0;
    Kernel kernel_;
    Expr others_ = 1;  // steps for each tile along k
    Expr block_m_ = 0, block_n_ = 0, batch_ = 0;
    const int64_t parts_;
    Expr part_ = 0;

  private:
    Stmt add_parts() const;

    int partial_ = -1;
};

// The threads of a block that has matrix instructions: thread.z, y and x, of which the warp is 8 by 4.
constexpr int64_t kWarps = 4, kGroups = 8, kPairs = 4;

struct WarpThread {
    Expr warp, group, pair;
    std::vector<Expr> own(const Expr& e) const { return {warp, group, pair, e}; }
};

template <typename F>
Stmt over_warps(const std::string& name, const F& body) {
    const WarpThread t{loop_var("warp_" + name, kWarps), loop_var("group_" + name, kGroups),
                       loop_var("pair_" + name, kPairs)};
    Stmt all = loop_over(t.pair, kPairs, LoopKind::Bound, body(t), "thread.x");
    all = loop_over(t.group, kGroups, LoopKind::Bound, std::move(all), "thread.y");
    return loop_over(t.warp, kWarps, LoopKind::Bound, std::move(all), "thread.z");
}

// Whether a part divides the whole, whatever its size.
bool divides(int64_t part, const Expr& whole);

}  // namespace tessera
