// Matrix products as kernels: packed panels, a register tile, and the loops around it.
#pragma once

#include "llvm/run_kernel.h"

namespace tessera {

struct GemmTile {
    int rows, columns;
    bool lanes =
        true;  // A's panel is read into registers and multiplied by lane; otherwise element by element from memory
    int unroll = 2;
};

// C[m, n] = sum over k of A[m / rows][k][m % rows] * B[n / columns][k][n % columns].
inline Kernel packed_gemm(int64_t m_tiles, int64_t n_tiles, int64_t depth, GemmTile t) {
    const int64_t rows = t.rows, columns = t.columns;
    Expr mt = index_var("mt", m_tiles), nt = index_var("nt", n_tiles), k = index_var("k", depth);
    auto var = [](const char* name, int64_t extent) { return index_var(name, extent); };
    std::vector<Buffer> buffers{{"A", DType::f32, {m_tiles, depth, rows}},
                                {"B", DType::f32, {n_tiles, depth, columns}},
                                {"C", DType::f32, {m_tiles * rows, n_tiles * columns}},
                                {"acc", DType::f32, {rows, columns}, Scope::Register},
                                {"a", DType::f32, {rows}, Scope::Register}};
    auto tile = [&](const std::string& tag, const std::function<Stmt(Expr, Expr)>& body) {
        Expr i = index_var("i" + tag, rows), j = index_var("j" + tag, columns);
        Stmt inner = for_loop({j, columns, LoopKind::Vector, {}, {}, body(i, j)});
        return for_loop({i, rows, LoopKind::Unrolled, {}, {}, inner});
    };
    auto f = [](int slot, std::vector<Expr> at) { return load(slot, DType::f32, std::move(at)); };
    Stmt zero = tile("0", [&](Expr i, Expr j) { return store(3, {i, j}, constant(0, DType::f32)); });
    Expr p = var("p", rows);
    Stmt read = for_loop({p, rows, LoopKind::Vector, {}, {}, store(4, {p}, f(0, {mt, k, p}))});
    Stmt multiply = tile("1", [&](Expr i, Expr j) {
        Expr a = t.lanes ? f(4, {i}) : f(0, {mt, k, i});
        return store(3, {i, j}, a * f(1, {nt, k, j}), ReduceOp::Sum);
    });
    if (!t.lanes) buffers.pop_back();
    Stmt body = t.lanes ? alloc(4, seq({read, multiply})) : multiply;
    Stmt reduce = for_loop({k, depth, LoopKind::Serial, {}, {{"unroll", t.unroll}}, body});
    Stmt write = tile("2", [&](Expr i, Expr j) { return store(2, {mt * rows + i, nt * columns + j}, f(3, {i, j})); });
    Stmt micro = alloc(3, seq({zero, reduce, write}));
    Stmt loops = for_loop({mt, m_tiles, LoopKind::Serial, {}, {}, micro});
    loops = for_loop({nt, n_tiles, LoopKind::Parallel, {}, {}, loops});
    return make_kernel("gemm", {}, buffers, 3, loops);
}

}  // namespace tessera
