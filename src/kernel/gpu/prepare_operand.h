// An operand of a contraction that is known ahead, laid out so that its tiles are read in vectors: copied once, when
// the program is loaded.
#pragma once

#include "kernel/schedule/schedule.h"

namespace tessera {

struct PreparedOperand {
    int from = -1, to = -1;  // parameters of the Compute
    Kernel prepare;          // reads the first, fills the second
};

// Where a load of the first stage reads nothing but a known parameter at its variables, the Compute gets one more
// parameter, which has `order` as its dimensions, outermost first, and is read instead. Nothing happens where it does
// not read it so.
std::optional<PreparedOperand> prepare_operand(Compute& compute, const Expr& operand,
                                               const std::vector<ReduceAxis>& order);

// The matrix that a single row is multiplied by, transposed to be contiguous along k, so that a block computes complete
// sums. Nothing if it already is, or is not constant.
std::optional<PreparedOperand> prepare_matrix_of_row(Compute& compute);

// The weights of a window for each channel, as vectors along channels. Nothing where they lie so, or there are none.
std::optional<PreparedOperand> prepare_window(Compute& compute);

}  // namespace tessera
