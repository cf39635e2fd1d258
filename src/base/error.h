// Errors and results, which the public API shares.
#pragma once

#include "tessera/error.h"
