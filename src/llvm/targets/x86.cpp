#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/Support/TargetSelect.h>

#include "llvm/targets/target_code.h"

namespace tessera::codegen {
namespace {

constexpr int kAsTheMode = 4;  // rounded as the processor's mode says

// Two vectors as one; the first has `count` lanes, and at least as many as the second.
Value* joined(llvm::IRBuilderBase& b, Value* first, Value* second, int count) {
    llvm::SmallVector<int> wide, lanes;
    const auto more = static_cast<int>(llvm::cast<llvm::FixedVectorType>(second->getType())->getNumElements());
    for (int i = 0; i < count; ++i) wide.push_back(i < more ? i : -1);
    for (int i = 0; i < count + more; ++i) lanes.push_back(i);
    return b.CreateShuffleVector(first, b.CreateShuffleVector(second, wide), lanes);
}

// f of two vectors, so many lanes at a time.
template <typename F>
Value* in_parts(llvm::IRBuilderBase& b, int lanes, Value* x, Value* y, const F& f) {
    const auto all = static_cast<int>(llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements());
    if (all == lanes) return f(x, y);
    Value* result = nullptr;
    for (int at = 0; at < all; at += lanes) {
        llvm::SmallVector<int> part;
        for (int i = at; i < at + lanes; ++i) part.push_back(i);
        Value* done = f(b.CreateShuffleVector(x, part), b.CreateShuffleVector(y, part));
        result = result ? joined(b, result, done, at) : done;
    }
    return result;
}

class X86Code : public TargetCode {
  public:
    void initialize() const override {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
    }

    std::string_view baseline() const override { return "x86-64"; }

    std::span<const NamedTarget> named() const override {
        constexpr const char* kTriple = "x86_64-unknown-linux-gnu";
        static const std::string kSse4 = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16";
        static const std::string kAvx2 = kSse4 + ",+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe";
        static const std::string kAvx512 = kAvx2 + ",+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd,+evex512";
        static const std::string kVnni = kAvx512 + ",+avx512vnni,+avx512bf16";
        static const std::vector<NamedTarget> kAll{
            {"x86_64-amx", kTriple, "sapphirerapids", kVnni + ",+amx-tile,+amx-int8,+amx-bf16", 48 << 10, 2 << 20,
             32 << 20},
            {"x86_64-avx2", kTriple, "haswell", kAvx2, 32 << 10, 256 << 10, 8 << 20},
            {"x86_64-avx512", kTriple, "sapphirerapids", kAvx512, 48 << 10, 2 << 20, 32 << 20},
            {"x86_64-avx512vnni", kTriple, "sapphirerapids", kVnni, 48 << 10, 2 << 20, 32 << 20},
            {"x86_64-avxvnni", kTriple, "sierraforest", kAvx2 + ",+avxvnni,+avxvnniint8", 32 << 10, 1 << 20, 8 << 20},
            {"x86_64-sse4", kTriple, "nehalem", kSse4, 32 << 10, 256 << 10, 8 << 20},
        };
        return kAll;
    }

    void describe(Machine& m, std::string_view) const override {
        if (m.has("avx512f")) {
            m.vector_bytes = 64, m.vector_registers = 32, m.fma_pipes = 2, m.fma_latency = 4;
            m.load_broadcast = m.masked = true;
        } else if (m.has("avx")) {
            m.vector_bytes = 32, m.vector_registers = 16, m.fma_pipes = 2, m.fma_latency = 4;
        } else {
            m.vector_bytes = 16, m.vector_registers = 16, m.fma_pipes = 2, m.fma_latency = 8;
        }
    }

    // max and min, one instruction each, give the second operand where the two do not compare.
    Value* extreme(llvm::IRBuilderBase& b, const Machine& m, bool largest, Value* x, Value* y) const override {
        auto known_number = [](Value* v) {
            auto* c = llvm::dyn_cast<llvm::Constant>(v);
            if (c && c->getType()->isVectorTy()) c = c->getSplatValue();
            auto* f = c ? llvm::dyn_cast<llvm::ConstantFP>(c) : nullptr;
            return f && !f->isNaN();
        };
        auto pick = [&](Value* p, Value* q) { return either(b, largest, p, q); };
        if (known_number(y)) return pick(y, x);
        if (known_number(x)) return pick(x, y);
        return b.CreateSelect(b.CreateFCmpUNO(x, x), x, second_if_unlike(b, m, largest, x, y, pick));
    }

    Value* extreme_of_numbers(llvm::IRBuilderBase& b, const Machine& m, bool largest, Value* x,
                              Value* y) const override {
        return second_if_unlike(b, m, largest, x, y, [&](Value* p, Value* q) { return either(b, largest, p, q); });
    }

    static Value* either(llvm::IRBuilderBase& b, bool largest, Value* x, Value* y) {
        return b.CreateSelect(largest ? b.CreateFCmpOGT(x, y) : b.CreateFCmpOLT(x, y), x, y);
    }

    bool streams() const override { return true; }
    void end_streams(llvm::IRBuilderBase& b) const override {
        b.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});
    }

    // As an instruction by name: LLVM would join a comparison and a choice with the choices around them.
    template <typename F>
    static Value* second_if_unlike(llvm::IRBuilderBase& b, const Machine& m, bool largest, Value* x, Value* y,
                                   const F& otherwise) {
        constexpr unsigned kLanes = 16;
        auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
        if (!m.has("avx512f") || !type || !type->getElementType()->isFloatTy() || type->getNumElements() % kLanes)
            return otherwise(x, y);
        return in_parts(b, kLanes, x, y, [&](Value* p, Value* q) -> Value* {
            return b.CreateIntrinsic(
                largest ? llvm::Intrinsic::x86_avx512_max_ps_512 : llvm::Intrinsic::x86_avx512_min_ps_512, {},
                {p, q, b.getInt32(kAsTheMode)});
        });
    }

    Value* times_power(llvm::IRBuilderBase& b, const Machine& m, Value* x, Value* n) const override {
        constexpr int kLanes = 16;
        auto* type = llvm::dyn_cast<llvm::FixedVectorType>(x->getType());
        if (!m.has("avx512f") || !type || !type->getElementType()->isFloatTy() || type->getNumElements() % kLanes)
            return nullptr;
        return in_parts(b, kLanes, x, n, [&](Value* part, Value* power) -> Value* {
            return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                                     {part, power, part, b.getInt16(0xffff), b.getInt32(kAsTheMode)});
        });
    }

    bool converts_to_the_end() const override { return false; }

    Value* flush_subnormals(llvm::IRBuilderBase& b) const override {
        constexpr int kToZero = 1 << 15, kAreZero = 1 << 6;  // results, operands
        b.GetInsertBlock()->getParent()->addFnAttr("denormal-fp-math", "preserve-sign,preserve-sign");
        Value* before = stack_memory(b, b.getInt32Ty(), "mode");
        Value* during = stack_memory(b, b.getInt32Ty(), "flushing");
        b.CreateIntrinsic(llvm::Intrinsic::x86_sse_stmxcsr, {}, {before});
        Value* mode = b.CreateLoad(b.getInt32Ty(), before);
        b.CreateStore(b.CreateOr(mode, b.getInt32(kToZero | kAreZero)), during);
        b.CreateIntrinsic(llvm::Intrinsic::x86_sse_ldmxcsr, {}, {during});
        return before;
    }

    void restore_mode(llvm::IRBuilderBase& b, Value* mode) const override {
        b.CreateIntrinsic(llvm::Intrinsic::x86_sse_ldmxcsr, {}, {mode});
    }
};

}  // namespace

const TargetCode& x86_code() {
    static const X86Code kCode;
    return kCode;
}

}  // namespace tessera::codegen
