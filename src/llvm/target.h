// What LLVM must know of a target, and the machine that schedules see.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "base/machine.h"

namespace llvm {
class TargetMachine;
}

namespace tessera::codegen {

struct Target {
    std::string triple;
    std::string cpu;       // only the architecture's baseline: features come from the list alone
    std::string tune;      // the processor to schedule instructions for
    std::string features;  // "+avx2,+fma"
    Machine machine;
    bool aarch64() const { return triple.starts_with("aarch64"); }
    bool x86() const { return triple.starts_with("x86_64"); }
    bool has(std::string_view feature) const;
};

Result<Target> find_target(std::string_view name);
// `level`: LLVM's optimization level, 0 to 3.
std::unique_ptr<llvm::TargetMachine> make_target_machine(const Target& target, int level);

}  // namespace tessera::codegen
