// What holds of every graph. Checked after each pass in debug builds.
//   1. Every value has a name; no two values of a graph and the graphs around it have the same.
//   2. find_value finds each value by its name.
//   3. A value's place is right: inputs()[index] of its graph, or output(index) of its node.
//   4. A node's inputs are values of its own graph or of a graph around it.
//   5. A value is defined before the nodes that use it, also before nodes whose nested graphs use it.
//   6. uses() lists exactly the node inputs and graph outputs that are the value, each once.
//   7. A constant has a tensor, whose element type and sizes are the value's type; an input's default fits its type.
//   8. Required inputs are given; a null input is optional in the op's signature. The last input is not null.
//   9. A node's attributes are known to its op and of the right kind, required ones are there (check_signature).
//  10. Every result has a type, and inferring it again contradicts it in nothing. In a nested graph it may, and may
//      fail: a branch that is never taken can be wrong for the sizes at hand.
//  11. There are as many output names as outputs; the outermost graph's are distinct and not empty.
//  12. A nested graph's outer() is the graph of the node it is an attribute of; only the outermost has ModelInfo.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace tessera {

std::vector<std::string> violations(const Graph& graph);  // each begins with its number above
void verify(const Graph& graph);                          // CHECKs that there are none

}  // namespace tessera
