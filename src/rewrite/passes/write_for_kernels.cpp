#include "graph/builder.h"
#include "graph/ops/for_kernels.h"
#include "rewrite/edit.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera {
namespace {

// Whether the node's outputs come from another graph now, and if not, why.
Decision write(Graph& graph, Node& node, ForKernels form, PassContext& context) {
    const size_t before = graph.nodes().size();
    Builder b(graph, node.where());
    auto made = form(node.view(), node.inputs(), b);
    if (!made.ok()) return no("{}", made.error().message());
    if (made->empty()) return no("its body is as good");
    if (Status status = b.status(); !status.ok()) return no("{}", status.error().message());
    Rewriting rewriting(context, "for kernels", {&node});
    if (!put_made_in_place(node, *made, context)) return no("what reads it does not agree");
    note_origin(graph, node, before, context);
    Rewriting::Nodes nodes;
    for (size_t i = before; i < graph.nodes().size(); ++i) nodes.push_back(graph.nodes()[i].get());
    std::string ops;
    for (const Node* n : nodes) ops += (ops.empty() ? "" : ", ") + n->op().name;
    rewriting.done(nodes);
    graph.disconnect(node);
    return yes("as {}", ops);
}

Result<Changed> write_all(Graph& graph, ForKernels (*form_of)(const OpDef&), PassContext& context) {
    Changed changed = false;
    const size_t count = graph.nodes().size();
    for (size_t i = 0; i < count; ++i) {
        Node& node = *graph.nodes()[i];
        const ForKernels form = form_of(node.op());
        if (!form || !any_used(node)) continue;
        const std::string name = node.output()->name();
        Decision decision = write(graph, node, form, context);
        changed |= bool(decision);
        if (form_of == before_resize && !decision) continue;  // of nearly all that are asked
        context.choices.push_back({fmt::format("{} for {}", node.op().name, name), std::move(decision)});
    }
    if (graph.nodes().size() != count) {
        graph.erase_unused();
        graph.sort_canonically();  // whatever the order in which C++ evaluated the operands
    }
    return changed;
}

}  // namespace

Result<Changed> write_for_kernels(Graph& graph, const Machine& machine, PassContext& context) {
    Changed changed = TRY(write_all(graph, before_resize, context));
    changed |= TRY(write_all(graph, machine.blocks ? for_blocks : for_kernels, context));
    if (changed) TRY(fold_what_was_made(graph, context));
    return changed;
}

Result<Changed> multiply_bytes(Graph& graph, const Machine& machine, PassContext& context) {
    Changed changed = false;
    if (machine.multiplies_bytes() || machine.blocks) changed = TRY(write_all(graph, by_bytes, context));
    context.fold_bytes = true;
    context.fold_byte_floats = !machine.has("wgmma") || context.precision == Precision::Strict;
    TRY(fold_what_was_made(graph, context));
    return changed;
}

}  // namespace tessera
