// Sizes that are not known may turn out to be one, or a few: where axes of them lie innermost, vectors would be empty.
#pragma once

#include "kernel/schedule/schedule.h"

namespace tessera {

// Symbols that are the sizes of innermost axes, with others around them; none where something is multiplied or slides.
std::vector<std::string> open_last_axes(const Compute& compute, const Schedule& schedule);

// Of a map: symbols that are the sizes of the innermost dimensions of what it reads, which it goes across; or of an
// axis around one of a few elements.
std::vector<std::string> open_inner_sizes(const Compute& compute);

// The same Compute where a symbol is that number, or what that is of it.
Compute with_size(const Compute& compute, const std::string& symbol, const Expr& size);
// So too a kernel.
void replace_size(Lowered& lowered, const std::string& symbol, const Expr& size);

// Makes the parameters of a kernel that was lowered with_size alike those of one that was not, whose sizes are the same
// where it runs. False where that cannot be.
bool align_sizes(Lowered& narrow, Lowered& general, const std::string& symbol);

}  // namespace tessera
