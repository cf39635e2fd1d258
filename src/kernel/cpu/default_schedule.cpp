#include "kernel/cpu/default_schedule.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/check.h"
#include "kernel/cpu/known_bounds.h"
#include "kernel/cpu/padding.h"
#include "kernel/cpu/places.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/cpu/words.h"

namespace tessera {

const Stage& find_stage(const Schedule& s, std::string_view name) {
    for (const Stage& stage : s.compute().stages)
        if (stage.name == name) return stage;
    CHECK(false);
    return s.compute().stages[0];
}

const Stage* writer_of(const Schedule& s, int buffer) {
    for (const Stage& stage : s.compute().stages)
        if (stage.buffer == buffer) return &stage;
    return nullptr;
}

std::vector<Expr> loads_of(const Stage& stage, int buffer) {
    std::vector<Expr> loads;
    visit(stage.value, [&](const Expr& x) {
        if (x.is(ExprKind::Load) && (buffer < 0 || x.node().slot == buffer)) loads.push_back(x);
    });
    return loads;
}

std::vector<std::string> readers_of(const Schedule& s, int buffer) {
    std::vector<std::string> names;
    for (const Stage& stage : s.compute().stages)
        if (!loads_of(stage, buffer).empty()) names.push_back(stage.name);
    return names;
}

const ReduceAxis* last_larger_axis(const Stage& stage) {
    for (auto a = stage.axes.rbegin(); a != stage.axes.rend(); ++a)
        if (!a->extent.is_int(1)) return &*a;
    return nullptr;
}

std::optional<std::vector<std::vector<int>>> matching_groups(const Stage& out, const Stage& producer,
                                                             const std::vector<std::vector<int>>& groups) {
    std::optional<Expr> read;
    bool one = true;
    visit(out.value, [&](const Expr& x) {
        if (!x.is(ExprKind::Load) || x.node().slot != producer.buffer) return;
        one &= !read || *read == x;
        read = x;
    });
    if (!read || !one) return std::nullopt;
    std::vector<std::vector<int>> result;
    size_t placed = 0;
    for (const auto& group : groups) {
        // The index of the group's merged axis, over the axes of `out`.
        Expr index = 0, extent = 1;
        for (int i : group) {
            index = index * producer.axes[size_t(i)].extent + read->arg(size_t(i));
            extent = extent * producer.axes[size_t(i)].extent;
        }
        std::vector<int> mine;
        Expr covered = 1;
        for (int i = int(out.axes.size()) - 1; i >= 0; --i) {
            if (depends_on(index, out.axes[size_t(i)].var)) mine.insert(mine.begin(), i);
        }
        // Axes of one element that nobody reads along are given to a group without axes below, or to the first; others
        // stand anywhere.
        std::vector<int> ordered;
        std::vector<int> left = mine;
        while (!left.empty()) {
            auto next = std::find_if(left.rbegin(), left.rend(), [&](int i) {
                auto step = step_of(index, out.axes[size_t(i)].var);
                return out.axes[size_t(i)].extent.is_int(1) || (step && *step == covered);
            });
            if (next == left.rend()) return std::nullopt;
            covered = covered * out.axes[size_t(*next)].extent;
            ordered.insert(ordered.begin(), *next);
            left.erase(std::next(next).base());
        }
        if (covered != extent) return std::nullopt;
        placed += ordered.size();
        result.push_back(ordered);
    }
    for (size_t i = 0; i < out.axes.size(); ++i) {
        bool found = false;
        for (const auto& g : result) found |= std::count(g.begin(), g.end(), int(i)) > 0;
        if (found) continue;
        if (!out.axes[i].extent.is_int(1)) return std::nullopt;
        auto none = std::find_if(result.begin(), result.end(), [](const auto& g) { return g.empty(); });
        std::vector<int>& group = none == result.end() ? result[0] : *none;
        group.insert(group.begin(), int(i));
        ++placed;
    }
    if (placed != out.axes.size()) return std::nullopt;
    if (std::any_of(result.begin(), result.end(), [](const auto& g) { return g.empty(); })) return std::nullopt;
    return result;
}

namespace {

bool is_param(const Schedule& s, int buffer) { return size_t(buffer) < s.compute().params; }

}  // namespace

bool used_beside_loads(const Expr& value, const Expr& var) {
    std::set<const ExprNode*> seen;
    std::function<bool(const Expr&)> used = [&](const Expr& e) {
        if (e == var) return true;
        if (e.is(ExprKind::Load) || !seen.insert(&e.node()).second) return false;
        return std::any_of(e.args().begin(), e.args().end(), used);
    };
    return used(value);
}

bool is_costly(const Expr& value) {
    bool costly = false;
    visit(value, [&](const Expr& x) {
        if (x.is(ExprKind::Pow) || x.is(ExprKind::Rem) || x.is(ExprKind::Mod)) costly |= is_float(x.dtype());
        if (!x.is(ExprKind::Call)) return;
        Fn f = x.node().fn;
        costly |= f != Fn::Abs && f != Fn::Sign && f != Fn::Floor && f != Fn::Ceil && f != Fn::Round &&
                  f != Fn::Trunc && f != Fn::IsNan && f != Fn::IsInf;
    });
    return costly;
}

namespace {

// Elements are picked by quotients that no loop takes apart, or by floats.
bool picks_by_quotients(const Expr& value) {
    constexpr int64_t kMostPhases = 10;
    bool found = false;
    visit(value, [&](const Expr& x) {
        if (x.is(ExprKind::Cast) && x.dtype() == DType::i64) found |= is_float(x.arg(0).dtype());
        if (!x.is(ExprKind::FloorDiv) || x.arg(1).as_int().value_or(0) <= kMostPhases) return;
        const int64_t divisor = *x.arg(1).as_int();
        for (const Expr& term : x.arg(0).is(ExprKind::Add) ? x.arg(0).args() : std::vector<Expr>{x.arg(0)}) {
            const int64_t c = term.is(ExprKind::Mul) ? term.arg(0).as_int().value_or(1) : 1;
            found |= c != 0 && c % divisor != 0 && divisor % c != 0;
        }
    });
    return found;
}

// Does `reader` ask for each element once, through the one load?
bool reads_once(const Stage& reader, const Expr& load) {
    auto along = [&](const ReduceAxis& axis) {
        if (axis.extent.is_int(1)) return true;
        return std::any_of(load.args().begin(), load.args().end(), [&](const Expr& i) { return i == axis.var; });
    };
    return std::all_of(reader.axes.begin(), reader.axes.end(), along) &&
           std::all_of(reader.reduce.begin(), reader.reduce.end(), along);
}

}  // namespace

Status inline_maps(Schedule& s, const std::function<bool(const Stage&)>& stays) {
    std::vector<std::string> names;
    for (const Stage& stage : s.compute().stages) names.push_back(stage.name);
    for (const std::string& name : names) {
        const Stage& stage = find_stage(s, name);
        if (!stage.reduce.empty() || is_param(s, stage.buffer) || makes_words(s.compute(), stage)) continue;
        if (makes_padding(stage) || makes_places(stage) || (stays && stays(stage))) continue;
        std::vector<std::string> readers = readers_of(s, stage.buffer);
        bool go = true;
        if (is_costly(stage.value) || picks_by_quotients(stage.value)) {
            go = readers.size() == 1;
            if (go) {
                const Stage& reader = find_stage(s, readers[0]);
                std::vector<Expr> loads = loads_of(reader, stage.buffer);
                go = loads.size() == 1 && reads_once(reader, loads[0]);
            }
        }
        if (go) TRY(s.compute_inline(name));
    }
    return {};
}

namespace {

// One row times a B that is not known ahead and lies along k: dot products, as rows are reduced.
bool is_dot_products(const Schedule& s, const Stage& stage, const Contraction& c) {
    constexpr int64_t kShort = 8;
    for (int i : c.rows)
        if (!stage.axes[size_t(i)].extent.is_int(1)) return false;
    bool along = false;
    visit(stage.value.arg(size_t(c.b)), [&](const Expr& x) {
        if (!x.is(ExprKind::Load)) return;
        size_t slot = size_t(x.node().slot);
        if (slot < s.compute().known.size() && s.compute().known[slot]) return;
        const ReduceAxis &last = stage.reduce.back(), &depth = stage.reduce[size_t(c.depth.back())];
        auto step = stride_of(s, x, depth.var), inner = stride_of(s, x, last.var);
        along |= step && step->is_int(1);
        along |= inner && inner->is_int(1) && last.extent.as_int().value_or(kShort) >= kShort;
    });
    return along;
}

// A window that slides along the columns of something that lies there as it is, over a few channels for each group.
bool slides_along_columns(const Schedule& s, const Stage& stage, const Contraction& c, const Machine& machine) {
    constexpr int64_t kFewChannels = 4, kFewOfDilated = 24;
    const Expr &whole = stage.value.arg(size_t(c.b)), &b = whole.is(ExprKind::Select) ? whole.arg(1) : whole;
    if (!b.is(ExprKind::Load) || !is_float(b.dtype())) return false;
    // Edges along other axes are left out; those along the columns themselves were filled.
    if (whole.is(ExprKind::Select) && depends_on(whole.arg(0), stage.axes[size_t(c.columns.back())].var)) return false;
    bool grouped = false, found = false;
    for (int i : c.batch)
        grouped |= !stage.axes[size_t(i)].extent.is_int(1) && depends_on(b, stage.axes[size_t(i)].var);
    int64_t channels = 1;
    for (const ReduceAxis& r : stage.reduce) {
        if (r.extent.is_int(1)) continue;
        bool slides = false;
        for (int i : c.columns)
            for (const Expr& index : b.args())
                slides |= depends_on(index, stage.axes[size_t(i)].var) && depends_on(index, r.var);
        found |= slides;
        if (!slides) channels *= r.extent.as_int().value_or(kFewOfDilated + 1);
    }
    for (int i : c.columns)
        if (!stride_of(s, b, stage.axes[size_t(i)].var)) return false;
    const bool far = skips_lines(stage, b) && bytes_of_windows(stage, c) > double(machine.l2_bytes);
    return found && (grouped || channels <= (far ? kFewOfDilated : kFewChannels));
}

// One row times a B that would be copied, each element for one use: a window that slides over it. Or a few rows.
// A few terms of a B that lies along the columns are not worth a copy either.
bool is_window(const Schedule& s, const Stage& stage, const Contraction& c, const Machine& machine) {
    constexpr int64_t kMostTaps = 192, kMostOfOneRow = 4096, kFewTerms = 4, kFewRows = 8;
    const int64_t terms = elements_of(stage.reduce).as_int().value_or(INT64_MAX);
    if (terms <= 1) return true;
    const ContractionShape shape = measure_contraction(s, stage, c);
    const bool few = terms <= kFewTerms && !sums_words(stage);
    if (few && shape.b_along_columns && shape.n_known && shape.n >= 32) return true;
    if (terms > kMostOfOneRow || shape.packed_ahead || shape.b_along_columns) return false;
    if (rows_of(stage, c).is_int(1)) return true;
    return terms <= kMostTaps && shape.m_known && shape.m <= kFewRows && slides_along_columns(s, stage, c, machine) &&
           !outgrows_cache(stage, c, machine);
}

// The one map that reads `stage` element by element, if it can be its epilogue.
std::string epilogue_of(const Schedule& s, const Stage& stage, const std::vector<std::vector<int>>& groups,
                        const std::set<std::string>& done) {
    if (is_param(s, stage.buffer)) return "";
    std::vector<std::string> readers = readers_of(s, stage.buffer);
    if (readers.size() != 1 || done.count(readers[0])) return "";
    const Stage& out = find_stage(s, readers[0]);
    if (!out.reduce.empty() || !matching_groups(out, stage, groups)) return "";
    return out.name;
}

// Is there a stage outside of all loops with memory of one thread?
bool keeps_to_itself(const Schedule& s) {
    return std::any_of(s.plans().begin(), s.plans().end(), [](const StagePlan& p) {
        return p.at.empty() && (p.scope == Scope::Local || p.scope == Scope::Register);
    });
}

bool stands_alone(const Schedule& s, const std::string& name) {
    for (size_t i = 0; i < s.plans().size(); ++i)
        if (s.compute().stages[i].name == name) return s.plans()[i].at.empty();
    return false;
}

}  // namespace

std::optional<OpenRows> open_rows(const Compute& compute, const Machine& machine) {
    Schedule s(with_words(compute, machine));
    if (!inline_maps(s).ok()) return std::nullopt;
    std::optional<OpenRows> found;
    size_t contractions = 0;
    for (const Stage& stage : s.compute().stages) {
        auto c = match_contraction(stage);
        if (!c || is_dot_products(s, stage, *c) || is_window(s, stage, *c, machine)) continue;
        keep_rows_apart(s, stage, *c, {machine});
        ++contractions;
        OpenRows open{rows_of(stage, *c), measure_contraction(s, stage, *c)};
        if (!open.shape.m_known) found = open;
    }
    return contractions == 1 ? found : std::nullopt;
}

std::optional<OpenColumns> open_columns(const Compute& compute, const Machine& machine) {
    Schedule s(with_padding(with_words(compute, machine), machine));
    if (!inline_maps(s).ok()) return std::nullopt;
    std::optional<OpenColumns> found;
    size_t contractions = 0;
    for (const Stage& stage : s.compute().stages) {
        auto c = match_contraction(stage);
        if (!c || is_dot_products(s, stage, *c) || is_window(s, stage, *c, machine)) continue;
        ++contractions;
        const ContractionShape shape = measure_contraction(s, stage, *c);
        if (shape.n_known || shape.words) continue;
        Expr line = 1, all = 1;
        for (int i : c->columns) all = all * stage.axes[size_t(i)].extent;
        const size_t before = c->columns.size();
        keep_rows_apart(s, stage, *c, {machine});
        for (int i : c->columns) {
            const Expr& extent = stage.axes[size_t(i)].extent;
            if (!extent.is_int(1)) line = c->columns.size() < before ? line * extent : extent;
        }
        const bool lies = c->columns.size() > 1 && c->columns.size() < before;  // several axes as one
        const bool apart = c->columns.size() < before && !lies;
        if (!apart || !line.as_int()) found = OpenColumns{line, lies ? line : all, apart, shape};
    }
    return contractions == 1 ? found : std::nullopt;
}

std::optional<OpenLines> open_lines(const Compute& compute, const Machine& machine) {
    Schedule s(with_padding(with_words(compute, machine), machine));
    if (!inline_maps(s).ok()) return std::nullopt;
    std::optional<OpenLines> found;
    for (const Stage& stage : s.compute().stages) {
        if (stage.reduce.empty()) continue;
        const bool slides = padded_copy(s, stage) != nullptr;
        if (found || match_contraction(stage) || stage.axes.empty()) return std::nullopt;
        if (!slides && reduces_along_lanes(s, stage)) return std::nullopt;
        Expr line = stage.axes.back().extent;
        for (size_t i = stage.axes.size() - 1; i-- > 0 && !slides;) {
            if (!lie_densely(s, stage, stage.axes[i], stage.axes[i + 1])) break;
            line = stage.axes[i].extent * line;
        }
        bool window = slides;
        for (const Expr& load : loads_of(stage))
            for (const Expr& index : load.args())
                for (const ReduceAxis& r : stage.reduce)
                    window |= depends_on(index, r.var) && depends_on(index, stage.axes.back().var);
        if (!line.as_int()) found = OpenLines{line, window};
    }
    return found;
}

std::optional<Expr> open_row_length(const Compute& compute, const Machine& machine) {
    Schedule s(with_padding(with_words(compute, machine), machine));
    if (!inline_maps(s).ok()) return std::nullopt;
    std::optional<Expr> found;
    for (const Stage& stage : s.compute().stages) {
        if (stage.reduce.empty()) continue;
        if (match_contraction(stage) || stage.axes.empty() || !reduces_along_lanes(s, stage)) return std::nullopt;
        const Expr length = length_of_run(s, stage);
        if (length.as_int() || (found && !found->same(length))) return std::nullopt;
        found = length;
    }
    return found;
}

Result<Schedule> default_schedule(Compute compute, const ScheduleOptions& options) {
    compute = with_words(std::move(compute), options.machine);
    if (!options.strict) compute = with_bounded_exps(with_reciprocals(std::move(compute)));
    if (options.care == Care::None) compute = with_places(with_padding(std::move(compute), options.machine));
    Schedule s(std::move(compute));
    TRY(inline_maps(s));
    std::vector<std::string> names, copies;
    std::set<std::string> done;
    for (const Stage& stage : s.compute().stages)
        (makes_padding(stage) || makes_places(stage) ? copies : names).push_back(stage.name);
    done.insert(copies.begin(), copies.end());
    for (const std::string& name : names) {
        const Stage& stage = find_stage(s, name);
        if (done.count(name) || options.care == Care::NoProducts) continue;
        auto c = match_contraction(stage);
        if (!c || is_dot_products(s, stage, *c) || is_window(s, stage, *c, options.machine)) continue;
        keep_rows_apart(s, stage, *c, options);
        std::vector<std::vector<int>> groups;
        for (const auto& g : {c->batch, c->rows, c->columns})
            if (!g.empty()) groups.push_back(g);
        std::string out = epilogue_of(s, stage, groups, done);
        done.insert({name, out});
        if (!TRY(schedule_grouped(s, name, *c, out, options))) TRY(schedule_contraction(s, name, *c, out, options));
    }
    // What was added for products is scheduled with them.
    for (const Stage& stage : s.compute().stages)
        if (std::find(names.begin(), names.end(), stage.name) == names.end()) done.insert(stage.name);
    // Where a product keeps to one thread, so does all else: threads do not share what it keeps for itself.
    ScheduleOptions others = options;
    if (keeps_to_itself(s)) others.threads = 1;
    // From the end: a stage takes along what is computed for each of its rows.
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
        if (done.count(*name)) continue;
        std::vector<std::string> taken = TRY(schedule_rows(s, *name, done, others));
        done.insert(*name);
        done.insert(taken.begin(), taken.end());
    }
    for (const std::string& name : copies)
        if (stands_alone(s, name)) TRY(schedule_map(s, name, others));
    return s;
}

}  // namespace tessera
