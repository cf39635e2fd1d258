#include "kernel/gpu/contraction_builder.h"

#include "kernel/gpu/gpu_loops.h"

namespace tessera {

ContractionBuilder::ContractionBuilder(const Compute& compute, const Stage& sum, const Stage& out, bool has_batch,
                                       size_t inner)
    : compute_(compute), sum_(sum), out_(out), inner_(inner) {
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
}

int ContractionBuilder::add(std::string name, DType dtype, const std::vector<int64_t>& sizes, Scope scope) {
    Buffer made{.name = std::move(name), .dtype = dtype, .shape = {}, .scope = scope};
    for (int64_t s : sizes) made.shape.push_back(s);
    kernel_.buffers.push_back(std::move(made));
    return int(kernel_.buffers.size()) - 1;
}

Kernel ContractionBuilder::in_blocks(Stmt body, const BlockTile& tile) {
    body = loop_over(block_m_, ceil_div(rows(), tile.m), LoopKind::Bound, std::move(body), "block.x");
    body = loop_over(block_n_, ceil_div(columns(), tile.n), LoopKind::Bound, std::move(body), "block.y");
    if (batch_axis_)
        body = loop_over(batch_, sum_.axes[*batch_axis_].extent, LoopKind::Bound, std::move(body), "block.z");
    kernel_.body = std::move(body);
    return std::move(kernel_);
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

bool divides(int64_t part, const Expr& whole) { return mod(whole, part).is_int(0); }

}  // namespace tessera
