// Assigns materialized definitions to buffers; a part of a joined definition is placed in the whole's buffer.
#pragma once

#include "kernel/from_graph/group_nodes.h"
#include "kernel/from_graph/program.h"

namespace tessera {

// A buffer of the program whose dimension d is the definition's axis order[d], from `offset` on.
struct Storage {
    int buffer = -1;
    std::vector<int> order = {};
    std::vector<Expr> offset = {};  // by dimension of the buffer; empty: from its start
    std::vector<int> sizes = {};    // of a part: definitions that define sizes of the buffer, before it is stored
};

// Adds the program's buffers, inputs and outputs. A part that is only a copy of something which can be made in its
// place is dropped from the groups.
std::vector<Storage> place_buffers(const Definitions& all, const Layouts& layouts, Grouping& grouping,
                                   Program& program);

}  // namespace tessera
