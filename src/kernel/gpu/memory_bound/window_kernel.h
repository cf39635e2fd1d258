// Windows that slide over images, each channel apart: depthwise convolutions and pools, with any order of the output.
// A block takes a tile of the output, some channels by some rows. The part of the image that it reads, halo and padding
// included, comes to shared memory once. A thread computes several neighbours of several rows, whose windows overlap,
// so that it reads each element of a row once into registers. Where channels are innermost in the output, sums go
// through shared memory, and vectors of channels are stored.
#pragma once

#include "kernel/schedule/schedule.h"
#include "kernel/schedule/schedule_options.h"

namespace tessera {

// One dimension of a window: the axis of the output that it follows, and the axis of the reduction, if there is one.
// The place in the image is from + every * axis + further * tap.
struct Sliding {
    size_t axis = 0, dim = 0;
    std::optional<size_t> tap;
    int64_t size = 1, taps = 1;  // extents of the axis, and of the taps
    int64_t from = 0, every = 1, further = 0;
    int64_t reach(int64_t outputs) const { return (outputs - 1) * every + (taps - 1) * further + 1; }
};

struct SlidingWindow {
    Stage sum, out;
    int image = 0;
    Expr operand, fill;  // the element that the sum reads, padding included; what padding is
    Sliding y, x;        // y may be missing: of one element
    bool has_y = false;
    std::vector<size_t> planes;  // other axes, each a dimension of the image or a slice of it
    std::vector<size_t> plane_dims;
    std::vector<int64_t> plane_from;  // where the slice begins
    bool image_along_x = false;       // neighbours in memory are those along x
};

// nullopt if the Compute is not of this form.
std::optional<SlidingWindow> match_sliding_window(const Compute& compute);

std::optional<Lowered> window_kernel(const Compute& compute, const ScheduleOptions& options);

}  // namespace tessera
