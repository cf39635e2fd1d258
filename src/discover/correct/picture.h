// A corrected mutant for people: which boxes of the output are recomputed, in words and as a picture.
#pragma once

#include "discover/correct/correct.h"

namespace tessera {

// "rows 0 to 1 and H - 1 to H of axis 2"; "equal everywhere" without strips.
std::string boxes_text(const Corrected& corrected);

// An SVG of the output's last two axes at these sizes: what the mutant computes, and on it what is recomputed.
std::string boxes_picture(const Corrected& corrected, const SymbolValues& sizes);

}  // namespace tessera
