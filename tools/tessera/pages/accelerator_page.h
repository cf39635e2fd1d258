// The page of tessera profile --report for an accelerator: cycles by unit, roofline, timeline with tokens, layers.
#pragma once

#include "accelerator_profile.h"

namespace tessera::cli {

std::string accelerator_page(const AcceleratorProfile& profile, const Executable& executable, const std::string& title);

}  // namespace tessera::cli
