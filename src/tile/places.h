// What is known of the whole numbers of a program: places in arrays and bounds of masks, as expressions over what runs.
#pragma once

#include <map>

#include "tile/program.h"

namespace tessera::tile {

// What a program is given: for each parameter that is a whole number, that number; the grid; over any symbols.
struct Given {
    std::vector<std::optional<Expr>> numbers;
    std::array<Expr, 3> grid;
};

// What runs over [0, extent): an axis of the grid, or a dimension of a tile.
struct Runner {
    Expr var, extent;
};

// Of instructions outside of branches and loops: sums and products of numbers that are not negative.
class Places {
  public:
    Places(const ProgramData& program, const Given& given);

    void learn(const Instruction& i);  // in their order
    // One element, over lanes and instances, in 64 bits; of a pointer, its place; of a mask, comparisons `x < n` and
    // conjunctions of them.
    std::optional<Expr> known(int value) const;
    // Of a tile of that shape, those of more than one element.
    std::vector<Runner> runners(const std::vector<int64_t>& shape) const;
    // The comparisons of a mask; nothing where it is of another kind, or where n is another number from lane to lane.
    static std::optional<std::vector<Expr>> comparisons(const Expr& mask);

  private:
    const Type& type(int value) const { return program_.types[static_cast<size_t>(value)]; }
    std::optional<Expr> meaning(const Instruction& i, const std::vector<Expr>& in) const;
    std::optional<Expr> moved(const Instruction& i, const Expr& e) const;

    const ProgramData& program_;
    std::vector<Runner> instances_;
    std::map<int, Expr> known_;
};

// Elements of an array that one instance loads and stores, on average. Loops of which it is not known how often they
// run count once, and masks that are not known are taken to hold.
struct ArrayWork {
    double loads = 0, stores = 0;
};
// For each parameter; all that is given is a number.
std::vector<ArrayWork> array_work(const ProgramData& program, const Given& given);

}  // namespace tessera::tile
