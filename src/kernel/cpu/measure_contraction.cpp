// What a contraction's operands look like: how they lie, which are known, and which of their lines stay apart.
#include <algorithm>

#include "kernel/cpu/padding.h"
#include "kernel/cpu/schedule_kinds.h"
#include "kernel/cpu/words.h"

namespace tessera {
namespace {

constexpr int64_t kOpenBatch = 16;    // what a batch of unknown size is taken for
constexpr int64_t kPackedRows = 16;   // of a product, that cost less than to pack its columns by quotients
constexpr int64_t kLongRow = 24;      // of an image: it is tiled by itself
constexpr int64_t kLongColumns = 12;  // the same where they are columns, which are packed element by element
constexpr int64_t kManyPlaces = 64, kOpenLine = 8;  // of lines that lie as one, which are tiled by themselves

int64_t open_axes(const Stage& stage, const std::vector<int>& which) {
    return std::count_if(which.begin(), which.end(), [&](int i) { return !stage.axes[size_t(i)].extent.as_int(); });
}

}  // namespace

bool lies_along_columns(const Schedule& s, const Stage& stage, const Contraction& c) {
    const Expr& b = stage.value.arg(size_t(c.b));
    if (!b.is(ExprKind::Load)) return false;
    Expr next = 1;  // how far apart neighbours along an axis lie
    for (auto i = c.columns.rbegin(); i != c.columns.rend(); ++i) {
        const ReduceAxis& axis = stage.axes[size_t(*i)];
        if (axis.extent.is_int(1)) continue;
        auto step = stride_of(s, b, axis.var);
        if (!step || *step != next) return false;
        next = next * axis.extent;
    }
    return true;
}

bool lies_along_depth(const Schedule& s, const Stage& stage, const Contraction& c) {
    const Expr& var = stage.reduce[size_t(c.depth.back())].var;
    bool along = false;
    visit(stage.value.arg(size_t(c.a)), [&](const Expr& x) {
        if (!x.is(ExprKind::Load)) return;
        auto step = stride_of(s, x, var);
        along |= step && step->is_int(sums_words(stage) && x.dtype() != DType::i32 ? 4 : 1);
    });
    return along;
}

const Stage* copy_of(const Schedule& s, const Expr& operand) {
    const Stage* made = operand.is(ExprKind::Load) ? writer_of(s, operand.node().slot) : nullptr;
    return made && makes_padding(*made) ? made : nullptr;
}

ContractionShape measure_contraction(const Schedule& s, const Stage& stage, const Contraction& c) {
    ContractionShape shape;
    const Expr m = rows_of(stage, c), n = extent_of(stage.axes, c.columns);
    const Expr batch = extent_of(stage.axes, c.batch);
    shape.batch = constant_or(batch, kOpenBatch);
    if (!batch.as_int()) shape.least_batch = open_axes(stage, c.batch) > 1 ? kOpenBatch : 1;
    shape.m = constant_or(m, 1024);
    shape.n = constant_or(n, 1024);
    shape.m_known = m.as_int().has_value();
    shape.n_known = n.as_int().has_value();
    shape.k = constant_or(extent_of(stage.reduce, c.depth), 512);
    shape.packed_ahead = is_known(s, stage.value.arg(size_t(c.b)));
    shape.a_along_depth = stage.value.arg(size_t(c.a)).is(ExprKind::Load) && lies_along_depth(s, stage, c);
    shape.a_copied = copy_of(s, stage.value.arg(size_t(c.a))) != nullptr;
    shape.b_along_columns = c.columns.size() == 1 && lies_along_columns(s, stage, c);
    const Expr& b = stage.value.arg(size_t(c.b));
    shape.b_copied =
        shape.b_along_columns && shape.n_known && c.depth.size() > 1 && copy_of(s, b) && !skips_lines(stage, b);
    shape.element_bytes = int(dtype_bytes(s.compute().buffers[size_t(stage.buffer)].dtype));
    // Instructions on tiles have rows and columns, and as many words as they say.
    shape.words = sums_words(stage) && !c.rows.empty() && extent_of(stage.reduce, c.depth).as_int();
    shape.k_fills = c.depth.size() == 1;
    return shape;
}

void keep_rows_apart(const Schedule& s, const Stage& stage, Contraction& c, const CpuScheduleOptions& options) {
    const bool always = options.fallback == Fallback::SeparateRows;
    const bool few_rows = constant_or(rows_of(stage, c), kPackedRows + 1) <= kPackedRows;
    auto dense = [&](const Expr& operand, int i, int j) {
        bool all = true;
        visit(operand, [&](const Expr& x) {
            if (!x.is(ExprKind::Load)) return;
            const ReduceAxis &outer = stage.axes[size_t(i)], &inner = stage.axes[size_t(j)];
            auto a = stride_of(s, x, outer.var), b = stride_of(s, x, inner.var);
            all &= a && b && *a == *b * inner.extent;
        });
        // What is decided by places would divide by an open size, for each lane that is packed; a few rows do not make
        // up for that in columns.
        const ReduceAxis& inner = stage.axes[size_t(j)];
        const bool dear = &operand == &stage.value.arg(size_t(c.a)) || few_rows;
        return all && !(dear && !inner.extent.as_int() && used_beside_loads(operand, inner.var));
    };
    auto keep = [&](std::vector<int>& group, const Expr& operand, int64_t enough, int64_t open) {
        std::vector<int> larger;
        for (int i : group)
            if (!stage.axes[size_t(i)].extent.is_int(1)) larger.push_back(i);
        if (larger.size() < 2) return;
        // The last axes that lie as one.
        auto first = larger.end() - 1;
        while (first != larger.begin() && dense(operand, *(first - 1), *first)) --first;
        if (first == larger.begin()) return;
        int64_t places = 1;
        for (auto i = first; i != larger.end(); ++i) places *= constant_or(stage.axes[size_t(*i)].extent, kOpenLine);
        const bool many = larger.end() - first > 1 && places >= kManyPlaces;
        if (!always && !many && constant_or(stage.axes[size_t(larger.back())].extent, open) < enough) return;
        for (int i : group)
            if (std::find(first, larger.end(), i) == larger.end()) c.batch.push_back(i);
        group.assign(first, larger.end());
    };
    const Expr &a = stage.value.arg(size_t(c.a)), &b = stage.value.arg(size_t(c.b));
    const int64_t lanes = lanes_of(s, stage, options.machine);
    const int64_t last = constant_or(stage.reduce[size_t(c.depth.back())].extent, 1024);
    const bool by_depth = lies_along_depth(s, stage, c) && (last % lanes == 0 || last > kLongRow);
    if (always || !by_depth) keep(c.rows, a, kLongRow, kLongRow);
    // What is packed lies as one; what is stored need not.
    const Expr made = load(stage.buffer, s.compute().buffers[size_t(stage.buffer)].dtype, stage.store);
    if (always || !is_known(s, b)) keep(c.columns, b, kLongColumns, options.short_lines ? 1 : kLongColumns);
    keep(c.columns, made, kLongRow, kLongRow);
    std::sort(c.batch.begin(), c.batch.end());
}

}  // namespace tessera
