// Matrix instructions of warps: the intrinsics that all threads of a block carry out together (kernel/ir/intrinsic.h).
// Operands come from shared memory, 16 by 16 at a time; sums stay in the registers of their threads.
#include <llvm/IR/InlineAsm.h>

#include <set>

#include "base/check.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/races.h"
#include "llvm/emitter.h"

namespace tessera::codegen {
namespace {

enum MmaAxis : size_t { kU, kV, kX, kH, kG, kT, kP, kK };
constexpr size_t kColumnAxis = 1;  // of warps that share columns too: behind kU

using Place = TargetCode::Place;

}  // namespace

bool is_threads_own(const Kernel& kernel, const Alloc& a) {
    const Buffer& b = kernel.buffers[static_cast<size_t>(a.buffer)];
    if (b.shape.size() < 4 || !b.strides.empty()) return false;
    for (const Expr& size : b.shape)
        if (!size.as_int()) return false;
    std::set<std::string> vars[3];  // of loops over threads: z, y, x
    visit(a.body, [&](const Stmt& s) {
        const For* loop = s->as<For>();
        if (loop && is_thread_loop(*loop)) vars['z' - loop->axis.back()].insert(loop->var.node().name);
    });
    bool own = true;
    auto look = [&](int buffer, const std::vector<Expr>& indices) {
        if (buffer != a.buffer) return;
        for (size_t d = 0; d < 3; ++d) {
            const bool only = b.shape[d].is_int(1) && vars[d].empty();  // one thread along it
            own &= only || (indices[d].is(ExprKind::Var) && vars[d].contains(indices[d].node().name));
        }
    };
    visit(a.body, [&](const Stmt& s) {
        if (const Store* st = s->as<Store>()) look(st->to.buffer, st->to.indices);
        if (const Call* call = s->as<Call>())
            for (size_t i = 0; i < call->reads.size(); ++i) {
                const Intrinsic* known = find_intrinsic(call->name);
                const bool of_threads = is_group_step(*call) || (known && known->from_threads && i == 0);
                own &= call->reads[i].buffer != a.buffer || of_threads;
            }
    });
    visit_exprs(a.body, [&](const Expr& e) {
        visit(e, [&](const Expr& x) {
            if (x.is(ExprKind::Load)) look(x.node().slot, x.args());
        });
    });
    return own;
}

// Four matrices of 8 by 8: two rows of registers, two columns.
std::vector<Value*> Emitter::load_matrices(Value* address, bool transposed) {
    llvm::Type* word = builder_.getInt32Ty();
    auto* four = llvm::StructType::get(module_.getContext(), {word, word, word, word});
    const std::string text = std::string("ldmatrix.sync.aligned.m8n8.x4") + (transposed ? ".trans" : "") +
                             ".shared.b16 {$0, $1, $2, $3}, [$4];";
    auto* code =
        llvm::InlineAsm::get(llvm::FunctionType::get(four, {word}, false), text, "=r,=r,=r,=r,r,~{memory}", true);
    llvm::CallInst* call = builder_.CreateCall(code, {address});
    call->setConvergent();
    call->setDoesNotThrow();
    std::vector<Value*> out;
    for (unsigned i = 0; i < 4; ++i) out.push_back(builder_.CreateExtractValue(call, i));
    return out;
}

std::vector<Value*> Emitter::multiply_matrices(const Intrinsic& known, const std::vector<Value*>& a, Value* b0,
                                               Value* b1, const std::vector<Value*>& sums) {
    llvm::Type *word = builder_.getInt32Ty(), *sum = memory_type(known.out);
    auto* four = llvm::StructType::get(module_.getContext(), {sum, sum, sum, sum});
    const bool whole = is_int(known.out);
    const std::string text = fmt::format(
        "mma.sync.aligned.m16n8k{0}.row.col.{1}.{2}.{3}.{1} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, "
        "{{$10, $11, $12, $13}};",
        matrix_depth(known.multiplied), whole ? "s32" : "f32", matrix_type_name(known.multiplied),
        matrix_type_name(known.multiplied_by));
    auto* function = llvm::FunctionType::get(four, {word, word, word, word, word, word, sum, sum, sum, sum}, false);
    const char* constraints = whole ? "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r" : "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f";
    auto* code = llvm::InlineAsm::get(function, text, constraints, false);
    llvm::CallInst* call =
        builder_.CreateCall(code, {a[0], a[1], a[2], a[3], b0, b1, sums[0], sums[1], sums[2], sums[3]});
    call->setConvergent();
    call->setDoesNotThrow();
    call->setDoesNotAccessMemory();
    std::vector<Value*> out;
    for (unsigned i = 0; i < 4; ++i) out.push_back(builder_.CreateExtractValue(call, i));
    return out;
}

// A number of f32 as one of 19 bits. Twice: also what that leaves over as another, and the first where it is finite.
// Infinities and NaN are in the first alone: multiplied with what others leave over, 0 perhaps, they would give NaN.
std::vector<Value*> Emitter::cut_number(Value* number, bool twice) {
    llvm::Type *word = builder_.getInt32Ty(), *real = builder_.getFloatTy();
    auto* code =
        llvm::InlineAsm::get(llvm::FunctionType::get(word, {real}, false), "cvt.rna.tf32.f32 $0, $1;", "=r,f", false);
    Value* rounded = builder_.CreateCall(code, {number});
    if (!twice) return {rounded};
    // The largest numbers would be rounded to infinity.
    constexpr uint32_t kKept = 0xffffe000;
    Value* down = builder_.CreateAnd(builder_.CreateBitCast(number, word), builder_.getInt32(kKept));
    Value* size = builder_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, builder_.CreateBitCast(rounded, real));
    Value* fits = builder_.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(real));
    Value* first = builder_.CreateSelect(fits, rounded, down);
    Value* rest = builder_.CreateFSub(number, builder_.CreateBitCast(first, real));
    Value* finite = builder_.CreateFCmpORD(rest, rest);
    Value* none = builder_.getInt32(0);
    return {first, builder_.CreateSelect(finite, builder_.CreateCall(code, {rest}), none),
            builder_.CreateSelect(finite, first, none)};
}

// Products of f32: threads read the elements that they have of each operand.
void Emitter::emit_mma_of_words(const Call& call, const Intrinsic& known) {
    const size_t axes = known.axes.size() + 1, more = known.axes.size() > kK ? 1 : 0;
    auto stride = [&](size_t operand, size_t axis) {
        return *call.args[operand * axes + axis + (axis > kU ? more : 0)].as_int();
    };
    const int64_t rows = *known.axes[kV + more].extent.as_int(), columns = *known.axes[kX + more].extent.as_int();
    const int64_t deep = matrix_depth(known.multiplied), steps = *known.reduce[0].extent.as_int() / deep;
    const int64_t across = more ? *known.axes[kColumnAxis].extent.as_int() : 1;
    const size_t parts = known.thrice ? 3 : 1;
    auto place = [&](int dim) { return target_.code->place(builder_, Place::Thread, dim); };
    auto number = [&](int64_t n) { return builder_.getInt32(static_cast<uint32_t>(n)); };
    auto scaled = [&](Value* v, int64_t by) { return builder_.CreateMul(v, number(by)); };
    Value *group = place(1), *pair = place(0);
    Value* down = across > 1 ? builder_.CreateUDiv(place(2), number(across)) : place(2);
    Value* in_a = builder_.CreateAdd(scaled(down, stride(1, kU)), scaled(group, stride(1, kG)));
    in_a = builder_.CreateAdd(in_a, scaled(pair, stride(1, kK)));
    Value* in_b = builder_.CreateAdd(scaled(group, stride(2, kP)), scaled(pair, stride(2, kK)));
    if (across > 1)
        in_b = builder_.CreateAdd(
            in_b, scaled(builder_.CreateURem(place(2), number(across)), *call.args[2 * axes + kColumnAxis].as_int()));
    llvm::Type* real = builder_.getFloatTy();
    auto base = [&](size_t operand, Value* offset) {
        const Slot& slot = slots_[static_cast<size_t>(call.reads[operand - 1].buffer)];
        return builder_.CreateInBoundsGEP(real, slot.base, offset);
    };
    Value *a_at = base(1, in_a), *b_at = base(2, in_b);
    auto taken = [&](Value* from, int64_t element) {
        Value* at = builder_.CreateConstInBoundsGEP1_64(real, from, static_cast<uint64_t>(element));
        return cut_number(builder_.CreateAlignedLoad(real, at, llvm::Align(4)), known.thrice);
    };
    const Slot& sums = slots_[static_cast<size_t>(call.writes[0].buffer)];
    auto sum_at = [&](int64_t v, int64_t x, int64_t e) {
        return builder_.CreateConstInBoundsGEP1_64(real, sums.base,
                                                   static_cast<uint64_t>(v * stride(0, kV) + x * stride(0, kX) + e));
    };
    using Cut = std::vector<std::vector<Value*>>;  // by part, then by register
    for (int64_t step = 0; step < steps; ++step) {
        std::vector<Cut> a(static_cast<size_t>(rows), Cut(parts));
        for (int64_t v = 0; v < rows; ++v)
            for (int64_t i = 0; i < 4; ++i) {
                const int64_t k = deep * step + i / 2 * 4;
                const auto cut = taken(a_at, v * stride(1, kV) + i % 2 * 8 * stride(1, kG) + k * stride(1, kK));
                for (size_t p = 0; p < parts; ++p) a[static_cast<size_t>(v)][p].push_back(cut[p]);
            }
        for (int64_t x = 0; x < columns; ++x) {
            Cut b(parts);
            for (int64_t i = 0; i < 2; ++i) {
                const auto cut = taken(b_at, x * stride(2, kX) + (deep * step + i * 4) * stride(2, kK));
                for (size_t p = 0; p < parts; ++p) b[p].push_back(cut[p]);
            }
            for (int64_t v = 0; v < rows; ++v) {
                std::vector<Value*> own;
                for (int64_t e = 0; e < 4; ++e) own.push_back(builder_.CreateLoad(real, sum_at(v, x, e)));
                // The smallest products first; those of two rests are too small.
                for (auto [p, q] : {std::pair<size_t, size_t>{1, 2}, {2, 1}, {0, 0}})
                    if (p < parts && q < parts)
                        own = multiply_matrices(known, a[static_cast<size_t>(v)][p], b[q][0], b[q][1], own);
                for (int64_t e = 0; e < 4; ++e) builder_.CreateStore(own[static_cast<size_t>(e)], sum_at(v, x, e));
            }
        }
    }
    forget_loads(call.writes[0].buffer);
}

void Emitter::emit_mma(const Call& call) {
    const Intrinsic* known = find_intrinsic(call.name);
    CHECK(known, "there is no intrinsic {}", call.name);
    if (known->multiplied == DType::f32) return emit_mma_of_words(call, *known);
    const size_t axes = known->axes.size() + 1;
    const size_t more = known->axes.size() > kK ? 1 : 0;  // axes, of column warps
    auto stride = [&](size_t operand, size_t axis) {
        return *call.args[operand * axes + axis + (axis > kU ? more : 0)].as_int();
    };
    const int64_t rows = *known->axes[kV + more].extent.as_int(), columns = *known->axes[kX + more].extent.as_int();
    // Along k, the elements of one matrix of 8 by 8 words of 16 bits, of which a step takes two.
    const int64_t eighth = matrix_depth(known->multiplied) / 2;
    const int64_t bytes = static_cast<int64_t>(dtype_bytes(known->multiplied));
    const int64_t steps = *known->reduce[0].extent.as_int() / (2 * eighth);
    const bool a_along_k = stride(1, kK) == 1, b_along_k = stride(2, kK) == 1;
    CHECK(bytes > 1 || (a_along_k && b_along_k), "bytes lie along what is added up: {}", call.name);
    auto place = [&](int dim) { return target_.code->place(builder_, Place::Thread, dim); };
    auto number = [&](int64_t n) { return builder_.getInt32(static_cast<uint32_t>(n)); };
    Value* lane = builder_.CreateAdd(builder_.CreateMul(place(1), number(4)), place(0));
    Value *in_eight = builder_.CreateAnd(lane, number(7)), *which = builder_.CreateLShr(lane, number(3));
    Value *low = builder_.CreateAnd(which, number(1)), *high = builder_.CreateLShr(which, number(1));
    auto scaled = [&](Value* v, int64_t by) { return builder_.CreateMul(v, number(by)); };
    auto begin = [&](size_t operand, Value* offset) {
        const Slot& slot = slots_[static_cast<size_t>(call.reads[operand - 1].buffer)];
        Value* base = builder_.CreatePtrToInt(slot.base, builder_.getInt32Ty());
        return builder_.CreateAdd(base, scaled(offset, static_cast<int64_t>(dtype_bytes(slot.dtype))));
    };
    // Each lane names a row of one of the matrices. Of A, the first two are rows of one eighth of k; of B, they are the
    // two eighths of k of one column.
    const int64_t a_row = stride(1, kG), a_k = stride(1, kK), b_column = stride(2, kP), b_k = stride(2, kK);
    const int64_t across = more ? *known->axes[kColumnAxis].extent.as_int() : 1;
    Value* down = across > 1 ? builder_.CreateUDiv(place(2), number(across)) : place(2);
    Value* in_a = scaled(down, stride(1, kU));
    in_a = builder_.CreateAdd(in_a, scaled(low, 8 * a_row));
    in_a = builder_.CreateAdd(in_a, scaled(high, eighth * a_k));
    in_a = builder_.CreateAdd(in_a, scaled(in_eight, a_along_k ? a_row : a_k));
    Value* in_b = builder_.CreateAdd(scaled(high, 8 * b_column), scaled(low, eighth * b_k));
    in_b = builder_.CreateAdd(in_b, scaled(in_eight, b_along_k ? b_column : b_k));
    if (across > 1)
        in_b = builder_.CreateAdd(
            in_b, scaled(builder_.CreateURem(place(2), number(across)), *call.args[2 * axes + kColumnAxis].as_int()));
    Value *a_at = begin(1, in_a), *b_at = begin(2, in_b);
    auto at = [&](Value* address, int64_t elements) { return builder_.CreateAdd(address, number(bytes * elements)); };

    const Slot& sums = slots_[static_cast<size_t>(call.writes[0].buffer)];
    llvm::Type* sum_type = memory_type(known->out);
    auto sum_at = [&](int64_t v, int64_t x, int64_t e) {
        return builder_.CreateConstInBoundsGEP1_64(sum_type, sums.base,
                                                   static_cast<uint64_t>(v * stride(0, kV) + x * stride(0, kX) + e));
    };
    for (int64_t step = 0; step < steps; ++step) {
        std::vector<std::vector<Value*>> a;
        for (int64_t v = 0; v < rows; ++v)
            a.push_back(load_matrices(at(a_at, v * stride(1, kV) + 2 * eighth * step * a_k), !a_along_k));
        for (int64_t x = 0; x < columns; x += 2) {
            const std::vector<Value*> b =
                load_matrices(at(b_at, x * stride(2, kX) + 2 * eighth * step * b_k), !b_along_k);
            for (int64_t v = 0; v < rows; ++v)
                for (int64_t half = 0; half < 2; ++half) {
                    std::vector<Value*> own;
                    for (int64_t e = 0; e < 4; ++e)
                        own.push_back(builder_.CreateLoad(sum_type, sum_at(v, x + half, e)));
                    const auto i = static_cast<size_t>(2 * half);
                    own = multiply_matrices(*known, a[static_cast<size_t>(v)], b[i], b[i + 1], own);
                    for (int64_t e = 0; e < 4; ++e)
                        builder_.CreateStore(own[static_cast<size_t>(e)], sum_at(v, x + half, e));
                }
        }
    }
    forget_loads(call.writes[0].buffer);
}

}  // namespace tessera::codegen
