// This machine as a target, but for what its features say of registers.
#pragma once

#include "llvm/targets/target.h"

namespace tessera::codegen {

Target describe_host();

}  // namespace tessera::codegen
