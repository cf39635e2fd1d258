#include <llvm/Support/TargetSelect.h>

#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

class Aarch64Code : public TargetCode {
  public:
    void initialize() const override {
        LLVMInitializeAArch64TargetInfo();
        LLVMInitializeAArch64Target();
        LLVMInitializeAArch64TargetMC();
        LLVMInitializeAArch64AsmPrinter();
    }

    std::span<const NamedTarget> named() const override {
        constexpr const char* kTriple = "aarch64-unknown-linux-gnu";
        static const std::vector<NamedTarget> kAll{
            {"aarch64-i8mm", kTriple, "neoverse-v1", "+neon,+fullfp16,+fp16fml,+dotprod,+i8mm,+bf16", 64 << 10, 1 << 20,
             32 << 20},
            {"aarch64-neon", kTriple, "neoverse-n1", "+neon", 64 << 10, 1 << 20, 32 << 20},
        };
        return kAll;
    }

    void describe(Machine& m, std::string_view tune) const override {
        m.vector_bytes = 16, m.vector_registers = 32, m.fma_pipes = 2, m.fma_latency = 4;
        m.lane_multiply = true;
        if (tune.starts_with("neoverse-v") || tune.starts_with("apple-")) m.fma_pipes = 4;
    }

    // fmaxnm and fminnm.
    Value* extreme_of_numbers(llvm::IRBuilderBase& b, const Machine&, bool largest, Value* x, Value* y) const override {
        return b.CreateBinaryIntrinsic(largest ? llvm::Intrinsic::maxnum : llvm::Intrinsic::minnum, x, y);
    }
};

}  // namespace

const TargetCode& aarch64_code() {
    static const Aarch64Code kCode;
    return kCode;
}

}  // namespace tessera::codegen
