// Placed stages as statements of a kernel.
#pragma once

#include <map>

#include "kernel/place_stages.h"

namespace tessera {

class StageEmitter {
  public:
    // `slots`: the kernel's slots of the Compute's buffers that come from outside; others are added when allocated.
    StageEmitter(const Compute& compute, const std::vector<PlacedStage>& placed, std::map<int, int> slots,
                 Kernel& kernel)
        : compute_(compute), placed_(placed), slots_(std::move(slots)), kernel_(kernel) {}

    Stmt emit_root(const std::vector<size_t>& roots);  // nests one after the other, with what lives around them

  private:
    Stmt nest(size_t stage);
    Stmt inside(size_t stage, size_t level);  // from the level-th loop on, with what stands there
    Stmt init(size_t stage);
    Stmt update(size_t stage);
    Stmt loop(size_t stage, size_t level, Stmt body) const;
    int allocate(const PlacedStage& p);  // its slot in the kernel
    Expr value_of(const PlacedStage& p) const;
    std::vector<Expr> target(const PlacedStage& p, const Bindings& values) const;
    int slot(int buffer) const;

    const Compute& compute_;
    const std::vector<PlacedStage>& placed_;
    std::map<int, int> slots_;
    Kernel& kernel_;
};

}  // namespace tessera
