#include "kernel/gpu/memory_bound/row_reduction_kernel.h"

#include <algorithm>

#include "kernel/analyse/inline_maps.h"
#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/gpu_loops.h"
#include "kernel/gpu/keep_wide.h"
#include "kernel/gpu/memory_bound/row_stages.h"
#include "kernel/ir/group_steps.h"

namespace tessera {
namespace {

constexpr int64_t kLanesOfWarp = 32;
constexpr int64_t kChunkOfVectors = 4, kChunkOfElements = 8;  // accesses of a thread that are in flight together
constexpr int64_t kSharedForPartials = 4 << 10;

class RowKernel {
  public:
    RowKernel(Compute compute, const RowStages& found, const RowThreads& threads, bool in_shared)
        : c_(std::move(compute)), rows_(found.rows), along_(found.along), t_(threads), in_shared_(in_shared) {
        kernel_.name = c_.name;
        kernel_.symbols = c_.symbols;
        kernel_.buffers.assign(c_.buffers.begin(), c_.buffers.begin() + std::ptrdiff_t(c_.params));
        kernel_.params = c_.params;
        length_ = elements_of(along_), count_ = elements_of(rows_);
        block_ = loop_var("block", ceil_div(count_, t_.rows));
    }

    Kernel make() {
        std::vector<Stmt> steps;
        for (const Stage& stage : c_.stages) {
            stage_ = &stage;
            if (!stage.reduce.empty())
                reduce(steps);
            else if (stage.axes.size() == rows_.size())
                once(steps);
            else
                map(steps);
        }
        Stmt body = seq(std::move(steps));
        for (auto b = allocated_.rbegin(); b != allocated_.rend(); ++b) body = alloc(*b, std::move(body));
        kernel_.body = loop_over(block_, ceil_div(count_, t_.rows), LoopKind::Bound, std::move(body), "block.x");
        return std::move(kernel_);
    }

  private:
    struct Thread {
        Expr row, in_row;  // of the block, and of the row
        Expr which;        // the row
    };

    int add(const std::string& name, DType dtype, std::vector<Expr> shape, Scope scope = Scope::Shared) {
        kernel_.buffers.push_back({.name = fmt::format("{}_{}", name, kernel_.buffers.size()),
                                   .dtype = dtype,
                                   .shape = std::move(shape),
                                   .scope = scope});
        const int made = int(kernel_.buffers.size()) - 1;
        if (scope == Scope::Shared) allocated_.push_back(made);
        return made;
    }

    // Of which each thread has its own part.
    int add_own(const std::string& name, DType dtype, int64_t elements) {
        if (t_.across) return add(name, dtype, {1, t_.threads, t_.rows, elements});
        return add(name, dtype, {1, t_.rows, t_.threads, elements});
    }

    Expr var(const std::string& name, const Expr& extent) {
        return loop_var(fmt::format("{}{}", name, number_++), extent);
    }

    static Stmt nothing(const Thread&) { return nullptr; }

    // What all threads do, or `one` of each row; those beyond the last row are left out of `body`.
    template <typename F>
    Stmt in_threads(const F& body, bool one = false) {
        return in_threads(nothing, body, nothing, one);
    }
    template <typename B, typename F, typename A>
    Stmt in_threads(const B& before, const F& body, const A& after, bool one = false) {
        Thread t{Expr(0), var("thread", t_.threads), block_};
        if (t_.rows > 1) t.row = var("row", t_.rows), t.which = block_ * t_.rows + t.row;
        Stmt inside = body(t);
        Expr here = int_const(1, DType::boolean);
        if (!mod(count_, t_.rows).is_int(0)) here = lt(t.which, count_);
        if (one && t_.threads > 1) here = logical_and(here, eq(t.in_row, Expr(0)));
        if (inside && !is_true(here)) inside = if_then(here, std::move(inside));
        Stmt all = seq({before(t), std::move(inside), after(t)});
        if (t_.across) {
            all = loop_over(t.row, t_.rows, LoopKind::Bound, std::move(all), "thread.x");
            return loop_over(t.in_row, t_.threads, LoopKind::Bound, std::move(all), "thread.y");
        }
        all = loop_over(t.in_row, t_.threads, LoopKind::Bound, std::move(all), "thread.x");
        return t_.rows > 1 ? loop_over(t.row, t_.rows, LoopKind::Bound, std::move(all), "thread.y") : all;
    }
    static bool is_true(const Expr& e) { return e.is(ExprKind::Const) && e.node().integer == 1; }

    std::vector<Expr> own(const Thread& t, const Expr& e) const {
        if (t_.across) return {0, t.in_row, t.row, e};
        return {0, t.row, t.in_row, e};
    }

    // The value of the current stage's expression at a row, and at an element of it.
    Expr at(const Expr& e, const Thread& t, const Expr& vector, const Expr& lane, const Expr& place) const {
        Bindings values;
        Expr left = t.which;
        for (size_t i = rows_.size(); i-- > 0;) {
            const Expr& extent = rows_[i].extent;
            values.insert_or_assign(stage_->axes[i].var.node().name, i == 0 ? left : mod(left, extent));
            left = floor_div(left, extent);
        }
        const std::vector<ReduceAxis> along = axes_along(*stage_, rows_.size());
        left = vector;
        for (size_t i = along.size(); i-- > 0;) {
            const bool last = i + 1 == along.size();
            const Expr extent = last && t_.lanes > 1 ? floor_div(along[i].extent, t_.lanes) : along[i].extent;
            Expr own = i == 0 ? left : mod(left, extent);
            if (last) own = own * t_.lanes + lane;
            values.insert_or_assign(along[i].var.node().name, own);
            left = floor_div(left, extent);
        }
        return map_loads(substitute(e, values), [&](const Expr& x) {
            if (size_t(x.node().slot) < c_.params) return x;
            const int kept = kept_.at(x.node().slot);
            const Buffer& b = kernel_.buffers[size_t(kept)];
            const bool of_row = x.args().size() == rows_.size();
            if (b.shape.size() == 2) return load(kept, b.dtype, {t.row, vector * t_.lanes + lane});
            return load(kept, b.dtype, own(t, of_row ? Expr(0) : place));
        });
    }

    // What a thread does with one element: its vector, the lane in it, its place among those of the thread, and that
    // among those of a chunk of accesses.
    using Step = std::function<Stmt(const Expr& vector, const Expr& lane, const Expr& place, const Expr& in_chunk)>;

    // All accesses of a thread in chunks, what is beyond the row left out. Each step is done for a whole chunk before
    // the next one is, so that the loads of a chunk are in flight together.
    Stmt over_elements(const Thread& t, const std::vector<Step>& steps) {
        const Expr vectors = ceil_div(length_, t_.lanes);
        const auto access = [&](const Step& step, const Expr& turn, const Expr& in_chunk) {
            const Expr lane = var("lane", t_.lanes), vector = turn * t_.threads + t.in_row;
            Stmt body = step(vector, lane, turn * t_.lanes + lane, in_chunk * t_.lanes + lane);
            return t_.lanes > 1 ? loop_over(lane, t_.lanes, LoopKind::Vector, std::move(body))
                                : substitute(body, {{lane.node().name, 0}});
        };
        const auto chunk = [&](const Expr& first, int64_t turns) {
            std::vector<Stmt> all;
            for (const Step& step : steps) {
                const Expr turn = var("turn", turns);
                if (turns == 1)
                    all.push_back(access(step, first, 0));
                else if (turns > 1)
                    all.push_back(loop_over(turn, turns, LoopKind::Unrolled, access(step, first + turn, turn)));
            }
            return seq(std::move(all));
        };
        const Expr whole = floor_div(vectors, t_.threads);
        const auto known = whole.as_int();
        std::vector<Stmt> all;
        if (t_.turns > 0) {
            for (int64_t first = 0; first < *known; first += chunk_turns())
                all.push_back(chunk(first, std::min(chunk_turns(), *known - first)));
        } else {
            const Expr chunks = floor_div(whole, chunk_turns()), number = var("chunk", chunks);
            all.push_back(
                for_loop({.var = number, .extent = chunks, .body = chunk(number * chunk_turns(), chunk_turns())}));
            if (known) {
                all.push_back(chunk(chunks * chunk_turns(), *known % chunk_turns()));
            } else {
                const Expr left = mod(whole, chunk_turns()), turn = var("left", left);
                all.push_back(for_loop({.var = turn, .extent = left, .body = chunk(chunks * chunk_turns() + turn, 1)}));
            }
        }
        if (!mod(vectors, t_.threads).is_int(0))
            all.push_back(if_then(lt(whole * t_.threads + t.in_row, vectors), chunk(whole, 1)));
        return seq(std::move(all));
    }

    int64_t chunk_turns() const { return t_.lanes > 1 ? kChunkOfVectors : kChunkOfElements; }

    // A map of a row: to memory outside, or kept for the stages after it.
    void map(std::vector<Stmt>& steps) {
        const bool out = is_output(c_, *stage_);
        const DType dtype = c_.buffers[size_t(stage_->buffer)].dtype;
        if (!out && !in_shared_) {
            const int kept = kept_[stage_->buffer] = add_own("row", dtype, t_.turns * t_.lanes);
            steps.push_back(in_threads([&](const Thread& t) {
                return over_elements(t, {[&](const Expr& vector, const Expr& lane, const Expr& place, const Expr&) {
                                         return store(kept, own(t, place), at(stage_->value, t, vector, lane, place));
                                     }});
            }));
            return;
        }
        int to = stage_->buffer;
        if (!out) to = kept_[stage_->buffer] = add("row", dtype, {t_.rows, *length_.as_int()});
        const int pending = add("pending", dtype, {chunk_turns() * t_.lanes}, Scope::Register);
        steps.push_back(in_register(
            pending, in_threads([&](const Thread& t) {
                const Step compute = [&](const Expr& vector, const Expr& lane, const Expr& place,
                                         const Expr& in_chunk) {
                    return store(pending, {in_chunk}, at(stage_->value, t, vector, lane, place));
                };
                const Step write = [&](const Expr& vector, const Expr& lane, const Expr& place, const Expr& in_chunk) {
                    std::vector<Expr> where{t.row, vector * t_.lanes + lane};
                    if (out) where = at_all(stage_->store, t, vector, lane, place);
                    return store(to, std::move(where), load(pending, dtype, {in_chunk}));
                };
                return over_elements(t, {compute, write});
            })));
    }

    std::vector<Expr> at_all(const std::vector<Expr>& list, const Thread& t, const Expr& vector, const Expr& lane,
                             const Expr& place) const {
        std::vector<Expr> all;
        for (const Expr& e : list) all.push_back(at(e, t, vector, lane, place));
        return all;
    }

    // A map of what there is once for each row: by all of its threads, or by one to memory outside.
    void once(std::vector<Stmt>& steps) {
        const bool out = is_output(c_, *stage_);
        int to = stage_->buffer;
        if (!out) to = kept_[stage_->buffer] = add_own("of_row", c_.buffers[size_t(stage_->buffer)].dtype, 1);
        steps.push_back(in_threads(
            [&](const Thread& t) {
                std::vector<Expr> where = out ? at_all(stage_->store, t, 0, 0, 0) : own(t, 0);
                return store(to, std::move(where), at(stage_->value, t, 0, 0, 0));
            },
            out));
    }

    void reduce(std::vector<Stmt>& steps) {
        const DType dtype = c_.buffers[size_t(stage_->buffer)].dtype;
        const int part = add_own("part", dtype, 1);
        const Expr none = identity(stage_->combine, dtype);
        const int sums = add("sums", dtype, {t_.lanes}, Scope::Register);
        const auto over_lanes = [&](const auto& body) {
            const Expr lane = var("lane", t_.lanes);
            return loop_over(lane, t_.lanes, LoopKind::Vector, body(lane));
        };
        Stmt each = in_threads(
            [&](const Thread&) { return over_lanes([&](const Expr& lane) { return store(sums, {lane}, none); }); },
            [&](const Thread& t) {
                return over_elements(t, {[&](const Expr& vector, const Expr& lane, const Expr& place, const Expr&) {
                                         return store(sums, {lane}, at(stage_->value, t, vector, lane, place),
                                                      stage_->combine);
                                     }});
            },
            [&](const Thread& t) {
                return seq({store(part, own(t, 0), none), over_lanes([&](const Expr& lane) {
                                return store(part, own(t, 0), load(sums, dtype, {lane}), stage_->combine);
                            })});
            });
        steps.push_back(in_register(sums, std::move(each)));
        if (!t_.across) shuffle(part, dtype, steps);
        if (t_.across ? t_.threads > 1 : t_.threads > kLanesOfWarp) meet(part, dtype, steps);
        kept_[stage_->buffer] = part;
        if (!is_output(c_, *stage_)) return;
        steps.push_back(in_threads(
            [&](const Thread& t) {
                return store(stage_->buffer, at_all(stage_->store, t, 0, 0, 0), load(part, dtype, own(t, 0)));
            },
            true));
    }

    // Registers stand inside of the loops over threads.
    static Stmt in_register(int buffer, const Stmt& nest) {
        const For* loop = nest->as<For>();
        For made = *loop;
        const For* inner = made.body->as<For>();
        made.body = inner && inner->kind == LoopKind::Bound ? in_register(buffer, made.body) : alloc(buffer, made.body);
        return make_stmt(std::move(made));
    }

    // All threads of a warp that have one row get what all of them have.
    void shuffle(int part, DType dtype, std::vector<Stmt>& steps) {
        if (t_.threads == 1) return;
        const int other = add_own("other", dtype, 1);
        for (int64_t mask = 1; mask < std::min(t_.threads, kLanesOfWarp); mask *= 2) {
            steps.push_back(make_stmt(Call{.name = kSwapLanes,
                                           .writes = {{other, {0, 0, 0, 0}}},
                                           .reads = {{part, {0, 0, 0, 0}}},
                                           .args = {Expr(mask)}}));
            steps.push_back(all_threads([&](const Thread& t) {
                return store(part, own(t, 0), load(other, dtype, own(t, 0)), stage_->combine);
            }));
        }
    }

    // The same of all warps, or of all threads of a row that lies across.
    void meet(int part, DType dtype, std::vector<Stmt>& steps) {
        const int64_t from = t_.across ? 1 : kLanesOfWarp, parts = t_.threads / from;
        const int met =
            add("met", dtype, t_.across ? std::vector<Expr>{parts, t_.rows} : std::vector<Expr>{t_.rows, parts});
        const auto place = [&](const Thread& t, const Expr& which) {
            return t_.across ? std::vector<Expr>{which, t.row} : std::vector<Expr>{t.row, which};
        };
        steps.push_back(all_threads([&](const Thread& t) {
            Stmt one = store(met, place(t, floor_div(t.in_row, from)), load(part, dtype, own(t, 0)));
            return t_.across ? one : if_then(eq(mod(t.in_row, from), Expr(0)), std::move(one));
        }));
        steps.push_back(all_threads([&](const Thread& t) {
            const Expr which = var("which", parts);
            Stmt one = store(part, own(t, 0), load(met, dtype, place(t, which)), stage_->combine);
            return seq({store(part, own(t, 0), identity(stage_->combine, dtype)),
                        loop_over(which, parts, t_.across ? LoopKind::Unrolled : LoopKind::Vector, std::move(one))});
        }));
    }

    template <typename F>
    Stmt all_threads(const F& body) {
        return in_threads(nothing, nothing, body);
    }

    const Compute c_;
    const std::vector<ReduceAxis> rows_, along_;
    const RowThreads t_;
    const bool in_shared_;
    Kernel kernel_;
    Expr length_, count_, block_;
    const Stage* stage_ = nullptr;
    std::vector<int> allocated_;
    std::map<int, int> kept_;  // by buffer of the Compute
    int number_ = 0;
};

}  // namespace

std::optional<Lowered> row_reduction_kernel(const Compute& compute, const ScheduleOptions& options, bool few) {
    Compute wide = compute;
    if (!options.strict) keep_wide(wide);
    Schedule s(std::move(wide));
    if (!inline_maps(s).ok()) return {};
    s = Schedule(rows_first(with_whole_rows(without_unit_axes(s.compute()))));
    RowStages found = find_rows(s.compute());
    if (!found.ok) {
        s = Schedule(along_one_axis(s.compute()));
        found = find_rows(s.compute());
    }
    if (!found.ok) return {};
    const bool across = lie_across(s, found, few);
    if (!across && !are_worth_threads(s, found)) return {};
    const size_t rows = found.rows.size();
    const Expr count = elements_of(found.rows), length = elements_of(found.along);
    const int64_t lanes = across ? 1 : lanes_for(s, found), bytes = widest_access(s.compute());

    Compute all = loads_apart(s.compute(), found);
    // A 16-bit element takes a register of its own where it is loaded alone.
    const double words = double(bytes_kept(all, rows).at_once) / (lanes > 1 ? 4 : 2);
    const RowThreads threads = across ? choose_column_threads(options.machine, count, length, bytes, words)
                                      : choose_row_threads(options.machine, count, length, lanes, bytes, words);
    bool in_shared = false;
    if (threads.turns == 0) {
        auto less = without_kept(s.compute(), rows);
        if (!less.ok()) return {};
        Compute loaded = loads_apart(*less, found);
        const auto known = length.as_int();
        in_shared = known && !across &&
                    *known * bytes_kept(loaded, rows).all + kSharedForPartials <= options.machine.shared_bytes;
        all = in_shared ? std::move(loaded) : std::move(*less);
    }
    Lowered made;
    made.kernel = RowKernel(std::move(all), found, threads, in_shared).make();
    return verify(made.kernel).ok() ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace tessera
