#include "kernel/gpu/lower/gpu_schedule.h"

#include <algorithm>

#include "base/protect.h"
#include "kernel/analyse/inline_maps.h"
#include "kernel/gpu/attention/attention_kernel.h"
#include "kernel/gpu/contraction_kernel.h"
#include "kernel/gpu/gpu_kinds.h"
#include "kernel/gpu/keep_wide.h"
#include "kernel/gpu/memory_bound/column_parts_kernel.h"
#include "kernel/gpu/memory_bound/element_map_kernel.h"
#include "kernel/gpu/memory_bound/im2col_kernel.h"
#include "kernel/gpu/memory_bound/joined_maps_kernel.h"
#include "kernel/gpu/memory_bound/row_reduction_kernel.h"
#include "kernel/gpu/memory_bound/window_kernel.h"
#include "kernel/gpu/own_elements.h"
#include "kernel/gpu/prepare_operand.h"

namespace tessera {

namespace {

Result<Schedule> scheduled(Compute compute, bool share, const Machine& machine) {
    Schedule s(std::move(compute));
    TRY(inline_maps(s, [&](const Stage& stage) { return share && is_choice_of_sums(stage); }));
    if (auto apart = share ? sums_apart(s.compute()) : std::nullopt) s = Schedule(std::move(*apart));
    std::vector<std::string> names;
    for (const Stage& stage : s.compute().stages) names.push_back(stage.name);
    std::set<std::string> done;
    // From the end: a stage takes along what is computed for each of its rows.
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
        const auto& stages = s.compute().stages;
        if (done.count(*name)) continue;
        if (std::none_of(stages.begin(), stages.end(), [&](const Stage& st) { return st.name == *name; })) continue;
        std::vector<std::string> taken;
        if (share) taken = TRY(phases_to_threads(s, *name));
        if (taken.empty() && share) taken = TRY(rows_to_blocks(s, *name, done));
        if (taken.empty()) taken = TRY(window_to_threads(s, *name));
        done.insert(*name);
        done.insert(taken.begin(), taken.end());
        if (!taken.empty()) continue;
        TRY(find_stage(s, *name).reduce.empty() ? map_to_threads(s, *name, share)
                                                : reduce_by_threads(s, *name, machine));
    }
    return s;
}

// With bounds of concatenations by vectors.
Compute in_vectors(Compute compute) {
    for (Stage& stage : compute.stages)
        if (stage.reduce.empty() && !stage.axes.empty())
            stage.value = bounds_in_vectors(stage.value, stage.axes.back().var);
    return compute;
}

}  // namespace

Result<Schedule> gpu_schedule(Compute compute, const ScheduleOptions& options) {
    return scheduled(std::move(compute), true, options.machine);
}

Result<Lowered> lower_for_gpu(const Compute& compute, const ScheduleOptions& options, std::vector<Choice>& choices,
                              std::string* traces) {
    Compute of_row = compute;
    const auto matrix = prepare_matrix_of_row(of_row);
    auto try_one = [&](bool share) -> Result<Lowered> {
        Compute with = in_vectors(matrix ? of_row : compute);
        if (share && !options.strict) keep_wide(with);
        auto prepared = matrix ? matrix : prepare_window(with);
        const Schedule schedule = TRY(scheduled(std::move(with), share, options.machine));
        Lowered lowered = TRY(lower(schedule));
        own_elements(lowered.kernel);
        if (prepared) {
            lowered.prepare = std::move(prepared->prepare);
            lowered.prepare_args = {prepared->from, prepared->to};
            lowered.prepared = {prepared->to};
        }
        if (traces) *traces += fmt::format("// {}\n{}", compute.name, schedule.print_trace());
        return lowered;
    };
    // A fault in one way to compute it is a reason to take the next: the last one takes any Compute.
    auto attention = attempt("attention", [&] { return attention_kernel(compute, options.machine); });
    if (!attention.ok()) choices.push_back({"attention " + compute.name, no("{}", attention.error().message())});
    if (attention.ok() && *attention) {
        if (traces) *traces += fmt::format("// {}: attention in one kernel, no schedule\n", compute.name);
        return std::move(**attention);
    }
    const Digits digits = options.strict ? Digits::All : options.fast ? Digits::Few : Digits::Usual;
    auto lower_map = [&](const Compute& map) { return lower_for_gpu(map, options, choices); };
    auto tiled =
        matrix ? Result(std::optional<Lowered>())
               : attempt("tiles", [&] { return contraction_kernel(compute, options.machine, digits, lower_map); });
    if (!tiled.ok()) choices.push_back({"tiles for " + compute.name, no("{}", tiled.error().message())});
    if (tiled.ok() && *tiled) {
        if (traces) *traces += fmt::format("// {}: tiles that blocks share, no schedule\n", compute.name);
        return std::move(**tiled);
    }
    using Made = Result<std::optional<Lowered>>;
    const std::pair<const char*, std::function<Made()>> others[] = {
        {"maps in one loop", [&] { return joined_maps_kernel(compute); }},
        {"columns in parts", [&] { return column_parts_kernel(compute, options, lower_map); }},
        {"windows over an image in shared memory", [&] { return window_kernel(compute, options); }},
        {"rows in registers", [&] { return row_reduction_kernel(compute, options); }},
        {"windows as rows of a matrix", [&] { return im2col_kernel(compute, options.machine); }},
        {"several elements a thread", [&] { return element_map_kernel(in_vectors(compute), options.machine); }}};
    for (const auto& [what, make] : others) {
        auto made = matrix ? Result(std::optional<Lowered>()) : attempt(what, make);
        if (!made.ok())
            choices.push_back({fmt::format("{} for {}", what, compute.name), no("{}", made.error().message())});
        if (!made.ok() || !*made) continue;
        if (traces) *traces += fmt::format("// {}: {}, no schedule\n", compute.name, what);
        return std::move(**made);
    }
    auto shared = attempt("blocks", [&] { return try_one(true); });
    if (shared.ok()) return shared;
    choices.push_back({"share in blocks " + compute.name, no("{}", shared.error().message())});
    return try_one(false);
}

}  // namespace tessera
