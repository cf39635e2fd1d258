// Convolutions of stride 1 whose outputs are computed tile by tile (winograd.cpp): what a conv's attribute `tiles` asks
// for, or what is usual, and the work that it is.
#pragma once

#include <optional>

#include "base/machine.h"
#include "graph/graph.h"

namespace tessera {

struct ConvTiles {
    struct Axis {
        int64_t kernel, output, pad_begin, pad_end, side;
        int64_t tiles() const { return (output + side - 1) / side; }
        int64_t points() const { return side + kernel - 1; }
    };
    int64_t channels, outputs;
    Axis axes[2];
    Dim images;
    bool requested = false;  // by the attribute

    double tiles() const;  // of all images
    bool of_3x3() const;   // the kernel is; GPUs take tiles of no other without being requested
    // Operations, additions and multiplications apart; those of the transforms are as many as products in that time.
    double direct() const, products() const, transforms() const;
};

// Nothing if the convolution is computed directly, on request or because tiles are impossible.
std::optional<ConvTiles> conv_tiles(const Node& node);

// On a GPU, in seconds: directly, and in tiles. `leaves`: the result is stored in ONNX's order.
double direct_seconds(const ConvTiles& c, const Machine& machine);
double tiled_seconds(const ConvTiles& c, const Machine& machine, bool leaves = false);
// The tiles that are fastest there by that, but for those that are requested.
ConvTiles fastest_tiles(const ConvTiles& c, const Machine& machine);
// The estimated time of an f32 convolution, with its requested tiles or the fastest ones; `known`: the weights are
// constant. None if its sizes are dynamic.
std::optional<double> conv_seconds(const Node& node, bool known, const Machine& machine);

}  // namespace tessera
