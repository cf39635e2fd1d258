// A copy of a statement that can stand in the same kernel: its loops and allocated buffers are its own.
#pragma once

#include <set>

#include "kernel/ir/kernel.h"

namespace tessera {

// The statement with other numbers for its buffers.
Stmt with_slots(const Stmt& s, const std::function<int(int)>& slot);

class RenamedCopies {
  public:
    explicit RenamedCopies(Kernel& kernel) : kernel_(kernel) {}

    Stmt copy(const Stmt& s, const std::string& suffix);

  private:
    std::string fresh(const std::string& name);

    Kernel& kernel_;
    std::set<std::string> names_;  // given so far
};

}  // namespace tessera
