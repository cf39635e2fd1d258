// Includes the whole public API.
#pragma once

#include "tessera/compile.h"
#include "tessera/custom_op.h"
#include "tessera/devices.h"
#include "tessera/discover.h"
#include "tessera/dtype.h"
#include "tessera/error.h"
#include "tessera/explore.h"
#include "tessera/kernel.h"
#include "tessera/memory.h"
#include "tessera/model.h"
#include "tessera/optimize.h"
#include "tessera/quantize.h"
#include "tessera/search.h"
#include "tessera/tensor.h"
#include "tessera/tile.h"
#include "tessera/training.h"
