// What LLVM must know of a target, and the machine that schedules see.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine.h"

namespace llvm {
class TargetMachine;
}

namespace tessera::codegen {

class TargetCode;

struct Target {
    std::string triple;
    std::string cpu;       // only the architecture's baseline: features come from the list alone
    std::string tune;      // the processor to schedule instructions for
    std::string features;  // "+avx2,+fma"; those that are on are in the machine's list too
    Machine machine;
    const TargetCode* code = nullptr;  // never null
};

Result<Target> find_target(std::string_view name);
std::vector<std::string> target_names();  // all but the host
// `level`: LLVM's optimization level, 0 to 3.
std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target, int level);

}  // namespace tessera::codegen
