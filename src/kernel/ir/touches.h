// Accesses inside loops whose iterations run at once (blocks and threads), and whether two of them can be of one
// element. "No" is certain; "yes" is what cannot be ruled out.
#pragma once

#include <set>

#include "kernel/ir/kernel.h"

namespace tessera {

struct Touch {
    int buffer = 0;
    std::vector<Expr> indices = {};
    bool anywhere = false;  // of a call that specifies only the first element
    bool writes = false;
    std::vector<Expr> conditions = {};  // of enclosing branches, and the ranges of enclosing loops
    std::vector<std::string> own = {};  // variables of loops that each iteration of those at once runs by itself
    Stmt stmt = nullptr;
};

// Loops whose iterations run concurrently: their variables, and the buffers that are not written meanwhile.
struct AtOnce {
    std::vector<Expr> vars;
    const std::set<int>& written;  // buffers
};

// Whether a value is uniform over the iterations: no use of their variables, no read of what is written.
bool same_for_all(const Expr& e, const AtOnce& at_once, size_t params);

// Whether two different iterations can touch one element of a buffer, one by a and the other by b.
bool may_meet(const Touch& a, const Touch& b, const AtOnce& at_once, const Kernel& kernel);

}  // namespace tessera
