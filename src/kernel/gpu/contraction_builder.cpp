#include "kernel/gpu/contraction_builder.h"

#include <algorithm>

#include "kernel/gpu/gpu_loops.h"

namespace tessera {
namespace {

constexpr int64_t kShortestCut = 256;  // of k, that is worth blocks of its own
constexpr int64_t kMostCuts = 16;
constexpr int64_t kCutBlocks = 2;  // of an SM, that a product is cut into
constexpr int64_t kSumVector = 4;  // neighbours that a thread adds up the parts of

}  // namespace

ContractionBuilder::ContractionBuilder(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch,
                                       size_t inner, int64_t parts)
    : compute_(compute), sum_(sum), out_(out), inner_(inner), parts_(parts) {
    size_t next = 0;
    if (has_batch) batch_axis_ = next++;
    row_axis_ = next++;
    column_axis_ = next;
    for (size_t i = 0; i < sum.reduce.size(); ++i)
        if (i != inner) others_ = others_ * sum.reduce[i].extent;
    kernel_.name = compute.name;
    kernel_.symbols = compute.symbols;
    kernel_.buffers.assign(compute.buffers.begin(), compute.buffers.begin() + std::ptrdiff_t(compute.params));
    kernel_.params = compute.params;
    if (batch_axis_) batch_ = loop_var("block_b", sum.axes[*batch_axis_].extent);
    if (parts == 1) return;
    // Sums of parts go to memory that is the kernel's own.
    part_ = loop_var("part", parts);
    partial_ = int(kernel_.params++);
    kernel_.buffers.push_back(
        {.name = "partial", .dtype = compute.buffers[size_t(sum.buffer)].dtype, .shape = {parts, rows(), columns()}});
}

int ContractionBuilder::add(std::string name, DType dtype, const std::vector<int64_t>& sizes, Scope scope) {
    Buffer made{.name = std::move(name), .dtype = dtype, .shape = {}, .scope = scope};
    for (int64_t s : sizes) made.shape.push_back(s);
    kernel_.buffers.push_back(std::move(made));
    return int(kernel_.buffers.size()) - 1;
}

TiledKernel ContractionBuilder::in_blocks(Stmt body, const BlockTile& tile) {
    body = loop_over(block_m_, ceil_div(rows(), tile.m), LoopKind::Bound, std::move(body), "block.x");
    body = loop_over(block_n_, ceil_div(columns(), tile.n), LoopKind::Bound, std::move(body), "block.y");
    if (batch_axis_)
        body = loop_over(batch_, sum_.axes[*batch_axis_].extent, LoopKind::Bound, std::move(body), "block.z");
    TiledKernel made;
    if (parts_ > 1) {
        body = seq({loop_over(part_, parts_, LoopKind::Bound, std::move(body), "block.z"), add_parts()});
        made.scratch = {partial_};
    }
    kernel_.body = std::move(body);
    made.kernel = std::move(kernel_);
    return made;
}

// What is made of the sums of all parts, element by element.
Stmt ContractionBuilder::add_parts() const {
    const int64_t width = divides(kSumVector, columns()) ? kSumVector : 1;
    const Expr across = floor_div(columns(), width), total = rows() * across;
    const Expr element = loop_var("element", total), in = loop_var("in_element", width);
    const Expr row = floor_div(element, across), column = mod(element, across) * width + in;
    const DType dtype = kernel_.buffers[size_t(partial_)].dtype;
    Expr own = load(partial_, dtype, {0, row, column});
    for (int64_t p = 1; p < parts_; ++p) own = own + load(partial_, dtype, {p, row, column});
    Finished made = finished(row, column, own);
    Stmt body = store(out_.buffer, std::move(made.to), std::move(made.value));
    body = loop_over(in, width, width > 1 ? LoopKind::Vector : LoopKind::Unrolled, std::move(body));
    return loop_over(element, total, LoopKind::Parallel, std::move(body));
}

Bindings ContractionBuilder::stepped(const Expr& step) const {
    Bindings values;
    Expr left = mod(step, others_);
    for (size_t i = sum_.reduce.size(); i-- > 0;) {
        if (i == inner_) continue;
        const ReduceAxis& axis = sum_.reduce[i];
        values.insert_or_assign(axis.var.node().name, mod(left, axis.extent));
        left = floor_div(left, axis.extent);
    }
    return values;
}

Stmt ContractionBuilder::before_steps(const Expr& steps, Stmt first) {
    const auto known = steps.as_int();
    return known && *known > 0 ? first : if_then(gt(steps, 0), std::move(first));
}

Expr ContractionBuilder::at(const Expr& operand, size_t axis, const Expr& side, const Expr& k, const Expr& step) const {
    Bindings values = stepped(step);
    values.insert_or_assign(inner().var.node().name, k);
    values.insert_or_assign(sum_.axes[axis].var.node().name, side);
    if (batch_axis_) values.insert_or_assign(sum_.axes[*batch_axis_].var.node().name, batch_);
    return substitute(operand, values);
}

ContractionBuilder::Finished ContractionBuilder::finished(const Expr& row, const Expr& column, const Expr& own) const {
    Bindings values{{out_.axes[column_axis_].var.node().name, column}, {out_.axes[row_axis_].var.node().name, row}};
    if (batch_axis_) values.insert_or_assign(out_.axes[*batch_axis_].var.node().name, batch_);
    Finished made;
    made.value = rewrite(substitute(out_.value, values),
                         [&](const Expr& x) { return x.is(ExprKind::Load) && x.node().slot == sum_.buffer ? own : x; });
    for (const Expr& e : out_.store) made.to.push_back(substitute(e, values));
    return made;
}

ContractionBuilder::Finished ContractionBuilder::finished_part(const Expr& row, const Expr& column,
                                                               const Expr& own) const {
    return parts_ > 1 ? Finished{{part_, row, column}, own} : finished(row, column, own);
}

int64_t choose_parts(const Machine& machine, const BlockTile& tile, int64_t batch, int64_t m, int64_t n,
                     int64_t steps) {
    if (batch > 1) return 1;
    const int64_t tiles = divide_up(m, tile.m) * divide_up(n, tile.n);
    const int64_t parts = std::min({kCutBlocks * machine.cores / tiles, steps * tile.k / kShortestCut, kMostCuts});
    if (parts <= 1) return 1;
    return divide_up(steps, divide_up(steps, parts));
}

bool ContractionBuilder::parts_are_even(int64_t depth) const {
    return divides(parts_, ceil_div(inner().extent, depth) * others_);
}

bool divides(int64_t part, const Expr& whole) { return mod(whole, part).is_int(0); }

}  // namespace tessera
