#include "kernel/from_graph/op_lowering.h"

#include <algorithm>
#include <array>

#include "kernel/written/write_kernel.h"

namespace tessera {
namespace {

bool takes_graphs(const OpDef& op) {
    return std::any_of(op.attrs.begin(), op.attrs.end(), [](const AttrDef& a) { return a.kind == AttrKind::Graph; });
}

struct Reason {
    std::string_view why;
    std::vector<std::string_view> ops;
};

const std::vector<Reason>& reasons() {
    static const std::vector<Reason> kAll = {
        {"sequences and optionals",
         {"concat_from_sequence", "optional", "optional_get_element", "optional_has_element", "sequence_at",
          "sequence_construct", "sequence_empty", "sequence_erase", "sequence_insert", "sequence_length",
          "split_to_sequence"}},
        {"strings", {"regex_full_match", "string_concat", "string_normalizer", "string_split"}},
        {"looks up keys, which may be strings", {"label_encoder", "tfidf_vectorizer"}},
        {"walks decision trees", {"tree_ensemble"}},
        {"decodes a file format", {"image_decoder"}},
        {"differentiates a graph that it names", {"gradient"}},
    };
    return kAll;
}

}  // namespace

OpLowering op_lowering(const OpDef& op) {
    if (kernel_writing(op)) return OpLowering::Written;
    if (op.body) return OpLowering::Body;
    return op.expand ? OpLowering::Expansion : OpLowering::Host;
}

std::string host_reason(const OpDef& op) {
    if (op.has(Trait::Random)) return "draws random numbers, one after the other";
    if (takes_graphs(op)) return "control flow: the graphs in it are compiled";
    for (const Reason& r : reasons())
        if (std::find(r.ops.begin(), r.ops.end(), op.name) != r.ops.end()) return std::string(r.why);
    return "has no body";
}

}  // namespace tessera
