// Part of every test program: kernels are verified after every lowering (src/kernel/ir/verified.h), however the program
// is started. TESSERA_VERIFY=0 leaves that out. And a fault of ours ends the program, so that no test passes over it.
#include <cstdlib>

namespace {

[[maybe_unused]] const int kSet = setenv("TESSERA_VERIFY", "1", 0) + setenv("TESSERA_ABORT", "1", 0);

}  // namespace
