#include "kernel/cpu/lower_variants.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "kernel/cpu/attention.h"
#include "kernel/cpu/halved_product.h"
#include "kernel/cpu/narrow_sizes.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/ir/regions.h"
#include "kernel/ir/renamed_copy.h"
#include "kernel/ir/verified.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace {

constexpr int64_t kDescribed = 64;
constexpr int64_t kLongLine = 12;       // of columns: it is tiled by itself
constexpr int64_t kBytesOfElement = 4;  // of most images
constexpr int64_t kRowsUncopied = 4;    // of a product, that are not worth a copy of its B
constexpr int64_t kNarrow = 4;          // elements of an innermost axis, that others are worth a vector along
constexpr int64_t kShortRow = 15;       // elements, that are not worth a vector along the row

// Whether their common parameters have the same dimensions: lowering may have merged some of one's.
bool index_alike(const Lowered& a, const Lowered& b) {
    const size_t shared = a.kernel.params - a.scratch.size();
    if (shared != b.kernel.params - b.scratch.size()) return false;
    for (size_t i = 0; i < shared; ++i)
        if (a.kernel.buffers[i].shape != b.kernel.buffers[i].shape) return false;
    return true;
}

// Makes the dimensions of their common parameters alike: what lowering merged in one is merged in the other. False
// where that cannot be.
bool align_dimensions(Lowered& a, Lowered& b) {
    const size_t shared = a.kernel.params - a.scratch.size();
    if (shared != b.kernel.params - b.scratch.size()) return false;
    for (size_t slot = 0; slot < shared; ++slot) {
        Buffer &x = a.kernel.buffers[slot], &y = b.kernel.buffers[slot];
        while (x.shape != y.shape) {
            if (!x.strides.empty() || !y.strides.empty()) return false;
            size_t i = x.shape.size(), j = y.shape.size();
            while (i > 0 && j > 0 && x.shape[i - 1] == y.shape[j - 1]) --i, --j;
            const Buffer& longer = i > j ? x : y;
            const bool leading = i + j == 1 && longer.shape.size() > 1 && longer.shape[0].is_int(1);
            if (std::max(i, j) < 2 && !leading) return false;
            merge_dimension(i > j ? a.kernel : b.kernel, int(slot), leading ? 0 : std::max(i, j) - 2);
        }
    }
    return true;
}

// What the number of rows may be: small and large values of each symbol. Two symbols (a batch of sequences) are one
// only together, and many rows otherwise; three (images, their height and width) are always many.
std::vector<int64_t> sample_sizes(const Expr& rows) {
    constexpr int64_t kOthers = 16;
    constexpr size_t kOfImages = 3;
    std::set<int64_t> sizes;
    const std::vector<std::string> symbols = free_symbols(rows);
    auto sample = [&](const std::string& name, int64_t n, int64_t others) {
        SymbolValues values;
        for (const std::string& other : symbols) values[other] = others;
        values[name] = n;
        if (auto size = evaluate_int(rows, values); size && *size > 0) sizes.insert(*size);
    };
    for (const std::string& name : symbols) {
        if (symbols.size() < kOfImages) sample(name, 1, 1);
        for (int64_t n = 1; n <= 256; n += 1 + n / 16) sample(name, n, kOthers);
    }
    return {sizes.begin(), sizes.end()};
}

// A trace after a comment that says which kernel it is of and for which sizes. Where the schedule does not begin with
// the Compute itself, the comment has what it begins with.
std::string commented_trace(const Compute& compute, const Schedule& schedule, const std::string& sizes = {}) {
    std::string text = fmt::format("// {}{}\n", compute.name, sizes);
    const std::string begins = to_string(schedule.start());
    if (begins != to_string(compute)) {
        text += compute.halvings == 0 ? std::string("// its stages are written out first, as\n")
                                      : fmt::format("// Strassen with {} {} rewrites it first, to\n", compute.halvings,
                                                    compute.halvings == 1 ? "halving" : "halvings");
        for (size_t at = 0; at < begins.size();) {
            const size_t end = std::min(begins.find('\n', at), begins.size());
            text += "//   " + begins.substr(at, end - at) + "\n";
            at = end + 1;
        }
    }
    return text + schedule.print_trace();
}

// "of up to 64 rows, for 3 4 11 12": a guard over the number of rows for people.
std::string describe(const Expr& guard, const Expr& rows) {
    std::string list;
    for (int64_t n = 1; n <= kDescribed; ++n) {
        const Expr holds = rewrite(guard, [&](const Expr& x) { return x == rows ? Expr(n) : x; });
        if (evaluate_int(holds, {}).value_or(0)) list += fmt::format(" {}", n);
    }
    return fmt::format("of up to {} rows, for{}", kDescribed, list);
}

// Queries that fill one tile, of one vector or of several: keys and values are read where they lie.
Result<Lowered> lower_attention_variants(const Compute& compute, const Attention& attention,
                                         const CpuScheduleOptions& options, std::vector<Choice>& choices,
                                         std::string* traces) {
    const Schedule general_schedule = TRY(schedule_attention(compute, attention, options));
    Lowered general = TRY(lower(general_schedule));
    const Stage& product = *attention.product;
    const Expr& queries = product.axes[*attention.query].extent;
    const DType dtype = compute.buffers[size_t(product.buffer)].dtype;
    const int bytes = int(dtype_bytes(dtype));
    const int64_t lanes = options.machine.vector_bytes / bytes;
    if (queries.as_int() || lanes < 2) {
        if (traces) *traces += commented_trace(compute, general_schedule);
        return general;
    }
    const AttentionTiles tiles = choose_attention_tiles({}, {}, 64, 64, 1, bytes, options.machine, options.threads);
    std::vector<Variant> variants;
    for (int64_t few : {lanes, tiles.queries}) {
        const std::string subject = fmt::format("specialise {} for up to {} queries", compute.name, few);
        const Schedule schedule = TRY(schedule_attention(compute, attention, options, few));
        Lowered lowered = TRY(lower(schedule));
        if (!index_alike(lowered, general)) {
            choices.push_back({subject, no("it has dimensions merged that the general code has not")});
            continue;
        }
        choices.push_back({subject, yes("keys and values are read where they lie")});
        if (traces) *traces += commented_trace(compute, schedule, " where " + to_string(le(queries, few)));
        variants.push_back({le(queries, few), std::move(lowered)});
    }
    if (traces) *traces += commented_trace(compute, general_schedule, variants.empty() ? "" : " for all other sizes");
    return variants.empty() ? general : join_variants(std::move(variants), std::move(general));
}

struct Scheduled {
    Schedule schedule;
    Lowered lowered;
};

Result<Scheduled> schedule_and_lower(const Compute& compute, const CpuScheduleOptions& options) {
    Schedule schedule = TRY(default_schedule(compute, options));
    Lowered lowered = TRY(lower(schedule));
    return Scheduled{std::move(schedule), std::move(lowered)};
}

// Where a schedule cannot be lowered, one that asks for less; `options` keeps how much.
Result<Scheduled> schedule_with_care(const Compute& compute, CpuScheduleOptions& options,
                                     std::vector<Choice>& choices) {
    auto made = schedule_and_lower(compute, options);
    for (Fallback fallback : {Fallback::SeparateRows, Fallback::NoContractions}) {
        if (made.ok()) break;
        choices.push_back({fmt::format("schedule {} at its best", compute.name), no("{}", made.error().message())});
        options.fallback = fallback;
        made = schedule_and_lower(compute, options);
    }
    return made;
}

// A variant to try: its options, guard and description.
struct VariantRequest {
    CpuScheduleOptions options;
    Expr guard;
    std::string subject, sizes;
    std::string narrow = {};  // a symbol that is a number for it
    int64_t size = 0;
    std::string large = {};  // a symbol that is at least that number
};

// Register tiles of other rows, where the number of rows is not known.
std::vector<VariantRequest> for_rows(const Compute& compute, const CpuScheduleOptions& options) {
    std::vector<VariantRequest> requests;
    auto open = open_rows(compute, options.machine);
    if (!open || !open->shape.packed_ahead) return requests;
    const ContractionTiles tiles = choose_tiles(open->shape, options.machine, options.threads);
    std::vector<RowTile> row_tiles = choose_row_tiles(open->shape, tiles, sample_sizes(open->rows), options.machine);
    // The cheapest for the number of rows: no later one is cheaper.
    auto time = [&](const RowTile& t) { return ceil_div(open->rows, t.rows) * t.cost; };
    for (size_t i = 0; i + 1 < row_tiles.size(); ++i) {
        const RowTile& tile = row_tiles[i];
        Expr guard = int_const(1, DType::boolean);
        for (size_t j = i + 1; j < row_tiles.size(); ++j)
            guard = logical_and(guard, le(time(tile), time(row_tiles[j])));
        CpuScheduleOptions own = options;
        own.tile_rows = tile.rows;
        requests.push_back({own, guard, fmt::format("tiles of {} rows", tile.rows), describe(guard, open->rows)});
    }
    return requests;
}

// A B that comes late is read as it lies, where the number of rows is not known and turns out small.
std::vector<VariantRequest> for_few_rows(const Compute& compute, const CpuScheduleOptions& options) {
    auto open = open_rows(compute, options.machine);
    if (!open || open->shape.packed_ahead || !open->shape.b_along_columns || open->shape.a_copied) return {};
    CpuScheduleOptions own = options;
    own.few_rows = true;
    const Expr guard = le(open->rows, kRowsUncopied);
    return {{own, guard, fmt::format("up to {} rows", kRowsUncopied), to_string(guard)}};
}

// Narrower register tiles, where the number of columns is not known and turns out small. Short lines become one.
std::vector<VariantRequest> for_columns(const Compute& compute, const CpuScheduleOptions& options) {
    std::vector<VariantRequest> requests;
    auto open = open_columns(compute, options.machine);
    if (!open) return requests;
    const int64_t lanes = std::max<int64_t>(1, options.machine.vector_bytes / open->shape.element_bytes);
    const int64_t widest = choose_tiles(open->shape, options.machine, options.threads).nr;
    auto ask = [&](int64_t columns, const Expr& guard, bool short_lines) {
        CpuScheduleOptions own = options;
        own.tile_columns = std::min(columns, widest);
        own.short_lines = short_lines;
        requests.push_back({own, guard, fmt::format("tiles of {} columns", own.tile_columns), to_string(guard)});
    };
    if (open->apart || widest > lanes) ask(lanes, le(open->all, lanes), open->apart);
    if (open->apart) ask(2 * lanes, lt(open->line, std::max(lanes, kLongLine)), true);
    if (widest > 2 * lanes) ask(2 * lanes, le(open->apart ? open->line : open->all, 2 * lanes), false);
    return requests;
}

// From which size of its one symbol on an extent is so large; no symbol where that is not known.
std::pair<std::string, int64_t> least_size(const Expr& extent, int64_t wanted) {
    constexpr int64_t kMost = 1024;
    const std::vector<std::string> symbols = free_symbols(extent);
    if (symbols.size() != 1) return {};
    int64_t size = 0;
    while (size < kMost && evaluate_int(extent, {{symbols[0], size}}).value_or(0) < wanted) ++size;
    const Expr larger = substitute(extent, {{symbols[0], symbol(symbols[0]) + size}});
    if (!always(le(wanted, larger), {})) return {};
    return {symbols[0], size};
}

// Tiles of one vector, where the lines of a pool or of a reduction over outer axes turn out short: a wider tile would
// be decided lane by lane. A reduction is read again for each.
std::vector<VariantRequest> for_lines(const Compute& compute, const CpuScheduleOptions& options) {
    const auto open = open_lines(compute, options.machine);
    if (!open) return {};
    const int64_t lanes = std::max<int64_t>(1, options.machine.vector_bytes / kBytesOfElement);
    std::vector<VariantRequest> requests;
    // Of tiles that fill a line, the last begins earlier: nothing is decided lane by lane.
    const int64_t widest = lanes * (open->slides ? 2 : std::clamp<int64_t>(options.machine.vector_registers / 8, 1, 4));
    for (int64_t columns : {widest, lanes}) {
        const auto [symbol, size] = least_size(open->line, columns == lanes ? lanes : 2 * columns);
        if (symbol.empty() || columns < 2) continue;
        CpuScheduleOptions own = options;
        own.tile_columns = columns;
        own.whole_tiles = true;
        const Expr guard = le(size, tessera::symbol(symbol));
        requests.push_back(
            {own, guard, fmt::format("lines of {} or more", columns), to_string(guard), "", size, symbol});
    }
    CpuScheduleOptions own = options;
    own.tile_columns = lanes;
    const int64_t most = (open->slides ? 4 : 2) * lanes - 1;
    const Expr guard = le(open->line, most);
    requests.push_back({own, guard, fmt::format("lines of up to {}", most), to_string(guard)});
    return requests;
}

// Rows of a few elements in lanes, where their length is not known and turns out short.
std::vector<VariantRequest> for_short_rows(const Compute& compute, const CpuScheduleOptions& options) {
    const auto length = open_row_length(compute, options.machine);
    if (!length) return {};
    CpuScheduleOptions own = options;
    own.short_rows = true;
    const Expr guard = le(*length, kShortRow);
    return {{own, guard, fmt::format("rows of up to {}", kShortRow), to_string(guard)}};
}

// Innermost axes of less than a vector, where their size is not known: lanes run along others.
std::vector<VariantRequest> for_narrow(const Compute& compute, const Schedule& schedule,
                                       const CpuScheduleOptions& options) {
    std::vector<VariantRequest> requests;
    const int64_t lanes = options.machine.vector_bytes / kBytesOfElement;
    const bool maps = std::all_of(compute.stages.begin(), compute.stages.end(),
                                  [](const Stage& stage) { return stage.reduce.empty(); });
    // Lines of one element go across nothing.
    for (const std::string& name : open_inner_sizes(compute)) {
        const Expr guard = eq(symbol(name), 1);
        requests.push_back({options, guard, to_string(guard), to_string(guard), name, 1});
    }
    for (const std::string& name : open_last_axes(compute, schedule)) {
        // Without masks, lines that are left of squares are stored so anyway.
        if (maps && options.machine.masked) {
            CpuScheduleOptions own = options;
            own.short_rows = true;
            const Expr guard = lt(symbol(name), 2 * lanes);
            requests.push_back({own, guard, "lines of " + to_string(guard), to_string(guard)});
        }
        for (int64_t size = 1; size < std::min(lanes, kNarrow) + (maps ? 1 : 0); ++size) {
            const Expr guard = eq(symbol(name), size);
            requests.push_back({options, guard, to_string(guard), to_string(guard), name, size});
        }
    }
    return requests;
}

}  // namespace

Result<Lowered> lower_variants(const Compute& compute, const ScheduleOptions& given, std::vector<Choice>& choices,
                               std::string* traces) {
    CpuScheduleOptions options{given};
    if (auto attention = match_attention(compute, Rounding::Kept); attention && attention->query)
        return lower_attention_variants(compute, *attention, options, choices, traces);
    if (compute.halvings > 0) {
        const std::string subject = fmt::format("Strassen for {}, {} {}", compute.name, compute.halvings,
                                                compute.halvings == 1 ? "halving" : "halvings");
        auto schedule = schedule_halved(compute, options);
        auto lowered = schedule.ok() ? lower(*schedule) : Result<Lowered>(schedule.error());
        choices.push_back({subject, lowered.ok() ? yes("as the node asks") : no("{}", lowered.error().message())});
        if (lowered.ok() && traces) *traces += commented_trace(compute, *schedule);
        if (lowered.ok()) return lowered;
    }
    Scheduled best = TRY(schedule_with_care(compute, options, choices));
    std::vector<VariantRequest> requests;
    if (options.fallback == Fallback::None) {
        requests = for_rows(compute, options);
        if (requests.empty()) requests = for_columns(compute, options);
        if (requests.empty()) requests = for_lines(compute, options);
        if (requests.empty()) requests = for_short_rows(compute, options);
        for (VariantRequest& few : for_few_rows(compute, options)) requests.insert(requests.begin(), std::move(few));
        for (VariantRequest& one : for_narrow(compute, best.schedule, options))
            requests.insert(requests.begin(), std::move(one));
    }
    std::vector<Variant> variants;
    for (VariantRequest& a : requests) {
        if (evaluate_int(a.guard, {}) == 0) continue;  // no size asks for it
        const std::string subject = fmt::format("specialise {} for {}", compute.name, a.subject);
        const bool narrow = !a.narrow.empty(), large = !a.large.empty();
        const Compute sized = narrow  ? with_size(compute, a.narrow, a.size)
                              : large ? with_size(compute, a.large, symbol(a.large) + a.size)
                                      : compute;
        auto schedule = default_schedule(sized, a.options);
        auto lowered = schedule.ok() ? lower(*schedule) : Result<Lowered>(schedule.error());
        if (large && lowered.ok()) replace_size(*lowered, a.large, symbol(a.large) - a.size);
        if (!lowered.ok()) {
            choices.push_back({subject, no("{}", lowered.error().message())});
        } else if (schedule->print_trace() == best.schedule.print_trace()) {
            choices.push_back({subject, no("its schedule is that of all sizes")});
        } else if (!prepare_alike(*lowered, best.lowered)) {
            choices.push_back({subject, no("the weights would have to be prepared a second time")});
        } else if ((narrow && !align_sizes(*lowered, best.lowered, a.narrow)) ||
                   !align_dimensions(*lowered, best.lowered)) {
            choices.push_back({subject, no("it has other dimensions than the general code")});
        } else {
            choices.push_back({subject, yes("{}", a.sizes)});
            if (traces) *traces += commented_trace(compute, *schedule, " where " + to_string(a.guard));
            variants.push_back({a.guard, std::move(*lowered)});
        }
    }
    // A later one may have merged more.
    for (Variant& v : variants) CHECK(align_dimensions(v.lowered, best.lowered));
    if (traces) *traces += commented_trace(compute, best.schedule, variants.empty() ? "" : " for all other sizes");
    return variants.empty() ? std::move(best.lowered) : join_variants(std::move(variants), std::move(best.lowered));
}

}  // namespace tessera
