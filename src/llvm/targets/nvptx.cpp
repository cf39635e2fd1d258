#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/Support/TargetSelect.h>

#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

// An instruction on one float, or on each of a vector.
Value* for_lanes(llvm::IRBuilderBase& b, Value* x, Value* y, const char* text, const char* constraints) {
    llvm::Type* real = b.getFloatTy();
    std::vector<llvm::Type*> types(y ? 2 : 1, real);
    auto* code = llvm::InlineAsm::get(llvm::FunctionType::get(real, types, false), text, constraints, false);
    auto one = [&](Value* p, Value* q) -> Value* {
        llvm::CallInst* call = q ? b.CreateCall(code, {p, q}) : b.CreateCall(code, {p});
        call->setDoesNotThrow();
        call->setDoesNotAccessMemory();
        return call;
    };
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
    if (!vector) return one(x, y);
    Value* out = llvm::PoisonValue::get(vector);
    for (unsigned i = 0; i < vector->getNumElements(); ++i) {
        Value* made = one(b.CreateExtractElement(x, i), y ? b.CreateExtractElement(y, i) : nullptr);
        out = b.CreateInsertElement(out, made, i);
    }
    return out;
}

class NvptxCode : public TargetCode {
  public:
    void initialize() const override {
        LLVMInitializeNVPTXTargetInfo();
        LLVMInitializeNVPTXTarget();
        LLVMInitializeNVPTXTargetMC();
        LLVMInitializeNVPTXAsmPrinter();
    }

    // Each generation of GPUs is a processor of its own. Drivers before CUDA 12.4 read PTX up to 8.3.
    std::span<const NamedTarget> named() const override {
        constexpr const char* kTriple = "nvptx64-nvidia-cuda";
        static const std::vector<NamedTarget> kAll{
            {"sm_80", kTriple, "sm_80", "+ptx80", 192 << 10, 40 << 20, 0},
            {"sm_86", kTriple, "sm_86", "+ptx80", 128 << 10, 6 << 20, 0},
            {"sm_89", kTriple, "sm_89", "+ptx80", 128 << 10, 72 << 20, 0},
            {"sm_90", kTriple, "sm_90", "+ptx80", 256 << 10, 50 << 20, 0},
            {"sm_90a", kTriple, "sm_90a", "+ptx80,+ptx84", 256 << 10, 50 << 20, 0},
            {"sm_90a_ptx80", kTriple, "sm_90a", "+ptx80", 256 << 10, 50 << 20, 0},
        };
        return kAll;
    }

    void describe(Machine& m, std::string_view tune) const override {
        m.vector_bytes = 16, m.vector_registers = 255, m.fma_pipes = 1, m.fma_latency = 4;
        m.blocks = true;
        // Measured on an H200; by their data sheets, an A100 has two fifths of that, and cards of 8.6 and 8.9 have a
        // quarter of its bandwidth. SMs are those of an H200, an A100, an A40 and an L40S.
        m.flops = 40e12, m.bandwidth = 4e12, m.launch = 5e-6, m.shared_bytes = 227 << 10, m.cores = 132;
        if (tune == "sm_80") m.flops *= 0.4, m.bandwidth *= 0.4, m.shared_bytes = 163 << 10, m.cores = 108;
        if (tune == "sm_86" || tune == "sm_89")
            m.flops *= 0.6, m.bandwidth *= 0.25, m.shared_bytes = 99 << 10, m.cores = tune == "sm_86" ? 84 : 142;
        if (tune == "sm_90a") m.features.emplace_back("wgmma");
    }

    bool has_blocks() const override { return true; }
    bool makes_objects() const override { return false; }
    bool begins_early(std::string_view cpu) const override { return cpu.starts_with("sm_9"); }

    Value* extreme(llvm::IRBuilderBase& b, const Machine& m, bool largest, Value* x, Value* y) const override {
        if (x->getType()->getScalarType()->isFloatTy()) return TargetCode::extreme(b, m, largest, x, y);
        // There is no instruction for doubles that gives NaN where one is.
        Value* picked = b.CreateSelect(largest ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y), x, y);
        Value* unlike = b.CreateFCmpUNO(x, x);
        return b.CreateSelect(unlike, x, b.CreateSelect(b.CreateFCmpUNO(y, y), y, picked));
    }

    Value* quick_divide(llvm::IRBuilderBase& b, Value* x, Value* y) const override {
        return for_lanes(b, x, y, "div.full.f32 $0, $1, $2;", "=f,f,f");
    }
    Value* quick_exp2(llvm::IRBuilderBase& b, Value* x) const override {
        return for_lanes(b, x, nullptr, "ex2.approx.ftz.f32 $0, $1;", "=f,f");
    }

    Value* round_to_bf16(llvm::IRBuilderBase& b, Value* x) const override {
        llvm::Type *real = b.getFloatTy(), *bits = b.getInt16Ty(), *word = b.getInt32Ty();
        auto call = [&](llvm::Type* result, const char* text, const char* constraints, std::vector<Value*> of) {
            const std::vector<llvm::Type*> types(of.size(), real);
            llvm::CallInst* made = b.CreateCall(
                llvm::InlineAsm::get(llvm::FunctionType::get(result, types, false), text, constraints, false), of);
            made->setDoesNotThrow();
            made->setDoesNotAccessMemory();
            return made;
        };
        auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
        if (!vector) return call(bits, "cvt.rn.bf16.f32 $0, $1;", "=h,f", {x});
        const unsigned lanes = vector->getNumElements();
        if (lanes % 2) return nullptr;
        Value* pairs = llvm::PoisonValue::get(llvm::FixedVectorType::get(word, lanes / 2));
        for (unsigned i = 0; i < lanes; i += 2)
            pairs = b.CreateInsertElement(pairs,
                                          call(word, "cvt.rn.bf16x2.f32 $0, $1, $2;", "=r,f,f",
                                               {b.CreateExtractElement(x, i + 1), b.CreateExtractElement(x, i)}),
                                          i / 2);
        return b.CreateBitCast(pairs, llvm::FixedVectorType::get(bits, lanes));
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
