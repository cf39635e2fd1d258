#include "kernel/ir/intrinsic.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

#include "base/check.h"
#include "kernel/ir/group_steps.h"
#include "kernel/ir/narrow_floats.h"
#include "kernel/ir/tile_copy.h"

namespace tessera {
namespace {

ReduceAxis axis(const char* name, int64_t extent) { return {index_var(name, extent), extent}; }

// out[i, j] += a[i] * b[j], of floats.
Intrinsic outer_product(std::string name, DType dtype, int64_t rows, int64_t columns, std::string needs) {
    ReduceAxis i = axis("i", rows), j = axis("j", columns);
    return {std::move(name), {i, j}, {}, dtype, {dtype, dtype}, load(0, dtype, {i.var}) * load(1, dtype, {j.var}),
            std::move(needs)};
}

// out[i] += sum over k of a[i, k] * b[i, k].
Intrinsic dot(std::string name, DType a, DType b, DType out, int64_t lanes, int64_t depth, std::string needs) {
    ReduceAxis i = axis("i", lanes), k = axis("k", depth);
    Expr x = cast(load(0, a, {i.var, k.var}), out), y = cast(load(1, b, {i.var, k.var}), out);
    return {std::move(name), {i}, {k}, out, {a, b}, x * y, std::move(needs)};
}

// out[i] += a[i] * b[i], of narrow floats.
Intrinsic widening(std::string name, DType from, DType out, int64_t lanes, std::string needs) {
    ReduceAxis i = axis("i", lanes);
    Expr x = cast(load(0, from, {i.var}), out), y = cast(load(1, from, {i.var}), out);
    return {std::move(name), {i}, {}, out, {from, from}, x * y, std::move(needs)};
}

// out[i, j] += sum over k of a[i, k] * b[j, k], a matrix of 2 by 2.
Intrinsic matrix(std::string name, DType a, DType b, DType out, int64_t depth, std::string needs) {
    ReduceAxis i = axis("i", 2), j = axis("j", 2), k = axis("k", depth);
    Expr x = cast(load(0, a, {i.var, k.var}), out), y = cast(load(1, b, {j.var, k.var}), out);
    return {std::move(name), {i, j}, {k}, out, {a, b}, x * y, std::move(needs)};
}

// out[i, j] += sum over k and r of a[i, k, r] * b[k, j, r], a matrix of 16 by 16; the r are what 32 bits hold.
Intrinsic tiles(std::string name, DType a, DType b, DType out, std::string needs) {
    const int64_t packed = 4 / static_cast<int64_t>(dtype_bytes(a));
    ReduceAxis i = axis("i", 16), j = axis("j", 16), k = axis("k", 16), r = axis("r", packed);
    Expr x = cast(load(0, a, {i.var, k.var, r.var}), out), y = cast(load(1, b, {k.var, j.var, r.var}), out);
    return {std::move(name), {i, j}, {k, r}, out, {a, b}, x * y, std::move(needs)};
}

// out[i, x, j] += sum over k of the products of the bytes of a[i, k] and b[k, x, j], which are words of four: those of
// one of them are unsigned. Two by two tiles of 16 by 16, so that each that is loaded is used twice.
Intrinsic word_tiles(bool rows_unsigned, int64_t words) {
    ReduceAxis i = axis("i", 32), x = axis("x", 2), j = axis("j", 16), k = axis("k", words);
    Expr a = load(0, DType::i32, {i.var, k.var}), b = load(1, DType::i32, {k.var, x.var, j.var});
    Expr value = rows_unsigned ? call(Fn::DotU8I8, {a, b}) : call(Fn::DotU8I8, {b, a});
    return {
        word_tiles_name(rows_unsigned, words), {i, x, j}, {k}, DType::i32, {DType::i32, DType::i32}, value, "amx-int8"};
}

// An operand of matrix instructions of a GPU, as a number of the type that these add up.
Expr matrix_element(size_t operand, DType dtype, const std::vector<Expr>& at) {
    const auto slot = static_cast<int>(operand);
    if (kNarrowFloats.has(dtype)) return decoded(dtype, load(slot, stored_as(dtype), at));
    return cast(load(slot, dtype, at), matrix_sum(dtype));
}

// What the four warps of a block multiply: out[i, j] += sum over k of a[i, k] * b[k, j]. Rows i are those of a warp
// (u), of 16 (v), of one half of them (h) and one of its 8 (g); columns j those of 8 (x), of 2 (t) and one of those
// (p). So the elements of one thread, which is t of group g of warp u, follow each other. `mma` are instructions of one
// warp, `wgmma` those of four, which read both operands from shared memory.
Intrinsic block_matrix(const char* kind, std::array<DType, 2> of, int64_t rows, int64_t columns, int64_t depth,
                       const char* needs) {
    ReduceAxis u = axis("u", 4), v = axis("v", rows / 4 / 16), x = axis("x", columns / 8), h = axis("h", 2);
    ReduceAxis g = axis("g", 8), t = axis("t", 4), p = axis("p", 2), k = axis("k", depth);
    Expr a = matrix_element(0, of[0], {u.var, v.var, h.var, g.var, k.var});
    Expr b = matrix_element(1, of[1], {x.var, t.var, p.var, k.var});
    return {.name = block_matrix_name(kind, of[0], of[1], rows, columns),
            .axes = {u, v, x, h, g, t, p},
            .reduce = {k},
            .out = matrix_sum(of[0]),
            .operands = {stored_as(of[0]), stored_as(of[1])},
            .value = a * b,
            .needs = needs,
            .by_block = true,
            .multiplied = of[0],
            .multiplied_by = of[1]};
}

// The same of any number of warps, which share columns too (c).
Intrinsic warp_matrix(DType dtype, const std::array<int64_t, 5>& sizes, bool thrice) {
    const auto [rows, columns, depth, down, across] = sizes;
    ReduceAxis u = axis("u", down), c = axis("c", across), v = axis("v", rows / down / 16);
    ReduceAxis x = axis("x", columns / across / 8), h = axis("h", 2), g = axis("g", 8), t = axis("t", 4);
    ReduceAxis p = axis("p", 2), k = axis("k", depth);
    Expr a = matrix_element(0, dtype, {u.var, v.var, h.var, g.var, k.var});
    Expr b = matrix_element(1, dtype, {c.var, x.var, t.var, p.var, k.var});
    return {.name = warp_matrix_name(dtype, rows, columns, depth, down, across, thrice),
            .axes = {u, c, v, x, h, g, t, p},
            .reduce = {k},
            .out = matrix_sum(dtype),
            .operands = {stored_as(dtype), stored_as(dtype)},
            .value = a * b,
            .needs = "ptx80",
            .by_block = true,
            .multiplied = dtype,
            .multiplied_by = dtype,
            .thrice = thrice};
}

// The same by instructions of four warps each, which take rows 16 by 16 in turn. What is added up is cut as columns are
// (y, s, q), so that sums can be the first operand where that lies with the threads.
Intrinsic wide_matrix(DType dtype, const std::array<int64_t, 5>& sizes, bool from_threads) {
    const auto [rows, columns, depth, down, across] = sizes;
    ReduceAxis u = axis("u", down), c = axis("c", across), v = axis("v", rows / down / 16);
    ReduceAxis x = axis("x", columns / across / 8), h = axis("h", 2), g = axis("g", 8), t = axis("t", 4);
    ReduceAxis p = axis("p", 2), y = axis("y", depth / 8), s = axis("s", 4), q = axis("q", 2);
    Expr a = matrix_element(0, dtype, {u.var, v.var, h.var, g.var, y.var, s.var, q.var});
    Expr b = matrix_element(1, dtype, {c.var, x.var, t.var, p.var, y.var, s.var, q.var});
    return {.name = wide_matrix_name(dtype, rows, columns, depth, down, across, from_threads),
            .axes = {u, c, v, x, h, g, t, p},
            .reduce = {y, s, q},
            .out = matrix_sum(dtype),
            .operands = {stored_as(dtype), stored_as(dtype)},
            .value = a * b,
            .needs = "wgmma",
            .by_block = true,
            .from_threads = from_threads,
            .multiplied = dtype,
            .multiplied_by = dtype};
}

constexpr std::string_view kWarps = "warps", kWarpsThrice = "warps_thrice", kWide = "wide", kWideOfThreads = "wide_own";

const Intrinsic* find_warp_matrix(std::string_view name) {
    if (!name.starts_with(kWarps) && !name.starts_with(kWide)) return nullptr;
    static std::mutex mutex;
    static std::map<std::string, Intrinsic, std::less<>> made;
    std::lock_guard lock(mutex);
    if (auto found = made.find(name); found != made.end()) return &found->second;
    for (std::string_view kind : {kWarps, kWarpsThrice, kWide, kWideOfThreads})
        for (DType dtype : kMatrixTypes) {
            std::array<int64_t, 5> sizes{};
            const std::string text(name), form = fmt::format("{}_{}_%ldx%ldx%ld_%ldx%ld%n", kind, dtype_name(dtype));
            int read = 0;
            const int count =
                std::sscanf(text.c_str(), form.c_str(), &sizes[0], &sizes[1], &sizes[2], &sizes[3], &sizes[4], &read);
            const bool whole = count == 5 && static_cast<size_t>(read) == text.size();
            if (!whole || std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n < 1 || n > 4096; }))
                continue;
            if (sizes[0] % (16 * sizes[3]) || sizes[1] % (16 * sizes[4]) || sizes[2] % matrix_depth(dtype)) continue;
            const bool halves = dtype_bytes(dtype) == 2;
            const bool thrice = kind == kWarpsThrice, warps = kind == kWarps || thrice;
            if (warps && (dtype_bytes(dtype) == 1 || (thrice && dtype != DType::f32))) continue;
            if (warps) return &made.emplace(text, warp_matrix(dtype, sizes, thrice)).first->second;
            const bool from_threads = kind == kWideOfThreads;
            if (sizes[3] % 4 || sizes[1] / sizes[4] > 256 || (from_threads && (sizes[4] > 1 || !halves))) continue;
            return &made.emplace(text, wide_matrix(dtype, sizes, from_threads)).first->second;
        }
    return nullptr;
}

// The same of eight warps, which go on while the block does other things: out = a * b, or, where the first operand lies
// with the threads, out += a * b. What is added up is cut as columns are (y, s, q), so that sums can be such an
// operand.
Intrinsic team_matrix(DType dtype, int64_t columns, int64_t depth, bool from_threads) {
    ReduceAxis u = axis("u", 8), x = axis("x", columns / 8), h = axis("h", 2), g = axis("g", 8), t = axis("t", 4);
    ReduceAxis p = axis("p", 2), y = axis("y", depth / 8), s = axis("s", 4), q = axis("q", 2);
    Expr a = cast(load(0, dtype, {u.var, h.var, g.var, y.var, s.var, q.var}), DType::f32);
    Expr b = cast(load(1, dtype, {x.var, t.var, p.var, y.var, s.var, q.var}), DType::f32);
    return {.name = team_matrix_name(dtype, columns, depth, from_threads),
            .axes = {u, x, h, g, t, p},
            .reduce = {y, s, q},
            .operands = {dtype, dtype},
            .value = a * b,
            .needs = "wgmma",
            .by_block = true,
            .later = true,
            .fresh = !from_threads,
            .from_threads = from_threads,
            .multiplied = dtype,
            .multiplied_by = dtype};
}

std::vector<Intrinsic> with_matrices(std::vector<Intrinsic> all) {
    for (bool rows_unsigned : {true, false})
        for (int64_t words : kWordsOfTiles) all.push_back(word_tiles(rows_unsigned, words));
    for (DType dtype : {DType::f16, DType::bf16})
        for (int64_t keys : {64, 80, 128})
            for (int64_t head : {64, 128, 192, 256}) {
                if (keys > 80 && head > 128) continue;
                all.push_back(team_matrix(dtype, keys, head, false));
                all.push_back(team_matrix(dtype, head, keys, true));
            }
    for (DType a : kMatrixTypes)
        for (DType b : kMatrixTypes) {
            if (!are_multiplied(a, b)) continue;
            for (int64_t rows : {128, 64})
                for (int64_t columns : {192, 128, 64}) {
                    if (!kNarrowFloats.has(a) && columns < 192)
                        all.push_back(block_matrix("mma", {a, b}, rows, columns, mma_depth(a), "ptx80"));
                    all.push_back(block_matrix("wgmma", {a, b}, rows, columns,
                                               kPanelBytes / static_cast<int64_t>(dtype_bytes(a)), "wgmma"));
                }
        }
    return all;
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

DType matrix_sum(DType dtype) { return is_int(dtype) ? DType::i32 : DType::f32; }

int64_t matrix_depth(DType dtype) { return kMatrixBytes / static_cast<int64_t>(dtype_bytes(dtype)); }

bool are_multiplied(DType a, DType b) {
    auto has = [](DType t) { return std::find(std::begin(kMatrixTypes), std::end(kMatrixTypes), t); };
    if (has(a) == std::end(kMatrixTypes) || has(b) == std::end(kMatrixTypes)) return false;
    return a == b || (dtype_bytes(a) == 1 && dtype_bytes(b) == 1 && is_int(a) == is_int(b));
}

std::string block_matrix_name(std::string_view kind, DType a, DType b, int64_t rows, int64_t columns) {
    const std::string second = a == b ? "" : fmt::format("_{}", dtype_name(b));
    return fmt::format("{}_{}{}_{}x{}", kind, dtype_name(a), second, rows, columns);
}

int64_t mma_depth(DType dtype) { return dtype_bytes(dtype) == 1 ? 64 : 32; }

std::string team_matrix_name(DType dtype, int64_t columns, int64_t depth, bool from_threads) {
    return fmt::format("wgmma_{}_{}_128x{}x{}", from_threads ? "add" : "set", dtype_name(dtype), columns, depth);
}

std::string word_tiles_name(bool rows_unsigned, int64_t words) {
    return fmt::format("amx_words_{}_{}", rows_unsigned ? "us" : "su", words);
}

const std::vector<Intrinsic>& all_intrinsics() {
    using enum DType;
    static const std::vector<Intrinsic> kAll = with_matrices({
        outer_product("fma_outer_8x12", f32, 8, 12, "neon"),
        outer_product("fma_outer_12x8", f32, 12, 8, "neon"),
        outer_product("fma_outer_6x16", f32, 6, 16, "avx2"),
        outer_product("fma_outer_14x32", f32, 14, 32, "avx512f"),
        dot("sdot", i8, i8, i32, 4, 4, "dotprod"),
        dot("udot", u8, u8, i32, 4, 4, "dotprod"),
        dot("usdot", u8, i8, i32, 4, 4, "i8mm"),
        matrix("smmla", i8, i8, i32, 8, "i8mm"),
        matrix("ummla", u8, u8, i32, 8, "i8mm"),
        matrix("usmmla", u8, i8, i32, 8, "i8mm"),
        dot("bfdot", bf16, bf16, f32, 4, 2, "bf16"),
        matrix("bfmmla", bf16, bf16, f32, 4, "bf16"),
        widening("fmlal", f16, f32, 8, "fp16fml"),
        dot("vnni_256", u8, i8, i32, 8, 4, "avxvnni"),
        dot("vnni_256_ss", i8, i8, i32, 8, 4, "avxvnniint8"),
        dot("vnni_256_uu", u8, u8, i32, 8, 4, "avxvnniint8"),
        dot("vnni_512", u8, i8, i32, 16, 4, "avx512vnni"),
        dot("bf16_512", bf16, bf16, f32, 16, 2, "avx512bf16"),
        tiles("amx_ss", i8, i8, i32, "amx-int8"),
        tiles("amx_su", i8, u8, i32, "amx-int8"),
        tiles("amx_us", u8, i8, i32, "amx-int8"),
        tiles("amx_uu", u8, u8, i32, "amx-int8"),
        tiles("amx_bf16", bf16, bf16, f32, "amx-bf16"),
    });
    return kAll;
}

std::string warp_matrix_name(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t down, int64_t across,
                             bool thrice) {
    return fmt::format("{}_{}_{}x{}x{}_{}x{}", thrice ? kWarpsThrice : kWarps, dtype_name(dtype), rows, columns, depth,
                       down, across);
}

std::string wide_matrix_name(DType dtype, int64_t rows, int64_t columns, int64_t depth, int64_t down, int64_t across,
                             bool from_threads) {
    return fmt::format("{}_{}_{}x{}x{}_{}x{}", from_threads ? kWideOfThreads : kWide, dtype_name(dtype), rows, columns,
                       depth, down, across);
}

int64_t columns_in_parts(const Call& wide) {
    constexpr size_t kColumns8 = 3;  // of the axes
    const Intrinsic& known = *find_intrinsic(wide.name);
    const size_t strides = 3 * (known.axes.size() + known.reduce.size());
    return wide.args.size() > strides ? *known.axes[kColumns8].extent.as_int() * 8 : 0;
}

const Intrinsic* find_intrinsic(std::string_view name) {
    if (const Intrinsic* made = find_warp_matrix(name)) return made;
    const std::vector<Intrinsic>& all = all_intrinsics();
    auto found = std::find_if(all.begin(), all.end(), [&](const Intrinsic& i) { return i.name == name; });
    return found == all.end() ? nullptr : &*found;
}

std::vector<const Intrinsic*> find_intrinsics(const Machine& machine) {
    std::vector<const Intrinsic*> out;
    for (const Intrinsic& i : all_intrinsics())
        if (machine.has(i.needs)) out.push_back(&i);
    return out;
}

// Sums outside, and the last axis in lanes.
Stmt expand_intrinsic(const Kernel& kernel, const Call& call, int number) {
    constexpr int64_t kMostCopies = 256;
    const Intrinsic* known = find_intrinsic(call.name);
    if (!known) return nullptr;
    std::vector<ReduceAxis> all = known->axes, loops;
    all.insert(all.end(), known->reduce.begin(), known->reduce.end());
    int64_t copies = 1;
    for (const ReduceAxis& a : all) {
        std::string name = fmt::format("{}.{}.{}", known->name, number, a.var.node().name);
        loops.push_back({index_var(name, a.extent.as_int()), a.extent});
        copies *= *a.extent.as_int();
    }
    auto element = [&](const Access& first, size_t operand) {
        std::vector<Expr> at = first.indices;
        for (size_t i = 0; i < loops.size(); ++i)
            at = moved(kernel.buffers[static_cast<size_t>(first.buffer)], std::move(at), loops[i].var,
                       call.args[operand * loops.size() + i]);
        return at;
    };
    Expr value = rewrite(known->value, [&](const Expr& e) -> Expr {
        if (!e.is(ExprKind::Load)) return e;
        auto operand = static_cast<size_t>(e.node().slot);
        const Access& from = call.reads[operand];
        return load(from.buffer, e.dtype(), element(from, operand + 1));
    });
    Stmt body = store(call.writes[0].buffer, element(call.writes[0], 0), value, ReduceOp::Sum);
    auto cleared = [&] {
        Bindings others;
        for (const ReduceAxis& a : loops)
            others.emplace(a.var.node().name, index_var(a.var.node().name + ".0", a.extent.as_int()));
        std::vector<Expr> at;
        for (const Expr& e : element(call.writes[0], 0)) at.push_back(substitute(e, others));
        Stmt zero = store(call.writes[0].buffer, std::move(at), constant(0, known->out));
        for (size_t i = known->axes.size(); i-- > 0;)
            zero = for_loop({.var = others.at(loops[i].var.node().name), .extent = loops[i].extent, .body = zero});
        return zero;
    };
    const LoopKind outer = copies <= kMostCopies ? LoopKind::Unrolled : LoopKind::Serial;
    for (size_t i = known->axes.size(); i-- > 0;) {
        const bool last = i + 1 == known->axes.size();
        body = for_loop({loops[i].var, loops[i].extent, last ? LoopKind::Vector : outer, {}, {}, std::move(body)});
    }
    for (size_t i = loops.size(); i-- > known->axes.size();)
        body = for_loop({loops[i].var, loops[i].extent, outer, {}, {}, std::move(body)});
    return known->fresh ? seq({cleared(), std::move(body)}) : body;
}

Kernel expand_intrinsics(const Kernel& kernel) {
    Kernel expanded = expand_group_steps(expand_tile_copies(kernel));
    int number = 0;
    expanded.body = mutate(expanded.body, [&](const Stmt& s) -> Stmt {
        const Call* call = s ? s->as<Call>() : nullptr;
        Stmt nest = call ? expand_intrinsic(kernel, *call, number++) : nullptr;
        return nest ? nest : s;
    });
    return expanded;
}

}  // namespace tessera
