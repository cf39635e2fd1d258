#include "kernel/ir/intrinsic.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {
namespace {

ReduceAxis axis(const char* name, int64_t extent) { return {index_var(name, extent), extent}; }

// out[i, j] += a[i] * b[j], of floats.
Intrinsic outer_product(std::string name, DType dtype, int64_t rows, int64_t columns, std::string needs) {
    ReduceAxis i = axis("i", rows), j = axis("j", columns);
    return {std::move(name), {i, j}, {}, dtype, {dtype, dtype}, load(0, dtype, {i.var}) * load(1, dtype, {j.var}),
            std::move(needs)};
}

// out[i] += sum over k of a[i, k] * b[i, k], of bytes.
Intrinsic dot(std::string name, DType a, DType b, int64_t lanes, std::string needs) {
    ReduceAxis i = axis("i", lanes), k = axis("k", 4);
    Expr x = cast(load(0, a, {i.var, k.var}), DType::i32), y = cast(load(1, b, {i.var, k.var}), DType::i32);
    return {std::move(name), {i}, {k}, DType::i32, {a, b}, x * y, std::move(needs)};
}

// out[i, j] += sum over k of a[i, k] * b[j, k], a matrix of 2 by 2.
Intrinsic matrix(std::string name, DType a, DType b, DType out, int64_t depth, std::string needs) {
    ReduceAxis i = axis("i", 2), j = axis("j", 2), k = axis("k", depth);
    Expr x = cast(load(0, a, {i.var, k.var}), out), y = cast(load(1, b, {j.var, k.var}), out);
    return {std::move(name), {i, j}, {k}, out, {a, b}, x * y, std::move(needs)};
}

std::vector<Expr> strides_of(const Buffer& b) {
    if (!b.strides.empty()) return b.strides;
    std::vector<Expr> strides(b.shape.size(), 1);
    for (size_t d = b.shape.size(); d-- > 1;) strides[d - 1] = strides[d] * b.shape[d];
    return strides;
}

// The indices some elements further on: along the dimension whose stride that is, else the last.
std::vector<Expr> moved(const Buffer& b, std::vector<Expr> at, const Expr& by, const Expr& stride) {
    if (stride.is_int(0) || at.empty()) return at;
    std::vector<Expr> strides = strides_of(b);
    for (size_t d = 0; d < at.size(); ++d)
        if (strides[d].same(stride)) {
            at[d] = at[d] + by;
            return at;
        }
    // Several dimensions in one step: over the first whose stride divides it.
    for (size_t d = 0; d < at.size(); ++d)
        if (mod(stride, strides[d]).is_int(0)) {
            at[d] = at[d] + by * floor_div(stride, strides[d]);
            return at;
        }
    return at;
}

}  // namespace

const std::vector<Intrinsic>& all_intrinsics() {
    static const std::vector<Intrinsic> kAll{
        outer_product("fma_outer_8x12", DType::f32, 8, 12, "neon"),
        outer_product("fma_outer_12x8", DType::f32, 12, 8, "neon"),
        outer_product("fma_outer_6x16", DType::f32, 6, 16, "avx2"),
        outer_product("fma_outer_14x32", DType::f32, 14, 32, "avx512f"),
        dot("sdot", DType::i8, DType::i8, 4, "dotprod"),
        dot("udot", DType::u8, DType::u8, 4, "dotprod"),
        dot("vnni_256", DType::u8, DType::i8, 8, "avxvnni"),
        dot("vnni_512", DType::u8, DType::i8, 16, "avx512vnni"),
        matrix("smmla", DType::i8, DType::i8, DType::i32, 8, "i8mm"),
        matrix("ummla", DType::u8, DType::u8, DType::i32, 8, "i8mm"),
        matrix("usmmla", DType::u8, DType::i8, DType::i32, 8, "i8mm"),
        matrix("bfmmla", DType::bf16, DType::bf16, DType::f32, 4, "bf16"),
    };
    return kAll;
}

const Intrinsic* find_intrinsic(std::string_view name) {
    const std::vector<Intrinsic>& all = all_intrinsics();
    auto found = std::find_if(all.begin(), all.end(), [&](const Intrinsic& i) { return i.name == name; });
    return found == all.end() ? nullptr : &*found;
}

Kernel expand_intrinsics(const Kernel& kernel) {
    Kernel expanded = kernel;
    int count = 0;
    expanded.body = mutate(kernel.body, [&](const Stmt& s) -> Stmt {
        const Call* call = s ? s->as<Call>() : nullptr;
        const Intrinsic* known = call ? find_intrinsic(call->name) : nullptr;
        if (!known) return s;
        std::vector<ReduceAxis> all = known->axes, loops;
        all.insert(all.end(), known->reduce.begin(), known->reduce.end());
        Bindings renamed;
        for (const ReduceAxis& a : all) {
            std::string name = fmt::format("{}.{}.{}", known->name, count, a.var.node().name);
            loops.push_back({index_var(name, a.extent.as_int()), a.extent});
            renamed.emplace(a.var.node().name, loops.back().var);
        }
        ++count;
        auto element = [&](const Access& first, size_t operand) {
            std::vector<Expr> at = first.indices;
            for (size_t i = 0; i < loops.size(); ++i)
                at = moved(kernel.buffers[static_cast<size_t>(first.buffer)], std::move(at), loops[i].var,
                           call->args[operand * loops.size() + i]);
            return at;
        };
        Expr value = rewrite(known->value, [&](const Expr& e) -> Expr {
            if (!e.is(ExprKind::Load)) return e;
            auto operand = static_cast<size_t>(e.node().slot);
            const Access& from = call->reads[operand];
            return load(from.buffer, e.dtype(), element(from, operand + 1));
        });
        Stmt body = store(call->writes[0].buffer, element(call->writes[0], 0), value, ReduceOp::Sum);
        for (size_t i = loops.size(); i-- > 0;)
            body = for_loop({.var = loops[i].var, .extent = loops[i].extent, .body = std::move(body)});
        return body;
    });
    return expanded;
}

}  // namespace tessera
