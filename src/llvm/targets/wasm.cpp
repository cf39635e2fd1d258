#include <llvm/Support/TargetSelect.h>

#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

class WasmCode : public TargetCode {
  public:
    void initialize() const override {
        LLVMInitializeWebAssemblyTargetInfo();
        LLVMInitializeWebAssemblyTarget();
        LLVMInitializeWebAssemblyTargetMC();
        LLVMInitializeWebAssemblyAsmPrinter();
    }

    std::span<const NamedTarget> named() const override {
        static const std::vector<NamedTarget> kAll{
            {"wasm32", "wasm32-unknown-unknown", "generic", "+simd128,+bulk-memory", 32 << 10, 256 << 10, 0},
        };
        return kAll;
    }
};

}  // namespace

const TargetCode& wasm_code() {
    static const WasmCode kCode;
    return kCode;
}

}  // namespace tessera::codegen
