#include "llvm/targets/target_code.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/TargetParser/Triple.h>

#include <array>

namespace tessera::codegen {

void TargetCode::describe(Machine& m, std::string_view) const {
    m.vector_bytes = 16, m.vector_registers = 16, m.fma_pipes = 1, m.fma_latency = 8;
}

Value* TargetCode::extreme(llvm::IRBuilderBase& b, const Machine&, bool largest, Value* x, Value* y) const {
    return b.CreateBinaryIntrinsic(largest ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, x, y);
}

std::span<const TargetCode* const> target_families() {
    static const std::array<const TargetCode*, 4> kAll{&aarch64_code(), &nvptx_code(), &wasm_code(), &x86_code()};
    return kAll;
}

const TargetCode& code_for(std::string_view triple) {
    static const TargetCode kOther;
    const llvm::Triple parsed{llvm::StringRef(triple)};
    if (parsed.isAArch64()) return aarch64_code();
    if (parsed.isNVPTX()) return nvptx_code();
    if (parsed.isWasm()) return wasm_code();
    return parsed.isX86() ? x86_code() : kOther;
}

llvm::AllocaInst* stack_memory(llvm::IRBuilderBase& b, llvm::Type* type, const char* name) {
    llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    auto* made = at_entry.CreateAlloca(type, nullptr, name);
    made->setAlignment(llvm::Align(64));
    return made;
}

}  // namespace tessera::codegen
