#include "kernel/cpu/default_schedule.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/check.h"
#include "kernel/analyse/inline_maps.h"
#include "kernel/analyse/known_bounds.h"
#include "kernel/cpu/padding.h"
#include "kernel/cpu/places.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/cpu/words.h"

namespace tessera {
namespace {

bool is_param(const Schedule& s, int buffer) { return size_t(buffer) < s.compute().params; }

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

Status inline_plain_maps(Schedule& s) {
    return inline_maps(s, [](const Stage& stage) { return makes_padding(stage) || makes_places(stage); });
}

std::optional<OpenRows> open_rows(const Compute& compute, const Machine& machine) {
    Schedule s(with_words(compute, machine));
    if (!inline_plain_maps(s).ok()) return std::nullopt;
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
    if (!inline_plain_maps(s).ok()) return std::nullopt;
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
    if (!inline_plain_maps(s).ok()) return std::nullopt;
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
    if (!inline_plain_maps(s).ok()) return std::nullopt;
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

Result<Schedule> default_schedule(Compute compute, const CpuScheduleOptions& options) {
    compute = with_words(std::move(compute), options.machine);
    if (!options.strict) compute = with_bounded_exps(with_reciprocals(std::move(compute)));
    if (options.fallback == Fallback::None) compute = with_places(with_padding(std::move(compute), options.machine));
    Schedule s(std::move(compute));
    TRY(inline_plain_maps(s));
    std::vector<std::string> names, copies;
    std::set<std::string> done;
    for (const Stage& stage : s.compute().stages)
        (makes_padding(stage) || makes_places(stage) ? copies : names).push_back(stage.name);
    done.insert(copies.begin(), copies.end());
    for (const std::string& name : names) {
        const Stage& stage = find_stage(s, name);
        if (done.count(name) || options.fallback == Fallback::NoContractions) continue;
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
    CpuScheduleOptions others = options;
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
