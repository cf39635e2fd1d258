#include "rewrite/rules/windows_fit.h"

#include <algorithm>

#include "graph/ops/conv_window.h"

namespace tessera {
namespace {

// Inference accepts the window if the input is empty or `room` is at least 0.
struct Need {
    Expr input, room;
};

std::vector<Need> needs_of(const Node& node) {
    const OpDef& op = node.op();
    const bool pools = op.attr("ceil_mode") != nullptr;
    if (!pools && (!op.attr("group") || op.attr("output_padding"))) return {};
    const OpView view = node.view();
    if (!view.type(0).is_tensor() || !view.shape(0).ranked()) return {};
    size_t weight = 0;
    if (!pools) {
        auto is_weight = [](const ParamDef& p) { return p.name == "w"; };
        auto w = std::find_if(op.inputs.begin(), op.inputs.end(), is_weight);
        if (w == op.inputs.end()) return {};
        weight = static_cast<size_t>(w - op.inputs.begin());
    }
    if (pools && !view.has_attr("kernel_shape")) return {};
    Result<ConvWindow> window =
        pools ? conv_window(view, view.shape(0).slice(2, view.rank(0)), Shape(view.ints("kernel_shape")))
              : weight_window(view, 0, weight);
    if (!window.ok()) return {};
    std::vector<Need> needs;
    for (const WindowAxis& axis : window->axes)
        needs.push_back({axis.input, axis.last() + (pools ? 2 * axis.stride - 1 : Expr(0))});
    return needs;
}

bool not_negative(const Expr& e) { return bounds(e).low.value_or(-1) >= 0; }

}  // namespace

bool windows_fit(const std::vector<Node*>& made, const std::vector<Node*>& replaced) {
    std::vector<Need> had;
    for (const Node* node : replaced)
        for (Need& need : needs_of(*node)) had.push_back(std::move(need));
    for (const Node* node : made)
        for (const Need& need : needs_of(*node)) {
            if (need.room.as_int() || not_negative(need.room) || not_negative(need.room - need.input + 1)) continue;
            // Where the other window is accepted, this one is.
            auto implies = [&](const Need& other) {
                return not_negative(need.room - other.room) && not_negative(other.input - need.input);
            };
            if (std::none_of(had.begin(), had.end(), implies)) return false;
        }
    return true;
}

}  // namespace tessera
