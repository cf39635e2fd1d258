// Placed stages as statements of a kernel.
#pragma once

#include <map>

#include "kernel/ir/renamed_copy.h"
#include "kernel/lower/place_stages.h"

namespace tessera {

class StageEmitter {
  public:
    // `slots`: the kernel's slots of the Compute's buffers that come from outside; others are added when allocated.
    StageEmitter(const Compute& compute, const std::vector<PlacedStage>& placed, std::map<int, int> slots,
                 Kernel& kernel)
        : compute_(compute), placed_(placed), slots_(std::move(slots)), kernel_(kernel), copies_(kernel) {}

    Result<Stmt> emit_root(const std::vector<size_t>& roots);  // nests one after the other, with what lives around them

  private:
    // What stands inside so many loops of a stage.
    struct Parts {
        std::vector<int> allocated;
        std::vector<Stmt> before, rest;  // other stages computed for what follows; the init, the next loop, followers
    };
    Result<Parts> parts(size_t stage, size_t level);
    Result<Stmt> inside(size_t stage, size_t level);
    Result<Stmt> next(size_t stage, size_t level);  // the level-th loop and all in it, or the update
    Result<Stmt> fissioned(size_t stage, size_t level);
    Result<Stmt> pipelined(size_t stage, size_t level);
    Result<Stmt> tensorized(size_t stage, size_t level);
    std::vector<Stmt> prefetches(size_t stage, size_t level) const;
    Expr loop_around(const PlacedStage& p, const std::string& name) const;
    Stmt prefetch_part(const PlacedStage& p, const PrefetchPlan& plan, size_t level, int64_t row,
                       const Access& from) const;
    Stmt guard(size_t stage, size_t level, Stmt body) const;
    Stmt init(const PlacedStage& p);
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
    RenamedCopies copies_;
};

}  // namespace tessera
