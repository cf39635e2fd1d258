// A convolution of single places commutes with a resize that copies places, and has fewer of them before it.
#include <algorithm>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/ops/common.h"
#include "graph/ops/for_kernels.h"

namespace tessera {
namespace {

// Of single places, one after the other.
bool is_pointwise(const OpView& op) {
    auto all = [&](const char* attr, int64_t n) {
        if (!op.has_attr(attr)) return true;
        const auto& values = op.ints(attr);
        return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == n; });
    };
    const Shape& w = op.shape(1);
    return std::all_of(w.begin() + 2, w.end(), [](const Dim& d) { return d.is_int(1); }) && all("strides", 1) &&
           all("pads", 0);
}

// Copies places of images, each at least once.
bool copies_places(const Node& node) {
    const OpView op = node.view();
    const std::vector<Value*>& in = node.inputs();
    if (op.string("mode") != "nearest" || op.string("coordinate_transformation_mode") == "tf_crop_and_resize")
        return false;
    if (op.has_attr("axes") && !op.ints("axes").empty()) return false;
    if (in.size() < 3 || (in.size() > 3 && in[3]) || !in[2] || !in[2]->is_constant() ||
        in[2]->tensor()->elements() != op.rank(0))
        return false;
    for (int64_t i = 0; i < op.rank(0); ++i) {
        const double scale = in[2]->tensor()->real_at(i);
        if (i < 2 ? scale != 1 : scale < 1) return false;
    }
    return true;
}

}  // namespace

Result<std::vector<Value*>> conv_before_resize(const OpView& op, const std::vector<Value*>& in, Builder& b) {
    const Node* resize = in[0]->node();
    if (!resize || resize->op().name != "resize" || in[0]->uses().size() > 1 || op.rank(1) < 3)
        return std::vector<Value*>{};
    if (!is_pointwise(op) || !copies_places(*resize)) return std::vector<Value*>{};
    std::vector<Value*> inputs = in;
    inputs[0] = resize->inputs()[0];
    std::vector<Value*> resized = resize->inputs();
    resized[0] = b.op("conv", inputs, op.attrs());
    return std::vector<Value*>{b.op("resize", resized, resize->attrs())};
}

}  // namespace tessera
