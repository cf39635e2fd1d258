// RNN, LSTM, GRU.
#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {

std::vector<OpDef> recurrent_ops() { return {}; }

}  // namespace tessera
