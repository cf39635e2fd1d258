// Moves of index space as terms of the rule language: a factor is split off one axis, as its slow or its fast part, and
// joined to another as that one's slow or fast part. Tiles or phases of an image become images of a batch, images are
// put side by side, pixels become channels; the move back is one too. And terms of an op with other attributes.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace tessera {

struct Move {
    int64_t from = 0, to = 0;  // axes
    bool from_fast = false;    // every factor-th element (phases), instead of runs of neighbours (tiles)
    bool to_fast = false;      // the factor becomes the fast part of the other axis
    // A number; the whole axis, which leaves 1; or back from there, with the sizes of another tensor, `z`.
    enum class Kind { Factor, Whole, WholeBack } kind = Kind::Factor;
    int64_t factor = 2;
};

// All of this kind; those of a whole axis are of the first axis only.
std::vector<Move> all_moves(int64_t rank, Move::Kind kind, int64_t factor = 0);
// Of the tensor `x`, with its condition: "reshape(transpose(reshape(x, ...)), ...) if dim(x, 2) % 2 == 0".
std::string move_text(const Move& move, int64_t rank);

// The op's attributes as lists that a window could have instead: its own, and nearer to none along some axes. Each is
// text that follows the operands: ", pads=[1, 1, 1, 1]". Its own comes first. For an op without windows, only its own.
std::vector<std::string> attribute_variants(const Node& node);

// The op along one axis less, as EinNet derives it: the taps of the window along that axis become channels of both
// operands, what it slides over becomes images of the batch. Of windows with more than two axes, along the shortest
// one; images have kernels of their own. `operands` are the names of its inputs. None where there is no such window.
std::vector<std::string> unfolded_texts(const Node& node, const std::vector<std::string>& operands);

// The op on images with a few rows and columns of zeros more, so that its dilation divides their sizes, and its result
// without them. None where it divides them as they are. Which padding is the one depends on the sizes at hand.
std::vector<std::string> padded_texts(const Node& node, const std::vector<std::string>& operands);

// The strides of a window that are not 1, and its dilations: factors that moves should try.
std::vector<int64_t> window_factors(const Node& node);

}  // namespace tessera
