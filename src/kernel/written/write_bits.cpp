// The same bits as another type: read as that type where elements have whole bytes.
#include "kernel/written/write_kernel.h"

namespace tessera {
namespace {

Stmt write_bit_cast(KernelWriter& w) {
    const DType from = w.op().dtype(0), to = w.op().out().dtype;
    const Expr count = w.op().shape(0).elements();
    const bool bytes = dtype_bits(to) >= 8 && to != DType::boolean && !kNarrowFloats.has(to);
    if (bytes) {
        // Of f16 the bits, not the value: NaNs stay what they are.
        const DType as = to == DType::f16 || to == DType::bf16 ? DType::u16 : to;
        Elements x = w.in(0, as, {count}), y = w.out(0, as, {count});
        return w.everywhere(count, [&](const Expr& i) { return y.set({i}, x.at({i})); });
    }
    if (dtype_bytes(from) != 1) return w.refuse("elements of different sizes in memory");
    Elements x = w.in(0, DType::u8, {count});
    Elements y = is_float(to) ? w.out(0, DType::u8, {count}) : w.out(0, {count});
    const int64_t mask = to == DType::boolean || dtype_bits(to) >= 8 ? 255 : (1 << dtype_bits(to)) - 1;
    return w.everywhere(
        count, [&](const Expr& i) { return y.set({i}, bit(ExprKind::BitAnd, x.at({i}), int_const(mask, DType::u8))); });
}

}  // namespace

std::vector<KernelWriting> bit_kernels() { return {{"bit_cast", write_bit_cast}}; }

}  // namespace tessera
