// What instructions of tile programs give, as expressions over i0, i1, ... of the tiles that they are given. A tile
// without dimensions is the same everywhere: so functions of single elements serve whole tiles of them.
#pragma once

#include "graph/tensor.h"
#include "tile/program.h"

namespace tessera {

using TileInputs = std::vector<const Tensor*>;

std::vector<std::string> tile_index_names(size_t rank);

// The shape of a value: its own or, where it is one element that stands for many, theirs.
Sizes tile_sizes(const tile::Instruction& i, const tile::Type& type, const TileInputs& inputs);
// Of kinds that compute each element by itself: constants, maps, views, products, sums.
Expr tile_body(const tile::Instruction& i, size_t output, DType dtype, const Sizes& sizes, const TileInputs& inputs);

// The pointer is input 0, the array the last.
Expr load_body(DType dtype, int64_t extent, const Sizes& sizes, const TileInputs& inputs);
// Of what was there, the first value and the last.
Expr update_body(std::string_view how, DType dtype);
Expr choice_body(DType dtype, const Sizes& sizes, const TileInputs& inputs);
Expr xor_body(DType dtype, const Sizes& sizes, const TileInputs& inputs);
Expr slice_body(const Tensor& x, size_t axis, int64_t first, int64_t step, const Sizes& sizes);
Expr append_body(const Tensor& first, size_t axis, const Sizes& sizes);  // input 1 behind input 0, which is `first`

// How often a loop runs; never more than tile::kMostTrips. A step of 0 is no loop.
int64_t tile_trips(int64_t begin, int64_t end, int64_t step);

}  // namespace tessera
