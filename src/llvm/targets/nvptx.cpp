#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/Support/TargetSelect.h>

#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

class NvptxCode : public TargetCode {
  public:
    void initialize() const override {
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
    }

    // Each generation of GPUs is a processor of its own.
    std::span<const NamedTarget> named() const override {
        constexpr const char* kTriple = "nvptx64-nvidia-cuda";
        static const std::vector<NamedTarget> kAll{
            {"sm_80", kTriple, "sm_80", "+ptx80", 192 << 10, 40 << 20, 0},
            {"sm_90", kTriple, "sm_90", "+ptx80", 256 << 10, 50 << 20, 0},
            {"sm_90a", kTriple, "sm_90a", "+ptx80", 256 << 10, 50 << 20, 0},
        };
        return kAll;
    }

    void describe(Machine& m, std::string_view) const override {
        m.vector_bytes = 16, m.vector_registers = 255, m.fma_pipes = 1, m.fma_latency = 4;
        m.blocks = true;
    }

    bool has_blocks() const override { return true; }

    Value* extreme(llvm::IRBuilderBase& b, bool largest, Value* x, Value* y) const override {
        if (x->getType()->getScalarType()->isFloatTy()) return TargetCode::extreme(b, largest, x, y);
        // There is no instruction for doubles that gives NaN where one is.
        Value* picked = b.CreateSelect(largest ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y), x, y);
        Value* unlike = b.CreateFCmpUNO(x, x);
        return b.CreateSelect(unlike, x, b.CreateSelect(b.CreateFCmpUNO(y, y), y, picked));
    }

    Value* place(llvm::IRBuilderBase& b, Place which, int dim) const override {
        namespace in = llvm::Intrinsic;
        static constexpr in::ID kIds[4][3] = {
            {in::nvvm_read_ptx_sreg_ctaid_x, in::nvvm_read_ptx_sreg_ctaid_y, in::nvvm_read_ptx_sreg_ctaid_z},
            {in::nvvm_read_ptx_sreg_tid_x, in::nvvm_read_ptx_sreg_tid_y, in::nvvm_read_ptx_sreg_tid_z},
            {in::nvvm_read_ptx_sreg_ntid_x, in::nvvm_read_ptx_sreg_ntid_y, in::nvvm_read_ptx_sreg_ntid_z},
            {in::nvvm_read_ptx_sreg_nctaid_x, in::nvvm_read_ptx_sreg_nctaid_y, in::nvvm_read_ptx_sreg_nctaid_z}};
        return b.CreateIntrinsic(kIds[static_cast<int>(which)][dim], {}, {});
    }

    void barrier(llvm::IRBuilderBase& b) const override { b.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {}); }
};

}  // namespace

const TargetCode& nvptx_code() {
    static const NvptxCode kCode;
    return kCode;
}

}  // namespace tessera::codegen
