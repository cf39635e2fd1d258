#include "schedule_check.h"

namespace tessera {
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

// The schedule of every contraction: packed panels, a block of rows for each task, one register tile inside.
void schedule_matmul(Schedule& s, const std::string& mm, const std::string& out, const Tiles& t) {
    std::string a = *s.reindex(mm, 0), b = *s.reindex(mm, 1);
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

TEST(ScheduleContraction, Matmul) {
    for (auto [m, n, k] : {std::tuple{48, 24, 16}, {50, 29, 7}, {3, 5, 1}, {100, 13, 33}}) {
        Compute c = matmul_bias_relu(m, n, k);
        Schedule s(c);
        schedule_matmul(s, "mm", "out", {});
        expect_same(c, s);
        if (getenv("SHOW")) {
            auto l = lower(s);
            std::cout << to_string(l->kernel) << to_string(l->prepare);
        }
    }
}

TEST(ScheduleContraction, MatmulOfAnyRows) {
    Expr m = symbol("M");
    Compute c = matmul_bias_relu(m, 29, 7, {"M"});
    Schedule s(c);
    schedule_matmul(s, "mm", "out", {});
    for (int64_t rows : {0, 1, 7, 8, 24, 25, 50}) expect_same(c, s, {{"M", rows}});
    if (getenv("SHOW")) {
        auto l = lower(s);
        std::cout << to_string(l->kernel) << to_string(l->prepare);
    }
}

TEST(ScheduleContraction, Conv) {
    for (ConvSizes sizes : {ConvSizes{}, ConvSizes{.n = 2, .stride = 2}, ConvSizes{.kernel = 1, .pad = 0}}) {
        Compute c = conv_bias_relu(sizes);
        Schedule s(c);
        std::string a = *s.reindex("conv", 0), b = *s.reindex("conv", 1);
        ASSERT_OK(s.merge_axes(a, {{0, 1, 2}, {4, 5, 3}}));
        ASSERT_OK(s.merge_axes(b, {{0}, {2, 3, 1}}));
        ASSERT_OK(s.merge_axes("conv", {{0, 1, 2}, {3}}, {{1, 2, 0}}));
        ASSERT_OK(s.merge_axes("out", {{0, 1, 2}, {3}}));
        Tiles t;
        ASSERT_OK(s.pad("conv", {t.mr, t.nr, 1}));
        (void)a;
        (void)b;
        expect_same(c, s);
        if (getenv("SHOW")) {
            auto l = lower(s);
            std::cout << to_string(l->kernel) << to_string(l->prepare);
        }
    }
}

}  // namespace
}  // namespace tessera
