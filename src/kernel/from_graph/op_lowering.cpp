#include "kernel/from_graph/op_lowering.h"

#include <algorithm>

#include "graph/tile_call.h"
#include "kernel/written/write_kernel.h"

namespace tessera {
namespace {

bool takes_graphs(const OpDef& op) {
    return std::any_of(op.attrs.begin(), op.attrs.end(), [](const AttrDef& a) { return a.kind == AttrKind::Graph; });
}

}  // namespace

OpLowering op_lowering(const OpDef& op) {
    if (kernel_writing(op) || op.tile) return OpLowering::Written;
    if (op.body) return OpLowering::Body;
    if (op.control) return OpLowering::Control;
    return op.expand ? OpLowering::Expansion : OpLowering::Host;
}

std::string host_reason(const OpDef& op) {
    if (op.has(Trait::Random)) return "draws random numbers, one after the other";
    if (takes_graphs(op)) return "control flow: the graphs in it are compiled";
    return op.no_kernel.empty() ? "has no body" : op.no_kernel;
}

}  // namespace tessera
