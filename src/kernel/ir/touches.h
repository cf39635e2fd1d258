// Accesses inside loops whose iterations run at once (blocks and threads), and whether two of them can be of one
// element. "No" is certain; "yes" is what cannot be ruled out.
#pragma once

#include <set>

#include "kernel/ir/kernel.h"

namespace tessera {

struct Touch {
    int buffer = 0;
    std::vector<Expr> indices = {};
    bool anywhere = false;  // of a call that says only where it begins
    bool writes = false;
    std::vector<Expr> conditions = {};  // that hold where it happens; the ranges of loops around it are among them
    std::vector<std::string> own = {};  // variables of loops that each iteration of those at once runs by itself
    Stmt stmt = nullptr;
};

// Loops that run at once: their variables, and what nobody writes while they run.
struct AtOnce {
    std::vector<Expr> vars;
    const std::set<int>& written;  // buffers
};

// Whether a value is the same in all iterations: it mentions none of their variables, and reads what nobody writes.
bool same_for_all(const Expr& e, const AtOnce& at_once, size_t params);

// Whether two different iterations can touch one element of a buffer, one by a and the other by b.
bool may_meet(const Touch& a, const Touch& b, const AtOnce& at_once, const Kernel& kernel);

}  // namespace tessera
