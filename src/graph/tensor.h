// Tensors, which the public API shares.
#pragma once

#include "base/check.h"
#include "base/dtype.h"
#include "tessera/tensor.h"
