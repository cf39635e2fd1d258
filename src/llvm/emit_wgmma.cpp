// Matrix instructions of four warps that read both operands from shared memory, and go on while others are begun.
#include <llvm/IR/InlineAsm.h>

#include "base/check.h"
#include "kernel/ir/tile_copy.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

enum WgmmaAxis : size_t { kWarp, kRows64, kColumns8, kHalf, kGroup, kPair, kInPair, kDepth, kWgmmaAxes };
constexpr int64_t kSteps = kPanelBytes / kMatrixBytes;  // along k, of one call
constexpr int64_t kEightRows = 1024;                    // bytes of eight rows of a panel
constexpr int64_t kSquare = 8 * kEightRows;             // bytes of a panel of 64 rows
constexpr int64_t kExchanged = 1;                       // how pieces of 16 bytes lie: as exchanged in rows of 128

std::string repeated(const char* one, int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += one;
    return out;
}

// "0,1,2": as operands that are the results of the same number.
std::string tied(int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += fmt::format("{},", i);
    return out;
}

std::string registers(int64_t count) {
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += fmt::format("{}${}", i ? ", " : "", i);
    return out;
}

// An instruction up to its operands, and what follows them: factors of floats, and whether operands of 16 bits lie
// across.
std::string wide_instruction(DType a, DType b, int64_t columns) {
    return fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}", columns, matrix_depth(a),
                       is_int(a) ? "s32" : "f32", matrix_type_name(a), matrix_type_name(b));
}

std::string wide_flags(DType dtype, const std::vector<bool>& across) {
    std::string text = is_int(dtype) ? "" : ", 1, 1";
    for (bool each : across) text += dtype_bytes(dtype) == 2 ? fmt::format(", {:d}", each) : "";
    return text;
}

}  // namespace

std::string_view matrix_type_name(DType dtype) {
    switch (dtype) {
        case DType::f16: return "f16";
        case DType::bf16: return "bf16";
        case DType::f8e4m3fn: return "e4m3";
        case DType::f8e5m2: return "e5m2";
        case DType::f32: return "tf32";
        case DType::i8: return "s8";
        case DType::u8: return "u8";
        default: CHECK(false, "{} is not multiplied by matrix instructions", dtype_name(dtype));
    }
}

Value* Emitter::assembly(const std::string& text, const std::string& constraints, const std::vector<Value*>& arguments,
                         llvm::Type* result) {
    std::vector<llvm::Type*> types;
    for (Value* v : arguments) types.push_back(v->getType());
    auto* type = llvm::FunctionType::get(result ? result : builder_.getVoidTy(), types, false);
    const std::string all = constraints + (constraints.empty() ? "" : ",") + "~{memory}";
    llvm::CallInst* call = builder_.CreateCall(llvm::InlineAsm::get(type, text, all, true), arguments);
    call->setConvergent();
    call->setDoesNotThrow();
    return call;
}

// Of the first tile in the ring.
Value* Emitter::tile_descriptor(const Access& tile, bool along_k) {
    const int64_t offset = plan_->roles->ring.at(tile.buffer);
    Value* at = builder_.CreateAdd(roles_->base, builder_.getInt32(static_cast<uint32_t>(offset)));
    at = builder_.CreateAnd(builder_.CreateLShr(at, builder_.getInt32(4)), builder_.getInt32(0x3FFF));
    const int64_t next = along_k ? 1 : kSquare >> 4;
    at = builder_.CreateOr(at, builder_.getInt32(static_cast<uint32_t>(next << 16)));
    const auto high = static_cast<uint64_t>((kEightRows >> 4) | (kExchanged << 30));
    return builder_.CreateOr(builder_.CreateZExt(at, i64()), builder_.getInt64(high << 32));
}

void Emitter::emit_wgmma(const Call& call, Value* stage) {
    const Intrinsic* known = find_intrinsic(call.name);
    CHECK(known, "there is no intrinsic {}", call.name);
    const int64_t squares = *known->axes[kRows64].extent.as_int(),
                  columns = *known->axes[kColumns8].extent.as_int() * 8;
    auto stride = [&](size_t operand, size_t axis) { return *call.args[operand * kWgmmaAxes + axis].as_int(); };
    auto apart = [&](size_t operand) { return plan_->roles->apart.at(call.reads[operand - 1].buffer); };
    Value* first[3] = {};
    bool along_k[3] = {};
    for (size_t operand : {1u, 2u}) {
        along_k[operand] = stride(operand, kDepth) == 1;
        Value* begin = tile_descriptor(call.reads[operand - 1], along_k[operand]);
        Value* further = builder_.CreateMul(builder_.CreateZExt(stage, i64()),
                                            builder_.getInt64(static_cast<uint64_t>(apart(operand) >> 4)));
        first[operand] = builder_.CreateAdd(begin, further);
    }
    auto at = [&](size_t operand, int64_t step, int64_t square) {
        const int64_t offset = step * (along_k[operand] ? kMatrixBytes : 2 * kEightRows) + square * kSquare;
        return builder_.CreateAdd(first[operand], builder_.getInt64(static_cast<uint64_t>(offset >> 4)));
    };
    assembly("wgmma.fence.sync.aligned;", "", {});
    for (int64_t step = 0; step < kSteps; ++step)
        for (int64_t square = 0; square < squares; ++square)
            add_wide_product({.sums = call.writes[0].buffer,
                              .first = square * stride(0, kRows64),
                              .columns = columns,
                              .dtype = known->multiplied,
                              .by = known->multiplied_by,
                              .a_across = !along_k[1],
                              .b_across = !along_k[2]},
                             {at(1, step, square), at(2, step, 0)});
    assembly("wgmma.commit_group.sync.aligned;", "", {});
    forget_loads(call.writes[0].buffer);
}

const char* Emitter::sum_constraint(int buffer) const {
    return is_int(slots_[static_cast<size_t>(buffer)].dtype) ? "=r," : "=f,";
}

// One instruction, whose first operand is a tile or four registers.
void Emitter::add_wide_product(const WideProduct& p, const std::vector<Value*>& operands) {
    const int64_t count = p.columns / 2, first = p.fresh ? count : 2 * count;
    const bool registers_first = operands.size() > 2;
    std::string text = fmt::format("{{ .reg .pred p; setp.ne.b32 p, {}, 0; {} {{{}}}, ", p.fresh ? 0 : 1,
                                   wide_instruction(p.dtype, p.by, p.columns), registers(count));
    text += registers_first
                ? fmt::format("{{${}, ${}, ${}, ${}}}, ${}, p{}; }}", first, first + 1, first + 2, first + 3, first + 4,
                              wide_flags(p.dtype, {p.b_across}))
                : fmt::format("${}, ${}, p{}; }}", first, first + 1, wide_flags(p.dtype, {p.a_across, p.b_across}));
    const std::string constraints = repeated(sum_constraint(p.sums), count) + (p.fresh ? "" : tied(count)) +
                                    (registers_first ? "r,r,r,r,l" : "l,l");
    const Slot& sums = slots_[static_cast<size_t>(p.sums)];
    llvm::Type* sum_type = memory_type(sums.dtype);
    auto sum_at = [&](int64_t i) {
        return builder_.CreateConstInBoundsGEP1_64(sum_type, sums.base, static_cast<uint64_t>(p.first + i));
    };
    std::vector<Value*> arguments;
    for (int64_t i = 0; !p.fresh && i < count; ++i) arguments.push_back(builder_.CreateLoad(sum_type, sum_at(i)));
    arguments.insert(arguments.end(), operands.begin(), operands.end());
    auto* result =
        llvm::StructType::get(module_.getContext(), std::vector<llvm::Type*>(static_cast<size_t>(count), sum_type));
    Value* made = assembly(text, constraints, arguments, result);
    for (int64_t i = 0; i < count; ++i)
        builder_.CreateStore(builder_.CreateExtractValue(made, static_cast<unsigned>(i)), sum_at(i));
}

// The sums are results of the waiting itself: nothing that uses them can come before it.
void Emitter::settle_sums(int buffer, int others) {
    const Slot& sums = slots_[static_cast<size_t>(buffer)];
    llvm::Type* sum_type = memory_type(sums.dtype);
    auto sum_at = [&](int64_t i) {
        return builder_.CreateConstInBoundsGEP1_64(sum_type, sums.base, static_cast<uint64_t>(i));
    };
    std::vector<Value*> arguments;
    for (int64_t i = 0; i < sums.own; ++i) arguments.push_back(builder_.CreateLoad(sum_type, sum_at(i)));
    auto* result = llvm::StructType::get(module_.getContext(), std::vector<llvm::Type*>(arguments.size(), sum_type));
    std::string constraints = repeated(sum_constraint(buffer), sums.own) + tied(sums.own);
    constraints.pop_back();
    Value* made = assembly(fmt::format("wgmma.wait_group.sync.aligned {};", others), constraints, arguments, result);
    for (int64_t i = 0; i < sums.own; ++i)
        builder_.CreateStore(builder_.CreateExtractValue(made, static_cast<unsigned>(i)), sum_at(i));
    forget_loads(buffer);
}

}  // namespace tessera::codegen
