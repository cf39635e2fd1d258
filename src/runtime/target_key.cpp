#include "runtime/target_key.h"

#include "base/check.h"
#include "llvm/targets/target.h"

namespace tessera {

std::vector<std::string> target_parts(const CodegenOptions& codegen) {
    auto target = codegen::find_target(codegen.target);
    CHECK(target.ok(), "{}", target.error().message());
    return {target->triple, target->cpu, target->tune, target->features,
            fmt::format("{} {} {} {}", codegen.optimize, codegen.fast_math, codegen.flush_subnormals,
                        target->machine.blocks ? target->machine.cores : 0)};
}

std::vector<std::string> machine_parts(const CodegenOptions& codegen) {
    std::vector<std::string> parts = target_parts(codegen);
    const Machine m = codegen::find_target(codegen.target)->machine;
    parts.push_back(fmt::format("{} {} {} {}", m.l1_bytes, m.l2_bytes, m.l3_bytes, m.cores));
    return parts;
}

}  // namespace tessera
