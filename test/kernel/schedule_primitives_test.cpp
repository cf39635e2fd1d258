#include "kernel/ir/intrinsic.h"
#include "schedule_check.h"

namespace tessera::schedule_primitives_test {
namespace {

std::string lowered_text(const Schedule& s) {
    Result<Lowered> l = lower(s);
    return l.ok() ? to_string(l->kernel) : l.error().to_string();
}

// c[i,j] = a[i,j] * 2, then d[i,j] = c[i,j] + c[i,j+1] (guarded), and e[i] = sum over j of d[i,j].
Compute chain(const Expr& n, const Expr& m, std::vector<std::string> symbols = {}) {
    Compute c;
    c.name = "chain";
    c.symbols = std::move(symbols);
    int a = add_buffer(c, "a", {n, m}), e = add_buffer(c, "e", {n});
    c.params = 2;
    int t = add_buffer(c, "t", {n, m}), d = add_buffer(c, "d", {n, m});
    ReduceAxis i = axis("i", n), j = axis("j", m);
    Expr two = constant(2, DType::f32), zero = constant(0, DType::f32);
    c.stages.push_back(
        {"twice", t, {i, j}, {}, ReduceOp::Sum, {i.var, j.var}, load(a, DType::f32, {i.var, j.var}) * two});
    Expr next = select(lt(j.var + 1, m), load(t, DType::f32, {i.var, j.var + 1}), zero);
    c.stages.push_back(
        {"pair", d, {i, j}, {}, ReduceOp::Sum, {i.var, j.var}, load(t, DType::f32, {i.var, j.var}) + next});
    c.stages.push_back({"row", e, {i}, {j}, ReduceOp::Sum, {i.var}, load(d, DType::f32, {i.var, j.var})});
    return c;
}

// A reduction of integer dot products: c[i,j] = sum over k of a[i,k] * b[j,k].
Compute dots(int64_t m, int64_t n, int64_t k) {
    Compute c;
    c.name = "dots";
    int a = add_buffer(c, "a", {m, k}, DType::i8), b = add_buffer(c, "b", {n, k}, DType::i8);
    int y = add_buffer(c, "y", {m, n}, DType::i32);
    c.params = 3;
    ReduceAxis i = axis("i", m), j = axis("j", n), kk = axis("k", k);
    Expr x = cast(load(a, DType::i8, {i.var, kk.var}), DType::i32);
    Expr w = cast(load(b, DType::i8, {j.var, kk.var}), DType::i32);
    c.stages.push_back({"dot", y, {i, j}, {kk}, ReduceOp::Sum, {i.var, j.var}, x * w});
    return c;
}

TEST(ScheduleLoops, ASplitThatDoesNotComeOutEvenIsCutShort) {
    Compute c = chain(10, 7);
    Schedule s(c);
    auto [o, i] = *s.split({"pair.j"}, 4);
    EXPECT_EQ(o.name, "pair.j.o");
    EXPECT_EQ(s.extent(o), Expr(2));
    EXPECT_EQ(s.extent(i), Expr(4));
    EXPECT_NE(lowered_text(s).find("for pair.j.i < min(7 - 4*pair.j.o, 4)"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
    ASSERT_OK(s.loop_partition(o));
    EXPECT_NE(lowered_text(s).find("for pair.j.i.tail < 3"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
}

TEST(ScheduleLoops, TheLastOfWholePartsBeginsEarlier) {
    for (int64_t n : {4, 7, 8, 9}) {
        Compute c = chain(10, n);
        Schedule s(c);
        auto made = s.split_whole({"pair.j"}, 4);
        ASSERT_TRUE(made.ok()) << made.error().to_string();
        EXPECT_EQ(s.extent(made->first), Expr((n + 3) / 4));
        EXPECT_EQ(s.extent(made->second), Expr(4));
        EXPECT_EQ(lowered_text(s).find("if "), std::string::npos) << lowered_text(s);
        ASSERT_OK(s.vectorize(made->second));
        expect_same(c, s);
        EXPECT_FALSE(s.split_whole({"row.i"}, 4).ok());    // sums would be added to twice
        EXPECT_FALSE(s.split_whole({"pair.i"}, 11).ok());  // there are fewer
    }
    Schedule open(chain(symbol("M"), 7));
    EXPECT_FALSE(open.split_whole({"pair.i"}, 2).ok());  // there may be fewer
    Schedule more(chain(symbol("M") + 2, 7));
    EXPECT_TRUE(more.split_whole({"pair.i"}, 2).ok());
    ASSERT_OK(more.compute_at("pair", {"row.i"}));
    EXPECT_FALSE(lower(more).ok());  // there is one of them
}

TEST(ScheduleLoops, FusedLoopsTakeTheirIndicesApart) {
    Compute c = chain(3, 5);
    Schedule s(c);
    Loop fused = *s.fuse({"twice.i"}, {"twice.j"});
    EXPECT_EQ(fused.name, "twice.i_j");
    EXPECT_EQ(s.extent(fused), Expr(15));
    ASSERT_OK(s.parallel(fused));
    expect_same(c, s);
}

TEST(ScheduleLoops, TilesAreReordered) {
    Compute c = chain(9, 10);
    Schedule s(c);
    std::vector<Loop> made = *s.tile({"pair.i"}, {"pair.j"}, 4, 4);
    EXPECT_EQ(s.loops("pair"), made);
    EXPECT_EQ(made[1].name, "pair.j.o");
    expect_same(c, s);
}

TEST(ScheduleLoops, SkewedRoundsCountOnce) {
    Compute c = chain(5, 6);
    Schedule s(c);
    ASSERT_OK(s.skew({"pair.i"}, {"pair.j"}, 2));
    expect_same(c, s);
}

TEST(ScheduleStages, ComputedInALoopOfItsReader) {
    Expr n = symbol("N");
    Compute c = chain(n, 6, {"N"});
    Schedule s(c);
    ASSERT_OK(s.compute_at("twice", {"pair.j"}));
    ASSERT_OK(s.compute_at("pair", {"row.i"}));
    std::string text = lowered_text(s);
    EXPECT_NE(text.find("alloc t: f32[2] local"), std::string::npos) << text;
    EXPECT_NE(text.find("alloc d: f32[6] local"), std::string::npos) << text;
    for (int64_t rows : {0, 1, 5}) expect_same(c, s, {{"N", rows}});
}

TEST(ScheduleStages, Inlined) {
    Compute c = chain(4, 6);
    Schedule s(c);
    ASSERT_OK(s.compute_inline("twice"));
    ASSERT_OK(s.compute_inline("pair"));
    EXPECT_EQ(s.compute().stages.size(), 1u);
    expect_same(c, s);
}

TEST(ScheduleStages, AConsumerInALoopOfItsProducer) {
    Compute c = matmul_bias_relu(10, 9, 4);
    Schedule s(c);
    std::vector<Loop> tiles = *s.tile({"mm.m"}, {"mm.n"}, 4, 4);
    ASSERT_OK(s.reverse_compute_at("out", tiles[1]));
    ASSERT_OK(s.set_scope("mm", Scope::Local));
    EXPECT_NE(lowered_text(s).find("alloc sum: f32[4, 4] local"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
    EXPECT_EQ(s.reverse_compute_at("out", {"mm.k"}).error().code(), Code::E0602);
}

TEST(ScheduleStages, AConsumerInsideItsProducer) {
    Compute c = chain(4, 6);
    Schedule s(c);
    ASSERT_OK(s.compute_inline("twice"));
    Compute two;
    two.name = "two";
    int a = add_buffer(two, "a", {4, 6}), y = add_buffer(two, "y", {6, 4});
    two.params = 2;
    int t = add_buffer(two, "t", {4, 6});
    ReduceAxis i = axis("i", 4), j = axis("j", 6);
    two.stages.push_back({"p",
                          t,
                          {i, j},
                          {},
                          ReduceOp::Sum,
                          {i.var, j.var},
                          load(a, DType::f32, {i.var, j.var}) + constant(1, DType::f32)});
    two.stages.push_back(
        {"q", y, {j, i}, {}, ReduceOp::Sum, {j.var, i.var}, relu(load(t, DType::f32, {i.var, j.var}))});
    Schedule r(two);
    ASSERT_OK(r.reverse_compute_inline("q"));
    EXPECT_EQ(r.compute().stages.size(), 1u);
    expect_same(two, r);
}

TEST(ScheduleReductions, PartialResultsInLanes) {
    Compute c = chain(3, 37);
    Schedule s(c);
    auto [o, i] = *s.split({"row.j"}, 8);
    std::string partial = *s.rfactor(i);
    EXPECT_EQ(partial, "row_rf");
    ASSERT_OK(s.compute_at(partial, {"row.i"}));
    ASSERT_OK(s.set_scope(partial, Scope::Register));
    ASSERT_OK(s.reorder({{"row_rf.j.o"}, {"row_rf.j.i"}}));
    ASSERT_OK(s.vectorize({"row_rf.j.i"}));
    ASSERT_OK(s.loop_partition({"row_rf.j.o"}));
    ASSERT_OK(s.vectorize(i));
    std::string text = lowered_text(s);
    EXPECT_NE(text.find("row_rf[row_rf.j.i] += d[row.i, row_rf.j.i + 8*row_rf.j.o]"), std::string::npos) << text;
    expect_same(c, s);
}

TEST(ScheduleReductions, TheInitMovesOut) {
    Compute c = matmul_bias_relu(5, 6, 7);
    Schedule s(c);
    ASSERT_OK(s.reorder({{"mm.k"}, {"mm.m"}, {"mm.n"}}));
    expect_same(c, s);
    ASSERT_OK(s.reorder({{"mm.m"}, {"mm.k"}, {"mm.n"}}));
    ASSERT_OK(s.decompose_reduction("mm", {"mm.m"}));
    expect_same(c, s);
    EXPECT_EQ(s.decompose_reduction("mm", {"mm.n"}).error().code(), Code::E0602);
}

TEST(ScheduleData, CopiesAndAlignedRows) {
    Compute c = matmul_bias_relu(10, 6, 5);
    Schedule s(c);
    std::string copy = *s.cache_read("mm", 0, Scope::Local);
    EXPECT_EQ(copy, "a_local");
    ASSERT_OK(s.compute_at(copy, {"mm.m"}));
    EXPECT_NE(lowered_text(s).find("alloc a_local: f32[5] local"), std::string::npos) << lowered_text(s);
    ASSERT_OK(s.storage_align("mm", 0, 8, 1));
    EXPECT_NE(lowered_text(s).find("9"), std::string::npos);
    expect_same(c, s);
}

TEST(ScheduleInstructions, StatementsOfALoopApart) {
    Compute c = chain(4, 6);
    Schedule s(c);
    ASSERT_OK(s.compute_at("pair", {"row.i"}));
    ASSERT_OK(s.fission({"row.i"}));
    EXPECT_NE(lowered_text(s).find("alloc d: f32[4, 6] local"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
}

TEST(ScheduleInstructions, RoundsAhead) {
    for (int rounds : {2, 3}) {
        for (int64_t n : {0, 1, 2, 7}) {
            Compute c = chain(symbol("N"), 6, {"N"});
            Schedule s(c);
            ASSERT_OK(s.compute_at("pair", {"row.i"}));
            ASSERT_OK(s.pipeline({"row.i"}, rounds));
            EXPECT_NE(lowered_text(s).find(fmt::format("alloc d: f32[{}, 6] local", rounds)), std::string::npos);
            expect_same(c, s, {{"N", n}});
        }
    }
    Compute c = chain(5, 6);
    Schedule s(c);
    EXPECT_EQ(s.pipeline({"row.i"}, 2).error().code(), Code::E0602);
    ASSERT_OK(s.compute_at("pair", {"row.i"}));
    ASSERT_OK(s.double_buffer("pair"));
    EXPECT_NE(lowered_text(s).find("alloc d: f32[2, 6] local"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
}

TEST(ScheduleInstructions, Prefetches) {
    Compute c = matmul_bias_relu(10, 6, 5);
    Schedule s(c);
    ASSERT_OK(s.prefetch("mm", 0, {"mm.m"}, 2));
    EXPECT_NE(lowered_text(s).find("prefetch"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
}

TEST(ScheduleInstructions, PrefetchesTheNextRound) {
    Compute c = matmul_bias_relu(12, 32, 40);
    Schedule s(c);
    auto [panels, columns] = s.split({"out.n"}, 16).value();
    auto [tiles, rows] = s.split({"out.m"}, 4).value();
    ASSERT_OK(s.reorder({panels, tiles, rows, columns}));
    ASSERT_OK(s.compute_at("mm", tiles));
    std::string b = s.cache_read("mm", 1, Scope::Global).value();
    IndexMap map{{index_var("k", 40), index_var("n", 32)}, {}, {2, 40, 16}};
    map.indices = {floor_div(map.vars[1], 16), map.vars[0], mod(map.vars[1], 16)};
    ASSERT_OK(s.transform_layout(b, map));
    std::vector<Loop> loops = s.loops("mm");
    ASSERT_OK(s.reorder({loops[2], loops[0], loops[1]}));
    const int buffer = s.compute().stages[0].name == b ? s.compute().stages[0].buffer : -1;
    ASSERT_OK(s.prefetch_next("mm", buffer, loops[2], panels, tiles));
    // Three tiles of rows announce 40 rows of 16 elements, two lines every four iterations.
    std::string text = lowered_text(s);
    EXPECT_NE(text.find("if mod(mm.k, 4) == 0"), std::string::npos) << text;
    EXPECT_NE(text.find("[out.n.o + 1, 0, 320*out.m.o + 32*floordiv(mm.k, 4)]"), std::string::npos) << text;
    expect_same(c, s);
    EXPECT_FALSE(s.prefetch_next("mm", 2, loops[2], panels, tiles).ok());
    ASSERT_OK(s.prefetch_next("mm", buffer, loops[2], panels, loops[0]));
    EXPECT_FALSE(lower(s).ok());  // a loop of its own is not around it
}

// Four of sixteen tiles of rows are enough to announce a panel: the others have nothing to say.
TEST(ScheduleInstructions, PrefetchesTheNextRoundOnce) {
    Compute c = matmul_bias_relu(64, 32, 40);
    Schedule s(c);
    auto [panels, columns] = s.split({"out.n"}, 16).value();
    auto [tiles, rows] = s.split({"out.m"}, 4).value();
    ASSERT_OK(s.reorder({panels, tiles, rows, columns}));
    ASSERT_OK(s.compute_at("mm", tiles));
    std::string b = s.cache_read("mm", 1, Scope::Global).value();
    IndexMap map{{index_var("k", 40), index_var("n", 32)}, {}, {2, 40, 16}};
    map.indices = {floor_div(map.vars[1], 16), map.vars[0], mod(map.vars[1], 16)};
    ASSERT_OK(s.transform_layout(b, map));
    std::vector<Loop> loops = s.loops("mm");
    ASSERT_OK(s.reorder({loops[2], loops[0], loops[1]}));
    ASSERT_OK(s.prefetch_next("mm", s.compute().stages[0].buffer, loops[2], panels, tiles));
    EXPECT_NE(lowered_text(s).find("out.m.o < 4"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
}

TEST(ScheduleInstructions, NestsAsCalls) {
    Compute c = dots(6, 8, 24);
    Schedule s(c);
    std::vector<Loop> tiles = *s.tile({"dot.i"}, {"dot.j"}, 2, 2);
    auto [ko, ki] = *s.split({"dot.k"}, 8);
    ASSERT_OK(s.reorder({tiles[0], tiles[1], ko, tiles[2], tiles[3], ki}));
    ASSERT_OK(s.tensorize(tiles[2], "smmla"));
    EXPECT_NE(lowered_text(s).find("smmla"), std::string::npos) << lowered_text(s);
    expect_same(c, s);
    // A tile that is not whole.
    Compute odd = dots(6, 7, 24);
    Schedule t(odd);
    std::vector<TraceStep> trace = s.trace();
    Result<Schedule> again = Schedule::replay(odd, trace);
    ASSERT_OK(again);
    Result<Lowered> refused = lower(*again);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::E0602);
    EXPECT_NE(refused.error().message().find("smmla"), std::string::npos);
}

// Axes of one element between those that are merged, and single elements that are added to them, leave no division by
// an open size.
TEST(ScheduleAxes, MergedAcrossSingleElements) {
    for (const char* text :
         {"compute turn(N) (x: f32[7, 1, N], y: f32[7, N, 1]) {\n  out for i < 7, j < N, k < 1: y[i, j, k] = x[i, 0, "
          "j]\n}",
          "compute turn(N) (x: f32[7, 1, N], y: f32[7, N, 1]) {\n  out for i < 7, j < N, k < 1: y[i, j, k] += "
          "x[i, r, j + r] over r < 1\n}"}) {
        auto compute = parse_compute(text);
        ASSERT_OK(compute);
        Schedule s(*compute);
        ASSERT_OK(s.merge_axes("out", {{0, 1, 2}}));
        expect_same(*compute, s, {{"N", 5}});
        const std::string kernel = to_string(lower(s)->kernel);
        EXPECT_EQ(kernel.find("floordiv"), std::string::npos) << kernel;
    }
}

TEST(ScheduleTrace, PrintedReadAndReplayed) {
    Compute c = matmul_bias_relu(50, 30, 20);
    Schedule s(c);
    ASSERT_OK(s.reindex("mm", 0));
    ASSERT_OK(s.pad("mm", {8, 1, 1}));
    Expr m = index_var("m", 56), k = index_var("k", 20);
    ASSERT_OK(s.transform_layout("mm_a", {{m, k}, {floor_div(m, 8), k, mod(m, 8)}, {7, 20, 8}}));
    ASSERT_OK(s.merge_axes("out", {{0, 1}}));
    auto [o, i] = *s.split({"out.m_n"}, 16);
    ASSERT_OK(s.vectorize(i));
    ASSERT_OK(s.parallel(o));
    ASSERT_OK(s.annotate({"mm.k"}, "unroll", 4));
    expect_same(c, s);
    std::string text = s.print_trace();
    Result<std::vector<TraceStep>> read = Schedule::parse_trace(text);
    ASSERT_OK(read);
    Result<Schedule> again = Schedule::replay(c, *read);
    ASSERT_OK(again);
    EXPECT_EQ(again->print_trace(), text);
    EXPECT_EQ(lowered_text(*again), lowered_text(s));
    // Other sizes.
    Compute other = matmul_bias_relu(21, 7, 5);
    Result<Schedule> moved = Schedule::replay(other, *read);
    ASSERT_OK(moved);
    expect_same(other, *moved);
    EXPECT_EQ(Schedule::parse_trace("split(out.m, 4").error().code(), Code::E0301);
    EXPECT_EQ(Schedule::parse_trace("= 4").error().code(), Code::E0301);
    std::vector<TraceStep> unknown{{"melt", {"out.m"}, {}}};
    EXPECT_EQ(Schedule::replay(c, unknown).error().code(), Code::E0602);
}

TEST(ScheduleErrors, SayWhatWouldBeAllowed) {
    Compute c = matmul_bias_relu(symbol("M"), 30, 20, {"M"});
    Schedule s(c);
    auto refused = [](auto result, std::string_view part) {
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().code(), Code::E0602);
        EXPECT_NE(result.error().to_string().find(part), std::string::npos) << result.error().to_string();
    };
    refused(s.split({"mm.x"}, 4), "mm.m, mm.n, mm.k");
    refused(s.split({"mm.m"}, 0), "at least 1");
    refused(s.fuse({"mm.m"}, {"mm.k"}), "directly inside");
    refused(s.fuse({"mm.n"}, {"mm.k"}), "reduction");
    refused(s.reorder({{"mm.m"}, {"out.m"}}), "different stages");
    refused(s.reorder({{"mm.m"}, {"mm.m"}}), "twice");
    refused(s.parallel({"mm.k"}), "rfactor");
    refused(s.parallel({"mm.n"}), "outermost");
    refused(s.vectorize({"mm.m"}), "split");
    refused(s.unroll({"mm.m"}), "split");
    refused(s.compute_inline("mm"), "compute_at");
    refused(s.compute_inline("out"), "output");
    refused(s.compute_inline("mn"), "mm, out");
    refused(s.compute_at("out", {"mm.m"}), "output");
    refused(s.compute_at("mm", {"mm.m"}), "itself");
    refused(s.reverse_compute_inline("out"), "reduction");
    refused(s.cache_read("mm", 2, Scope::Local), "does not read");
    refused(s.set_scope("out", Scope::Register), "cache_write");
    refused(s.rfactor({"mm.m"}), "is not a reduction");
    refused(s.decompose_reduction("out", {"out.m"}), "is not a reduction");
    refused(s.reindex("out", 0), "products");
    refused(s.merge_axes("mm", {{0}}), "once");
    refused(s.pad("mm", {4, 4, 1}), "reindex");
    refused(s.pad("out", {4, 4}), "cache_write");
    Expr i = index_var("i", {}), j = index_var("j", 30);
    refused(s.transform_layout("mm", {{i, j}, {floor_div(i, 2), j}, {symbol("M"), 30}}), "at the same index");
    refused(s.storage_align("mm", 1, 8, 0), "dimension");
    refused(s.tensorize({"mm.m"}, "magic"), "smmla");
    refused(s.double_buffer("mm"), "compute_at");
    ASSERT_OK(s.vectorize({"mm.n"}));
    refused(lower(s), "innermost");
    refused(s.compute_at("mm", {"mm.n"}), "itself");
}

}  // namespace
}  // namespace tessera::schedule_primitives_test
