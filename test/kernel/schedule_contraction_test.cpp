#include "schedule_check.h"

namespace tessera::schedule_contraction_test {
namespace {

struct Tiles {
    int64_t mc = 24, mr = 8, nr = 12, lanes = 4, kc = 0;
};

// Panels: [m / width][k][m % width].
IndexMap panels(const Schedule& s, std::string_view stage, int64_t width, bool first) {
    for (const Stage& st : s.compute().stages) {
        if (st.name != stage) continue;
        Expr m = st.axes[first ? 0 : 1].extent, k = st.axes[first ? 1 : 0].extent;
        Expr vm = index_var("m", m.as_int()), vk = index_var("k", k.as_int());
        return {first ? std::vector<Expr>{vm, vk} : std::vector<Expr>{vk, vm},
                {floor_div(vm, width), vk, mod(vm, width)},
                {ceil_div(m, width), k, width}};
    }
    return {};
}

int slot_of(const Schedule& s, std::string_view stage) {
    for (const Stage& st : s.compute().stages)
        if (st.name == stage) return st.buffer;
    return -1;
}

void split_operands(Schedule& s, const std::string& mm) {
    ASSERT_OK(s.reindex(mm, 0));
    ASSERT_OK(s.reindex(mm, 1));
}

// The schedule of every contraction: packed panels, a block of rows for each task, one register tile inside.
void schedule_matmul(Schedule& s, const std::string& mm, const std::string& out, const Tiles& t) {
    std::string a = mm + "_a", b = mm + "_b";
    ASSERT_OK(s.pad(mm, {t.mr, t.nr, 1}));
    ASSERT_OK(s.transform_layout(a, panels(s, a, t.mr, true)));
    ASSERT_OK(s.transform_layout(b, panels(s, b, t.nr, true)));
    std::vector<Loop> loops = s.loops(out);
    auto [task, block] = *s.split(loops[0], t.mc);
    auto [row_tile, row] = *s.split(block, t.mr);
    auto [column_tile, columns] = *s.split(loops[1], t.nr);
    auto [vector, lane] = *s.split(columns, t.lanes);
    ASSERT_OK(s.reorder({task, column_tile, row_tile, row, vector, lane}));
    ASSERT_OK(s.parallel(task));
    ASSERT_OK(s.unroll(row));
    ASSERT_OK(s.unroll(vector));
    ASSERT_OK(s.vectorize(lane));
    ASSERT_OK(s.loop_partition(row));
    ASSERT_OK(s.compute_at(mm, row_tile));
    ASSERT_OK(s.set_scope(mm, Scope::Register));
    loops = s.loops(mm);
    auto [mv, ml] = *s.split(loops[1], t.lanes);
    ASSERT_OK(s.reorder({loops[2], loops[0], mv, ml}));
    ASSERT_OK(s.unroll(loops[0]));
    ASSERT_OK(s.unroll(mv));
    ASSERT_OK(s.vectorize(ml));
    ASSERT_OK(s.compute_at(a, task));
    loops = s.loops(a);
    auto [ao, ai] = *s.split(loops[0], t.mr);
    ASSERT_OK(s.reorder({ao, loops[1], ai}));
    ASSERT_OK(s.unroll(ai));
}

// k in blocks: the sum of one block in registers, added to a block of partial sums.
void schedule_blocks(Schedule& s, const std::string& mm, const std::string& out, const Tiles& t) {
    std::string a = mm + "_a", b = mm + "_b";
    ASSERT_OK(s.pad(mm, {t.mr, t.nr, t.kc}));
    ASSERT_OK(s.transform_layout(a, panels(s, a, t.mr, true)));
    ASSERT_OK(s.transform_layout(b, panels(s, b, t.nr, true)));
    std::vector<Loop> loops = s.loops(out);
    auto [task, block] = *s.split(loops[0], t.mc);
    auto [vector, lane] = *s.split(loops[1], t.lanes);
    ASSERT_OK(s.reorder({task, block, vector, lane}));
    ASSERT_OK(s.parallel(task));
    ASSERT_OK(s.vectorize(lane));
    ASSERT_OK(s.loop_partition(vector));

    auto [ko, ki] = *s.split(s.loops(mm)[2], t.kc);
    std::string tile = *s.rfactor(ko);
    ASSERT_OK(s.compute_at(mm, task));
    loops = s.loops(mm);
    auto [row_tile, row] = *s.split(loops[0], t.mr);
    auto [column_tile, columns] = *s.split(loops[1], t.nr);
    auto [v, l] = *s.split(columns, t.lanes);
    ASSERT_OK(s.reorder({ko, column_tile, row_tile, row, v, l}));
    ASSERT_OK(s.unroll(row));
    ASSERT_OK(s.unroll(v));
    ASSERT_OK(s.vectorize(l));
    ASSERT_OK(s.compute_at(tile, row_tile));
    ASSERT_OK(s.set_scope(tile, Scope::Register));
    loops = s.loops(tile);
    auto [tv, tl] = *s.split(loops[1], t.lanes);
    ASSERT_OK(s.reorder({loops[3], loops[2], loops[0], tv, tl}));
    ASSERT_OK(s.unroll(loops[0]));
    ASSERT_OK(s.unroll(tv));
    ASSERT_OK(s.vectorize(tl));
    std::string panel = *s.cache_read(tile, slot_of(s, a), Scope::Register);
    ASSERT_OK(s.compute_at(panel, loops[3]));
    ASSERT_OK(s.vectorize(s.loops(panel)[0]));
    ASSERT_OK(s.compute_at(a, ko));
    loops = s.loops(a);
    auto [ao, ai] = *s.split(loops[0], t.mr);
    ASSERT_OK(s.reorder({ao, loops[1], ai}));
    ASSERT_OK(s.unroll(ai));
}

void show(const Schedule& s) {
    if (!getenv("SHOW")) return;
    auto l = lower(s);
    if (l.ok()) std::cout << to_string(l->kernel) << to_string(l->prepare);
}

TEST(ScheduleContraction, Matmul) {
    for (auto [m, n, k] : {std::tuple{48, 24, 16}, {50, 29, 7}, {3, 5, 1}, {100, 13, 33}}) {
        Compute c = matmul_bias_relu(m, n, k);
        Schedule s(c);
        split_operands(s, "mm");
        schedule_matmul(s, "mm", "out", {});
        expect_same(c, s);
        show(s);
    }
}

TEST(ScheduleContraction, MatmulOfAnyRows) {
    Expr m = symbol("M");
    Compute c = matmul_bias_relu(m, 29, 7, {"M"});
    Schedule s(c);
    split_operands(s, "mm");
    schedule_matmul(s, "mm", "out", {});
    for (int64_t rows : {0, 1, 7, 8, 24, 25, 50}) expect_same(c, s, {{"M", rows}});
    show(s);
}

// Convolutions as the product of image patches and filters, channels last.
void as_matmul(Schedule& s) {
    split_operands(s, "conv");
    std::string a = "conv_a", b = "conv_b";
    ASSERT_OK(s.merge_axes(a, {{0, 1, 2}, {4, 5, 3}}));
    ASSERT_OK(s.merge_axes(b, {{0}, {2, 3, 1}}));
    ASSERT_OK(s.merge_axes("conv", {{0, 1, 2}, {3}}, {{1, 2, 0}}));
    ASSERT_OK(s.merge_axes("out", {{0, 1, 2}, {3}}));
}

TEST(ScheduleContraction, Conv) {
    for (ConvSizes sizes : {ConvSizes{}, ConvSizes{.n = 2, .stride = 2}, ConvSizes{.kernel = 1, .pad = 0},
                            ConvSizes{.n = 3, .h = 7, .w = 5, .ci = 2, .c = 30, .kernel = 5, .stride = 3, .pad = 2}}) {
        Compute c = conv_bias_relu(sizes);
        Schedule s(c);
        as_matmul(s);
        schedule_matmul(s, "conv", "out", {});
        expect_same(c, s);
        show(s);
    }
}

TEST(ScheduleContraction, ConvOfAnySize) {
    ConvSizes sizes{.n = symbol("N"), .h = symbol("H"), .w = symbol("W"), .stride = 2};
    Compute c = conv_bias_relu(sizes, {"N", "H", "W"});
    Schedule s(c);
    as_matmul(s);
    schedule_matmul(s, "conv", "out", {});
    show(s);
    for (auto [n, h, w] : {std::tuple{1, 9, 10}, {2, 1, 1}, {3, 6, 5}, {0, 4, 4}})
        expect_same(c, s, {{"N", n}, {"H", h}, {"W", w}});
}

TEST(ScheduleContraction, MatmulInBlocksOfK) {
    for (auto [m, n, k] : {std::tuple{48, 24, 32}, {50, 29, 7}, {100, 13, 33}}) {
        Compute c = matmul_bias_relu(m, n, k);
        Schedule s(c);
        split_operands(s, "mm");
        schedule_blocks(s, "mm", "out", {.kc = 8});
        show(s);
        expect_same(c, s);
    }
}

}  // namespace
}  // namespace tessera::schedule_contraction_test
