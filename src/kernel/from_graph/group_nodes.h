// Which definitions are computed together, by one kernel, and which nowhere of their own: they are inlined where they
// are read. Every choice is a Decision that counts bytes saved against work done again.
#pragma once

#include "kernel/from_graph/choose_layouts.h"
#include "kernel/from_graph/from_graph.h"

namespace tessera {

struct Grouping {
    std::vector<std::vector<int>> groups;  // definitions, each a stage of the group's kernel; producers first
    std::vector<int> group_of;             // by definition; -1: given, joined, inlined, or unused
    std::vector<bool> live;                // by definition: an output or a host step needs it
    std::vector<bool> whole;               // by definition: it is read outside its group, and therefore materialized
    std::vector<Choice> choices;
};

// With options.fuse, as few bytes as possible are moved; without, a group for each node. Where a definition is only read
// inside its group, its layout follows its reader's.
Grouping group_nodes(const Definitions& all, Layouts& layouts, const LowerOptions& options);

// By definition: whether it is an output, a part of a joined one, or used by a host step.
std::vector<bool> kept_definitions(const Definitions& all);

}  // namespace tessera
