#include <cmath>

#include "graph/builder.h"
#include "graph/ops/attention_tiles.h"
#include "rewrite/edit.h"
#include "rewrite/passes/lowering_passes.h"

namespace tessera {
namespace {

enum Input : size_t { kQuery, kKey, kValue, kMask, kResult = 7, kArrived };

bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

const std::vector<int64_t> kRowsBeforeHeads{0, 2, 1, 3};

// An operand as [batch, rows, heads, elements]. Attention takes that with heads before rows, or packed.
Value* by_rows(Builder& b, Value* v, int64_t heads) {
    if (v->type().tensor().shape.rank() == 3) return b.reshape(v, {0, 0, heads, -1});
    auto swaps = [](const Node* n) {
        return n && n->op().name == "transpose" && n->view().ints("perm") == kRowsBeforeHeads;
    };
    if (swaps(v->node())) return v->node()->input(0);
    for (const Use& use : v->uses())
        if (swaps(use.node)) return use.node->output();
    return b.transpose(v, kRowsBeforeHeads);
}

// The heads of queries, and of keys and values; nothing where they are not known, or the form is another.
struct Heads {
    int64_t queries, keys;
};
Result<Heads> suitable(const Node& node, const Machine& machine) {
    const OpView op = node.view();
    const auto unfit = [](std::string why) { return Error(Code::E0604, "{}", why); };
    if (!machine.blocks) return unfit("the target multiplies no tiles of 16 bits");
    const DType t = op.dtype(kQuery);
    if (!is_half(t) || op.dtype(kValue) != t) return unfit("operands are not of 16 bits");
    if (op.has_attr("softmax_precision") || op.real("softcap") > 0) return unfit("scores are not plain");
    if (op.integer("left_window_size") >= 0 || op.integer("right_window_size") >= 0) return unfit("a window");
    const bool packed = op.rank(kQuery) == 3;
    auto heads = [&](size_t input, const char* attr) {
        return packed ? std::optional(op.integer(attr)) : op.shape(input)[1].as_int();
    };
    const auto of_queries = heads(kQuery, "q_num_heads"), of_keys = heads(kKey, "kv_num_heads");
    const auto depth = op.shape(kQuery)[-1].as_int(), columns = op.shape(kValue)[-1].as_int();
    if (!of_queries || !of_keys || !depth || !columns) return unfit("the size of a head is not known");
    const int64_t width = packed ? *of_queries : 1, value_width = packed ? *of_keys : 1;
    if (*depth / width > kLongestTiledHead || *columns / value_width > kLongestTiledHead)
        return unfit("heads are too long");
    if (op.has(kMask)) {
        const DType m = op.dtype(kMask);
        if (m != DType::boolean && m != DType::f32 && !is_half(m)) return unfit("the mask's elements");
        if (!(op.shape(kMask)[-1] == op.shape(kKey)[packed ? 1 : 2])) return unfit("the mask covers some of the keys");
    }
    return Heads{*of_queries, *of_keys};
}

}  // namespace

Result<Changed> tile_attention(Graph& graph, const Machine& machine, PassContext& context) {
    Changed changed = false;
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
        Node& node = *graph.nodes()[i];
        if (node.op().name != "attention_gradient" || !any_used(node)) continue;
        const auto heads = suitable(node, machine);
        const std::string subject = fmt::format("gradients of {} as tile programs", node.input(kResult)->name());
        if (!heads.ok()) {
            context.choices.push_back({subject, no("{}", heads.error().message())});
            continue;
        }
        const OpView op = node.view();
        const size_t before = graph.nodes().size();
        Builder b(graph, node.where());
        const bool packed = op.rank(kQuery) == 3;
        const int64_t depth = *op.shape(kQuery)[-1].as_int() / (packed ? heads->queries : 1);
        const double scale = op.has_attr("scale") ? op.real("scale") : 1 / std::sqrt(double(depth));
        const auto made = attention_gradient_by_tiles(
            b, {by_rows(b, node.input(kQuery), heads->queries), by_rows(b, node.input(kKey), heads->keys),
                by_rows(b, node.input(kValue), heads->keys), op.has(kMask) ? node.input(kMask) : nullptr,
                by_rows(b, node.input(kResult), heads->queries), by_rows(b, node.input(kArrived), heads->queries),
                op.integer("is_causal") != 0, scale});
        std::vector<Value*> back;
        for (Value* v : made) back.push_back(packed ? b.reshape(v, {0, 0, -1}) : b.transpose(v, kRowsBeforeHeads));
        TRY(b.status());
        Rewriting rewriting(context, "tile", {&node});
        if (!put_made_in_place(node, back, context)) continue;
        note_origin(graph, node, before, context);
        Rewriting::Nodes nodes;
        for (size_t n = before; n < graph.nodes().size(); ++n) nodes.push_back(graph.nodes()[n].get());
        rewriting.done(nodes);
        graph.disconnect(node);
        context.choices.push_back({subject, yes("no scores are stored")});
        changed = true;
    }
    if (!changed) return false;
    graph.erase_unused();
    graph.sort_canonically();
    TRY(fold_what_was_made(graph, context));
    return changed;
}

}  // namespace tessera
