#include <algorithm>
#include <numeric>
#include <set>

#include "graph/infer.h"
#include "graph/ops/conv_window.h"
#include "rewrite/edit.h"
#include "rewrite/passes/passes.h"

namespace tessera {
namespace {

// Ops whose attribute "axis" counts the dimensions of their first input.
const std::set<std::string> kAxisOfInput = {
    "arg_max",
    "arg_min",
    "concat",
    "gather",
    "gather_elements",
    "hardmax",
    "lp_normalization",
    "layer_normalization",
    "log_softmax",
    "rms_normalization",
    "scatter_elements",
    "softmax",
    "split",
    "top_k",
};
const std::set<std::string> kConvs = {"conv", "conv_integer", "qlinear_conv"};
const std::set<std::string> kPools = {"average_pool", "max_pool", "lp_pool"};

template <typename T>
const T* attr_of(const AttrMap& attrs, const char* name) {
    auto it = attrs.find(name);
    return it == attrs.end() ? nullptr : std::get_if<T>(&it->second);
}

// Pads that auto_pad works out from sizes that are known.
void write_pads(const Node& node, AttrMap& attrs) {
    const auto* mode = attr_of<std::string>(attrs, "auto_pad");
    const Shape* x = shape_of(node.input(0));
    const auto* ceil_mode = attr_of<int64_t>(attrs, "ceil_mode");
    if (!mode || *mode == "NOTSET" || !x || x->rank() < 3 || (ceil_mode && *ceil_mode)) return;
    bool conv = kConvs.contains(node.op().name);
    if (!conv && !kPools.contains(node.op().name)) return;
    std::vector<int64_t> pads;
    if (*mode != "VALID") {
        OpView view = node.view();
        const auto* kernel = attr_of<std::vector<int64_t>>(attrs, "kernel_shape");
        if (!conv && !kernel) return;
        auto window = conv ? weight_window(view, 0, node.op().name == "qlinear_conv" ? 3 : 1)
                           : conv_window(view, x->slice(2, x->rank()), Shape(*kernel));
        if (!window.ok()) return;
        for (bool end : {false, true})
            for (const WindowAxis& axis : window->axes) {
                auto n = (end ? axis.pad_end : axis.pad_begin).as_int();
                if (!n) return;
                pads.push_back(*n);
            }
    }
    attrs.erase("auto_pad");
    attrs.erase("pads");
    if (std::any_of(pads.begin(), pads.end(), [](int64_t n) { return n != 0; })) attrs["pads"] = pads;
}

// The default where the axis is the default's, otherwise counted from the front.
void write_axis(const Node& node, AttrMap& attrs) {
    const auto* given = attr_of<int64_t>(attrs, "axis");
    const Shape* x = shape_of(node.input(0));
    if (!given || !x || !kAxisOfInput.contains(node.op().name)) return;
    int64_t rank = x->rank(), axis = *given < 0 ? *given + rank : *given;
    const AttrDef* def = node.op().attr("axis");
    int64_t usual = def->fallback ? std::get<int64_t>(*def->fallback) : -1;
    if (def->fallback && (usual < 0 ? usual + rank : usual) == axis)
        attrs.erase("axis");
    else if (axis >= 0 && axis < rank)
        attrs["axis"] = axis;
}

void write_perm(const Node& node, AttrMap& attrs) {
    const Shape* x = shape_of(node.input(0));
    if (node.op().name != "transpose" || !x || attrs.contains("perm")) return;
    std::vector<int64_t> perm(size_t(x->rank()));
    std::iota(perm.rbegin(), perm.rend(), 0);
    attrs["perm"] = perm;
}

// Strides, dilations and pads that are what they are where nothing is said, and defaults that the op names itself.
void drop_defaults(const Node& node, AttrMap& attrs) {
    std::erase_if(attrs, [&](const auto& a) {
        const AttrDef* def = node.op().attr(a.first);
        return def && !def->is_required && def->fallback && *def->fallback == a.second;
    });
    if (!kConvs.contains(node.op().name) && !kPools.contains(node.op().name)) return;
    auto all = [&](const char* name, int64_t n) {
        const auto* list = attr_of<std::vector<int64_t>>(attrs, name);
        return list && std::all_of(list->begin(), list->end(), [&](int64_t v) { return v == n; });
    };
    for (const char* name : {"strides", "dilations"})
        if (all(name, 1)) attrs.erase(name);
    if (all("pads", 0)) attrs.erase("pads");
}

// The new attributes, unless inference finds that they mean something else.
Changed set_attrs(Node& node, AttrMap attrs, PassContext& context) {
    if (attrs == node.attrs()) return false;
    Rewriting rewriting(context, "rewrite attributes", {&node});
    std::swap(node.attrs(), attrs);
    auto types = infer_types(node.view());
    bool kept = types.ok() && types->size() >= node.output_count();
    for (size_t i = 0; kept && i < node.output_count(); ++i) {
        const Type &was = node.output(i)->type(), &is = (*types)[i];
        kept = was.kind() == is.kind() && (!was.is_tensor() || was.tensor().dtype == is.tensor().dtype);
    }
    if (!kept) {
        std::swap(node.attrs(), attrs);
        return false;
    }
    rewriting.done({&node});
    return true;
}

// Outside training, dropout gives what it takes.
Changed drop_dropout(Graph& graph, Node& node, PassContext& context) {
    if (node.op().name != "dropout" || (node.output_count() > 1 && !node.output(1)->uses().empty())) return false;
    const Value* training = node.input(2);
    if (training && !(training->is_constant() && training->tensor()->elements() == 1 && !training->tensor()->int_at(0)))
        return false;
    if (node.output()->uses().empty()) return false;
    Rewriting rewriting(context, "dropout outside training", {&node});
    graph.replace_uses(node.output(), node.input(0));
    rewriting.done({}, {{node.output()->name(), node.input(0)->name()}});
    return true;
}

}  // namespace

Result<Changed> canonicalise(Graph& graph, PassContext& context) {
    Changed changed = false, dropped = false;
    for (Graph* g : all_graphs(graph))
        for (const auto& node : g->nodes()) {
            dropped |= drop_dropout(*g, *node, context);
            AttrMap attrs = node->attrs();
            write_pads(*node, attrs);
            write_axis(*node, attrs);
            write_perm(*node, attrs);
            drop_defaults(*node, attrs);
            changed |= set_attrs(*node, std::move(attrs), context);
        }
    if (dropped) sweep(graph);
    return changed || dropped;
}

}  // namespace tessera
