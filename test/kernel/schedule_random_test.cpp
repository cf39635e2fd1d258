// Random computes under random sequences of primitives: whatever was legal computes the same.
#include <cstdlib>
#include <random>

#include "base/check.h"
#include "schedule_check.h"

namespace tessera::schedule_random_test {
namespace {

class RandomSchedule {
  public:
    explicit RandomSchedule(uint64_t seed) : random_(seed) {}

    uint64_t pick(uint64_t n) { return random_() % n; }
    bool chance(int percent) { return pick(100) < static_cast<uint64_t>(percent); }

    Compute make_compute() {
        c_ = {};
        c_.name = "random";
        c_.symbols = {"N"};
        symbols_ = {{"N", static_cast<int64_t>(pick(8))}};
        size_t inputs = 1 + pick(3), outputs = 1 + pick(2), stages = outputs + pick(4);
        for (size_t i = 0; i < inputs; ++i) add_buffer(c_, "x" + std::to_string(i), shape());
        std::vector<std::vector<Expr>> out_shapes;
        for (size_t i = 0; i < outputs; ++i) {
            out_shapes.push_back(shape());
            add_buffer(c_, "y" + std::to_string(i), out_shapes.back());
        }
        c_.params = inputs + outputs;
        for (size_t i = 0; i < inputs; ++i) c_.known.push_back(chance(30));
        size_t intermediates = stages - outputs;
        for (size_t i = 0; i < inputs; ++i) ready_.push_back(static_cast<int>(i));
        for (size_t i = 0; i < stages; ++i) {
            bool output = i >= intermediates;
            std::vector<Expr> sizes = output ? out_shapes[i - intermediates] : shape();
            int slot =
                output ? static_cast<int>(inputs + i - intermediates) : add_buffer(c_, "t" + std::to_string(i), sizes);
            add_stage("s" + std::to_string(i), slot, sizes, i + 1 == stages);
            ready_.push_back(slot);
        }
        // What nobody reads is no intermediate.
        return c_;
    }

    const SymbolValues& symbols() const { return symbols_; }

    // One primitive; whether it was legal.
    bool step(Schedule& s) {
        const std::vector<Stage>& stages = s.compute().stages;
        std::string stage = stages[pick(stages.size())].name;
        std::vector<Loop> loops = s.loops(stage);
        Loop loop = loops.empty() ? Loop{"none"} : loops[pick(loops.size())];
        Loop other = loops.empty() ? Loop{"none"} : loops[pick(loops.size())];
        const Stage& host = stages[pick(stages.size())];
        std::vector<Loop> host_loops = s.loops(host.name);
        Loop at = host_loops.empty() ? Loop{"none"} : host_loops[pick(host_loops.size())];
        int64_t factor = 1 + static_cast<int64_t>(pick(5));
        switch (pick(32)) {
            case 0: return s.split_whole(loop, factor).ok();
            case 1:
            case 2: return s.split(loop, factor).ok();
            case 3: return s.split_parts(loop, factor).ok();
            case 4:
            case 5: return s.fuse(loop, other).ok();
            case 6:
            case 7: {
                std::shuffle(loops.begin(), loops.end(), random_);
                return s.reorder(loops).ok();
            }
            case 8: return s.unroll(loop).ok();
            case 9: return s.vectorize(loop).ok();
            case 10: return s.parallel(loop).ok();
            case 11:
            case 12: return s.loop_partition(loop).ok();
            case 13: return s.skew(loop, other, factor).ok();
            case 14: return s.compute_inline(stage).ok();
            case 15: return s.reverse_compute_inline(stage).ok();
            case 16:
            case 17:
            case 18: return s.compute_at(stage, at).ok();
            case 19: return s.reverse_compute_at(stage, at).ok();
            case 20: {
                std::vector<Expr> loads = loads_in(host.value);
                if (loads.empty()) return false;
                return s.cache_read(host.name, loads[pick(loads.size())].node().slot, Scope::Local).ok();
            }
            case 21: return s.cache_write(stage, chance(50) ? Scope::Local : Scope::Global).ok();
            case 22: return s.set_scope(stage, chance(70) ? Scope::Local : Scope::Global).ok();
            case 23: return s.rfactor(loop).ok();
            case 24: return s.decompose_reduction(stage, loop).ok();
            case 25: return merge(s, stage);
            case 26: return s.fission(loop).ok();
            case 27: return s.pipeline(loop, static_cast<int>(factor)).ok();
            case 29: return s.reindex(stage, static_cast<int>(pick(2))).ok();
            case 30: {
                std::vector<Expr> loads = loads_in(host.value);
                if (loads.empty()) return false;
                return s.prefetch(host.name, loads[pick(loads.size())].node().slot, at, factor).ok();
            }
            case 28: return chance(50) ? s.double_buffer(stage).ok() : s.compute_root(stage).ok();
            default: return layout(s, stage);
        }
    }

  private:
    std::vector<Expr> shape() {
        std::vector<Expr> sizes;
        for (size_t d = pick(4); d-- > 0;) sizes.push_back(chance(15) ? symbol("N") : Expr(1 + int64_t(pick(7))));
        return sizes;
    }

    // An element of a buffer, from the variables at hand: straight where sizes agree, else guarded.
    Expr read(int slot, const std::vector<ReduceAxis>& vars) {
        const Buffer& b = c_.buffers[static_cast<size_t>(slot)];
        std::vector<Expr> at;
        Expr inside = int_const(1, DType::boolean);
        for (const Expr& size : b.shape) {
            Expr index = 0;
            if (!vars.empty() && chance(85)) {
                std::vector<size_t> fitting;
                for (size_t i = 0; i < vars.size(); ++i)
                    if (vars[i].extent.same(size)) fitting.push_back(i);
                index = !fitting.empty() && chance(80) ? vars[fitting[pick(fitting.size())]].var
                                                       : vars[pick(vars.size())].var;
                if (chance(20)) index = index * 2;
                if (chance(20)) index = index + vars[pick(vars.size())].var;
                if (chance(30)) index = index + (int64_t(pick(3)) - 1);
                if (chance(10)) index = floor_div(index, 2);
                if (chance(10)) index = mod(index, 3);
            }
            Extents running;
            for (const ReduceAxis& v : vars) running.insert_or_assign(v.var.node().name, v.extent);
            if (!always_in(index, size, running))
                inside = logical_and(inside, logical_and(le(0, index), lt(index, size)));
            at.push_back(index);
        }
        return select(inside, load(slot, DType::f32, at), constant(0, DType::f32));
    }

    static bool always_in(const Expr& index, const Expr& size, const Extents& running) {
        return always(le(0, index), running) && always(lt(index, size), running);
    }

    void add_stage(const std::string& name, int slot, const std::vector<Expr>& sizes, bool last) {
        std::vector<ReduceAxis> axes, reduce, all;
        for (size_t d = 0; d < sizes.size(); ++d) axes.push_back(axis("i" + std::to_string(d), sizes[d]));
        all = axes;
        if (chance(50))
            for (size_t r = 1 + pick(2); r-- > 0;) {
                reduce.push_back(axis("k" + std::to_string(r), chance(15) ? symbol("N") : Expr(1 + int64_t(pick(6)))));
                all.push_back(reduce.back());
            }
        auto any = [&] { return read(ready_[pick(ready_.size())], all); };
        Expr value = any();
        if (chance(60)) value = value * any();
        if (chance(40)) value = value + any();
        // The newest is read, so that most stages count.
        value = value + read(ready_.back(), all);
        (void)last;
        ReduceOp op = chance(70) ? ReduceOp::Sum : chance(50) ? ReduceOp::Max : ReduceOp::Min;
        if (chance(30) && !reduce.empty()) {  // a product, for reindex
            auto small = [](const Expr& e) { return max(min(e, constant(4, DType::f32)), constant(-4, DType::f32)); };
            value = small(any()) * small(any());
            op = ReduceOp::Sum;
        } else {  // small, so that products of products stay exact
            value = max(min(value, constant(50, DType::f32)), constant(-50, DType::f32));
        }
        c_.stages.push_back({name, slot, axes, reduce, op, vars_of(axes), value});
    }

    bool merge(Schedule& s, const std::string& stage) {
        for (const Stage& st : s.compute().stages) {
            if (st.name != stage || st.axes.size() < 2) continue;
            std::vector<std::vector<int>> groups{{0, 1}};
            for (size_t i = 2; i < st.axes.size(); ++i) groups.push_back({static_cast<int>(i)});
            return s.merge_axes(stage, groups).ok();
        }
        return false;
    }

    bool layout(Schedule& s, const std::string& stage) {
        for (const Stage& st : s.compute().stages) {
            if (st.name != stage || st.axes.empty()) continue;
            if (chance(50)) {
                std::vector<int64_t> multiples;
                for (size_t i = 0; i < st.axes.size() + st.reduce.size(); ++i)
                    multiples.push_back(1 + int64_t(pick(4)));
                return s.pad(stage, multiples).ok();
            }
            if (chance(30) && st.axes.size() > 1) return s.storage_align(stage, 0, 8, int64_t(pick(8))).ok();
            IndexMap map;
            for (size_t d = 0; d < st.axes.size(); ++d)
                map.vars.push_back(index_var("d" + std::to_string(d), st.axes[d].extent.as_int()));
            map.indices = map.vars;
            for (const ReduceAxis& a : st.axes) map.shape.push_back(a.extent);
            map.indices.push_back(mod(map.vars[0], 3));
            map.shape.push_back(3);
            map.indices[0] = floor_div(map.vars[0], 3);
            map.shape[0] = ceil_div(map.shape[0], 3);
            return s.transform_layout(stage, map).ok();
        }
        return false;
    }

    std::mt19937_64 random_;
    Compute c_;
    SymbolValues symbols_;
    std::vector<int> ready_;
};

TEST(ScheduleRandom, LegalPrimitivesKeepTheMeaning) {
    const char* given = std::getenv("TESSERA_SEED");
    uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1, count = given ? 1 : 120;
    if (const char* many = std::getenv("TESSERA_COUNT")) count = std::strtoull(many, nullptr, 10);
    size_t applied = 0;
    for (uint64_t seed = first; seed < first + count; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        RandomSchedule random(seed);
        Compute compute = random.make_compute();
        if (Status fine = verify(compute); !fine.ok()) FAIL() << fine.error().to_string() << to_string(compute);
        Schedule s(compute), sound = s;
        for (int i = 0; i < 14; ++i) {
            Schedule next = s;
            if (!random.step(next)) continue;
            s = next;
            CheckScope scope("schedule", [&] { return "seed " + std::to_string(seed) + "\n" + s.print_trace(); });
            Result<Lowered> lowered = lower(s);
            if (lowered.ok()) {
                sound = s;
                ++applied;
            } else {
                ASSERT_EQ(lowered.error().code(), Code::E0602);
                if (random.chance(60)) s = sound;  // else a later step may make it legal
            }
        }
        expect_same(compute, sound, random.symbols(), seed);
        if (::testing::Test::HasFatalFailure()) {
            std::cout << to_string(compute);
            return;
        }
    }
    EXPECT_GT(applied, given ? 0 : count * 2);
}

}  // namespace
}  // namespace tessera::schedule_random_test
